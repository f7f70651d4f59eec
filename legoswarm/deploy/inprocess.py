"""Drones without cflib and without waiting: the Crazyflies of `sitl` in this process, on a clock of their own.

Dry runs, the table of faults and statistics over many flights use them. They speak the same packets as behind the UDP
endpoint, with the same bodies, queues and faults, but there are no threads and no sockets, and a minute passes as fast
as it can be computed.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from legoswarm.deploy.link import (
    STATE_PERIOD,
    STATE_VARIABLES,
    VARIANCE_PERIOD,
    VARIANCE_SECONDS,
    VARIANCES,
    DroneState,
    Echoes,
    Link,
    LinkError,
    Pose,
    Quality,
    Stamps,
)
from legoswarm.deploy.sitl import crtp
from legoswarm.deploy.sitl.drone import LOG, PARAMETERS, Airspace, SimulatedDrone, move_on, report_all
from legoswarm.deploy.sitl.plants import Plant

KINDS = {"float": 7, "FP16": 8, "uint16_t": 2}  # on the wire
BLOCKS = ((STATE_VARIABLES, STATE_PERIOD), (VARIANCES, VARIANCE_PERIOD))


class World:
    """Simulated drones and their clock, which moves on when somebody sleeps."""

    def __init__(
        self,
        names: Sequence[str],
        plant: Plant,
        *,
        tick: float = 0.02,
        seed: int = 0,
        airspace: Airspace | None = None,
    ):
        self.plant, self.airspace = plant, airspace
        self.drones = [SimulatedDrone(place, seed=seed + at) for at, place in enumerate(plant.position)]
        self.links = [InProcessLink(name, drone, self) for name, drone in zip(names, self.drones, strict=True)]
        self._tick, self._ticks = tick, 0

    def now(self) -> float:
        """Return the seconds since the world began."""
        return self._ticks * self._tick

    def sleep_until(self, time: float) -> None:
        """Let the world move on until that time."""
        while self.now() < time - 1e-9:
            self._ticks += 1
            move_on(self.drones, self.plant, self.now(), self._tick, self.airspace)
            for link in self.links:
                link.listen()

    def report(self) -> list[dict[str, Any]]:
        """Report for each drone what it saw and where it truly is."""
        return report_all(self.drones, self.plant, self.now())


class InProcessLink(Link):
    """The link to one simulated drone, packet by packet. It is never lost."""

    def __init__(self, name: str, drone: SimulatedDrone, world: World):
        self.name = name
        self.drone = drone
        self._world = world
        self._is_open = False
        self._state: DroneState | None = None
        self._variance, self._variance_came = math.inf, -math.inf
        self._stamps, self._echoes = Stamps(), Echoes()

    def listen(self) -> None:
        """Receive what the drone has sent."""
        while (raw := self.drone.transmit(self._world.now())) is not None:
            port, channel, data = crtp.split(raw)
            if self._is_open and (port, channel) == (5, 2):
                self._hear(data[0], int.from_bytes(data[1:4], "little"), data[4:])
            elif (port, channel) == (15, 0):
                self._echoes.back(int.from_bytes(data, "little"), self._world.now())
        if self._is_open and (number := self._echoes.next(self._world.now())) is not None:
            self._send(15, 0, number.to_bytes(2, "little"))

    def _hear(self, block: int, milliseconds: int, data: bytes) -> None:
        variables = BLOCKS[block][0]
        form = "<" + "".join(crtp.LOG_FORMATS[KINDS[kind]] for _, kind in variables)
        values = dict(zip((name for name, _ in variables), struct.unpack(form, data), strict=True))
        if block == 1:
            self._variance, self._variance_came = max(values.values()), self._world.now()
            return
        now = self._world.now()
        variance = self._variance if now - self._variance_came < VARIANCE_SECONDS else math.inf
        state = DroneState.read(values, variance, now, self._stamps.seconds(milliseconds))
        self._state = state or self._state

    def open(self, timeout: float) -> None:
        """Ask for the state and wait for the first one; raise LinkError if that takes longer than `timeout` seconds."""
        self._is_open = True
        names = [name for name, _ in LOG.entries]
        for block, (variables, period) in enumerate(BLOCKS):
            wanted = b"".join(struct.pack("<BH", KINDS[kind], names.index(name)) for name, kind in variables)
            self._send(5, 1, bytes([6, block]) + wanted[:27])
            self._send(5, 1, bytes([3, block, round(period * 100)]))
        if not self.wait(lambda: self._state is not None and not self.drone.faults.hang, timeout):
            raise LinkError(f"{self.name} cannot be reached: it was not connected within {timeout:g} s")

    def wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Let the world move on until something is so, but no longer than some seconds; return whether it is."""
        deadline = self._world.now() + seconds
        while not (done := ready()) and self._world.now() < deadline:
            self._world.sleep_until(self._world.now() + 0.02)
        return done

    def state(self) -> DroneState | None:
        """Return the newest state that has arrived, or None before the first."""
        return self._state

    def quality(self) -> Quality:
        """Return how well the link works."""
        return self._echoes.quality(self._world.now())

    def parameter(self, name: str) -> str:
        """Return a parameter of the drone."""
        if name not in self.drone.parameters.values:
            raise LinkError(f"{self.name} has no parameter {name}")
        return str(self.drone.parameters.values[name])

    def set_parameter(self, name: str, value: float) -> None:
        """Set a parameter of the drone."""
        self.parameter(name)
        names = [entry for entry, _ in PARAMETERS.entries]
        kind = crtp.PARAMETER_FORMATS[PARAMETERS.entries[names.index(name)][1] & 0x0F]
        number = value if kind == "f" else int(value)
        self._send(2, 2, struct.pack("<H" + kind, names.index(name), number))

    def decks(self) -> list[str]:
        """Return the names of the drone's decks."""
        values = self.drone.parameters.values
        return [name.split(".")[1] for name, value in values.items() if name.startswith("deck.") and value]

    def set_pose(self, x: float, y: float, z: float, yaw: float, timeout: float) -> None:
        """Start the estimator again at this pose."""
        for name, value in (("initialX", x), ("initialY", y), ("initialZ", z), ("initialYaw", yaw)):
            self.set_parameter(f"kalman.{name}", value)
        self.set_parameter("kalman.resetEstimation", 1.0)
        self._world.sleep_until(self._world.now() + min(0.5, timeout))
        self.set_parameter("kalman.resetEstimation", 0.0)

    def send_pose(self, pose: Pose) -> None:
        """Tell the drone where it is seen from outside."""
        if pose.attitude is None:
            self._send(6, 0, struct.pack("<fff", *pose.position))
        else:
            self._send(6, 1, struct.pack("<Bfffffff", 8, *pose.position, *pose.attitude))

    def arm(self) -> None:
        """Ask the drone to arm itself."""
        self._send(9, 1, b"\1\1")

    def motors_off(self) -> None:
        """Stop this drone's motors now, wherever it is."""
        self._may_fall = True
        self._send(7, 0, b"\0")

    def emergency_stop(self) -> None:
        """Stop this drone's motors now and lock it."""
        self._may_fall = True
        self._send(9, 1, b"\3")

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


@dataclasses.dataclass
class Cameras:
    """Motion capture of a `World`, and what can go wrong with it."""

    world: World
    swap: tuple[int, int] | None = None  # two drones whose labels are exchanged
    hold: tuple[int, ...] = ()  # drones whose last pose is repeated
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m, of all poses
    late: float = 0.0  # s
    future: float = 0.0  # s by which poses are dated too late
    dark: bool = False  # nothing is seen any more

    def __post_init__(self) -> None:
        self._seen: dict[str, list[Pose]] = {}

    def pose(self, name: str) -> Pose | None:
        """Return the newest pose of a drone."""
        names = [link.name for link in self.world.links]
        at, now, seen = names.index(name), self.world.now(), self._seen.setdefault(name, [])
        if not self.dark:
            one, other = self.swap or (at, at)
            shown = {one: other, other: one}.get(at, at)
            place = self.world.plant.position[shown] + np.array(self.offset)
            if at in self.hold and seen:
                place = seen[-1].position
            seen.append(Pose(now, place, self.world.plant.velocity[shown].copy()))
        while len(seen) > 1 and seen[1].received <= now - self.late + 1e-9:
            seen.pop(0)
        if not seen or seen[0].received > now - self.late + 1e-9:
            return None
        taken = seen[0].received
        stamp = None if self.future else taken  # a clock of the sender's own is never believed
        return dataclasses.replace(seen[0], received=taken + self.late + self.future, stamp=stamp)
