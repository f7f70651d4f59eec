"""The machine: what figures depend on beside their command, and whose turn it is to use the device."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax


def environment() -> dict[str, Any]:
    """Versions, hardware and revision: what a figure depends on beside its command."""
    names = ("legoswarm", "jax", "jaxlib", "equinox", "optax", "numpy")
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "from source"
    device = jax.devices()[0]
    hardware = {
        "device": f"{device.platform}: {device.device_kind}",
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
    return {"versions": versions, "hardware": hardware, "revision": _revision()}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _revision() -> str | None:
    """The git revision of the package's source, if it lies in a checkout; `-dirty` where it was changed since."""
    here = Path(__file__).resolve().parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


@contextlib.contextmanager
def turn(*, alone: bool = False) -> Iterator[None]:
    """A share of this machine's device while something trains, or all of it for what is timed.

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
