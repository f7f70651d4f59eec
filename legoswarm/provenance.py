"""Where figures come from: versions, hardware and the revision of the source; free of JAX."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("legoswarm", "jax", "jaxlib", "equinox", "optax", "numpy")


def provenance(*extras: str) -> dict[str, Any]:
    """Return what a figure depends on beside its command: versions, hardware and revision.

    `extras` names further packages, whose versions are told where they are installed. The device is the one that JAX
    uses if this process has imported JAX, and the CPU otherwise.
    """
    found = {name: _version(name) for name in (*PACKAGES, *extras)}
    versions = {name: found[name] or "from source" for name in found if found[name] or name in PACKAGES}
    jax, device = sys.modules.get("jax"), "cpu"
    if jax is not None:
        first = jax.devices()[0]
        device = f"{first.platform}: {first.device_kind}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "versions": {"python": platform.python_version(), **versions},
        "hardware": {"device": device, "cpu": _cpu_name(), "cores": cores},
        "revision": _revision(Path(__file__).resolve().parent),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _revision(here: Path) -> str | None:
    """Return the git revision of the source if it lies in a checkout, with `-dirty` if more than results changed."""
    try:
        head = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changed else head


def _git(here: Path, *words: str) -> str:
    command = ["git", "-C", str(here), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
