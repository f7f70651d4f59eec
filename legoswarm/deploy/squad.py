"""The drones of a mission in the air: their places, their condition, and orders to them through the safety rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from legoswarm.deploy.flightlog import Diary
from legoswarm.deploy.link import CLOSE_HEIGHT, Positions
from legoswarm.deploy.plan import Clock, Drone, Status
from legoswarm.deploy.preflight import BROKEN
from legoswarm.deploy.safety import Plane, Reason, Rules, Sighting, Verdict, apply_rules
from legoswarm.deploy.setting import Setting

DEAD_SECONDS = 0.4  # a position that is older: the drone has failed
GONE_SECONDS = 8.0  # a failed drone that says nothing is on the ground by then
LOW_SECONDS = 2.0  # how long a battery must be low: it sags when motors pull


@dataclasses.dataclass
class Member(Drone):
    """A drone of the squad and its condition."""

    height: float = 0.0  # m, where it flies
    status: Status = Status.OK
    failure: str | None = None  # why it is not steered any more
    failed_at: float = 0.0
    hovers: bool = False  # failed, but held in the air
    lands: bool = False  # it is to land,
    told: bool = False  # and it has been told so
    low_since: float | None = None  # the battery

    @property
    def steered(self) -> bool:
        """Return whether the drone flies as the mission says."""
        return self.status in (Status.OK, Status.PAUSED)


class Squad:
    """All drones of a mission; arrays have a row for each of them."""

    def __init__(
        self, drones: Sequence[Drone], setting: Setting, positions: Positions | None, clock: Clock, diary: Diary
    ):
        plan = setting.plan
        heights = {"pursuer": plan.pursuer_height, "evader": plan.evader_height}
        self.members = [Member(**vars(drone), height=heights[drone.role]) for drone in drones]
        self.position: Float[np.ndarray, "drones 3"] = np.zeros((len(drones), 3))
        self.velocity: Plane = np.zeros((len(drones), 2))
        self.age: Float[np.ndarray, " drones"] = np.full(len(drones), np.inf)
        self._received = np.full(len(drones), -np.inf)
        self._plan, self._obstacles, self._positions = plan, setting.obstacles, positions
        self._clock, self._diary = clock, diary
        self._verdict = Verdict.start(clock.now(), (len(drones),))
        self._wanted = np.zeros((len(drones), 2))

    @property
    def plane(self) -> Plane:
        """Return the positions without heights."""
        return self.position[:, :2]

    @property
    def steered(self) -> Bool[np.ndarray, " drones"]:
        """Return which drones fly as the mission says."""
        return np.array([member.steered for member in self.members])

    @property
    def flying(self) -> Bool[np.ndarray, " drones"]:
        """Return which drones are in the air, or may be."""
        return ~np.array([self.on_ground(at) for at in range(len(self.members))])

    def on_ground(self, at: int) -> bool:
        """Return whether a drone is known to stand; one that has failed and says nothing does so after a while."""
        if self.age[at] <= DEAD_SECONDS:
            return bool(self.position[at, 2] < CLOSE_HEIGHT)
        member = self.members[at]
        return member.failure is not None and self._clock.now() - member.failed_at > GONE_SECONDS

    def look(self) -> None:
        """Read where all drones are; one that is not steered counts as standing still."""
        for at, member in enumerate(self.members):
            pose = self._positions.pose(member.name) if self._positions else member.link.state()
            if pose is not None and np.isfinite(pose.position).all() and np.isfinite(pose.velocity).all():
                self._received[at] = pose.received
                self.position[at] = pose.position
                self.velocity[at] = pose.velocity[:2]
        self.age = self._clock.now() - self._received
        self.velocity[~self.steered] = 0.0

    def record(self, stage: str) -> None:
        """Write a line of the log."""
        self._diary.write(
            "tick",
            stage=stage,
            position=self.position,
            velocity=self.velocity,
            age=self.age,
            wanted=self._wanted,
            setpoint=self._verdict.velocity,
            reasons=self._verdict.reasons.tolist(),
        )

    def command(self, wanted: Plane, rules: Rules) -> None:
        """Fly these velocities, m/s, as far as the rules allow."""
        sighting = Sighting(self.position, self.velocity, self.age, self.steered, self.flying)
        self._wanted, now = wanted, self._clock.now()
        verdict = self._verdict = apply_rules(rules, wanted, sighting, self._obstacles, self._verdict, now)
        for at, member in enumerate(self.members):
            if member.steered:
                self.set_status(member, Status.PAUSED if verdict.reasons[at] & Reason.PAUSE else Status.OK)
                member.link.hover(verdict.velocity[at], member.height)
            elif member.hovers and not member.lands:
                member.link.hover(np.zeros(2), member.height)
        self.tell_to_land()

    def trouble(self, at: int) -> str | None:
        """Return what is wrong with a drone that cannot go on, or None."""
        member, now = self.members[at], self._clock.now()
        link, state = member.link, member.link.state()
        if (lost := link.lost()) is not None:
            return f"its link is lost ({lost})"
        if self.age[at] > DEAD_SECONDS:
            return f"its position is older than {DEAD_SECONDS:g} s"
        if state is None or now - state.received > DEAD_SECONDS:
            return f"it has said nothing for {DEAD_SECONDS:g} s"
        if state.health & BROKEN:
            return f"it does not fly any more ({(state.health & BROKEN).name})"
        if self._verdict.reasons[at] & Reason.OUTSIDE:
            return "it has left the fence"
        if state.battery >= self._plan.battery_low:
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
        member.failure, member.failed_at = why, self._clock.now()
        member.lands, member.hovers = mode == "land", mode == "hover"
        self.set_status(member, Status.FAILED)
        self._diary.event(f"{member.name} has failed ({mode}): {why}", drone=member.name, failure=mode)
        self.tell_to_land()
        if mode == "motors_off":
            with self._diary.noting(f"stopping the motors of {member.name}"):
                member.link.motors_off()

    def land(self) -> None:
        """Have all drones land that fly, also those that were told before and are still in the air."""
        for at, member in enumerate(self.members):
            member.lands = member.lands or member.steered or member.hovers
            member.told = member.told and self.on_ground(at)
        self.tell_to_land()

    def tell_to_land(self) -> None:
        """Tell those who are to land and have not been told; an error is no reason to give up."""
        for member in self.members:
            if member.lands and not member.told:
                with self._diary.noting(f"landing {member.name}"):
                    member.link.land(self._plan.land_seconds)
                    member.told = True

    def note_landed(self) -> None:
        """Note that drones which are seen standing have landed, and that the others have failed, if only at this."""
        for at, member in enumerate(self.members):
            landed = self.on_ground(at) and self.age[at] <= DEAD_SECONDS
            member.failure = member.failure or (None if landed else "it was not seen to land")
            self.set_status(member, Status.LANDED if landed else Status.FAILED)

    def set_status(self, member: Member, status: Status) -> None:
        """Set the status of a drone, and write it down when it changes."""
        if member.status is not status:
            member.status = status
            self._diary.write("status", drone=member.name, status=status.value)
