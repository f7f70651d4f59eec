"""Checks before drones take off; each refusal is one sentence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from legoswarm.deploy.link import Health
from legoswarm.deploy.plan import Drone, MissionError, Plan
from legoswarm.deploy.safety import Obstacles, Rules
from legoswarm.deploy.trust import Limits

REQUIRED_PARAMETERS = {
    "stabilizer.controller": ("1", "the PID controller; others do not follow velocities"),
    "stabilizer.estimator": ("2", "the Kalman filter"),
}
FLOW = {"bcFlow", "bcFlow2"}
ABSOLUTE = {"bcLighthouse4", "bcDWM1000", "bcLoco"}
BROKEN = Health.TUMBLED | Health.LOCKED | Health.CRASHED


def prepare_drone(drone: Drone, plan: Plan) -> None:
    """Set the parameters that the drone's file asks for, and arm a drone that does not arm itself."""
    for name, value in drone.parameters.items():
        drone.link.set_parameter(name, value)
    state = drone.link.state()
    if state is not None and Health.CAN_BE_ARMED in state.health and Health.ARMED not in state.health:
        drone.link.arm()
        drone.link.wait(lambda: (now := drone.link.state()) is not None and Health.ARMED in now.health, 2.0)


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


def check_decks(drone: Drone, plan: Plan, captured: bool) -> list[str]:
    """Refuse a drone that has nothing to know its position by; return the names of its decks."""
    decks = drone.link.decks()
    needed = FLOW if plan.poses == "given" else ABSOLUTE
    if not captured and not needed & set(decks):
        raise MissionError(
            f"{drone.name} needs a deck to know its position by with --poses {plan.poses}:"
            f" {' or '.join(sorted(needed))}; it has {', '.join(decks) or 'none'}"
        )
    return decks


def check_link(drone: Drone, limits: Limits) -> None:
    """Refuse a drone whose link is too slow."""
    trip = drone.link.quality().latency
    if trip is not None and trip > limits.round_trip:
        raise MissionError(f"a round trip to {drone.name} takes {trip:.2f} s, more than {limits.round_trip:g} s")


def check_at_start(drones: Sequence[Drone], position: Float[np.ndarray, "drones 3"], near: float) -> None:
    """Refuse drones that are not where they should stand."""
    for drone, place in zip(drones, position, strict=True):
        away = float(np.linalg.norm(place - drone.start))
        if not away <= near:
            raise MissionError(f"{drone.name} is {away:.2f} m away from where it should stand")


def check_places(
    names: Sequence[str], position: Float[np.ndarray, "drones 3"], rules: Rules, obstacles: Obstacles
) -> None:
    """Refuse places from which the safety rules cannot be kept."""
    for at, name in enumerate(names):
        place = position[at, :2]
        if not (np.abs(place) <= rules.soft_fence).all():
            raise MissionError(f"{name} stands outside the fence, which is {rules.soft_fence:g} m from the centre")
        if not -0.5 <= position[at, 2] <= rules.floor + 0.3:
            raise MissionError(f"{name} stands at a height of {position[at, 2]:g} m, not on the ground")
        if (np.linalg.norm(obstacles.centre - place, axis=-1) - obstacles.radius < rules.clearance).any():
            raise MissionError(f"{name} stands closer than {rules.clearance:g} m to an obstacle")
        for other in range(at):
            if np.linalg.norm(place - position[other, :2]) < rules.separation:
                raise MissionError(f"{name} stands closer than {rules.separation:g} m to {names[other]}")
