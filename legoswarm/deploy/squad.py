"""The drones of a flight in the air: their places, how far these are trusted, and orders through the safety rules."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from legoswarm.deploy.flightlog import Diary
from legoswarm.deploy.link import CLOSE_HEIGHT, DroneState, Pose, Positions
from legoswarm.deploy.plan import Clock, Drone, Plan, Status
from legoswarm.deploy.preflight import BROKEN
from legoswarm.deploy.safety import BODY, Obstacles, Plane, Reason, Rules, Sighting, Verdict, apply_rules
from legoswarm.deploy.trust import Limits, Trust

GONE_SECONDS = 8.0  # a failed drone that says nothing is on the ground by then
LOW_SECONDS = 2.0  # how long a battery must be low: it sags when motors pull
FORWARD_SECONDS = 0.01  # s between two poses that are forwarded to a drone, at least
FALL_SPEED, FALL_HEIGHT = 1.5, 0.3  # m/s, m: who comes down faster, not told to or with motors that stand, has fallen
GRAVITY = 9.81  # m/s^2
BRAKE_SECONDS = 0.4  # a drone that has failed is told to stand for so long before it is told to land
BLIND_DESCENT = 0.5  # m/s at least, of a drone that lands because its position is in doubt
REACTION, CLOSING = 0.1, 0.1  # s, m/s: until motors stand; slower than this nobody is said to fly at an obstacle
INTO_OBSTACLE = "it is about to hit an obstacle"
CLIMBED, STRAYED, OVERDUE = 0.6, 0.7, 2.0  # m, m, s: a drone that lands and does that is stopped


@dataclasses.dataclass
class Member(Drone):
    """A drone of the squad and its condition."""

    trust: Trust = dataclasses.field(default_factory=lambda: Trust(Limits()))
    level: float = 0.0  # m, the height it was last told
    status: Status = Status.OK
    failure: str | None = None  # why it is not steered any more
    failed_at: float = -math.inf
    wild: bool = False  # it failed, and nobody knows where it goes
    blind: bool = False  # it failed because its position cannot be believed
    hovers: bool = False  # failed, but held in the air
    lands: bool = False  # it is to land,
    told: tuple[float, np.ndarray] | None = None  # and it was told so, then and there
    stopped: bool = False  # its motors were stopped
    fell: bool = False
    at_obstacle: int = 0  # in so many samples in a row it has been about to hit one
    low_since: float | None = None  # the battery
    forwarded: float = -math.inf  # when it was last told where it is seen
    worst: dict[str, float | None] = dataclasses.field(default_factory=dict)  # of its link
    warned: set[str] = dataclasses.field(default_factory=set)

    @property
    def steered(self) -> bool:
        """Return whether the drone flies as the commander says."""
        return self.status in (Status.OK, Status.PAUSED)


class Squad:
    """All drones of a flight; arrays have a row for each of them."""

    def __init__(
        self,
        drones: Sequence[Drone],
        plan: Plan,
        obstacles: Obstacles,
        limits: Limits,
        positions: Positions | None,
        clock: Clock,
        diary: Diary,
    ):
        self.members = [Member(**vars(drone), trust=Trust(limits)) for drone in drones]
        self.heights = np.array([plan.height(d.role) if d.height is None else d.height for d in drones])
        self.position: Float[np.ndarray, "drones 3"] = np.zeros((len(drones), 3))
        self.velocity: Plane = np.zeros((len(drones), 2))
        self.age: Float[np.ndarray, " drones"] = np.full(len(drones), np.inf)
        self._plan, self._limits, self._obstacles, self._positions = plan, limits, obstacles, positions
        self._clock, self._diary = clock, diary
        self._verdict = Verdict.start(clock.now(), (len(drones),))
        self._wanted = np.zeros((len(drones), 2))
        self._commanded = False  # somebody has been sent somewhere

    @property
    def plane(self) -> Plane:
        """Return the positions without heights."""
        return self.position[:, :2]

    @property
    def steered(self) -> Bool[np.ndarray, " drones"]:
        """Return which drones fly as the commander says."""
        return np.array([member.steered for member in self.members])

    @property
    def flying(self) -> Bool[np.ndarray, " drones"]:
        """Return which drones are in the air, or may be."""
        return ~np.array([self.on_ground(at) for at in range(len(self.members))])

    @property
    def at_rest(self) -> bool:
        """Return whether all drones say that their motors stand."""
        return not any(state is None or state.flies for state in map(self._fresh, self.members))

    def on_ground(self, at: int) -> bool:
        """Return whether a drone is known to stand; one that has failed and says nothing does so after a while."""
        member = self.members[at]
        if (state := self._fresh(member)) is not None:
            low = self.age[at] <= self._limits.old and self.position[at, 2] < CLOSE_HEIGHT
            return not state.flies or bool(
                low and not member.blind
            )  # it says that it flies for a while after a landing
        return member.failure is not None and self._clock.now() - member.failed_at > GONE_SECONDS

    def _fresh(self, member: Member) -> DroneState | None:
        """Return what a drone has just said of itself."""
        state = member.link.state()
        return state if state is not None and self._clock.now() - state.received <= self._limits.old else None

    # What is seen

    def look(self) -> None:
        """Read where all drones are, as far as it can be believed; one that is not steered counts as standing still."""
        now = self._clock.now()
        for at, member in enumerate(self.members):
            state, quality, trust = member.link.state(), member.link.quality(), member.trust
            seen = self._seen_from_outside(member) if self._positions else state
            trust.look(seen, None if self._positions else quality.latency, now)
            if self._positions and seen is not None and trust.believed and now - member.forwarded >= FORWARD_SECONDS:
                member.forwarded = now
                member.link.send_pose(seen)
            told = self._commanded and (member.steered or member.hovers)
            order = np.array([*(member.steered * self._verdict.velocity[at]), member.level]) if told else None
            own = state if self._positions and told else None
            trust.judge(order, own, 0.0 if state is None else state.variance, quality, now)
            self.position[at], self.velocity[at], self.age[at] = trust.position, trust.velocity[:2], trust.age
            self._note_link(member, state)
            if trust.news:
                member.at_obstacle = member.at_obstacle + 1 if self._flies_at_obstacle(member) else 0
        tame = np.array([not member.wild for member in self.members])
        self.velocity[~self.steered & tame] = 0.0

    def _seen_from_outside(self, member: Member) -> Pose | None:
        """Return the pose that the source gives; one that fails gives none, and the last one grows old."""
        assert self._positions is not None
        with self._diary.noting(f"asking where {member.name} is seen"):
            return self._positions.pose(member.name)
        return None

    @property
    def sure(self) -> Bool[np.ndarray, " drones"]:
        """Return which drones know where they are: by their own variance, and where they are seen, if they are."""
        found = []
        for at, member in enumerate(self.members):
            state = self._fresh(member)
            sure = state is not None and state.variance <= self._limits.variance
            away = 0.0 if state is None else float(np.linalg.norm(state.position - self.position[at]))
            found.append(sure and (self._positions is None or away <= self._limits.disagreement))
        return np.array(found)

    def _flies_at_obstacle(self, member: Member) -> bool:
        """Return whether a drone is so close to an obstacle, and so fast, that it would fall just short of it.

        Nobody who keeps to the safety rules gets there (docs/deploy.md).
        """
        trust = member.trust
        if trust.age > self._limits.old or not trust.believed or trust.position[2] < CLOSE_HEIGHT:
            return False
        away = self._obstacles.centre - trust.position[:2]
        distance = np.maximum(np.hypot(*away.T), 1e-6)
        closing = away @ trust.velocity[:2] / distance
        seconds = REACTION + math.sqrt(2 * trust.position[2] / GRAVITY)
        gap = distance - self._obstacles.radius - BODY
        return bool(((gap < seconds * closing) & (closing > CLOSING)).any())

    def _note_link(self, member: Member, state: DroneState | None) -> None:
        """Keep the worst figures of a link, warn of what is worse than the limits, and note a fall."""
        quality, limits, worst = member.link.quality(), self._limits, member.worst
        if not self._commanded or state is None:
            return
        latency, battery = worst.get("latency"), worst.get("battery")
        worst["latency"] = max(latency or 0.0, quality.latency or 0.0)
        worst["battery"] = round(min(battery or math.inf, state.battery), 3)
        worst["answered"] = quality.answered
        worst["acknowledged"] = quality.acknowledged
        rate = member.trust.rate if member.steered else None
        worst["rate"] = min((each for each in (worst.get("rate"), rate) if each is not None), default=None)
        warnings = {
            f"the link to {member.name} is slow": (quality.latency or 0.0) > limits.slow_link,
            f"the link to {member.name} loses packets": quality.answered < limits.answered,
            f"few positions of {member.name} come in": rate is not None and rate < limits.pose_rate,
        }
        for words in {words for words, holds in warnings.items() if holds} - member.warned:
            member.warned.add(words)
            figures = f"round trip {1e3 * (quality.latency or 0):.0f} ms, answered {100 * quality.answered:.0f} %"
            self._diary.event(f"{words}: {figures}, {rate or 0:.0f} positions a second", drone=member.name)
        broken = bool(state.health & BROKEN)
        known = member.trust.age <= limits.old and not member.blind
        cut = not state.flies and member.trust.position[2] > FALL_HEIGHT
        drops = known and member.trust.velocity[2] < -FALL_SPEED and (member.told is None or cut)
        member.fell = member.fell or (self._commanded and (broken or drops) and member.level > 0)

    def record(self, stage: str) -> None:
        """Write a line of the log."""
        states = [member.link.state() for member in self.members]
        trips = [member.link.quality().latency for member in self.members]
        self._diary.write(
            "tick",
            stage=stage,
            position=self.position,
            velocity=self.velocity,
            age=self.age,
            wanted=self._wanted,
            setpoint=self._verdict.velocity,
            height=[member.level for member in self.members],
            reasons=self._verdict.reasons.tolist(),
            battery=[None if state is None else state.battery for state in states],
            variance=[None if state is None else state.variance for state in states],
            latency=trips,
        )

    # Orders

    def command(
        self,
        wanted: Plane,
        rules: Rules,
        heights: Float[np.ndarray, " drones"] | None = None,
        floor: float | None = None,
        beware: bool = False,
    ) -> None:
        """Fly these velocities, m/s, at these heights, as far as the rules allow; `floor` replaces the rules' own.

        With `beware` what stands on the ground is in the way too.
        """
        self._commanded = True
        wild = np.array([member.wild for member in self.members])
        # Who is in doubt stands, as one whose position is old does; a doubt that lasts has it land.
        age = np.where([member.trust.doubtful for member in self.members], np.inf, self.age)
        flying = np.ones(len(wild), bool) if beware else self.flying
        sighting = Sighting(self.position, self.velocity, age, self.steered, flying, wild)
        self._wanted, now = wanted, self._clock.now()
        verdict = apply_rules(rules, wanted, sighting, self._obstacles, self._verdict, now)
        asked = self.heights if heights is None else np.where(np.isfinite(heights), heights, self.heights)
        levels = np.clip(asked, rules.floor if floor is None else floor, rules.soft_ceiling)
        held = (np.abs(levels - asked) > 1e-9) & self.steered
        self._verdict = verdict = dataclasses.replace(verdict, reasons=verdict.reasons | held * int(Reason.CEILING))
        for at, member in enumerate(self.members):
            if member.steered:
                self.set_status(member, Status.PAUSED if verdict.reasons[at] & Reason.PAUSE else Status.OK)
                member.level = float(levels[at])
                member.link.hover(verdict.velocity[at], member.level)
            elif member.hovers and not member.lands:
                member.link.hover(np.zeros(2), member.level)
        self.tell_to_land()

    def trouble(self, at: int, rules: Rules) -> str | None:
        """Return what is wrong with a drone that cannot go on, or None."""
        member, now = self.members[at], self._clock.now()
        if (lost := member.link.lost()) is not None:
            return f"its link is lost ({lost})"
        state = self._fresh(member)
        if state is not None and state.health & BROKEN:
            return f"it does not fly any more ({(state.health & BROKEN).name})"
        if self.age[at] <= self._limits.old and rules.beyond(self.position[at]):
            return "it has left the fence"
        if (doubt := member.trust.trouble(now)) is not None:
            return doubt
        if state is None:
            return f"it has said nothing for {self._limits.old:g} s"
        low = self._plan.battery_low if member.critical is None else member.critical
        if state.battery >= low:
            member.low_since = None
        elif member.low_since is None:
            member.low_since = now
        sagging = member.low_since is None or now - member.low_since <= LOW_SECONDS
        if sagging and state.battery >= self._plan.battery_empty:
            return None
        return f"its battery is low ({state.battery:.2f} V)"

    def fail(self, at: int, why: str, mode: str) -> None:
        """Steer a drone no longer: it lands, hovers on the spot, or its motors stop, as `mode` says."""
        member = self.members[at]
        if not (member.steered or member.hovers):
            return
        member.failure, member.failed_at = why, self._clock.now()
        member.lands, member.hovers = mode == "land", mode == "hover"
        member.wild, member.blind = why != "scheduled", member.trust.doubtful
        self.set_status(member, Status.FAILED)
        self._diary.event(f"{member.name} has failed ({mode}): {why}", drone=member.name, failure=mode)
        self.tell_to_land()
        if mode == "motors_off":
            member.fell = True
            with self._diary.noting(f"stopping the motors of {member.name}"):
                member.link.motors_off()

    def stop(self, at: int, why: str) -> None:
        """Stop a drone's motors by the firmware's emergency message; it stays locked until it is restarted."""
        member = self.members[at]
        if member.stopped:
            return
        member.stopped, member.lands, member.hovers, member.wild = True, False, False, True
        if member.failure is None:
            member.failure, member.failed_at = why, self._clock.now()
        self.set_status(member, Status.FAILED)
        self._diary.event(f"the motors of {member.name} are stopped: {why}", drone=member.name, stopped=True)
        with self._diary.noting(f"stopping the motors of {member.name}"):
            member.link.emergency_stop()

    def land(self) -> None:
        """Have all drones land that fly, also those that were told before and are still in the air."""
        for at, member in enumerate(self.members):
            member.lands = not member.stopped and (member.lands or member.steered or member.hovers)
            if not self.on_ground(at):
                member.told = None
        self.tell_to_land()

    def tell_to_land(self) -> None:
        """Tell those who are to land and have not been told; an error is no reason to give up."""
        for at, member in enumerate(self.members):
            if member.lands and member.told is None and self._clock.now() - member.failed_at < BRAKE_SECONDS:
                member.link.hover(np.zeros(2), member.level)
            elif member.lands and member.told is None:
                # By an estimate that may be wrong nobody should fly for long.
                quick = max(member.level / BLIND_DESCENT, 0.5) if member.blind else math.inf
                with self._diary.noting(f"landing {member.name}"):
                    member.link.land(min(self._plan.land_seconds, quick))
                    member.told = self._clock.now(), self.position[at].copy()

    def watch_landings(self, rules: Rules) -> None:
        """Stop the motors of drones that are to land and climb, stray, run away or never come down instead."""
        now = self._clock.now()
        for at, member in enumerate(self.members):
            if member.stopped and not self.on_ground(at):  # again: a packet may get lost
                with self._diary.noting(f"stopping the motors of {member.name}"):
                    member.link.emergency_stop()
            if member.told is None or member.stopped or not member.lands or self.on_ground(at):
                continue
            since, place = member.told
            known, away = self.age[at] <= self._limits.old, self.position[at] - place
            if known and rules.beyond(self.position[at], rules.runaway):
                self.stop(at, "it flies away")
            elif member.at_obstacle > 1:
                self.stop(at, INTO_OBSTACLE)
            elif known and away[2] > CLIMBED:
                self.stop(at, "it climbs instead of landing")
            elif known and np.hypot(*away[:2]) > STRAYED:
                self.stop(at, "it strays instead of landing")
            elif now - since > self._plan.land_seconds + OVERDUE:
                self.stop(at, "it was not seen to land")

    def note_landed(self) -> None:
        """Note how each drone ended, as far as it is known."""
        for member in self.members:
            state, last = self._fresh(member), member.link.state()
            if state is None:
                status = Status.UNKNOWN
            elif state.locked:
                status = Status.LOCKED
            elif member.fell:
                status = Status.FELL
            else:
                up = member.blind or member.trust.position[2] > CLOSE_HEIGHT
                status = Status.UNKNOWN if state.flies and up else Status.LANDED
            if status is Status.UNKNOWN and last is not None and last.flies:
                member.failure = member.failure or "it was not seen to land"
            self.set_status(member, status)

    def set_status(self, member: Member, status: Status) -> None:
        """Set the status of a drone, and write it down when it changes."""
        if member.status is not status:
            member.status = status
            self._diary.write("status", drone=member.name, status=status.value)
