"""Break the package in ways that its tests must notice, and show that each module's own test file does.

    .venv/bin/python tools/mutants.py            all of them
    .venv/bin/python tools/mutants.py leash      those whose name has this word

Each mutant is a few lines at the end of one module of a copy of the tree, which put something wrong in the place of
something right. A mutant is killed if its test file passes without it and fails with it.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclasses.dataclass(frozen=True)
class Mutant:
    """What is wrong, where, and which tests must fail."""

    name: str
    module: str
    tests: str
    lines: str


MUTANTS = (
    Mutant(
        "to_world with R^T",
        "frames/canonical.py",
        "test_frames.py -k undo_each_other",
        "Frame.to_world = Frame.to_local",
    ),
    Mutant(
        "actors swapped between roles",
        "policies/networks/team.py",
        "test_team.py",
        """
_decide = decide
def decide(actors, scene):
    return _decide(dict(zip(actors, reversed(actors.values()), strict=True)), scene)
""",
    ),
    Mutant(
        "a leash that pushes outwards",
        "policies/networks/leash.py",
        "test_leash.py",
        """
_pull_back = pull_back
def pull_back(*where):
    return -_pull_back(*where)
""",
    ),
    Mutant(
        "claims decided by means",
        "studies/rules.py",
        "test_rules.py",
        """
_compared = compared
def compared(above, below, names):
    found = _compared(above, below, names)
    return found if found.missing else dataclasses.replace(found, agrees=bool(above.mean() > below.mean()))
""",
    ),
    Mutant(
        "a peak window that is always true",
        "studies/rules.py",
        "test_rules.py",
        """
_rises_and_falls = rises_and_falls
def rises_and_falls(label, low, high):
    return _rises_and_falls(label, float("-inf"), float("inf"))
""",
    ),
    Mutant(
        "starts that depend on the method",
        "evaluate/policies.py",
        "test_compare.py",
        """
_rows_of = rows_of
def rows_of(task, actors, seeds, episodes, episode_seed=EPISODE_SEED):
    return _rows_of(task, actors, seeds, episodes, episode_seed + len(jax.tree.leaves(actors)))
""",
    ),
)


def passes(tree: Path, tests: str) -> bool:
    """Run a test file of a tree; refuse any outcome but passed and a failed assertion, such as a missing file."""
    file, *rest = tests.split()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{file}", *rest]
    done = subprocess.run(
        command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True
    )
    asserted = any(line.startswith("E ") and "assert" in line.lower() for line in done.stdout.splitlines())
    if done.returncode != 0 and not (done.returncode == 1 and asserted):
        raise SystemExit(f"{tests} could not be run:\n{done.stdout[-2000:]}{done.stderr}")
    return done.returncode == 0


def killed(mutant: Mutant, tree: Path) -> bool:
    """Tell whether the mutant's test file passes in a tree and fails once the mutant is in it."""
    module = tree / "legoswarm" / mutant.module
    right = module.read_text()
    try:
        before = passes(tree, mutant.tests)
        module.write_text(f"{right}\n\n{mutant.lines}\n")
        return before and not passes(tree, mutant.tests)
    finally:
        module.write_text(right)


def main() -> int:
    """Try the mutants that are asked for and print a line for each."""
    wanted = [mutant for mutant in MUTANTS if all(word in mutant.name for word in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("legoswarm", "tests"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        alive = 0
        for mutant in wanted:
            dead = killed(mutant, tree)
            alive += not dead
            print(
                f"{'killed' if dead else 'ALIVE ':6}  {mutant.name:34}  {mutant.module:28}  {mutant.tests}", flush=True
            )
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
