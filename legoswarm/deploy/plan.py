"""The parts of a flight: its plan, stages and clock, what guard and commander tell each other, and its outcome."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from time import monotonic, sleep
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from legoswarm.configs import check_fields, option
from legoswarm.deploy.link import Link
from legoswarm.files import finite

FAILURES = ("land", "hover", "motors_off", "none")
POSES = ("given", "absolute")
MOST_STEPS = 1_000_000


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
    """The condition of a drone: the first three in flight, the others in the end."""

    OK = "ok"
    PAUSED = "paused"
    FAILED = "failed"  # not steered any more
    LANDED = "landed"  # it was seen to come down by itself
    FELL = "fell"  # its motors stopped in the air, or it turned over
    LOCKED = "locked"  # its supervisor has locked it: an emergency stop, or the firmware's watchdog
    UNKNOWN = "unknown"  # nobody knows


@dataclasses.dataclass(frozen=True)
class Robot:
    """A drone by its address, for a guard in a process of its own."""

    name: str
    uri: str
    role: str
    start: tuple[float, float, float]  # m
    full: float | None = None  # V; see Drone
    critical: float | None = None  # V
    height: float | None = None  # m
    parameters: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Drone:
    """A drone of the mission and where it stands before take-off."""

    link: Link
    role: str
    start: tuple[float, float, float]  # m
    full: float | None = None  # V, if it needs another battery before take-off than the plan says
    critical: float | None = None  # V, if it is to land at another voltage than the plan says
    height: float | None = None  # m, if it flies at another height than the plan says for its role
    parameters: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of the firmware, set before take-off

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
    stall_seconds: float = option(1.0, "everybody lands when the policy says nothing for so long, s", above=0)
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
        if self.horizon > MOST_STEPS:
            raise ValueError(f"a horizon has at most {MOST_STEPS:,} steps, not {self.horizon}")

    def height(self, role: str) -> float:
        """Return the height at which drones of a role fly, m."""
        return self.evader_height if role == "evader" else self.pursuer_height


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
class Report:
    """What the guard tells the commander at every tick; m, m/s and s of the guard's clock."""

    time: float
    stage: str
    position: Float[np.ndarray, "drones 3"]
    velocity: Float[np.ndarray, "drones 2"]
    steered: Bool[np.ndarray, " drones"]  # who flies as the commander says

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {name: each.tolist() if isinstance(each, np.ndarray) else each for name, each in vars(self).items()}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Report:
        """Read what `to_json` has written."""
        arrays = {name: np.array(values[name], float) for name in ("position", "velocity")}
        return Report(values["time"], values["stage"], **arrays, steered=np.array(values["steered"], bool))


@dataclasses.dataclass(frozen=True)
class Wish:
    """What the commander tells the guard; the guard flies it as far as the safety rules allow."""

    velocity: Float[np.ndarray, "drones 2"]  # m/s
    height: Float[np.ndarray, " drones"] | None = None  # m, if others than the drones' own
    done: bool = False  # the run is over: everybody lands
    land: str | None = None  # why everybody is to land
    stop: tuple[str, ...] = ()  # whose motors are to be stopped at once
    fail: Mapping[int, str] = dataclasses.field(default_factory=dict)  # drones that are to fail, and how
    notes: tuple[dict[str, Any], ...] = ()  # lines for the log, each with its `kind`

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; what is not a number becomes null."""
        return finite(vars(self))

    @staticmethod
    def from_json(values: dict[str, Any]) -> Wish:
        """Read what `to_json` has written."""
        height = None if values["height"] is None else np.array(values["height"], float)
        fail = {int(at): mode for at, mode in values["fail"].items()}
        rest = {name: values[name] for name in ("done", "land")}
        velocity = np.array(values["velocity"], float).reshape(-1, 2)
        return Wish(velocity, height, **rest, stop=tuple(values["stop"]), fail=fail, notes=tuple(values["notes"]))


@runtime_checkable
class Commander(Protocol):
    """Who says where drones fly: a policy in a task, or a few lines of one's own."""

    def wish(self, report: Report) -> Wish | None:
        """Return what is wanted now, or None if nothing new is. It counts in the stage `run`; before, it shows life."""
        ...


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a flight ended, as the guard saw it."""

    reached: Stage  # the last stage before landing
    error: BaseException | None  # why it ended early
    statuses: dict[str, Status]
    failures: dict[str, str]  # why, of each drone that failed
    intervals: dict[str, float]  # the longest one between two setpoints sent to each drone, s
    links: dict[str, dict[str, float | None]] = dataclasses.field(default_factory=dict)  # worst latency and so on

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "reached": self.reached.value,
            "error": None if self.error is None else in_words(self.error),
            "statuses": {name: status.value for name, status in self.statuses.items()},
            "failures": self.failures,
            "intervals": {name: round(seconds, 4) for name, seconds in self.intervals.items()},
            "links": self.links,
        }

    @staticmethod
    def from_json(values: dict[str, Any]) -> Outcome:
        """Read what `to_json` has written; an error becomes one of a mission, with its words."""
        error = None if values["error"] is None else MissionError(values["error"])
        statuses = {name: Status(status) for name, status in values["statuses"].items()}
        rest = {name: values[name] for name in ("failures", "intervals", "links")}
        return Outcome(Stage(values["reached"]), error, statuses, **rest)


def in_words(error: BaseException) -> str:
    """Return an error as a sentence."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, ValueError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"
