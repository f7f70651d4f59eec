"""The mission: connect, check, take off, settle, run, land, close. Whatever happens in between, the drones land.

A drone that fails (a scheduled failure, an old position, a lost link, a low battery, a drone that tumbled or left the
fence) is no longer steered: it stays in the policy's scene as something that stands still, and the others fly on. What
concerns all of them (an action that is not a number, an error in the loop, Ctrl-C) ends the run: all land. No link is
closed while its drone is above 0.1 m, and motors are stopped only for a drone whose failure is `motors_off`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.deploy.flightlog import LOG_FORMAT, Diary
from legoswarm.deploy.link import Positions
from legoswarm.deploy.plan import Capture, Clock, Drone, MissionError, Outcome, Stage, WallClock, in_words
from legoswarm.deploy.preflight import check_at_start, check_drone, check_places
from legoswarm.deploy.punctual import punctual
from legoswarm.deploy.safety import Plane
from legoswarm.deploy.setting import Pilot, Reference, Setting
from legoswarm.deploy.squad import Squad

APART, APART_SECONDS = 0.5, 3.0  # m, s: before landing, drones above each other move apart
LATE_SECONDS = 0.1  # a loop that is later than this says so


class Mission:
    """One flight of all drones, which the method `fly` carries out."""

    def __init__(
        self,
        drones: Sequence[Drone],
        policy: Pilot,
        setting: Setting,
        *,
        positions: Positions | None = None,
        clock: Clock | None = None,
        log: Path | None = None,
        say: Callable[[str], None] | None = None,
        about: dict[str, Any] | None = None,
    ):
        self.drones, self.policy, self.setting = list(drones), policy, setting
        self.rules, self.plan, self._names = setting.rules, setting.plan, [drone.name for drone in drones]
        if tuple(drone.role for drone in drones) != setting.roles:
            raise ValueError("the drones' roles are not those of the setting")
        if self.plan.failure != "none" and self.plan.failing >= len(drones):
            raise ValueError(f"there is no drone number {self.plan.failing} that could fail")
        if (top := setting.top_speed) > self.rules.speed:
            raise ValueError(f"the fastest drone of the task would fly {top:.2f} m/s, more than {self.rules.speed:g}")
        check_places(self._names, np.array([drone.start for drone in drones], float), setting)
        self._clock: Clock = WallClock() if clock is None else clock
        self._diary = Diary(log, say or (lambda words: None), self._clock)
        self._about = about or {}
        self.squad = Squad(self.drones, setting, positions, self._clock, self._diary)
        self._ticks = max(round(setting.period * self.plan.rate), 1)  # of a step
        self._due = self._clock.now()
        self._stage = self._reached = Stage.CONNECT
        self._interrupted = threading.Event()
        self._captures: list[Capture] = []
        self._touching: set[tuple[int, int]] = set()
        self._track: list[Plane] = []

    def fly(self) -> Outcome:
        """Go through all stages and return how it ended; an error stands in the outcome, and the drones have landed."""
        error: BaseException | None = None
        with self._catching_interrupts(), self._keeping_time():
            try:
                self._write_about()
                self._connect()
                self._preflight()
                self._take_off()
                self._settle()
                self._run()
            except BaseException as caught:
                error = caught
                self._diary.event(f"the mission ends early: {in_words(caught)}")
            self._land()
            self._close()
        if error is None and self._interrupted.is_set():  # while they landed: nothing else is to be flown
            error = KeyboardInterrupt()
        members = self.squad.members
        outcome = Outcome(
            self._reached,
            error,
            {member.name: member.status for member in members},
            {member.name: member.failure for member in members if member.failure},
            tuple(self._captures),
            np.array(self._track).reshape(-1, len(members), 2),
            {member.name: member.link.longest_interval for member in members},
        )
        self._diary.write("end", **outcome.to_json())
        self._diary.close()
        return outcome

    # The stages

    def _connect(self) -> None:
        self._enter(Stage.CONNECT)
        for drone in self.drones:
            self._check_interrupt()
            drone.link.open(self.plan.connect_seconds)

    def _preflight(self) -> None:
        self._enter(Stage.PREFLIGHT)
        for drone in self.drones:
            self._check_interrupt()
            check_drone(drone, self.plan)
        for drone in self.drones:
            self._check_interrupt()
            if self.plan.poses == "given":
                drone.link.set_pose(*drone.start, 0.0, timeout=self.plan.connect_seconds)
        self._due = self._clock.now()
        self._wait(lambda: self.squad.age <= self.rules.stale, 2.0, "does not say where it is")
        check_at_start(self.drones, self.squad.position, self.plan.near)
        check_places(self._names, self.squad.position, self.setting)

    def _take_off(self) -> None:
        self._enter(Stage.TAKEOFF)
        heights = [member.height for member in self.squad.members]
        for member in self.squad.members:
            member.link.take_off(member.height, self.plan.take_off_seconds)
        self._wait(
            lambda: np.abs(self.squad.position[:, 2] - heights) < 0.15,
            self.plan.take_off_seconds + 3.0,
            "did not reach its height",
        )

    def _settle(self) -> None:
        self._enter(Stage.SETTLE)
        starts = np.array([drone.start[:2] for drone in self.drones])
        begun = self._clock.now()

        def hover() -> np.ndarray:
            off = starts - self.squad.plane
            self.squad.command(2.0 * off, self.rules)
            unrest = np.linalg.norm(off, axis=-1) + np.linalg.norm(self.squad.velocity, axis=-1)
            return (unrest < 0.2) & (self._clock.now() - begun >= self.plan.settle_seconds)

        self._wait(hover, self.plan.settle_seconds + 5.0, "does not hover steadily")

    def _run(self) -> None:
        self._enter(Stage.RUN)
        plan, squad, begun = self.plan, self.squad, self._clock.now()
        reference = Reference.at_rest(squad.plane.copy(), begun)
        for step in range(plan.horizon):
            if step == plan.fail_at and plan.failure != "none" and squad.members[plan.failing].steered:
                squad.fail(plan.failing, "scheduled", plan.failure)
            steered = squad.steered
            if not steered.any():
                raise MissionError("no drone is left to fly")
            measured = squad.plane.copy(), squad.velocity.copy()
            present = steered | (not plan.drop_failed)
            self._track.append(measured[0])
            action = self.setting.act(self.policy, *measured, present)
            if not np.isfinite(action[steered]).all():
                raise MissionError("the policy gave an action that is not a number")
            reference = reference.follow(self.setting, action, measured, steered, present, self._clock.now())
            self._diary.write("step", step=step, action=action, virtual=reference.position)
            if step % 10 == 0:
                self._diary.say(f"step {step} of {plan.horizon}")
            for _ in range(self._ticks):
                squad.command(reference.velocities(self.setting, squad.plane, self._clock.now()), self.rules)
                self._next_tick()
                self._note_captures(step, self._clock.now() - begun)
        self._track.append(squad.plane.copy())

    def _land(self) -> None:
        """Bring everybody down; nothing that goes wrong here keeps another drone in the air."""
        self._stage = Stage.LAND
        if self._reached in (Stage.CONNECT, Stage.PREFLIGHT):
            return
        self._enter(Stage.LAND)
        if self._reached in (Stage.SETTLE, Stage.RUN):
            with self._diary.noting("moving apart before landing"):
                self._move_apart()
        for _ in range(2):
            self.squad.land()
            if self._everybody_stands_within(self.plan.land_seconds + 3.0):
                break
        self.squad.note_landed()

    def _close(self) -> None:
        self._enter(Stage.CLOSE)
        for drone in self.drones:
            with self._diary.noting(f"closing the link to {drone.name}"):
                drone.link.close()

    # Parts of them

    def _wait(self, ready: Callable[[], np.ndarray], seconds: float, complaint: str) -> None:
        """Let time pass until all drones are ready; complain about the first that is not in time."""
        deadline = self._clock.now() + seconds
        self._next_tick()
        while not (done := ready()).all():
            if self._clock.now() > deadline:
                raise MissionError(f"{self._names[int(done.argmin())]} {complaint}")
            self._next_tick()

    def _move_apart(self) -> None:
        """Move drones apart that would land on each other, as if all were in one layer with a larger separation."""
        separation = max(APART, self.rules.separation)
        rules = dataclasses.replace(self.rules, layer=self.rules.wake + 10.0, separation=separation)
        deadline = self._clock.now() + APART_SECONDS
        while self._clock.now() < deadline:
            plane = self.squad.plane[self.squad.flying]
            gaps = np.linalg.norm(plane[:, None] - plane[None], axis=-1) + separation * np.eye(len(plane))
            if (gaps > 0.9 * separation).all():
                return
            self.squad.command(np.zeros((len(self.drones), 2)), rules)
            self._next_tick()
        self._diary.event("drones are still above each other: they land all the same")

    def _everybody_stands_within(self, seconds: float) -> bool:
        """Wait until the landing is over and everybody stands, but not for ever."""
        begun = self._clock.now()
        while True:
            with self._diary.noting("landing"):
                self._next_tick()
            self.squad.tell_to_land()
            passed = self._clock.now() - begun
            if passed > self.plan.land_seconds + 0.5 and not self.squad.flying.any():
                return True
            if passed > seconds:
                return False

    def _next_tick(self) -> None:
        """Wait for the next tick, look where everybody is and how everybody does, and write it down."""
        self._due += self.setting.period / self._ticks
        if (late := self._clock.now() - self._due) > LATE_SECONDS:
            self._diary.event(f"the loop is late by {late:.2f} s")
            self._due = self._clock.now()
        self._clock.sleep_until(self._due)
        self.squad.look()
        self.squad.record(self._stage.value)
        if self._stage in (Stage.TAKEOFF, Stage.SETTLE, Stage.RUN):
            self._watch()
        self._check_interrupt()

    def _watch(self) -> None:
        """Find drones that have failed; before the run nobody may fail."""
        for at, member in enumerate(self.squad.members):
            if member.steered and (why := self.squad.trouble(at)) is not None:
                if self._stage is not Stage.RUN:
                    raise MissionError(f"{member.name} failed before the run: {why}")
                self.squad.fail(at, why, "land")

    def _note_captures(self, step: int, seconds: float) -> None:
        """Note each steered pursuer that has just come close enough to an evader."""
        reach, first, names = self.setting.capture_distance, self.setting.pursuers, self._names
        gaps = np.linalg.norm(self.squad.plane[:first, None] - self.squad.plane[None, first:], axis=-1)
        close = gaps < reach
        close[~self.squad.steered[:first]] = False
        touching = {(int(pursuer), first + int(evader)) for pursuer, evader in np.argwhere(close)}
        for pursuer, evader in sorted(touching - self._touching):
            self._captures.append(Capture(step, round(seconds, 3), names[pursuer], names[evader]))
            words = f"{names[pursuer]} has caught {names[evader]}"
            self._diary.event(words, capture=[names[pursuer], names[evader]], step=step)
        self._touching = touching

    def _enter(self, stage: Stage) -> None:
        self._stage = stage
        if stage not in (Stage.LAND, Stage.CLOSE):
            self._reached = stage
        self._due = self._clock.now()
        self._diary.write("stage", stage=stage.value)
        self._diary.say(stage.value)

    def _write_about(self) -> None:
        setting, fence = self.setting, self.rules.soft_fence
        self._diary.write(
            "flight",
            format=LOG_FORMAT,
            names=self._names,
            roles=list(self.setting.roles),
            starts=[drone.start for drone in self.drones],
            obstacles=[{"centre": centre, "radius": setting.obstacle_radius} for centre in setting.centres],
            chase={**{name: getattr(setting, name) for name in ("scale", "stretch", "protocol")}, "fence": fence},
            capture=self.setting.capture_distance,
            rules=dataclasses.asdict(self.rules),
            plan=dataclasses.asdict(self.plan),
            **self._about,
        )

    @contextlib.contextmanager
    def _keeping_time(self) -> Iterator[None]:
        """Have a flight in real time come before other programs; a simulated clock waits for the program anyway."""
        if not isinstance(self._clock, WallClock):
            yield
            return
        with punctual() as first:
            if not first:
                self._diary.event("other programs may make this one late: the system does not let it come first")
            yield

    # Interrupts

    def _check_interrupt(self) -> None:
        if self._interrupted.is_set() and self._stage not in (Stage.LAND, Stage.CLOSE):
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _catching_interrupts(self) -> Iterator[None]:
        """Turn Ctrl-C and requests to end into a flag, so that they cut no line of the mission short."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
        before = {number: signal.signal(number, lambda *_: self._interrupted.set()) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
