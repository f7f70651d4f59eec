"""The log of a flight: one JSON object for each line, written as the flight goes.

The first line has the kind `flight` and all that is needed to understand the rest. A line `tick`, 50 times a second,
holds what was measured and commanded; a line `step` what the policy saw and did; `event` what happened, in words; `end`
how it ended. Times are seconds since the log was begun; everything else is in metres and seconds of the lab.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from jaxtyping import Float, Int

from legoswarm.deploy.plan import Clock, in_words
from legoswarm.files import FileError, finite, read_text

LOG_FORMAT = 1


class Diary:
    """The log and the messages of a mission; times count from its beginning, and without a path no log is kept.

    A full disk or a console that has gone must not keep drones in the air: errors end here.
    """

    def __init__(self, path: Path | None, say: Callable[[str], None], clock: Clock):
        self._path, self._say, self._clock, self._begun = path, say, clock, clock.now()
        self._file: TextIO | None = None
        self._noted: set[str] = set()

    def say(self, words: str) -> None:
        """Tell people something."""
        with contextlib.suppress(Exception):
            self._say(words)

    def write(self, kind: str, **fields: Any) -> None:
        """Write a line of the log; arrays become lists, and numbers that are not finite become null."""
        if self._path is None:
            return
        line = finite({"kind": kind, "t": self._clock.now() - self._begun, **fields}, digits=4)
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = open(self._path, "x", encoding="utf-8")  # noqa: SIM115
            self._file.write(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n")
            self._file.flush()
        except Exception as error:
            if self._is_new(words := f"the log cannot be written: {in_words(error)}"):
                self.say(words)

    def close(self) -> None:
        """Close the log; nothing more is written."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a disk that is full, which was said before
                self._file.close()

    def event(self, words: str, **fields: Any) -> None:
        """Write down something that happened, and tell people."""
        self.write("event", words=words, **fields)
        self.say(words)

    @contextlib.contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Write errors down, each of them once, instead of raising them."""
        try:
            yield
        except Exception as error:
            if self._is_new(words := f"{what}: {in_words(error)}"):
                self.event(words)

    def _is_new(self, words: str) -> bool:
        new = words not in self._noted
        self._noted.add(words)
        return new


@dataclasses.dataclass(frozen=True)
class Flight:
    """A log that was read: its first line, and its ticks and events."""

    about: dict[str, Any]
    time: Float[np.ndarray, " ticks"]
    position: Float[np.ndarray, "ticks drones 3"]
    setpoint: Float[np.ndarray, "ticks drones 2"]
    reasons: Int[np.ndarray, "ticks drones"]
    stage: tuple[str, ...]  # of each tick
    steps: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    end: dict[str, Any] | None  # None if the log breaks off

    def during(self, stage: str) -> slice:
        """Return the range of ticks of a stage."""
        at = [number for number, name in enumerate(self.stage) if name == stage]
        return slice(at[0], at[-1] + 1) if at else slice(0, 0)


def read_flight(path: str | Path) -> Flight:
    """Read a log; one that breaks off in its last line is read up to there."""
    path = Path(path)
    try:
        lines = read_text(path).split("\n")[:-1]  # what follows the last line break is no whole line
        rows = [json.loads(line) for line in lines]
        by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in ("tick", "step", "event", "end")}
        about = rows[0]
        if about["kind"] != "flight" or about["format"] != LOG_FORMAT:
            raise ValueError(f"it is not of format {LOG_FORMAT}")
        ticks, drones = by_kind["tick"], len(about["names"])

        def column(name: str, *shape: int, kind: Any = float) -> Any:
            return np.array([row[name] for row in ticks], kind).reshape(len(ticks), *shape)

        return Flight(
            about,
            column("t"),
            column("position", drones, 3),
            column("setpoint", drones, 2),
            column("reasons", drones, kind=int),
            tuple(row["stage"] for row in ticks),
            tuple(by_kind["step"]),
            tuple(by_kind["event"]),
            by_kind["end"][-1] if by_kind["end"] else None,
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise FileError(f"{path} is not a flight log, or damaged: {error}") from None
