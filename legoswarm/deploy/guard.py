"""The guard: it owns the links, flies what a commander wishes as far as the safety rules allow, and brings all down.

A flight connects, checks, takes off, settles, runs, lands and closes its links. At every tick the guard looks where the
drones are and how far that can be trusted (`trust`), tells the commander, takes its newest wish, passes it through the
safety rules (`safety`), and writes all of it down. A commander that says nothing for a second has everybody land.

A drone that fails (a scheduled failure, a position that cannot be trusted, a lost link, a low battery, a drone that
left the fence) is no longer steered: it lands, the others keep away from it and fly on. One that does not come down is
stopped. What concerns all of them (a commander that is silent or breaks down, Ctrl-C) ends the run: all land. Take-off
is a stream of setpoints, so that drones do not stay in the air for a guard that dies; landing is the drone's own.
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
from legoswarm.deploy.plan import (
    Clock,
    Commander,
    Drone,
    MissionError,
    Outcome,
    Plan,
    Report,
    Stage,
    WallClock,
    Wish,
    in_words,
)
from legoswarm.deploy.preflight import check_at_start, check_decks, check_drone, check_link, check_places, prepare_drone
from legoswarm.deploy.punctual import punctual
from legoswarm.deploy.safety import Obstacles, Rules
from legoswarm.deploy.squad import INTO_OBSTACLE, Squad
from legoswarm.deploy.trust import Limits

APART, APART_SECONDS = 0.5, 3.0  # m, s: before landing, drones above each other move apart
LATE_SECONDS = 0.1  # a loop that is later than this says so
HOLD_SECONDS = 0.3  # s after which a wish is old: drones stand
LIFT = 0.1  # m; below it, a drone that takes off is not moved sideways
IN_FLIGHT = (Stage.TAKEOFF, Stage.SETTLE, Stage.RUN)
EMERGENCY = "emergency stop"


class Guard:
    """One flight of some drones, which the method `fly` carries out for a commander."""

    def __init__(
        self,
        drones: Sequence[Drone],
        rules: Rules | None = None,
        plan: Plan | None = None,
        *,
        obstacles: Obstacles | None = None,
        limits: Limits | None = None,
        positions: Positions | None = None,
        clock: Clock | None = None,
        log: Path | None = None,
        say: Callable[[str], None] | None = None,
        about: dict[str, Any] | None = None,
        orders: Callable[[], Sequence[str]] = tuple,
    ):
        self.drones, self.rules, self.plan = list(drones), rules or Rules(), plan or Plan()
        self.obstacles = obstacles or Obstacles(np.zeros((0, 2)), np.zeros(0))
        self.limits, self._names = limits or Limits(), [drone.name for drone in drones]
        self._clock: Clock = WallClock() if clock is None else clock
        self._diary = Diary(log, say or (lambda words: None), self._clock)
        self._about, self._orders, self._positions = about or {}, orders, positions
        self.squad = Squad(self.drones, self.plan, self.obstacles, self.limits, positions, self._clock, self._diary)
        starts = np.array([drone.start for drone in drones], float).reshape(-1, 3)
        check_places(self._names, starts, self.rules, self.obstacles)
        for name, height in zip(self._names, self.squad.heights, strict=True):
            if not self.rules.floor <= height <= self.rules.soft_ceiling:
                low, high = self.rules.floor, self.rules.soft_ceiling
                raise MissionError(f"{name} would fly at {height:g} m, but the rules allow {low:g} to {high:g} m")
        self._due = self._clock.now()
        self._stage = self._reached = Stage.CONNECT
        self._interrupts = 0
        self._heard = False  # anything of the commander
        self._wish, self._wished = Wish(np.zeros((len(drones), 2))), self._clock.now()
        self._commander: Commander | None = None

    def fly(self, commander: Commander) -> Outcome:
        """Go through all stages and return how it ended; an error stands in the outcome, and the drones have landed."""
        self._commander, error = commander, None
        with self._catching_interrupts(), self._keeping_time():
            try:
                self._write_about()
                self._connect()
                self._preflight()
                self._take_off()
                self._run()
            except BaseException as caught:
                error = caught
                self._diary.event(f"the flight ends early: {in_words(caught)}")
            self._land()
            self._close()
        if error is None and self._interrupts:  # while they landed: nothing else is to be flown
            error = KeyboardInterrupt()
        members = self.squad.members
        outcome = Outcome(
            self._reached,
            error,
            {member.name: member.status for member in members},
            {member.name: member.failure for member in members if member.failure},
            {member.name: member.link.longest_interval for member in members},
            {member.name: member.worst for member in members},
        )
        self._diary.write("end", **outcome.to_json())
        self._diary.close()
        return outcome

    # The stages

    def _connect(self) -> None:
        self._enter(Stage.CONNECT)
        for drone in self.drones:
            self._check_orders()
            drone.link.open(self.plan.connect_seconds)

    def _preflight(self) -> None:
        self._enter(Stage.PREFLIGHT)
        for drone in self.drones:
            self._check_orders()
            prepare_drone(drone, self.plan)
            check_drone(drone, self.plan)
            decks = check_decks(drone, self.plan, self._positions is not None)
            state = drone.link.state()
            volts = 0.0 if state is None else state.battery
            self._diary.event(f"{drone.name}: battery {volts:.2f} V, decks {', '.join(decks) or 'none'}")
            if self.plan.poses == "given" and self._positions is None:
                drone.link.set_pose(*drone.start, 0.0, self.plan.connect_seconds)
        self._due = self._clock.now()
        self._wait(lambda: self.squad.age < self.limits.old, 2.0, "does not say where it is")
        patience = 2.0 if self._positions is None else self.plan.connect_seconds  # estimators take some poses
        self._wait(lambda: self.squad.sure, patience, "is not sure where it is")
        check_at_start(self.drones, self.squad.position, self.plan.near)
        check_places(self._names, self.squad.position, self.rules, self.obstacles)
        for drone in self.drones:
            check_link(drone, self.limits)
        deadline = self._clock.now() + self.plan.connect_seconds
        while not self._heard:  # a policy that is slow at first is so on the ground
            if self._clock.now() > deadline:
                raise MissionError(f"the policy does not answer within {self.plan.connect_seconds:g} s")
            self._exchange()
            self._next_tick()

    def _take_off(self) -> None:
        """Rise above the starts, by setpoints whose height grows, and hover there."""
        self._enter(Stage.TAKEOFF)
        starts, rising = np.array([drone.start for drone in self.drones], float), self.plan.take_off_seconds
        goals, begun = self.squad.heights, self._clock.now()

        def rise() -> np.ndarray:
            share = min((self._clock.now() - begun) / rising, 1.0)
            off = starts[:, :2] - self.squad.plane
            lifted = self.squad.position[:, 2] > starts[:, 2] + LIFT
            heights = starts[:, 2] + share * (goals - starts[:, 2])
            self.squad.command(2.0 * off * lifted[:, None], self.rules, heights, floor=0.0)
            return np.abs(self.squad.position[:, 2] - goals) < 0.15

        def hover() -> np.ndarray:
            off = starts[:, :2] - self.squad.plane
            self.squad.command(2.0 * off, self.rules)
            unrest = np.linalg.norm(off, axis=-1) + np.linalg.norm(self.squad.velocity, axis=-1)
            return (unrest < 0.2) & (self._clock.now() - begun >= rising + self.plan.settle_seconds)

        self._wait(rise, rising + 3.0, "did not reach its height")
        self._enter(Stage.SETTLE)
        self._wait(hover, self.plan.settle_seconds + 5.0, "does not hover steadily")

    def _run(self) -> None:
        self._enter(Stage.RUN)
        self._exchange()
        while not self._wish.done:
            if not self.squad.steered.any():
                raise MissionError("no drone is left to fly")
            stands = self._clock.now() - self._wished > HOLD_SECONDS
            velocity = np.zeros_like(self._wish.velocity) if stands else self._wish.velocity
            self.squad.command(velocity, self.rules, self._wish.height)
            self._next_tick()

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
        """Move drones from where they would land on others, as if all were in one layer with a larger separation."""
        separation = max(APART, self.rules.separation)
        rules = dataclasses.replace(self.rules, layer=self.rules.wake + 10.0, separation=separation)
        deadline = self._clock.now() + APART_SECONDS
        while self._clock.now() < deadline and self.squad.steered.any():
            plane, steered = self.squad.plane, self.squad.steered
            gaps = np.linalg.norm(plane[:, None] - plane[None], axis=-1) + separation * np.eye(len(plane))
            if (gaps[steered] > 0.9 * separation).all():
                return
            self.squad.command(np.zeros((len(self.drones), 2)), rules, beware=True)
            self._next_tick()
            self._watch()
        if self.squad.steered.any():
            self._diary.event("drones are still above each other: they land all the same")

    def _everybody_stands_within(self, seconds: float) -> bool:
        """Wait until the landing is over and everybody stands, but not for ever."""
        begun = self._clock.now()
        while True:
            with self._diary.noting("landing"):
                self._next_tick()
            self.squad.tell_to_land()
            passed = self._clock.now() - begun
            rest = self.squad.at_rest or passed > self.plan.land_seconds + 0.5
            if passed > 0.5 and rest and not self.squad.flying.any():
                return True
            if passed > seconds:
                return False

    def _next_tick(self) -> None:
        """Wait for the next tick, look where everybody is and how everybody does, and write it down."""
        self._due += 1 / self.plan.rate
        if (late := self._clock.now() - self._due) > LATE_SECONDS:
            self._diary.event(f"the loop is late by {late:.2f} s")
            self._due = self._clock.now()
        self._clock.sleep_until(self._due)
        self._check_orders()  # first: nothing that goes wrong below may keep people from stopping drones
        self.squad.look()
        self.squad.record(self._stage.value)
        if self._stage in IN_FLIGHT:
            self._watch()
            self.squad.watch_landings(self.rules)
            self._exchange()
            if (silence := self._clock.now() - self._wished) > self.plan.stall_seconds:
                raise MissionError(f"the policy has said nothing for {silence:.1f} s")
        elif self._stage is Stage.LAND:
            self.squad.watch_landings(self.rules)

    def _watch(self) -> None:
        """Find drones that have failed; before the run nobody may fail."""
        for at, member in enumerate(self.squad.members):
            if not (member.steered or member.hovers):
                continue
            if member.trust.astray:
                self.squad.stop(at, "it goes astray")
            elif member.at_obstacle > 1:
                self.squad.stop(at, INTO_OBSTACLE)
            if (why := self.squad.trouble(at, self.rules)) is not None or member.stopped:
                self.squad.fail(at, why or "", "land")
                why = member.failure
                if self._stage in (Stage.TAKEOFF, Stage.SETTLE):
                    raise MissionError(f"{member.name} failed before the run: {why}")

    # The commander and other people

    def _report(self) -> Report:
        squad = self.squad
        return Report(self._clock.now(), self._stage.value, squad.position.copy(), squad.velocity.copy(), squad.steered)

    def _exchange(self) -> None:
        """Tell the commander where everybody is, and take its newest wish."""
        assert self._commander is not None
        if (wish := self._commander.wish(self._report())) is None:
            return
        self._wish, self._wished = wish, self._clock.now()
        self._heard = True
        self._write_notes(wish)
        self._stop(wish.stop)
        if wish.land is not None:
            raise MissionError(wish.land)
        for at, mode in wish.fail.items():
            if self._stage is Stage.RUN:
                self.squad.fail(at, "scheduled", mode)
        if self._stage is Stage.RUN and not wish.done and not np.isfinite(wish.velocity[self.squad.steered]).all():
            raise MissionError("the policy gave an action that is not a number")

    def _write_notes(self, wish: Wish) -> None:
        for note in wish.notes:
            fields = {name: value for name, value in note.items() if name not in ("kind", "words")}
            if note["kind"] == "event":
                self._diary.event(note["words"], **fields)
            elif note["kind"] == "say":
                self._diary.say(note["words"])
            else:
                self._diary.write(note["kind"], **fields)

    def _check_orders(self) -> None:
        """Do what people want: Ctrl-C or `land` lands all, a second Ctrl-C or `stop` stops all, a name that one.

        What was stopped stays so.
        """
        for order in self._orders():
            if order == "land":  # however often
                self._interrupts = max(self._interrupts, 1)
            if order == "stop" or order in self._names:
                self._stop([order] if order in self._names else self._names)
        if self._interrupts > 1:
            self._stop(self._names)
        if self._interrupts and self._stage not in (Stage.LAND, Stage.CLOSE):
            raise KeyboardInterrupt

    def _stop(self, names: Sequence[str]) -> None:
        for at in [at for at, name in enumerate(self._names) if name in names]:
            self.squad.stop(at, EMERGENCY)
        if set(names) >= set(self._names) and self._stage not in (Stage.LAND, Stage.CLOSE):
            raise MissionError(EMERGENCY)

    @contextlib.contextmanager
    def _catching_interrupts(self) -> Iterator[None]:
        """Count Ctrl-C, so that it cuts no line of the flight short; requests to end are one, however often."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(number: int, frame: object) -> None:
            self._interrupts = self._interrupts + 1 if number == signal.SIGINT else max(self._interrupts, 1)

        signals = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
        before = {number: signal.signal(number, count) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # The log

    def _enter(self, stage: Stage) -> None:
        self._stage = stage
        if stage not in (Stage.LAND, Stage.CLOSE):
            self._reached = stage
        self._due = self._wished = self._clock.now()
        self._diary.write("stage", stage=stage.value)
        self._diary.say(stage.value)

    def _write_about(self) -> None:
        radii, centres = self.obstacles.radius.tolist(), self.obstacles.centre.tolist()
        self._diary.write(
            "flight",
            format=LOG_FORMAT,
            names=self._names,
            roles=[drone.role for drone in self.drones],
            starts=[drone.start for drone in self.drones],
            obstacles=[{"centre": centre, "radius": radius} for centre, radius in zip(centres, radii, strict=True)],
            rules=dataclasses.asdict(self.rules),
            limits=dataclasses.asdict(self.limits),
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
