"""Crazyflow's quadrotors (extra `sim`) below the firmware's velocity loop. Crazyflow needs JAX."""

from __future__ import annotations

import functools
import math
import os
import sys
import warnings
from typing import Any

import numpy as np

from legoswarm.deploy.sitl.plants import GRAVITY, Mode, Modes, Numbers, Vectors

FREQUENCY = 500  # Hz, of the simulated attitude loop and motors
# The firmware's velocity loop (platform_defaults_cf2.h), in SI units; 65535 of its thrust units are 4 x 0.12 N.
TILT_GAIN, TILT_INTEGRAL, TILT_LIMIT = map(math.radians, (25, 1, 20))  # rad for each m/s, rad for each m, rad
THRUST_UNIT = 4 * 0.12 / 65535
LIFT_GAIN, LIFT_INTEGRAL = 25 * 1000 * THRUST_UNIT, 15 * 1000 * THRUST_UNIT  # N for each m/s, N for each m
THRUST = (0.06, 0.46)  # N


class Crazyflow:
    """Crazyflie 2.1+ quadrotors with motors, inertia and drag; not modelled: downwash, ground effect, battery.

    Position may be an array of drones, or of worlds of drones. All is compiled before the constructor returns, for
    steps of `seconds`, and only once for each number of drones.
    """

    def __init__(self, position: Vectors, seconds: float = 0.01):
        self._shape = position.shape[:-1]
        self._initial, self._step = _build(math.prod(self._shape[:-1]), self._shape[-1])
        self._reset(position)
        for _ in range(3):  # each kind of input is compiled once
            self.step(np.zeros((*self._shape, 3)), np.zeros(self._shape), np.zeros(self._shape, int), seconds)
        self._reset(position)

    def step(self, velocity: Vectors, yaw_rate: Numbers, mode: Modes, seconds: float) -> None:
        """Move the bodies on; `seconds` is a multiple of 2 ms."""
        steps = round(seconds * FREQUENCY)
        if steps < 1 or abs(steps / FREQUENCY - seconds) > 1e-6:
            raise ValueError(f"Crazyflow moves on by multiples of {1000 / FREQUENCY:g} ms, not {1000 * seconds:g} ms")
        worlds = self._state[0].states.pos.shape[:2]
        self._state, seen = self._step(
            *self._state,
            np.asarray(velocity, np.float32).reshape(*worlds, 3),
            np.asarray(yaw_rate, np.float32).reshape(worlds),
            np.asarray(mode, np.int32).reshape(worlds),
            steps=steps,
        )
        self._see(seen)

    def _reset(self, position: Vectors) -> None:
        """Put the bodies down at these places, at rest."""
        places = np.array(position, np.float32).reshape(-1, *position.shape[-2:])
        states = self._initial.states.replace(pos=places)
        zeros = np.zeros(places.shape, np.float32)
        self._state = (self._initial.replace(states=states), zeros, zeros[..., 0])
        self._see((places, zeros, zeros[..., 0]))

    def _see(self, seen: tuple[Any, Any, Any]) -> None:
        arrays = (np.asarray(values, float) for values in seen)
        self.position, self.velocity, self.yaw = (each.reshape(*self._shape, *each.shape[2:]) for each in arrays)


@functools.cache
def _build(worlds: int, drones: int) -> tuple[Any, Any]:
    """Return the first state of Crazyflow's simulation and one compiled step of it below the velocity loop."""
    if "scipy" in sys.modules and os.environ.get("SCIPY_ARRAY_API") != "1":
        raise ValueError("Crazyflow must be imported before SciPy: set SCIPY_ARRAY_API=1, or start it in a new process")
    try:
        import jax
        import jax.numpy as jnp
        from crazyflow import Control, Drone, Dynamics, Sim
    except ImportError:
        raise ValueError("Crazyflow is not here: pip install 'legoswarm[sim]'") from None

    with warnings.catch_warnings(action="ignore", category=UserWarning):  # MuJoCo's, about how the model is built
        sim = Sim(
            n_worlds=worlds,
            n_drones=drones,
            drone=Drone.cf2x_P250,
            dynamics=Dynamics.first_principles,
            control=Control.attitude,
            freq=FREQUENCY,
            attitude_freq=FREQUENCY,
        )
    weight = float(np.squeeze(sim.data.params.mass)) * GRAVITY

    def look(data: Any) -> tuple[Any, Any, Any]:
        x, y, z, w = jnp.moveaxis(data.states.quat, -1, 0)
        return data.states.pos, data.states.vel, jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y**2 + z**2))

    def step(
        data: Any, integral: Any, heading: Any, velocity: Any, yaw_rate: Any, mode: Any, *, steps: int
    ) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
        seconds = steps / FREQUENCY
        before = data.states
        flies, off = (mode == Mode.FLY)[..., None], (mode == Mode.OFF)[..., None]
        error = velocity - before.vel
        integral = jnp.where(off, 0, jnp.clip(integral + seconds * error, -1, 1))
        heading = jnp.where(off[..., 0], look(data)[2], heading + seconds * yaw_rate)

        tilt = jnp.where(flies[..., 0, None], TILT_GAIN * error[..., :2] + TILT_INTEGRAL * integral[..., :2], 0)
        cos, sin = jnp.cos(look(data)[2]), jnp.sin(look(data)[2])
        forward = cos * tilt[..., 0] + sin * tilt[..., 1]
        left = cos * tilt[..., 1] - sin * tilt[..., 0]
        thrust = weight + LIFT_GAIN * error[..., 2] + LIFT_INTEGRAL * integral[..., 2]
        roll, pitch = (jnp.clip(angle, -TILT_LIMIT, TILT_LIMIT) for angle in (-left, forward))
        command = jnp.stack([roll, pitch, heading, jnp.clip(thrust, *THRUST)], -1)
        attitude = data.controls.attitude.replace(staged_cmd=command)
        data = sim._step(data.replace(controls=data.controls.replace(attitude=attitude)), n_steps=steps)

        # Crazyflow's motors never stand still: without them a body falls, and stands on the ground.
        after = data.states
        falling = before.vel - jnp.array([0, 0, GRAVITY * seconds])
        fallen = before.pos + seconds * falling
        falling = jnp.where(fallen[..., 2:] <= 0, 0, falling)
        states = after.replace(
            pos=jnp.where(off, fallen, after.pos).at[..., 2].max(0),
            vel=jnp.where(off, falling, after.vel),
            quat=jnp.where(off, before.quat, after.quat),
            ang_vel=jnp.where(off, 0, after.ang_vel),
            rotor_vel=jnp.where(off, 0, after.rotor_vel),
        )
        data = data.replace(states=states)
        return (data, integral, heading), look(data)

    return sim.data, jax.jit(step, static_argnames="steps")
