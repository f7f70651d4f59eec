"""Run the README's two commands with several Pythons, each in a fresh environment with the newest versions allowed.

    python3 tools/check_versions.py python3.11 python3.12 python3.13
    python3 tools/check_versions.py python3.13 --demo
    python3 tools/check_versions.py python3.13 --tests tests/test_frames.py -x

Everything after --tests goes to pytest. Prints a line for each Python and ends with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = "import jax, platform; print(platform.python_version(), jax.__version__)"


def timed(*command: str | Path, cwd: Path = ROOT) -> tuple[bool, str, float]:
    """Run a command: whether it worked, the last line that it printed, and its seconds."""
    begun = time.monotonic()
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.strip().splitlines() or [""]
    if done.returncode:
        print(done.stdout, file=sys.stderr, flush=True)
    return done.returncode == 0, lines[-1].strip(" ="), time.monotonic() - begun


def check(python: str, tests: list[str], demo: bool, folder: Path) -> tuple[bool, list[str]]:
    """Install, test and with `demo` show the package: whether all of it worked, and the cells of a line."""
    scripts = folder / "venv" / "bin"
    made, last, _ = timed(python, "-m", "venv", folder / "venv")
    if not made:
        return False, [python, "-", "-", last, "-", "-"]
    installed, last, seconds = timed(scripts / "pip", "install", "-q", "-e", ".[test]")
    if not installed:
        return False, [python, "-", "-", f"install failed: {last}", f"{seconds:.0f}", "-"]
    version, jax = timed(scripts / "python", "-c", VERSIONS)[1].split()
    passed, outcome, _ = timed(scripts / "pytest", *tests)
    shown, _, waited = timed(scripts / "legoswarm", "demo", cwd=folder) if demo else (True, "", 0.0)
    word = "-" if not demo else f"{waited:.0f} s" if shown else "failed"
    return passed and shown, [python, version, jax, outcome, f"{seconds:.0f}", word]


def main() -> int:
    """Check every Python that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="+", help="interpreters, such as python3.13")
    parser.add_argument("--demo", action="store_true", help="run `legoswarm demo` too")
    parser.add_argument("--tests", nargs=argparse.REMAINDER, default=["-n", "2"], help="words for pytest")
    args = parser.parse_args()
    print(f"{'python':34} {'version':8} {'jax':8} {'install, s':>10}  {'demo':7} tests")
    good = True
    for python in args.python:
        with tempfile.TemporaryDirectory() as folder:
            passed, cells = check(python, args.tests, args.demo, Path(folder))
        name, version, jax, outcome, seconds, demo = cells
        good = good and passed
        print(f"{name:34} {version:8} {jax:8} {seconds:>10}  {demo:7} {outcome}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
