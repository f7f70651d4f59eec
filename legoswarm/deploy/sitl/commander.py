"""The firmware's commander and supervisor: which setpoint counts, and what happens when none comes any more.

Setpoints from the host come before those of the high-level commander until the host says that its stream stops.
Without a new one, the drone levels out after 0.5 s (height kept, x and y free), and after 2 s its motors stop and it is
locked. The high-level commander makes its setpoints on board and needs no stream. There is no clock inside: times are
arguments.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from legoswarm.deploy.sitl import crtp
from legoswarm.deploy.sitl.plants import Mode

LEVEL_AFTER, FALL_AFTER = 0.5, 2.0  # s without a setpoint
POSITION_GAIN, POSITION_SPEED = 2.0, 1.0  # 1/s, m/s: the firmware's position loop
PID, MELLINGER = 1, 2  # stabilizer.controller


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What the drone believes of itself."""

    position: Float[np.ndarray, "3"]
    velocity: Float[np.ndarray, "3"]
    yaw: float  # rad


@dataclasses.dataclass(frozen=True)
class Target:
    """What the velocity loop is told, in the frame of the estimate."""

    velocity: Float[np.ndarray, "3"]
    yaw_rate: float  # rad/s
    mode: Mode


OFF = Target(np.zeros(3), 0.0, Mode.OFF)


@dataclasses.dataclass(frozen=True)
class CutOff:
    """The time, true height and cause of a stop of the motors."""

    time: float
    height: float
    cause: str


@dataclasses.dataclass(frozen=True)
class _Path:
    """A smooth path of the high-level commander: polynomials of degree 7, at rest in the end."""

    start: Estimate
    goal: Float[np.ndarray, "3"]
    yaw: float
    begun: float
    seconds: float
    lands: bool

    def at(self, now: float) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
        """Return position and velocity of the path."""
        if now >= self.begun + self.seconds:
            return self.goal, np.zeros(3)
        t = max(now - self.begun, 0) / self.seconds
        way = 35 * t**4 - 84 * t**5 + 70 * t**6 - 20 * t**7
        speed = 140 * t**3 * (1 - t) ** 3
        drift = t - 20 * t**4 + 45 * t**5 - 36 * t**6 + 10 * t**7  # from the velocity at the start
        drift_speed = 1 - 80 * t**3 + 225 * t**4 - 216 * t**5 + 70 * t**6
        away = self.goal - self.start.position
        position = self.start.position + way * away + drift * self.seconds * self.start.velocity
        return position, speed / self.seconds * away + drift_speed * self.start.velocity


class Commander:
    """One drone's commander; it decides on the target of the velocity loop."""

    def __init__(self) -> None:
        self.setpoints = 0  # so many came
        self.cut_offs: list[CutOff] = []
        self.events: list[tuple[float, str]] = []
        self.locked = False
        self.tumbled = False
        self.motors = False
        self._setpoint: crtp.Motion | None = None
        self._stamp = -math.inf  # when it came
        self._longest = 0.0  # s between setpoints of a stream, to its end
        self._streaming = False  # the host's setpoints come first
        self._levelled = False
        self._plan: _Path | None = None
        self._landed = False

    @property
    def rests(self) -> bool:
        """Return whether it has landed by itself: nobody has stopped its motors."""
        return self._landed

    @property
    def can_fly(self) -> bool:
        """Return whether the supervisor lets the motors run."""
        return not (self.locked or self.tumbled)

    def setpoint(self, setpoint: crtp.Motion | crtp.Stop, now: float, height: float) -> None:
        """Follow a setpoint from the host."""
        if isinstance(setpoint, crtp.Stop):
            self.cut(now, height, "stop setpoint")
            return
        self._note_gap(now)
        self.setpoints += 1
        self._setpoint, self._stamp, self._streaming, self._levelled = setpoint, now, True, False
        self._plan, self._landed = None, False
        self.motors = self.can_fly

    def relax(self, now: float) -> None:
        """End the host's stream, so that the high-level commander may take over."""
        self._note_gap(now)
        self._streaming = False

    def order(self, order: crtp.Order | crtp.Stop, now: float, height: float, estimate: Estimate) -> None:
        """Follow an order to the high-level commander."""
        if not self.can_fly:
            return
        if isinstance(order, crtp.Stop):
            self.cut(now, height, "high-level stop")
            return
        pose = (*order.position, order.yaw), (*estimate.position, estimate.yaw)
        *goal, yaw = (here if to is None else to + order.relative * here for to, here in zip(*pose, strict=True))
        # Take-offs and landings are planned from rest, other paths from the velocity of the moment.
        start = dataclasses.replace(estimate, velocity=np.zeros(3)) if order.position[0] is None else estimate
        self._plan = _Path(start, np.array(goal), yaw, now, max(order.seconds, 0.1), order.lands)
        self.motors = True

    def cut(self, now: float, height: float, cause: str) -> None:
        """Stop the motors."""
        self._note_gap(now)
        if self.motors:
            self.cut_offs.append(CutOff(now, height, cause))
        self._setpoint, self._plan, self._streaming, self.motors, self._landed = None, None, False, False, False

    def largest_gap(self, now: float) -> float:
        """Return the longest wait for a setpoint in the streams so far, one that still lasts included."""
        return max(self._longest, now - self._stamp if self._streaming else 0)

    def target(self, now: float, height: float, estimate: Estimate, controller: int = PID) -> Target:
        """Return what the velocity loop is to do now."""
        age = now - self._stamp
        if self._plan and not (self._streaming and age <= LEVEL_AFTER):
            return self._planned(self._plan, now, estimate)
        if not self.motors or self._setpoint is None:
            return OFF
        if age > FALL_AFTER:
            self.locked = True
            self.cut(now, height, "watchdog")
            self.events.append((now, "locked"))
            return OFF
        target = _pursue(self._setpoint, estimate, controller)
        if age > LEVEL_AFTER:
            if not self._levelled:
                self._levelled = True
                self.events.append((now, "level"))
            return dataclasses.replace(target, yaw_rate=0.0, mode=Mode.LEVEL)
        return target

    def _planned(self, plan: _Path, now: float, estimate: Estimate) -> Target:
        if plan.lands and now > plan.begun + plan.seconds:
            self._plan, self._setpoint, self._streaming, self.motors, self._landed = None, None, False, False, True
            self.events.append((now, "landed"))
            return OFF
        position, velocity = plan.at(now)
        return Target(velocity + _towards(position, estimate.position), _turn(plan.yaw, estimate.yaw), Mode.FLY)

    def _note_gap(self, now: float) -> None:
        self._longest = self.largest_gap(now)


def _pursue(setpoint: crtp.Motion, estimate: Estimate, controller: int) -> Target:
    """Return the target of a setpoint, by the firmware's position loop in front of the velocity loop."""
    place = [here if to is None else to for to, here in zip(setpoint.position, estimate.position, strict=True)]
    if controller == MELLINGER and None in setpoint.position:
        # It knows no velocities: it hovers at the setpoint's height (none, so 0, in a velocity).
        place[2] = setpoint.position[2] or 0.0
        return Target(_towards(place, estimate.position), 0.0, Mode.FLY)
    velocity = rotate(np.array(setpoint.velocity), estimate.yaw if setpoint.own_frame else 0.0)
    yaw_rate = math.radians(setpoint.yaw_rate)
    if setpoint.yaw is not None:
        yaw_rate = _turn(math.radians(setpoint.yaw), estimate.yaw)
    return Target(velocity + _towards(place, estimate.position), yaw_rate, Mode.FLY)


def rotate(vector: Float[np.ndarray, "3"], angle: float) -> Float[np.ndarray, "3"]:
    """Turn a vector about the vertical."""
    cos, sin = math.cos(angle), math.sin(angle)
    return np.array([cos * vector[0] - sin * vector[1], sin * vector[0] + cos * vector[1], vector[2]])


def _towards(place: Any, position: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    return np.clip(POSITION_GAIN * (np.array(place) - position), -POSITION_SPEED, POSITION_SPEED)


def _turn(yaw: float, now: float) -> float:
    """Return the yaw rate of a turn by the shorter way, rad/s."""
    return 2 * math.remainder(yaw - now, math.tau)
