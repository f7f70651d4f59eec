"""Drones to fly with: those of a crazyflies.yaml, or simulated ones in front of cflib or without it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.deploy.cflib_link import CflibLink
from legoswarm.deploy.crazyflies import read_crazyflies
from legoswarm.deploy.inprocess import World
from legoswarm.deploy.plan import Clock, Drone, WallClock
from legoswarm.deploy.safety import Plane
from legoswarm.deploy.sitl.dongle import radio
from legoswarm.deploy.sitl.endpoint import Endpoint, make_plant
from legoswarm.deploy.sitl.process import EndpointProcess
from legoswarm.files import FileError


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Drones that are ready to be connected to."""

    drones: list[Drone]
    clock: Clock
    report: Callable[[], list[dict[str, Any]]] | None = None  # what simulated drones saw


@dataclasses.dataclass(frozen=True)
class Simulation:
    """The kind of simulation: bodies, and how they are reached.

    Drones are simulated in this process without waiting (`dry`), or behind cflib in real time: over UDP, or over
    cflib's own radio driver with a dongle that loses the share `radio` of packets each way.
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
def simulated_fleet(simulation: Simulation, roles: Sequence[str], start: Plane, seed: int) -> Iterator[Fleet]:
    """Start simulated drones that stand at some places, and end them afterwards."""
    places = [(x, y, 0.0) for x, y in start.tolist()]
    names = [f"cf{at + 1}" for at in range(len(places))]
    with contextlib.ExitStack() as running:
        if simulation.dry:
            tick = 0.01 if simulation.plant == "crazyflow" else 0.02
            clock = drones = World(names, make_plant(simulation.plant, np.array(places)), tick=tick, seed=seed)
            links = drones.links
        else:
            if simulation.radio is None:
                drones = running.enter_context(EndpointProcess(places, plant=simulation.plant, seed=seed))
                uris = drones.uris
            else:
                drones = running.enter_context(Endpoint(places, plant=simulation.plant, seed=seed))
                uris = running.enter_context(radio(drones, simulation.radio, seed))
            clock = WallClock()
            links = [CflibLink(*each) for each in zip(names, uris, strict=True)]
        yield Fleet([Drone(*each) for each in zip(links, roles, places, strict=True)], clock, drones.report)


def real_fleet(path: str | Path, roles: Sequence[str]) -> Fleet:
    """Return the drones of a crazyflies.yaml, with roles in the order of the file."""
    robots = read_crazyflies(path)
    if len(robots) != len(roles):
        wanted = " and ".join(f"{roles.count(role)} {role}s" for role in dict.fromkeys(roles))
        raise FileError(f"{path} has {len(robots)} robots that are enabled, but this needs {wanted}")
    drones = [
        Drone(CflibLink(robot.name, robot.uri), role, robot.initial_position, robot.voltage_warning)
        for robot, role in zip(robots, roles, strict=True)
    ]
    return Fleet(drones, WallClock())
