"""The trust monitor: which positions may be believed, how old they are, and when a drone must land for lack of them.

A packet that has just arrived may hold an old position, a wrong one, or another drone's. For each drone it asks

- how old the position is: by the clock of whoever measured it, as the excess over the smallest delay seen so far, plus
  half of the round trip. A queue that grows shows in it, although packets keep coming;
- whether time runs forwards: a position from the future, or a clock that goes back, is refused;
- whether the drone can have got there since the last position that was believed;
- whether it moved as it was told over the last 0.8 s (a frozen estimate, a camera system that holds its last pose);
- whether its own estimate and the one from outside agree, how sure its estimator is, and how long a round trip takes.

A sample that cannot be true is passed over: the last one grows older, and the drone stands. A run of them, or of any
other doubt, is a reason to land, which `trouble` names. Nothing here reads a clock: time is an argument.
"""

from __future__ import annotations

import collections
import dataclasses
import math

import numpy as np
from jaxtyping import Float

from legoswarm.configs import check_fields, option
from legoswarm.deploy.link import Pose, Quality

LAG = 0.25  # s, of a Crazyflie's velocity loop
FUTURE = 0.02  # s by which clocks of one computer may differ
WINDOW = 0.8  # s over which the way of a drone is compared with its orders
DRIFT = 1e-4  # s for each second by which quartz clocks may drift apart
EARLY, EARLY_SECONDS = 0.05, 0.15  # s: who is dated ahead by more is believed only if all are, for so long


@dataclasses.dataclass(frozen=True)
class Limits:
    """What the trust monitor puts up with, in metres and seconds."""

    old: float = option(0.4, "a drone whose position is older lands, s", above=0)
    round_trip: float = option(0.25, "a drone lands when a round trip to it takes longer, s", above=0)
    variance: float = option(0.05, "a drone lands when its estimator's variance is larger, m^2", above=0)
    jump: float = option(0.15, "a position farther from where the drone can be is not believed, m", above=0)
    dash: float = option(1.5, "how fast a drone may be for that, m/s", above=0)
    unfollowed: float = option(0.2, "by how much its way in 0.8 s may differ from its orders, m", above=0)
    astray: float = option(
        0.5, "a drone whose way differs by more is stopped: landing would need its estimate, m", above=0
    )
    off_height: float = option(0.3, "by how much its height may differ from its orders, m", above=0)
    disagreement: float = option(0.3, "between a drone's own estimate and one from outside, m", above=0)
    frozen: float = option(0.35, "a drone in flight whose position is exactly the same for so long lands, s", above=0)
    run: float = option(0.25, "for how long in a row samples must be wrong until a drone lands, s", above=0)
    slow_link: float = option(0.08, "a warning is written when round trips take longer, s", above=0)
    answered: float = option(0.9, "a warning is written when a smaller share of packets is answered", above=0)
    pose_rate: float = option(15.0, "a warning is written when fewer positions come in a second", above=0)

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.run < self.frozen:
            raise ValueError("the trust monitor needs run < frozen")


class Delays:
    """The age of what a sender has dated by a clock of its own, from the smallest delay seen so far."""

    def __init__(self) -> None:
        self._smallest, self._seen = math.inf, 0.0
        self._early: float | None = None  # since when all samples are dated ahead of the fastest so far

    def excess(self, stamp: float, received: float) -> float:
        """Return by how much longer than the fastest so far a sample took that arrived at `received`.

        It is negative for a sample that is dated ahead, unless all have been for a while: then the clock was set.
        """
        self._smallest += DRIFT * max(received - self._seen, 0.0)
        self._seen = received
        delay = received - stamp
        if delay < self._smallest - EARLY and math.isfinite(self._smallest):
            self._early = received if self._early is None else self._early
            if received - self._early < EARLY_SECONDS:
                return delay - self._smallest
        self._early = None
        self._smallest = min(self._smallest, delay)
        return delay - self._smallest


class Trust:
    """The judge of one drone's positions. `position`, `velocity` and `age` are what may be believed."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.position: Float[np.ndarray, "3"] = np.zeros(3)
        self.velocity: Float[np.ndarray, "3"] = np.zeros(3)
        self.age = math.inf
        self.rate: float | None = None  # of new samples in a second, once it was looked at for so long
        self.believed = False  # whether the newest sample was
        self.news = False  # whether the last look showed a new one
        self.astray = False  # it goes where nobody sent it, and fast
        self._delays = Delays()
        self._measured = -math.inf  # when, by our clock, the position was taken that is believed
        self._last: Pose | None = None  # the newest sample
        self._changed = self._came = 0.0  # when its position last changed, and when the last sample came
        self._looked = self._watched = -math.inf  # when it was last looked at, and since when again and again
        self._arrivals: collections.deque[float] = collections.deque(maxlen=200)
        self._way: collections.deque[tuple[float, np.ndarray, np.ndarray]] = collections.deque()  # seen and expected
        self._speed, self._moved, self._height, self._ticked = np.zeros(2), np.zeros(2), 0.0, 0.0  # as it was told
        self._doubts: dict[str, tuple[float, str]] = {}  # since when each of them lasts, and in words

    def look(self, pose: Pose | None, trip: float | None, now: float) -> None:
        """Take in the newest sample, which may be the one of before."""
        self.news = pose is not None and self._is_new(pose)
        if pose is not None and self.news:
            delay = 0.0 if pose.stamp is None else self._delays.excess(pose.stamp, pose.received)
            measured = pose.received - delay - (0.0 if pose.stamp is None else 0.5 * (trip or 0.0))
            why = self._refusal(pose, measured, now)
            self._note("sample", why, now)
            self.believed = why is None
            if self._last is None or not np.array_equal(pose.position, self._last.position):
                self._changed = now
            self._last, self._came = pose, now
            self._arrivals.append(now)
            if self.believed:
                self.position, self.velocity = pose.position.copy(), pose.velocity.copy()
                self._measured = measured
        self.age = now - self._measured
        while self._arrivals and now - self._arrivals[0] > 1.0:
            self._arrivals.popleft()
        if now - self._looked > 0.2:
            self._watched = now
        self._looked = now
        self.rate = float(len(self._arrivals)) if now - self._watched > 1.0 else None

    def judge(
        self,
        order: Float[np.ndarray, "3"] | None,
        own: Pose | None,
        variance: float,
        quality: Quality,
        now: float,
    ) -> None:
        """Compare what is believed with what the drone is told, vx, vy and its height (None: nothing), and with others.

        `own` is the drone's own estimate if what is believed comes from elsewhere.
        """
        limits = self.limits
        if order is None:
            self._changed = now
        self._follow(order, now)
        still = self._came - self._changed > limits.frozen - limits.run
        self._note("frozen", "its position is frozen" if still else None, now)
        away = 0.0 if own is None else float(np.linalg.norm(own.position - self.position))
        apart = f"its own estimate is {away:.2f} m away from where it is seen" if away > limits.disagreement else None
        self._note("apart", apart, now)
        unsure = f"its estimator is not sure of its position (variance {variance:.2g} m^2)"
        unsure = unsure if math.isfinite(variance) else "its estimator does not say how sure it is"
        self._note("variance", unsure if variance > limits.variance else None, now)
        trip = quality.latency
        slow = None if trip is None or trip <= limits.round_trip else f"a round trip to it takes {trip:.2f} s"
        self._note("trip", slow, now)

    def trouble(self, now: float) -> str | None:
        """Return the reason for which the drone must land, or None."""
        if self.age > self.limits.old and "sample" not in self._doubts:
            return f"its position is older than {self.limits.old:g} s"
        over = (words for since, words in self._doubts.values() if now - since >= self.limits.run - 1e-9)
        return next(over, None)

    @property
    def doubtful(self) -> bool:
        """Return whether there is any doubt, be it one sample: the drone had better stand."""
        return bool(self._doubts)

    def _note(self, doubt: str, why: str | None, now: float) -> None:
        if why is None:
            self._doubts.pop(doubt, None)
        else:
            since, _ = self._doubts.get(doubt, (now, why))
            self._doubts[doubt] = since, why

    def _is_new(self, pose: Pose) -> bool:
        last = self._last
        return last is None or (pose.received, pose.stamp) != (last.received, last.stamp)

    def _refusal(self, pose: Pose, measured: float, now: float) -> str | None:
        """Return why a sample cannot be true, or None."""
        vectors = np.shape(pose.position) == np.shape(pose.velocity) == (3,)
        if not (vectors and np.isfinite(pose.position).all() and np.isfinite(pose.velocity).all()):
            return "its position is not three numbers"
        if measured > now + FUTURE:
            return f"its position comes from {measured - now:.2f} s in the future"
        before = None if self._last is None else self._last.stamp
        if before is not None and pose.stamp is not None and pose.stamp < before:
            return "its clock ran backwards: it has restarted"
        if not math.isfinite(self._measured):
            return None
        seconds = min(max(measured - self._measured, 0.0), 1.0)
        # A velocity that cannot be true must not carry what is expected away from where the drone is.
        ahead = seconds * min(1.0, self.limits.dash / max(float(np.linalg.norm(self.velocity)), 1e-9))
        off = float(np.linalg.norm(pose.position - self.position - ahead * self.velocity))
        if off > self.limits.jump + self.limits.dash * seconds:
            return f"its position jumped by {off:.2f} m"
        return None

    def _follow(self, order: Float[np.ndarray, "3"] | None, now: float) -> None:
        """Compare the way of the last 0.8 s, and the height, with those of a body that follows its orders."""
        seconds, self._ticked = min(max(now - self._ticked, 0.0), 0.2), now
        if order is None:
            self._way.clear()
            self._speed, self._height, self.astray = self.velocity[:2].copy(), float(self.position[2]), False
            self._note("way", None, now)
            self._note("height", None, now)
            return
        self._height += seconds * min(max(2.0 * (float(order[2]) - self._height), -1.0), 1.0)
        off = float(self.position[2]) - self._height
        where = f"it is {abs(off):.2f} m {'higher' if off > 0 else 'lower'} than it was told"
        self._note("height", where if abs(off) > self.limits.off_height else None, now)
        self._speed = self._speed + (order[:2] - self._speed) * -math.expm1(-seconds / LAG)
        self._moved = self._moved + seconds * self._speed
        self._way.append((now, self.position[:2].copy(), self._moved.copy()))
        while len(self._way) > 1 and self._way[1][0] <= now - WINDOW:
            self._way.popleft()
        _, seen, expected = self._way[0]
        off = float(np.linalg.norm((self.position[:2] - seen) - (self._moved - expected)))
        self.astray = off > self.limits.astray
        wrong = f"it does not do what it is told: its way differs by {off:.2f} m"
        self._note("way", wrong if off > self.limits.unfollowed else None, now)
