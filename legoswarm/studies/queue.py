"""Parts of studies side by side, each in a process of its own: while one trains, others compile or measure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PAUSE = 0.2  # seconds between looks at the processes


def side_by_side(parts: Sequence[str], words: Sequence[str], jobs: int, logs: Path) -> list[str]:
    """Run `legoswarm study PART WORDS` for each part, so many at a time; return the names of those that failed."""
    logs.mkdir(parents=True, exist_ok=True)
    say(f"{jobs} at a time; what they say is in {logs}/*.log")
    waiting, failed = list(parts), []
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a kill stops them as Ctrl-C does
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                running[name] = _start(name, words, logs), time.monotonic()
                say(f"[{len(parts) - len(waiting)}/{len(parts)}] {name}")
            time.sleep(PAUSE)
            for name in [name for name, (process, _) in running.items() if process.poll() is not None]:
                process, started = running.pop(name)
                if process.returncode:
                    failed.append(name)
                    say(f"{name} failed: {_last_line(_log(name, logs))}")
                else:
                    say(f"{name} took {time.monotonic() - started:.0f} s")
    finally:
        for process, _ in running.values():
            process.send_signal(signal.SIGINT)  # they save what they have
        for process, _ in running.values():
            process.wait()
        signal.signal(signal.SIGTERM, before)
    return failed


def say(text: str) -> None:
    """Write a line to stderr, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _start(name: str, words: Sequence[str], logs: Path) -> subprocess.Popen[bytes]:
    """Start a process that shares the GPU's memory, and that a Ctrl-C in the terminal does not reach on its own."""
    command = [sys.executable, "-m", "legoswarm.cli", "study", name, *words]
    settings = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with open(_log(name, logs), "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=settings, start_new_session=True)


def _log(name: str, logs: Path) -> Path:
    return logs / f"{name.replace('/', '-')}.log"


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
