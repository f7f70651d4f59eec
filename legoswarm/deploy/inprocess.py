"""Drones without cflib and without waiting: the Crazyflies of `sitl` in this process, on a clock of their own.

Dry runs and statistics over many flights use them. They have the same bodies, commander, battery and faults as behind
the UDP endpoint, but no threads and no sockets, and a minute passes as fast as it can be computed.
"""

from __future__ import annotations

import collections
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from legoswarm.deploy.link import DroneState, Link, LinkError
from legoswarm.deploy.sitl import crtp
from legoswarm.deploy.sitl.drone import PARAMETERS, SimulatedDrone, move_on, report_all
from legoswarm.deploy.sitl.plants import Plant


class World:
    """Simulated drones and their clock, which moves on when somebody sleeps."""

    def __init__(self, names: Sequence[str], plant: Plant, *, tick: float = 0.02, seed: int = 0):
        self.plant = plant
        self.drones = [SimulatedDrone(place, seed=seed + at) for at, place in enumerate(plant.position)]
        self.links = [
            InProcessLink(name, drone, self, seed + at)
            for at, (name, drone) in enumerate(zip(names, self.drones, strict=True))
        ]
        self._tick, self._ticks = tick, 0

    def now(self) -> float:
        """Return the seconds since the world began."""
        return self._ticks * self._tick

    def sleep_until(self, time: float) -> None:
        """Let the world move on until that time."""
        while self.now() < time - 1e-9:
            self._ticks += 1
            move_on(self.drones, self.plant, self.now(), self._tick)
            for link in self.links:
                link.listen()

    def report(self) -> list[dict[str, Any]]:
        """Report for each drone what it saw and where it truly is."""
        return report_all(self.drones, self.plant, self.now())


class InProcessLink(Link):
    """The link to one simulated drone; packets reach it at once, or as late as its faults say. It is never lost."""

    def __init__(self, name: str, drone: SimulatedDrone, world: World, seed: int):
        self.name = name
        self.drone = drone
        self._world = world
        self._random = np.random.default_rng(seed)
        self._states: collections.deque[DroneState] = collections.deque()
        self._is_open = False

    def listen(self) -> None:
        """Receive the state that the drone reports now."""
        faults, estimate = self.drone.faults, self.drone.estimate
        if not self._is_open or faults.mute:
            return
        position = estimate.position + faults.noise * self._random.standard_normal(3)
        arrival = self._world.now() + faults.latency
        state = DroneState(arrival, position, estimate.velocity, estimate.yaw, self.drone.battery, self.drone.health)
        self._states.append(state)
        while len(self._states) > 1 and self._states[1].received <= self._world.now() + 1e-9:
            self._states.popleft()

    def open(self, timeout: float) -> None:
        """Wait for the first state; raise LinkError if that takes longer than `timeout` seconds."""
        self._is_open = True
        deadline = self._world.now() + timeout
        while self.state() is None:
            if self._world.now() >= deadline or self.drone.faults.hang:
                raise LinkError(f"{self.name} cannot be reached: it was not connected within {timeout:g} s")
            self._world.sleep_until(self._world.now() + 0.02)

    def state(self) -> DroneState | None:
        """Return the newest state that has arrived, or None before the first."""
        if not self._states or self._states[0].received > self._world.now() + 1e-9:
            return None
        return self._states[0]

    def parameter(self, name: str) -> str:
        """Return a parameter of the drone."""
        if name not in self.drone.parameters.values:
            raise LinkError(f"{self.name} has no parameter {name}")
        return str(self.drone.parameters.values[name])

    def set_pose(self, x: float, y: float, z: float, yaw: float, timeout: float) -> None:
        """Start the estimator again at this pose."""
        for name, value in (("initialX", x), ("initialY", y), ("initialZ", z), ("initialYaw", yaw)):
            self._write(f"kalman.{name}", value)
        self._write("kalman.resetEstimation", 1)
        self._world.sleep_until(self._world.now() + min(0.5, timeout))
        self._write("kalman.resetEstimation", 0)

    def take_off(self, height: float, seconds: float) -> None:
        """Rise to `height` by the drone's own commander."""
        self._may_fall = False
        self._send(8, 0, struct.pack("<BBff?f", 7, 0, height, 0.0, True, seconds))

    def motors_off(self) -> None:
        """Stop this drone's motors now, wherever it is."""
        self._may_fall = True
        self._send(7, 0, b"\0")

    def _land(self, seconds: float) -> None:
        self._sent = math.inf
        self._send(7, 1, struct.pack("<BI", 0, 0))
        self._send(8, 0, struct.pack("<BBff?f", 8, 0, 0.0, 0.0, True, seconds))

    def _hover(self, vx: float, vy: float, height: float) -> None:
        self._note_sent(self._world.now())
        self._send(7, 0, struct.pack("<Bffff", 10, *self._in_own_frame(vx, vy), 0.0, height))

    def _let_go(self) -> None:
        self._is_open = False

    def _send(self, port: int, channel: int, data: bytes) -> None:
        self.drone.receive(crtp.packet(port, channel, data), self._world.now())

    def _write(self, name: str, value: float | int) -> None:
        names = [entry for entry, _ in PARAMETERS.entries]
        kind = crtp.PARAMETER_FORMATS[PARAMETERS.entries[names.index(name)][1]]
        self._send(2, 2, struct.pack("<H" + kind, names.index(name), value))
