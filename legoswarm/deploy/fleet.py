"""Drones to fly with: those of a crazyflies.yaml, or simulated ones in front of cflib or without it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.deploy.crazyflies import read_crazyflies
from legoswarm.deploy.guard_process import fly_guarded
from legoswarm.deploy.inprocess import World
from legoswarm.deploy.mission import Mission, fly_mission
from legoswarm.deploy.plan import Drone, Outcome, Robot
from legoswarm.deploy.safety import Plane
from legoswarm.deploy.setting import Setting
from legoswarm.deploy.sitl.dongle import ADDRESS
from legoswarm.deploy.sitl.drone import Airspace
from legoswarm.deploy.sitl.endpoint import make_plant
from legoswarm.deploy.sitl.process import EndpointProcess
from legoswarm.files import FileError


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Drones that are ready to be connected to."""

    names: list[str]
    fly: Callable[..., Outcome]  # a mission; takes log, say and about
    report: Callable[[], list[dict[str, Any]]] | None = None  # what simulated drones saw


@dataclasses.dataclass(frozen=True)
class Simulation:
    """The kind of simulation: bodies, and how they are reached.

    Drones are simulated in this process without waiting (`dry`), or behind cflib in real time: over UDP, or over
    cflib's own radio driver with a dongle that loses the share `radio` of packets each way. In real time they live in a
    process of their own, which writes where they truly are into `track`, and outlives a flight that is killed.
    """

    plant: str = "point"
    dry: bool = False
    radio: float | None = None

    def __post_init__(self) -> None:
        if self.radio is not None and not 0 <= self.radio < 1:
            raise ValueError(f"the share of packets that the radio loses lies between 0 and 1, not at {self.radio:g}")
        if self.radio is not None and self.dry:
            raise ValueError("a dry run has no radio")


@contextlib.contextmanager
def simulated_fleet(
    simulation: Simulation, setting: Setting, start: Plane, seed: int, track: Path | None = None, **how: Any
) -> Iterator[Fleet]:
    """Start simulated drones that stand at some places, and end them afterwards."""
    places = [(x, y, 0.0) for x, y in start.tolist()]
    names = [f"cf{at + 1}" for at in range(len(places))]
    if simulation.dry:
        tick = 0.01 if simulation.plant == "crazyflow" else 0.02
        airspace = Airspace(setting.centres, setting.obstacle_radius)
        plant = make_plant(simulation.plant, np.array(places))
        world = World(names, plant, tick=tick, seed=seed, airspace=airspace)
        drones = [Drone(*each) for each in zip(world.links, setting.roles, places, strict=True)]

        def fly(mission: Mission, **more: Any) -> Outcome:
            return fly_mission(drones, mission, clock=world, **more)

        yield Fleet(names, fly, world.report)
        return
    options = {"plant": simulation.plant, "seed": seed, "loss": simulation.radio or 0.0, "track": track}
    with EndpointProcess(places, obstacles=setting.centres, **options) as world:
        uris = world.uris if simulation.radio is None else [ADDRESS.format(at) for at in range(len(places))]
        robots = [Robot(*each) for each in zip(names, uris, setting.roles, places, strict=True)]
        air = None if simulation.radio is None else world.air
        try:
            yield Fleet(names, _guarded(robots, setting, air=air, **how), world.report)
        finally:
            with contextlib.suppress(ValueError):  # a world that has ended
                world.settle()


def real_fleet(path: str | Path, setting: Setting, **how: Any) -> Fleet:
    """Return the drones of a crazyflies.yaml, with roles in the order of the file."""
    found, roles = read_crazyflies(path, captured=how.get("source") is not None), setting.roles
    if len(found) != len(roles):
        wanted = " and ".join(f"{roles.count(role)} {role}s" for role in dict.fromkeys(roles))
        raise FileError(f"{path} has {len(found)} robots that are enabled, but this needs {wanted}")
    robots = [
        Robot(
            one.name, one.uri, role, one.initial_position, one.voltage_warning, one.voltage_critical,
            parameters=one.parameters,
        )
        for one, role in zip(found, roles, strict=True)
    ]  # fmt: skip
    return Fleet([robot.name for robot in robots], _guarded(robots, setting, **how))


def _guarded(robots: Sequence[Robot], setting: Setting, **how: Any) -> Callable[..., Outcome]:
    """Return a function that flies a mission by a guard in a process of its own."""

    def fly(mission: Mission, *, about: dict[str, Any] | None = None, **more: Any) -> Outcome:
        parts = {"obstacles": setting.obstacles, "limits": setting.limits, "about": {**mission.about, **(about or {})}}
        return fly_guarded(robots, mission, setting.rules, setting.plan, **parts, **how, **more)

    return fly
