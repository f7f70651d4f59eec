"""The lock on this machine's device: trainings share it, and what is timed has it alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def device_lock(*, alone: bool = False) -> Iterator[None]:
    """Hold a share of this machine's device while something trains, or all of it for what is timed.

    All of it is to be had once no other process of this user has a share, and shares once nobody has all of it.
    """
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # no file system, or none with locks
            path = Path(tempfile.gettempdir()) / f"legoswarm-{os.getuid()}.lock"
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            held.callback(os.close, lock)
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.stderr.write("waiting for another run on this machine: one of the two is timed\n")
                fcntl.flock(lock, kind)
        yield
