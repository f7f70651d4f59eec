"""Keeping time on a machine that does other work too: what sends setpoints to drones must not wait for it."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator

SWITCH_SECONDS = 1e-3  # how long a thread may keep others of this process waiting; Python's own choice is 5e-3
NICE = -15
NOT_HERE = (AttributeError, OSError)  # a system that does not have it, or does not permit it


def come_first() -> bool:
    """Run this thread, and those it will start, before other programs; return False where that is not permitted."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except NOT_HERE:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, NICE)
        except NOT_HERE:
            return False
    return True


@contextlib.contextmanager
def punctual() -> Iterator[bool]:
    """Come first, collect no garbage and let threads take turns quickly, for the time of a flight.

    Yield whether the system permits to come first. Everything is put back in the end.
    """
    interval, collects = sys.getswitchinterval(), gc.isenabled()
    with contextlib.ExitStack() as undo:
        with contextlib.suppress(*NOT_HERE):
            undo.callback(_suppressed, os.setpriority, os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))
            undo.callback(_suppressed, os.sched_setscheduler, 0, os.sched_getscheduler(0), os.sched_getparam(0))
        undo.callback(sys.setswitchinterval, interval)
        if collects:
            undo.callback(gc.enable)
        gc.disable()
        sys.setswitchinterval(SWITCH_SECONDS)
        yield come_first()


def _suppressed(call: Callable[..., None], *arguments: object) -> None:
    with contextlib.suppress(*NOT_HERE):
        call(*arguments)
