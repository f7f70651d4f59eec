"""A policy as a commander: at every step of the task it acts on what the guard reports, in between drones follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from legoswarm.deploy.guard import Guard
from legoswarm.deploy.plan import Drone, MissionError, Outcome, Report, Wish
from legoswarm.deploy.safety import Plane
from legoswarm.deploy.setting import Pilot, Reference, Setting


@dataclasses.dataclass(frozen=True)
class Capture:
    """A pursuer that came close enough to an evader."""

    step: int
    time: float  # s since the run began
    pursuer: str
    evader: str


class Mission:
    """An episode of the task, flown: the commander that a guard asks. `track` and `captures` are what came of it."""

    def __init__(self, policy: Pilot, setting: Setting, names: Sequence[str]):
        self.policy, self.setting, self.names = policy, setting, list(names)
        if len(names) != len(setting.roles):
            raise ValueError(f"{len(names)} drones cannot fly the {len(setting.roles)} roles of the setting")
        if setting.plan.failure != "none" and setting.plan.failing >= len(names):
            raise ValueError(f"there is no drone number {setting.plan.failing} that could fail")
        if (top := setting.top_speed) > setting.rules.speed:
            raise ValueError(
                f"the fastest drone of the task would fly {top:.2f} m/s, more than {setting.rules.speed:g}"
            )
        self.captures: list[Capture] = []
        self._places: list[Plane] = []
        self._reference: Reference | None = None
        self._begun, self._step = 0.0, -1
        self._touching: set[tuple[int, int]] = set()

    @property
    def track(self) -> Float[np.ndarray, "steps drones 2"]:
        """Return the positions at the beginning of each step and at the end, m."""
        return np.array(self._places).reshape(-1, len(self.names), 2)

    def wish(self, report: Report) -> Wish:
        """Return the velocities that the task would have now; before the run nobody is to move."""
        plan, setting, still = self.setting.plan, self.setting, np.zeros((len(self.names), 2))
        plane = report.position[:, :2]
        if report.stage != "run":
            if report.stage == "preflight":  # a policy that compiles does it on the ground
                setting.act(self.policy, plane, still, report.steered)
            return Wish(still)
        if self._step >= plan.horizon:
            return Wish(still, done=True)
        if self._reference is None:
            self._reference, self._begun = Reference.at_rest(plane.copy(), report.time), report.time
        notes: list[dict[str, Any]] = []
        fail: dict[int, str] = {}
        if report.time >= self._begun + (self._step + 1) * setting.period - 1e-6:
            self._places.append(plane.copy())
            self._step += 1
            if self._step == plan.horizon:
                return Wish(still, done=True)
            steered = report.steered.copy()
            if self._step == plan.fail_at and plan.failure != "none" and steered[plan.failing]:
                fail, steered[plan.failing] = {plan.failing: plan.failure}, False
            notes += self._act(report, steered)
        velocity = self._reference.velocities(setting, plane, report.time)
        notes += self._note_captures(report)
        return Wish(velocity, fail=fail, notes=tuple(notes))

    def _act(self, report: Report, steered: np.ndarray) -> list[dict[str, Any]]:
        """Take the next step of the policy."""
        assert self._reference is not None
        measured = report.position[:, :2], np.where(steered[:, None], report.velocity, 0.0)
        present = steered | (not self.setting.plan.drop_failed)
        action = self.setting.act(self.policy, *measured, present)
        if not np.isfinite(action[steered]).all():
            raise MissionError("the policy gave an action that is not a number")
        self._reference = self._reference.follow(self.setting, action, measured, steered, present, report.time)
        virtual = self._reference.position.tolist()
        notes = [{"kind": "step", "step": self._step, "action": action.tolist(), "virtual": virtual}]
        if self._step % 10 == 0:
            notes.append({"kind": "say", "words": f"step {self._step} of {self.setting.plan.horizon}"})
        return notes

    def _note_captures(self, report: Report) -> list[dict[str, Any]]:
        """Note each steered pursuer that has just come close enough to an evader."""
        first, names, plane = self.setting.pursuers, self.names, report.position[:, :2]
        close = np.linalg.norm(plane[:first, None] - plane[None, first:], axis=-1) < self.setting.capture_distance
        close[~report.steered[:first]] = False
        touching = {(int(pursuer), first + int(evader)) for pursuer, evader in np.argwhere(close)}
        new, self._touching = sorted(touching - self._touching), touching
        notes = []
        for pursuer, evader in new:
            pair = names[pursuer], names[evader]
            self.captures.append(Capture(self._step, round(report.time - self._begun, 3), *pair))
            words = f"{pair[0]} has caught {pair[1]}"
            notes.append({"kind": "event", "words": words, "capture": list(pair), "step": self._step})
        return notes

    @property
    def about(self) -> dict[str, Any]:
        """Return what a reader of the log must know of the task."""
        setting = self.setting
        chase = {name: getattr(setting, name) for name in ("scale", "stretch", "protocol")}
        about = {"chase": {**chase, "fence": setting.rules.soft_fence}, "capture": setting.capture_distance}
        return {**about, "landmarks": setting.landmarks.tolist()}


def fly_mission(
    drones: Sequence[Drone],
    mission: Mission,
    *,
    log: Path | None = None,
    about: dict[str, Any] | None = None,
    **how: Any,
) -> Outcome:
    """Fly a mission in this process, guard and policy in one; `how` is what else a `Guard` takes."""
    setting = mission.setting
    if tuple(drone.role for drone in drones) != setting.roles:
        raise ValueError("the drones' roles are not those of the setting")
    about = {**mission.about, **(about or {})}
    parts = {"obstacles": setting.obstacles, "limits": setting.limits}
    return Guard(drones, setting.rules, setting.plan, **parts, log=log, about=about, **how).fly(mission)
