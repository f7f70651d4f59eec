"""Checks before drones take off; each refusal is one sentence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from legoswarm.deploy.link import Health
from legoswarm.deploy.plan import Drone, MissionError, Plan
from legoswarm.deploy.setting import Setting

REQUIRED_PARAMETERS = {
    "stabilizer.controller": ("1", "the PID controller; others do not follow velocities"),
    "stabilizer.estimator": ("2", "the Kalman filter"),
}
BROKEN = Health.TUMBLED | Health.LOCKED | Health.CRASHED


def check_drone(drone: Drone, plan: Plan) -> None:
    """Refuse a drone that is not fit to fly."""
    for name, (value, why) in REQUIRED_PARAMETERS.items():
        if (found := drone.link.parameter(name)) != value:
            raise MissionError(f"{drone.name} has {name} {found}, but this needs {value}: {why}")
    state = drone.link.state()
    if state is None:
        raise MissionError(f"{drone.name} does not say how it is")
    if state.health & BROKEN or Health.CAN_FLY not in state.health:
        raise MissionError(f"{drone.name} says that it cannot fly ({state.health.name}): restart it")
    full = plan.battery_full if drone.full is None else drone.full
    if not state.battery >= full:
        raise MissionError(f"the battery of {drone.name} has {state.battery:.2f} V, {full:g} V are needed")


def check_at_start(drones: Sequence[Drone], position: Float[np.ndarray, "drones 3"], near: float) -> None:
    """Refuse drones that are not where they should stand."""
    for drone, place in zip(drones, position, strict=True):
        away = float(np.linalg.norm(place - drone.start))
        if not away <= near:
            raise MissionError(f"{drone.name} is {away:.2f} m away from where it should stand")


def check_places(names: Sequence[str], position: Float[np.ndarray, "drones 3"], setting: Setting) -> None:
    """Refuse places from which the safety rules cannot be kept."""
    rules, obstacles = setting.rules, setting.obstacles
    for at, name in enumerate(names):
        place = position[at, :2]
        if not (np.abs(place) <= rules.soft_fence).all():
            raise MissionError(f"{name} stands outside the fence, which is {rules.soft_fence:g} m from the centre")
        if (np.linalg.norm(obstacles.centre - place, axis=-1) - obstacles.radius < rules.clearance).any():
            raise MissionError(f"{name} stands closer than {rules.clearance:g} m to an obstacle")
        for other in range(at):
            if np.linalg.norm(place - position[other, :2]) < rules.separation:
                raise MissionError(f"{name} stands closer than {rules.separation:g} m to {names[other]}")
