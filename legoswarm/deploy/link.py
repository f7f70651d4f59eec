"""The link to one drone: what a guard asks of it, and how well it works."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import statistics
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

CLOSE_HEIGHT = 0.1  # m; a link to a drone that flies higher is not closed
ECHO_PERIOD = 0.1  # s between two measurements of the round trip
ECHO_LOST = 2.0  # s after which an echo counts as lost
# What a drone is asked to report, and how often: 26 bytes are one log packet.
STATE_VARIABLES = (
    *((f"stateEstimate.{name}", "float") for name in ("x", "y", "z")),
    *((f"stateEstimate.{name}", "FP16") for name in ("vx", "vy", "vz")),
    ("stateEstimate.yaw", "float"),
    ("pm.vbat", "FP16"),
    ("supervisor.info", "uint16_t"),
)
VARIANCES = tuple((f"kalman.{name}", "float") for name in ("varPX", "varPY", "varPZ"))
STATE_PERIOD, VARIANCE_PERIOD = 0.02, 0.1  # s
VARIANCE_SECONDS = 2.0  # s after which an estimator that says nothing of its variances is not sure of anything


class LinkError(ValueError):
    """A drone that cannot be reached or does not do what it was asked; the message is one sentence for a person."""


class Health(enum.Flag, boundary=enum.KEEP):
    """What the drone's supervisor says of itself; the bits of the firmware's `supervisor.info`."""

    CAN_BE_ARMED = 1 << 0
    ARMED = 1 << 1
    AUTO_ARMED = 1 << 2
    CAN_FLY = 1 << 3
    FLYING = 1 << 4
    TUMBLED = 1 << 5
    LOCKED = 1 << 6
    CRASHED = 1 << 7


@dataclasses.dataclass(frozen=True)
class Pose:
    """Where a drone was, in the world frame, and when that was known."""

    received: float  # s, of the guard's clock
    position: Float[np.ndarray, "3"]  # m
    velocity: Float[np.ndarray, "3"]  # m/s
    stamp: float | None = dataclasses.field(default=None, kw_only=True)  # s, of the clock of whoever measured it
    attitude: Float[np.ndarray, "4"] | None = dataclasses.field(default=None, kw_only=True)  # quaternion x, y, z, w


@runtime_checkable
class Positions(Protocol):
    """Where positions come from besides the drones' own estimators: motion capture, or an estimator of one's own."""

    def pose(self, name: str) -> Pose | None:
        """Return the newest pose of a drone at once, or None before the first."""
        ...


@dataclasses.dataclass(frozen=True)
class DroneState(Pose):
    """What a drone says of itself: its own estimate, and how it does."""

    yaw: float  # rad, counter-clockwise
    battery: float  # V
    health: Health
    variance: float = dataclasses.field(default=0.0, kw_only=True)  # m^2, the estimator's largest one of a position

    @property
    def flies(self) -> bool:
        """Return whether the drone says that its motors run."""
        return Health.FLYING in self.health

    @property
    def locked(self) -> bool:
        """Return whether its supervisor has locked it until it is restarted."""
        return Health.LOCKED in self.health

    @staticmethod
    def read(values: dict[str, float], variance: float, received: float, stamp: float) -> DroneState | None:
        """Read what a drone reports of STATE_VARIABLES; an estimate that is none gives None: the last one grows old."""
        x, y, z, vx, vy, vz, yaw, battery, info = (values[name] for name, _ in STATE_VARIABLES)
        if not all(map(math.isfinite, (x, y, z, vx, vy, vz, yaw))):
            return None
        position, velocity, health = np.array([x, y, z], float), np.array([vx, vy, vz], float), Health(int(info))
        heading = math.radians(yaw)
        return DroneState(received, position, velocity, heading, battery, health, stamp=stamp, variance=variance)


class Stamps:
    """Turns a drone's milliseconds, 24 bits of them, into seconds that do not begin again after 4.7 hours."""

    def __init__(self) -> None:
        self._last, self._turns = 0, 0

    def seconds(self, milliseconds: int) -> float:
        """Return the time of the drone's clock."""
        if milliseconds < self._last - 2**23:
            self._turns += 1
        self._last = milliseconds
        return (self._turns * 2**24 + milliseconds) / 1000


@dataclasses.dataclass(frozen=True)
class Quality:
    """How well a link works."""

    latency: float | None = None  # s, the round trip of the newest echoes; None before the first
    answered: float = 1.0  # share of the echoes that came back
    acknowledged: float | None = None  # share of the radio's packets that were acknowledged, as the driver says


class Echoes:
    """Measures the round trip to a drone by packets that it sends back."""

    def __init__(self) -> None:
        self._number, self._due = 0, -math.inf
        self._out: dict[int, float] = {}  # when those were sent that have not come back
        self._trips: collections.deque[float] = collections.deque(maxlen=5)
        self._answers: collections.deque[bool] = collections.deque([True], maxlen=50)

    def next(self, now: float) -> int | None:
        """Return the number of an echo to send now, or None if none is due."""
        if now < self._due - 1e-6:
            return None
        self._due, self._number = now + ECHO_PERIOD, (self._number + 1) % 2**16
        for lost in [number for number, sent in self._out.copy().items() if now - sent > ECHO_LOST]:
            del self._out[lost]
            self._answers.append(False)
        self._out[self._number] = now
        return self._number

    def back(self, number: int, now: float) -> None:
        """Note an echo that has come back; one that was given up does not count."""
        if (sent := self._out.pop(number, None)) is not None:
            self._trips.append(now - sent)
            self._answers.append(True)

    def quality(self, now: float) -> Quality:
        """Return the typical trip, or for how long an echo that is still out has been waited for if that is longer."""
        waits = sorted(now - sent for sent in self._out.copy().values())
        typical = statistics.median(self._trips) if self._trips else None
        # One echo may get lost, over UDP for good; the next one is as late only if the link is.
        waited = waits[-2] if len(waits) > 1 else 0.0
        answers = list(self._answers)
        share = sum(answers) / len(answers)
        return Quality(max(typical or 0.0, waited) if typical is not None or waited else None, share)


@runtime_checkable
class Link(Protocol):
    """The link to one drone. Methods return at once unless they say otherwise, and raise LinkError when they fail.

    Once the link is lost, nothing is streamed, and orders are only tried; `lost` says so. What is allowed is decided
    here; how it is sent, by the links to drones of one kind.
    """

    name: str  # of the drone as in crazyflies.yaml, for example cf1
    longest_interval: float = 0.0  # s between two setpoints that were sent in flight: what the computer let pass
    _may_fall: bool = False  # its motors were stopped on purpose
    _sent: float = math.inf  # when the last setpoint of a stream was sent

    def open(self, timeout: float) -> None:
        """Connect and wait for the first state; raise LinkError if it fails or takes longer."""
        ...

    def state(self) -> DroneState | None:
        """Return the newest state, or None before the first."""
        ...

    def lost(self) -> str | None:
        """Return why the link is lost, or None as long as nothing says so; a silent drone shows in the state's age."""
        return None

    def quality(self) -> Quality:
        """Return how well the link works."""
        ...

    def parameter(self, name: str) -> str:
        """Ask the drone for a parameter, for example stabilizer.controller; wait a second at most."""
        ...

    def set_parameter(self, name: str, value: float) -> None:
        """Set a parameter and wait a second at most for the drone to confirm it."""
        ...

    def decks(self) -> list[str]:
        """Return the names of the decks that the drone says it carries, such as bcFlow2."""
        ...

    def set_pose(self, x: float, y: float, z: float, yaw: float, timeout: float) -> None:
        """Tell the estimator where the drone stands, restart it and wait until it has settled."""
        ...

    def send_pose(self, pose: Pose) -> None:
        """Tell the drone where it is seen from outside: its position, or its pose if the attitude is known."""
        ...

    def arm(self) -> None:
        """Ask the drone to arm itself: brushless ones do not by themselves."""
        ...

    def wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until something is so, but no longer than some seconds; return whether it is."""
        deadline = time.monotonic() + seconds
        while not (done := ready()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return done

    def land(self, seconds: float) -> None:
        """Stop the stream of setpoints and land here by the drone's own commander; do nothing once motors stopped."""
        if not self._may_fall:
            self._land(seconds)

    def hover(self, velocity_xy: Float[np.ndarray, "2"], height: float) -> None:
        """Fly with this velocity of the world frame at this height; do nothing once motors were stopped.

        It is to be said again and again: after 0.5 s the drone hovers on the spot, after 2 s it lands, so that no
        drone flies on for a guard that hangs.
        """
        if not (np.isfinite(velocity_xy).all() and math.isfinite(height)):
            raise LinkError(f"{self.name} was told a velocity or a height that is not finite")
        if not self._may_fall:
            self._hover(float(velocity_xy[0]), float(velocity_xy[1]), float(height))

    def motors_off(self) -> None:
        """Stop this drone's motors now, wherever it is; it may fly again later."""
        ...

    def emergency_stop(self) -> None:
        """Stop this drone's motors now and lock it until it is restarted: the firmware's own emergency message."""
        ...

    def close(self) -> None:
        """Let go of a drone that stands; refuse one that flies above 0.1 m, unless the radio has let go of it."""
        state = self.state()
        high = state is not None and state.position[2] > CLOSE_HEIGHT and state.flies
        if state is not None and high and self._holds() and not self._may_fall:
            raise LinkError(f"{self.name} was last heard of at a height of {state.position[2]:.2f} m: land it first")
        self._let_go()

    def _land(self, seconds: float) -> None: ...

    def _hover(self, vx: float, vy: float, height: float) -> None: ...

    def _holds(self) -> bool:
        return True

    def _let_go(self) -> None: ...

    def _note_sent(self, now: float) -> None:
        """Note that a setpoint of the stream is sent now."""
        self.longest_interval, self._sent = max(self.longest_interval, now - self._sent), now

    def _in_own_frame(self, vx: float, vy: float) -> tuple[float, float]:
        """Return a velocity of the world frame in the frame of the drone's yaw."""
        yaw = 0.0 if (state := self.state()) is None else state.yaw
        return math.cos(yaw) * vx + math.sin(yaw) * vy, math.cos(yaw) * vy - math.sin(yaw) * vx
