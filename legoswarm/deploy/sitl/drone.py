"""One simulated Crazyflie: packets in and out, an estimator, a battery, and the faults that can be injected."""

from __future__ import annotations

import collections
import dataclasses
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from legoswarm.deploy.link import Health
from legoswarm.deploy.safety import BODY
from legoswarm.deploy.sitl import crtp
from legoswarm.deploy.sitl.commander import OFF, PID, Commander, Estimate, Target, rotate
from legoswarm.deploy.sitl.plants import Mode, Plant
from legoswarm.deploy.sitl.tables import LogBlocks, Parameters

FULL, EMPTY, FLIGHT_SECONDS, SAG = 4.1, 3.3, 360.0, 0.2  # V at rest, V at rest, s, V while the motors run
CRITICAL, CRITICAL_SECONDS = 3.0, 5.0  # the firmware shuts the system down
QUEUE = 1024  # packets that wait to go out; the oldest are dropped
NOISE = 2e-4  # m, standard deviation of the positions that every estimator reports
THICKNESS = 0.06  # m, below which two of them touch in height
_SILENT_PORTS = (3, 7)  # setpoints: what may get lost on the way in; on the way out it is log data

LOG = crtp.Contents(
    5,
    (
        *((f"stateEstimate.{name}", 7) for name in ("x", "y", "z", "vx", "vy", "vz", "yaw")),
        ("pm.vbat", 7),
        ("supervisor.info", 2),
        *((f"kalman.{name}", 7) for name in ("varPX", "varPY", "varPZ")),
    ),
)
PARAMETERS = crtp.Contents(
    2,
    (
        ("stabilizer.controller", 0x08),
        ("stabilizer.estimator", 0x08),
        ("commander.enHighLevel", 0x08),
        *((f"kalman.initial{name}", 0x06) for name in ("X", "Y", "Z", "Yaw")),
        ("kalman.resetEstimation", 0x08),
        ("deck.bcFlow2", 0x08 | crtp.READ_ONLY),
        ("deck.bcLighthouse4", 0x08 | crtp.READ_ONLY),
    ),
)
START_VALUES = {"stabilizer.controller": PID, "stabilizer.estimator": 2, "commander.enHighLevel": 1}
START_VALUES |= {"deck.bcFlow2": 1, "deck.bcLighthouse4": 1}


@dataclasses.dataclass(frozen=True)
class Faults:
    """What can go wrong with a drone; it can be changed while the drone flies."""

    noise: float = 0.0  # m, standard deviation of the positions that it reports, besides that of every estimator
    latency: float = 0.0  # s for each packet, each way
    drift: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m/s by which its estimate runs away
    yaw_drift: float = 0.0  # rad/s
    loss: float = 0.0  # share of setpoints and of log packets that get lost
    mute: bool = False  # it says nothing any more
    deaf: bool = False  # it hears nothing any more
    dead: bool = False  # its motors stand still
    tumble: bool = False  # it has turned over
    hang: bool = False  # connecting to it never comes to an end
    battery: float | None = None  # V, instead of the battery's model
    controller: int | None = None  # stabilizer.controller: 2 is Mellinger's, which knows no velocities
    freeze: bool = False  # the position that it reports stays as it was
    stuck: bool = False  # the estimate that it flies by stays as it was
    jump: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m by which its estimate jumps when this is injected
    backlog: float | None = None  # packets in a second that get out, whatever waits behind them
    climb: float | None = None  # m/s upwards, whatever it is told, until its motors are stopped
    ignore: bool = False  # it flies on as it does, whatever it is told, until its motors are stopped
    variance: float | None = None  # m^2, what its estimator says
    clock: float = 0.0  # s by which its clock is off
    brushless: bool = False  # it waits to be armed

    def __post_init__(self) -> None:
        if not 0 <= self.loss <= 1 or self.noise < 0 or self.latency < 0:
            raise ValueError("a loss lies between 0 and 1, noise and latency are not negative")


class SimulatedDrone:
    """One simulated Crazyflie. It has no clock, no body and no socket: they are arguments."""

    def __init__(self, position: Float[np.ndarray, "3"], seed: int = 0):
        self.commander = Commander()
        self.faults = Faults()
        self.estimate = Estimate(np.array(position, float), np.zeros(3), 0.0)
        self._height = float(position[2])  # the true one
        self._last: Float[np.ndarray, "3"] = np.array(position, float)
        self._turned = 0.0  # estimated yaw - true yaw
        self._true_yaw = 0.0
        self._random = np.random.default_rng(seed)
        self.parameters = Parameters(PARAMETERS, START_VALUES)
        self._settled = -math.inf  # since when the estimator runs
        self._charge = FULL
        self._critical_since = math.inf
        self._stop_unless_before = math.inf  # the emergency-stop watchdog
        self._blocks = LogBlocks(LOG)
        self._inbox: collections.deque[tuple[float, bytes]] = collections.deque(maxlen=QUEUE)
        self._outbox: collections.deque[tuple[float, bytes]] = collections.deque(maxlen=QUEUE)
        self._next_out = -math.inf  # when the next packet may leave a queue that is slow
        self._reported: Float[np.ndarray, "3"] = np.array(position, float)
        self._willful: Float[np.ndarray, "3"] | None = None  # the velocity of one that ignores what it is told
        self._armed = False

    def inject(self, **changes: Any) -> None:
        """Change some of the faults."""
        self.faults = dataclasses.replace(self.faults, **changes)
        moved = self.estimate.position + np.array(changes.get("jump", (0.0, 0.0, 0.0)))
        self.estimate = dataclasses.replace(self.estimate, position=moved)
        if self.faults.controller is not None:
            self.parameters.values["stabilizer.controller"] = self.faults.controller

    # Packets

    def receive(self, raw: bytes, now: float) -> None:
        """Take in a packet from the host."""
        if not raw or self.faults.deaf or (raw[0] >> 4 in _SILENT_PORTS and self._is_lost()):
            return
        if self.faults.latency:
            self._inbox.append((now + self.faults.latency, raw))
        else:
            self._handle(raw, now)

    def transmit(self, now: float) -> bytes | None:
        """Return the next packet for the host, if there is one."""
        if not self._outbox or self._outbox[0][0] > now or now < self._next_out:
            return None
        if self.faults.backlog is not None:
            self._next_out = max(self._next_out, now - 0.1) + 1 / self.faults.backlog
        return self._outbox.popleft()[1]

    def _send(self, raw: bytes | None, now: float) -> None:
        if raw is not None and not self.faults.mute:
            self._outbox.append((now + self.faults.latency, raw))

    def _is_lost(self) -> bool:
        return self.faults.loss > 0 and self._random.random() < self.faults.loss

    def _handle(self, raw: bytes, now: float) -> None:
        port, channel, data = crtp.split(raw)
        match port, channel:
            case 15, 0:
                self._send(raw, now)
            case 15, 1:
                self._send(crtp.packet(15, 1, b"Bitcraze Crazyflie".ljust(crtp.MAX_DATA, b"\0")), now)
            case 13, 1 if data[:1] == b"\0":
                self._send(crtp.packet(13, 1, bytes([0, crtp.PROTOCOL_VERSION])), now)
            case (5, 0) | (2, 0) if not self.faults.hang:
                self._send((LOG if port == 5 else PARAMETERS).reply(data), now)
            case 5, 1:
                self._send(self._blocks.order(data, now), now)
            case 4, 0 if data[:1] == b"\1":
                self._send(crtp.packet(4, 0, b"\1\0"), now)
            case 2, 1 | 2:
                self._parameter(channel, data, now)
            case 3, 0 if data[12:14] == b"\0\0":  # no thrust
                self.commander.cut(now, self._height, "RPYT 0")
            case 7, 0:
                if (setpoint := crtp.read_setpoint(data)) is not None:
                    self.commander.setpoint(setpoint, now, self._height)
            case 7, 1 if data[:1] == b"\0":
                self.commander.relax(now)
            case 8, 0:
                if (order := crtp.read_order(data)) is not None:
                    self.commander.order(order, now, self._height, self.estimate)
            case 9, 0 if data[:1] == b"\x0c":
                self._send(crtp.packet(9, 0, struct.pack("<BH", 0x8C, self.health.value)), now)
            case 9, 1:
                self._supervise(data, now)
            case 6, _:
                self._locate(channel, data, now)

    def _parameter(self, channel: int, data: bytes, now: float) -> None:
        name, reply = self.parameters.answer(channel, data)
        if name == "kalman.resetEstimation" and self.parameters.values[name]:
            self._restart(now)
        self._send(reply, now)

    def _supervise(self, data: bytes, now: float) -> None:
        match data[:1]:
            case b"\1" | b"\2":
                can_fly = self.commander.can_fly
                self._armed = can_fly and data[:2] == b"\1\1"
                self._send(crtp.packet(9, 1, bytes([0x80 | data[0], can_fly, can_fly])), now)
            case b"\3":
                self._emergency_stop(now)
            case b"\4":
                self._stop_unless_before = now + 1

    def _emergency_stop(self, now: float) -> None:
        self.commander.cut(now, self._height, "emergency stop")
        self.commander.locked = True
        self._stop_unless_before = math.inf

    # Where it is

    def _restart(self, now: float) -> None:
        """Start the estimator again, at the pose that the parameters give."""
        x, y, z, yaw = (self.parameters.values[f"kalman.initial{name}"] for name in ("X", "Y", "Z", "Yaw"))
        self.estimate = Estimate(np.array([x, y, z]), self.estimate.velocity, yaw)
        self._turned = yaw - self._true_yaw
        self._settled = now

    def _locate(self, channel: int, data: bytes, now: float) -> None:
        """Take over a position (channel 0) or a pose (channel 1) from outside; older hosts stop the motors here."""
        if channel == 0 and len(data) == 12:
            self.estimate = dataclasses.replace(self.estimate, position=np.array(struct.unpack("<fff", data)))
        elif channel == 1 and len(data) == 29 and data[0] == 8:
            *position, qx, qy, qz, qw = struct.unpack_from("<fffffff", data, 1)
            yaw = math.atan2(2 * (qw * qz + qx * qy), 1 - 2 * (qy**2 + qz**2))
            self._turned = yaw - self._true_yaw
            self.estimate = dataclasses.replace(self.estimate, position=np.array(position), yaw=yaw)
        elif channel == 1 and data[:1] == b"\3":
            self._emergency_stop(now)

    def _observe(
        self, position: Float[np.ndarray, "3"], velocity: Float[np.ndarray, "3"], yaw: float, seconds: float
    ) -> None:
        """Follow the body, from where the estimator was told to start, with its drift."""
        drift = np.array(self.faults.drift)
        self._turned += seconds * self.faults.yaw_drift
        moved = rotate(position - self._last, self._turned)
        if not self.faults.stuck:
            self.estimate = Estimate(
                self.estimate.position + moved + seconds * drift,
                rotate(velocity, self._turned) + drift,
                math.remainder(yaw + self._turned, math.tau),
            )
        self._last, self._true_yaw, self._height = position.copy(), yaw, float(position[2])

    # Time

    def tick(
        self, now: float, seconds: float, position: Float[np.ndarray, "3"], velocity: Float[np.ndarray, "3"], yaw: float
    ) -> Target:
        """Let some milliseconds pass, with the body at this place; return what it is to do, in the true world."""
        while self._inbox and self._inbox[0][0] <= now:
            self._handle(self._inbox.popleft()[1], now)
        self._observe(position, velocity, yaw, seconds)
        self._watch(now, seconds)
        controller = int(self.parameters.values["stabilizer.controller"])
        target = self.commander.target(now, self._height, self.estimate, controller)
        for raw in self._blocks.packets(now, self._measurements, self.faults.clock):
            if not self._is_lost():
                self._send(raw, now)
        if self.faults.dead or not self.armed:
            return OFF
        wanted = rotate(target.velocity - np.array(self.faults.drift), -self._turned)
        return self._will(dataclasses.replace(target, velocity=wanted), velocity)

    def _will(self, target: Target, velocity: Float[np.ndarray, "3"]) -> Target:
        """Return what the drone does instead of what it is told, if it has a will of its own."""
        faults = self.faults
        if not self._runs or (faults.climb is None and not faults.ignore):
            return target
        if faults.climb is not None:
            return Target(np.array([*target.velocity[:2], faults.climb]), 0.0, Mode.FLY)
        if self._willful is None:
            self._willful = velocity.copy()
        return Target(self._willful, 0.0, Mode.FLY)

    def _watch(self, now: float, seconds: float) -> None:
        """Watch the battery, tumbling and the emergency-stop watchdog."""
        if self.commander.motors:
            self._charge -= seconds * (FULL - EMPTY) / FLIGHT_SECONDS
        if self.battery >= CRITICAL:
            self._critical_since = math.inf
        elif now - (since := min(self._critical_since, now)) > CRITICAL_SECONDS:
            self.faults = dataclasses.replace(self.faults, mute=True, deaf=True, dead=True)
        else:
            self._critical_since = since
        if self.faults.tumble and not self.commander.tumbled:
            self.commander.cut(now, self._height, "tumbled")
            self.commander.tumbled = True
        if now > self._stop_unless_before:
            self._emergency_stop(now)

    @property
    def _runs(self) -> bool:
        """Return whether the motors run: a drone with a will of its own does not let an order to land stop them."""
        willful = self.faults.climb is not None or self.faults.ignore
        return self.commander.motors or (willful and self.commander.rests)

    @property
    def armed(self) -> bool:
        """Return whether the motors may run."""
        return self.commander.can_fly and (self._armed or not self.faults.brushless)

    @property
    def battery(self) -> float:
        """Return the voltage, V."""
        if self.faults.battery is not None:
            return self.faults.battery
        return self._charge - SAG * self.commander.motors

    @property
    def health(self) -> Health:
        """Return what the supervisor says."""
        health = Health(0)
        if self.commander.can_fly:
            health |= Health.CAN_BE_ARMED
        if self.armed:
            health |= Health.ARMED | Health.CAN_FLY
        if not self.faults.brushless and self.commander.can_fly:
            health |= Health.AUTO_ARMED
        if self._runs:
            health |= Health.FLYING
        if self.commander.tumbled:
            health |= Health.TUMBLED | Health.CRASHED
        if self.commander.locked:
            health |= Health.LOCKED
        return health

    def report(self, now: float) -> dict[str, Any]:
        """Report how the drone was treated so far."""
        commander = self.commander
        return {
            "motors": commander.motors,
            "locked": commander.locked,
            "setpoints": commander.setpoints,
            "largest_gap": round(commander.largest_gap(now), 4),
            "cut_offs": [dataclasses.asdict(cut_off) for cut_off in commander.cut_offs],
            "events": [list(event) for event in commander.events],
        }

    def _measurements(self, now: float) -> dict[str, int | float]:
        """Return the values of the log variables, in the order of LOG."""
        estimate, variance = self.estimate, 1e-5 + 0.01 * math.exp(-(now - self._settled) / 0.3)
        if self.faults.variance is not None:
            variance = self.faults.variance
        if not self.faults.freeze and not self.faults.stuck:
            spread = math.hypot(self.faults.noise, NOISE * self.commander.motors)
            self._reported = estimate.position + spread * self._random.standard_normal(3)
        position = self._reported
        rest = math.degrees(estimate.yaw), self.battery, self.health.value, *[variance] * 3
        names = (name for name, _ in LOG.entries)
        return dict(zip(names, (*position, *estimate.velocity, *rest), strict=True))


class Airspace:
    """The room in which drones fly: what they touch, and how far out, how high and how close to each other they got.

    Drones that touch each other, or an obstacle, turn over and fall.
    """

    def __init__(self, centres: np.ndarray | None = None, radius: float = 0.05):
        self.centres = np.zeros((0, 2)) if centres is None else np.array(centres, float).reshape(-1, 2)
        self.radius = radius
        self.contacts: list[tuple[float, str]] = []
        self.reach, self.top, self.closest = 0.0, 0.0, math.inf  # m
        self.track: list[tuple[float, list[list[float]]]] = []

    def watch(self, drones: Sequence[SimulatedDrone], plant: Plant, now: float) -> None:
        """Look where everybody is now."""
        place = plant.position
        up = place[:, 2] > 0.05
        if not up.any():
            return
        self.reach = max(self.reach, float(np.abs(place[up, :2]).max()))
        self.top = max(self.top, float(place[:, 2].max()))
        apart = place[:, None] - place[None]
        flat = np.hypot(apart[..., 0], apart[..., 1])
        able = up & np.array([not drone.commander.tumbled for drone in drones])
        pairs = able[:, None] & able[None] & ~np.eye(len(place), dtype=bool)
        if pairs.any():
            self.closest = min(self.closest, float(np.linalg.norm(apart, axis=-1)[pairs].min()))
        touch = (up[:, None] | up[None]) & (flat < 2 * BODY) & (np.abs(apart[..., 2]) < THICKNESS)
        for one, other in np.argwhere(np.triu(touch, 1)):
            self._crash(drones, (one, other), f"drones {one} and {other} touch", now)
        away = np.linalg.norm(place[:, None, :2] - self.centres[None], axis=-1)
        for one, pole in np.argwhere(up[:, None] & (away < self.radius + BODY)):
            self._crash(drones, (one,), f"drone {one} touches obstacle {pole}", now)

    def _crash(self, drones: Sequence[SimulatedDrone], who: Sequence[int], words: str, now: float) -> None:
        if not all(drones[at].commander.tumbled for at in who):
            self.contacts.append((round(now, 3), words))
        for at in who:
            drones[at].inject(tumble=True)

    def report(self) -> dict[str, Any]:
        """Return what has happened so far."""
        closest = None if math.isinf(self.closest) else round(self.closest, 3)
        return {"reach": round(self.reach, 3), "top": round(self.top, 3), "closest": closest, "contacts": self.contacts}


def move_on(
    drones: Sequence[SimulatedDrone], plant: Plant, now: float, seconds: float, airspace: Airspace | None = None
) -> None:
    """Let the drones and their bodies move on by some milliseconds, until `now`."""
    poses = zip(drones, plant.position, plant.velocity, plant.yaw.tolist(), strict=True)
    targets = [drone.tick(now, seconds, position, velocity, yaw) for drone, position, velocity, yaw in poses]
    velocities, yaw_rates, modes = zip(*((each.velocity, each.yaw_rate, each.mode) for each in targets), strict=True)
    plant.step(np.array(velocities), np.array(yaw_rates), np.array(modes), seconds)
    if airspace is not None:
        airspace.watch(drones, plant, now)


def report_all(drones: Sequence[SimulatedDrone], plant: Plant, now: float) -> list[dict[str, Any]]:
    """Report for each drone what it saw and where it truly is."""
    places = zip(plant.position.tolist(), drones, strict=True)
    return [{"position": place, **drone.report(now)} for place, drone in places]
