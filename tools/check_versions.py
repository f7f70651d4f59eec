"""Run the README's two commands, word for word, with several Pythons and the newest versions that are allowed.

    python3 tools/check_versions.py python3.11 python3.12 python3.13 --out results/versions.json
    python3 tools/check_versions.py python3.13 --tests tests/test_frames.py -x

Each command runs in a fresh clone of what is committed, with an empty HOME and empty caches. Everything after --tests
goes to pytest. Prints a line for each command and ends with 1 if any failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
VERSIONS = """
import importlib.metadata, json, platform, re
names = {re.match(r"[\\w-]+", line)[0] for line in importlib.metadata.requires("legoswarm")} - {"legoswarm"}
found = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
print(json.dumps({"python": platform.python_version(), **{name: found[name] for name in sorted(names & set(found))}}))
"""


def readme_commands() -> list[str]:
    """Return the lines of the README that make an environment and use it."""
    return re.findall(r"^python3 -m venv .*$", (ROOT / "README.md").read_text(), re.MULTILINE)


def check(python: str, command: str, words: list[str]) -> dict[str, Any]:
    """Run a command of the README in a fresh clone: how it ended, its seconds, and what it ran with."""
    with tempfile.TemporaryDirectory() as folder:
        clone, home = Path(folder) / "clone", Path(folder) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        revision = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=clone, text=True).strip()
        line = " ".join([command.replace("python3", python, 1), *words])
        fresh = {"HOME": str(home), "TMPDIR": folder, "XDG_CACHE_HOME": str(home / "cache"), "PIP_NO_CACHE_DIR": "1"}
        begun = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", line], cwd=clone, env={**os.environ, **fresh}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        seconds = round(time.monotonic() - begun)
        if done.returncode:
            print(done.stdout, file=sys.stderr, flush=True)
        lines = [text.strip(" =") for text in done.stdout.splitlines() if text.strip(" =")] or [""]
        asked = subprocess.run([clone / ".venv/bin/python", "-c", VERSIONS], capture_output=True, text=True)
        versions = json.loads(asked.stdout) if asked.returncode == 0 else {}
    line = line.replace(python, Path(python).name, 1)
    return {
        "command": line, "code": done.returncode, "seconds": seconds, "said": lines[-1], "revision": revision,
        "date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), "versions": versions,
    }  # fmt: skip


def main() -> int:
    """Check every Python that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="+", help="interpreters, such as python3.13")
    parser.add_argument("--out", type=Path, help="write what was found here, as JSON")
    parser.add_argument("--tests", nargs=argparse.REMAINDER, default=[], help="more words for pytest, and no demo")
    args = parser.parse_args()
    rows = []
    for python in args.python:
        for command in readme_commands():
            tests = "/pytest " in command
            if tests or not args.tests:
                rows.append(row := check(python, command, args.tests if tests else []))
                used = ", ".join(f"{name} {row['versions'].get(name)}" for name in ("python", "jax"))
                print(f"{used}: {row['seconds']} s, code {row['code']}, {row['said']}", flush=True)
                if args.out:
                    args.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if rows and not any(row["code"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
