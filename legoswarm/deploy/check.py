"""`legoswarm fly --check FILE`: one drone connects, is looked at, takes off, hovers and lands."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np

from legoswarm.deploy.cflib_link import require_cflib
from legoswarm.deploy.crazyflies import read_crazyflies
from legoswarm.deploy.guard_process import fly_guarded
from legoswarm.deploy.plan import MissionError, Outcome, Report, Robot, Status, Wish
from legoswarm.deploy.setting import Setting

HOVER_SECONDS = 5.0
HEIGHT = 0.4  # m


class Hover:
    """A commander that stays where it is for a while; `drift` is how far the drone got from where it began, m."""

    def __init__(self, seconds: float = HOVER_SECONDS):
        self._seconds, self._begun, self.drift = seconds, None, 0.0

    def wish(self, report: Report) -> Wish:
        """Return that nobody is to move, and after a while that this was it."""
        still = np.zeros_like(report.velocity)
        if report.stage != "run":
            return Wish(still)
        begun, start = self._begun = self._begun or (report.time, report.position.copy())
        self.drift = max(self.drift, float(np.linalg.norm(report.position - start, axis=-1).max()))
        return Wish(1.0 * (start - report.position)[:, :2], done=report.time - begun > self._seconds)


def check_first(path: str | Path, setting: Setting, source: str | None = None, gamepad: bool = False) -> Outcome:
    """Fly the first drone of a file up and down, and say what was found; an error is raised once it has landed."""
    require_cflib()
    first = read_crazyflies(path, captured=source is not None)[0]
    robot = Robot(
        first.name, first.uri, "drone", first.initial_position, first.voltage_warning, first.voltage_critical, HEIGHT,
        parameters=first.parameters,
    )  # fmt: skip
    hover = Hover()
    plan = dataclasses.replace(setting.plan, failure="none")
    outcome = fly_guarded(
        [robot], hover, setting.rules, plan, limits=setting.limits, source=source, gamepad=gamepad, say=_say
    )
    if outcome.error is not None:
        raise outcome.error
    link, status = outcome.links[first.name], outcome.statuses[first.name]
    _say(f"round trip at most {1e3 * (link['latency'] or 0):.0f} ms, {100 * (link['answered'] or 0):.0f} % answered")
    _say(f"lowest battery {link['battery']:.2f} V, moved {hover.drift:.2f} m while it hovered")
    if status is not Status.LANDED:
        raise MissionError(f"{first.name} {status.value}: do not fly it")
    _say(f"{first.name} is fit to fly")
    return outcome


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()
