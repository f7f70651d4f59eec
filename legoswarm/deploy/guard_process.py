"""The guard in a process of its own, which owns the links; the commander's process only writes wishes into its mailbox.

The two talk in lines of JSON over the guard's standard input and output: reports one way, 50 times a second, wishes the
other. Nobody waits for the other. The guard runs in a session of its own, so that no signal of a terminal reaches it: a
commander's process that is killed, stopped or stalled leaves the mailbox silent, and the guard lands everybody.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.deploy.guard import Guard
from legoswarm.deploy.panel import KEYS, Panel, key_by_key
from legoswarm.deploy.plan import Commander, Drone, MissionError, Outcome, Plan, Report, Robot, Wish, in_words
from legoswarm.deploy.safety import Obstacles, Rules
from legoswarm.deploy.sources import open_source
from legoswarm.deploy.trust import Limits
from legoswarm.files import finite


def fly_guarded(
    robots: Sequence[Robot],
    commander: Commander,
    rules: Rules | None = None,
    plan: Plan | None = None,
    *,
    obstacles: Obstacles | None = None,
    limits: Limits | None = None,
    source: str | None = None,
    air: int | None = None,
    gamepad: bool = False,
    log: Path | None = None,
    say: Callable[[str], None] = lambda words: None,
    about: dict[str, Any] | None = None,
) -> Outcome:
    """Fly drones in real time for a commander in this process, by a guard in another one; return how it ended.

    `source` says where positions come from besides the drones themselves (see `sources`); `air` is the port of a
    simulated radio. Ctrl-C lands everybody, a second one stops all motors.
    """
    poles = obstacles or Obstacles(np.zeros((0, 2)), np.zeros(0))
    brief = {
        "robots": [dataclasses.asdict(robot) for robot in robots],
        "rules": dataclasses.asdict(rules or Rules()),
        "plan": dataclasses.asdict(plan or Plan()),
        "limits": dataclasses.asdict(limits or Limits()),
        "obstacles": {"centre": poles.centre.tolist(), "radius": poles.radius.tolist()},
        "source": source,
        "air": air,
        "gamepad": gamepad,
        "log": None if log is None else str(log),
        "about": about or {},
    }
    with _Guardian(brief) as guardian, guardian.passing_interrupts():
        return _converse(guardian, commander, say)


def _converse(guardian: _Guardian, commander: Commander, say: Callable[[str], None]) -> Outcome:
    """Answer the newest report with a wish until the guard says how it ended; an error here has everybody land."""
    failed: BaseException | None = None
    for messages in guardian.messages():
        for message in messages:
            if "say" in message:
                say(message["say"])
            elif "outcome" in message:
                outcome = Outcome.from_json(message["outcome"])
                return outcome if failed is None else dataclasses.replace(outcome, error=failed)
            elif "interrupted" in message:
                failed = failed or KeyboardInterrupt()
        reports = [message["report"] for message in messages if "report" in message]
        if not reports or (failed is not None and not isinstance(failed, KeyboardInterrupt)):
            continue
        report = Report.from_json(reports[-1])
        try:
            wish = commander.wish(report)
            said = None if wish is None else wish.to_json()
        except Exception as error:
            failed = error
            said = Wish(np.zeros((len(report.steered), 2)), land=in_words(error)).to_json()
        if said is not None:
            guardian.send(said)
    raise MissionError("the guard's process has ended: the drones' own watchdogs level them out and stop their motors")


class _Guardian(contextlib.AbstractContextManager["_Guardian"]):
    """The guard's process, seen from the commander's."""

    def __init__(self, brief: dict[str, Any]):
        wire, self._wire = os.pipe()
        terminal = sys.stdin.fileno() if _is_terminal() else None
        brief = {**brief, "wire": wire, "terminal": terminal}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "legoswarm.deploy.guard_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=[wire] + ([] if terminal is None else [terminal]),
        )
        os.close(wire)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._out, self._in = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.send(brief)

    def send(self, message: dict[str, Any]) -> None:
        """Write a line; a guard that has gone is noticed when it is read from."""
        line = (json.dumps(message) + "\n").encode()
        with contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._out, line) :]

    def messages(self) -> Iterator[list[dict[str, Any]]]:
        """Yield what the guard has said, as many lines at once as there are."""
        rest = b""
        while more := os.read(self._in, 1 << 16):
            *lines, rest = (rest + more).split(b"\n")
            yield [json.loads(line) for line in lines]

    @contextlib.contextmanager
    def passing_interrupts(self) -> Iterator[None]:
        """Pass Ctrl-C on instead of being cut short by it: the first one lands all, the second one stops all.

        Other requests to end land all, however often they come.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        count = 0

        def tell(number: int, frame: object) -> None:
            nonlocal count
            count += number == signal.SIGINT
            with contextlib.suppress(OSError):
                os.write(self._wire, b" " if number == signal.SIGINT and count > 1 else b"l")

        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, tell) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def __exit__(self, *_: object) -> None:
        """Let the guard end by itself: it lands everybody when nobody speaks to it any more."""
        os.close(self._wire)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _is_terminal() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except (ValueError, OSError):  # closed
        return False


# The guard's side


class Mailbox:
    """The commander, seen from the guard's process: what it wished last, as far as it has arrived."""

    def __init__(self, lines: Lines):
        self._lines = lines

    def wish(self, report: Report) -> Wish | None:
        """Tell the commander where everybody is, and return what it has wished since; an ended one has all land."""
        self._lines.write({"report": finite(report.to_json(), digits=5)})
        wishes = [Wish.from_json(line) for line in self._lines.read()]
        if not wishes:
            if self._lines.ended:
                return Wish(np.zeros_like(report.velocity), land="the process of the policy has ended")
            return None
        notes = tuple(note for wish in wishes for note in wish.notes)
        fail = {at: mode for wish in wishes for at, mode in wish.fail.items()}
        land = next((wish.land for wish in wishes if wish.land is not None), None)
        stop = tuple({name for wish in wishes for name in wish.stop})
        done = any(wish.done for wish in wishes)
        return dataclasses.replace(wishes[-1], notes=notes, fail=fail, land=land, stop=stop, done=done)


class Lines:
    """Lines of JSON that come in and go out without anybody waiting; what the other side does not read gets lost."""

    def __init__(self, come: int, go: int):
        self._come, self._go, self._rest, self._left = come, go, b"", b""
        self.ended = False
        os.set_blocking(go, False)

    def first(self) -> dict[str, Any]:
        """Wait for a line and return it."""
        while b"\n" not in self._rest:
            self._take()
            if self.ended:
                raise SystemExit("the guard was told nothing")
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    def read(self) -> list[dict[str, Any]]:
        """Return the lines that have come."""
        while not self.ended and select.select([self._come], [], [], 0)[0]:
            self._take()
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def write(self, message: dict[str, Any], patience: float = 0.0) -> None:
        """Write a line, unless the other side leaves no room for it within some seconds."""
        if self._flush(patience):
            self._left = (json.dumps(message) + "\n").encode()
            self._flush(patience)

    def _flush(self, patience: float) -> bool:
        try:
            while self._left and select.select([], [self._go], [], patience)[1]:
                self._left = self._left[os.write(self._go, self._left) :]
        except OSError:  # nobody reads any more
            self._left = b""
        return not self._left

    def _take(self) -> None:
        more = os.read(self._come, 1 << 16)
        self.ended = not more
        self._rest += more


def main() -> None:
    """Be the guard of a flight that the first line of input describes."""
    lines = Lines(0, os.dup(1))
    os.dup2(2, 1)  # what libraries print is no message
    brief = lines.first()
    robots = [Robot(**{**values, "start": tuple(values["start"])}) for values in brief["robots"]]
    names, terminal = [robot.name for robot in robots], brief["terminal"]
    poles = {name: np.array(values, float) for name, values in brief["obstacles"].items()}
    with contextlib.ExitStack() as running:
        try:
            source = running.enter_context(open_source(brief["source"]))
            if brief["air"] is not None:
                from legoswarm.deploy.sitl.dongle import radio

                running.enter_context(radio(brief["air"]))
            panel = Panel(names, brief["wire"], terminal, brief["gamepad"])
            running.enter_context(key_by_key(terminal))
            guard = Guard(
                [_drone(robot) for robot in robots],
                Rules(**brief["rules"]),
                Plan(**brief["plan"]),
                obstacles=Obstacles(poles["centre"].reshape(-1, 2), poles["radius"]),
                limits=Limits(**brief["limits"]),
                positions=source,
                log=None if brief["log"] is None else Path(brief["log"]),
                say=lambda words: lines.write({"say": words}),
                about=brief["about"],
                orders=panel,
            )
        except (ValueError, OSError) as error:
            words = str(error) if isinstance(error, ValueError) else f"{error.filename or 'a file'}: {error.strerror}"
            empty = {"reached": "connect", "error": words, "statuses": {}, "failures": {}, "intervals": {}, "links": {}}
            lines.write({"outcome": empty}, 1.0)
            return
        if terminal is not None:
            lines.write({"say": KEYS}, 0.05)
        outcome = guard.fly(Mailbox(lines))
    if isinstance(outcome.error, KeyboardInterrupt):
        lines.write({"interrupted": True}, 1.0)
    lines.write({"outcome": outcome.to_json()}, 1.0)


def _drone(robot: Robot) -> Drone:
    from legoswarm.deploy.cflib_link import CflibLink

    rest = {name: getattr(robot, name) for name in ("full", "critical", "height", "parameters")}
    return Drone(CflibLink(robot.name, robot.uri), robot.role, robot.start, **rest)


if __name__ == "__main__":
    main()
