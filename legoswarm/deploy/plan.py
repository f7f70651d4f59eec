"""The parts of a mission: its plan, stages and clock, the condition of its drones, and its outcome."""

from __future__ import annotations

import dataclasses
import enum
from time import monotonic, sleep
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from legoswarm.configs import check_fields, option
from legoswarm.deploy.link import Link

FAILURES = ("land", "hover", "motors_off", "none")
POSES = ("given", "absolute")


class MissionError(ValueError):
    """The reason why a mission does not begin or ends early, in one sentence."""


class Stage(enum.Enum):
    """The stages of a mission, in their order."""

    CONNECT = "connect"
    PREFLIGHT = "preflight"
    TAKEOFF = "takeoff"
    SETTLE = "settle"
    RUN = "run"
    LAND = "land"
    CLOSE = "close"


class Status(enum.Enum):
    """The condition of a drone during a mission."""

    OK = "ok"
    PAUSED = "paused"
    FAILED = "failed"
    LANDED = "landed"


@dataclasses.dataclass
class Drone:
    """A drone of the mission and where it stands before take-off."""

    link: Link
    role: str
    start: tuple[float, float, float]  # m
    full: float | None = None  # V, if it needs another battery before take-off than the plan says

    @property
    def name(self) -> str:
        """Return the name of the link."""
        return self.link.name


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a mission does and when it gives up; metres, seconds and volts."""

    horizon: int = option(100, "steps of the policy", low=1)
    failure: str = option("land", f"what happens to the drone that fails: {', '.join(FAILURES)}", among=FAILURES)
    fail_at: int = option(30, "the step at which it fails", low=0)
    failing: int = option(0, "which drone fails; pursuers count first", low=0)
    drop_failed: bool = option(False, "take failed drones out of the scene instead of keeping them where they failed")
    poses: str = option(
        "given", "given: tell the drones where they stand; absolute: they know (lighthouse, mocap)", among=POSES
    )
    pursuer_height: float = option(0.6, "height of pursuers, m", above=0)
    evader_height: float = option(1.2, "height of evaders, m", above=0)
    take_off_seconds: float = option(2.5, "take-off, s", above=0)
    settle_seconds: float = option(2.0, "hovering before the run, s", above=0)
    land_seconds: float = option(3.0, "landing, s", above=0)
    connect_seconds: float = option(10.0, "time limit for connecting to a drone, s", above=0)
    battery_full: float = option(3.8, "battery needed before take-off, V", above=0)
    battery_low: float = option(3.5, "a drone lands when its battery stays lower in flight, V", above=0)
    battery_empty: float = option(3.3, "a drone lands at once when its battery is lower, V", above=0)
    rate: float = option(
        50.0, "commands in a second, about: a whole number of them makes a step of the policy", above=0
    )
    near: float = option(0.3, "how far from its initial position a drone may stand, m", above=0)

    def __post_init__(self) -> None:
        check_fields(self)


@runtime_checkable
class Clock(Protocol):
    """The clock of a mission; a simulated one passes as fast as it can."""

    def now(self) -> float:
        """Return the time in seconds, on the clock by which poses are dated."""
        ...

    def sleep_until(self, time: float) -> None:
        """Wait until that time."""
        ...


class WallClock:
    """The computer's own clock."""

    def now(self) -> float:
        """Return the monotonic time, s."""
        return monotonic()

    def sleep_until(self, time: float) -> None:
        """Wait until that time."""
        sleep(max(time - monotonic(), 0.0))


@dataclasses.dataclass(frozen=True)
class Capture:
    """A pursuer that came close enough to an evader."""

    step: int
    time: float  # s since the run began
    pursuer: str
    evader: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a mission. `track` has the positions at the beginning of each step and at the end, m."""

    reached: Stage  # the last stage before landing
    error: BaseException | None  # why it ended early
    statuses: dict[str, Status]
    failures: dict[str, str]  # why, of each drone that failed
    captures: tuple[Capture, ...]  # the first tick of each
    track: Float[np.ndarray, "steps drones 2"]
    intervals: dict[str, float]  # the longest one between two setpoints sent to each drone, s

    def to_json(self) -> dict[str, Any]:
        """Return everything but the track, as JSON."""
        return {
            "reached": self.reached.value,
            "error": None if self.error is None else in_words(self.error),
            "statuses": {name: status.value for name, status in self.statuses.items()},
            "failures": self.failures,
            "captures": [dataclasses.asdict(capture) for capture in self.captures],
            "intervals": {name: round(seconds, 4) for name, seconds in self.intervals.items()},
        }


def in_words(error: BaseException) -> str:
    """Return an error as a sentence."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, ValueError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"
