"""Simulated bodies: what the firmware's velocity loop moves."""

from __future__ import annotations

import enum
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

GRAVITY = 9.81
Vectors: TypeAlias = Float[np.ndarray, "*drones 3"]
Numbers: TypeAlias = Float[np.ndarray, "*drones"]
Modes: TypeAlias = Int[np.ndarray, "*drones"]


class Mode(enum.IntEnum):
    """What the firmware lets a body do."""

    OFF = 0  # motors stand still
    LEVEL = 1  # level: the vertical velocity is held, the horizontal one is left to itself
    FLY = 2  # the velocity is held


@runtime_checkable
class Plant(Protocol):
    """All bodies of a world; arrays of drones, or of worlds of drones."""

    position: Vectors  # m
    velocity: Vectors  # m/s
    yaw: Numbers  # rad, counter-clockwise

    def step(self, velocity: Vectors, yaw_rate: Numbers, mode: Modes, seconds: float) -> None:
        """Move the bodies on for some milliseconds towards these velocities of the world frame."""
        ...


class PointMass:
    """A point that takes on the velocity it is told with a first-order lag and a limited acceleration.

    dv/dt = (u - v) / lag, of length at most `acceleration`. The defaults are those of a Crazyflie's velocity loop: 25
    degrees for each m/s make 4.3 m/s^2 for each m/s, up to a tilt of 20 degrees.
    """

    def __init__(self, position: Vectors, *, lag: float = 0.25, acceleration: float = 3.5, drag: float = 0.3):
        if lag <= 0 or acceleration <= 0 or drag < 0:
            raise ValueError("a point mass needs a positive lag, a positive acceleration and no negative drag")
        self.position = np.array(position, float)
        self.velocity = np.zeros_like(self.position)
        self.yaw = np.zeros(self.position.shape[:-1])
        self.lag, self.acceleration, self.drag = lag, acceleration, drag

    def step(self, velocity: Vectors, yaw_rate: Numbers, mode: Modes, seconds: float) -> None:
        """Move the bodies on; one that reaches the ground stands."""
        wanted = (velocity - self.velocity) * (-np.expm1(-seconds / self.lag) / seconds)
        length = np.linalg.norm(wanted, axis=-1, keepdims=True)
        held = wanted * np.minimum(1, self.acceleration / np.maximum(length, 1e-9))
        free = -self.drag * self.velocity
        level = np.concatenate([free[..., :2], held[..., 2:]], -1)
        falling = free - [0, 0, GRAVITY]
        mode = mode[..., None]
        self.velocity = self.velocity + seconds * np.where(
            mode == Mode.FLY, held, np.where(mode == Mode.LEVEL, level, falling)
        )
        self.position = self.position + seconds * self.velocity
        self.yaw = self.yaw + seconds * yaw_rate * (mode[..., 0] != Mode.OFF)
        stands = (self.position[..., 2:] <= 0) & (self.velocity[..., 2:] <= 0)
        self.position[..., 2] = np.maximum(self.position[..., 2], 0)
        self.velocity = np.where(stands, 0, self.velocity)
