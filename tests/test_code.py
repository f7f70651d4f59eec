"""Lint, format, types, and that CI runs what the README says."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["pyright", "--pythonpath", sys.executable]],
    ids=["lint", "format", "types"],
)
def test_clean(command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ci_runs_the_readmes_test_command():
    command = (ROOT / ".ci/run").read_text().splitlines()[-1]
    assert "pytest" in command
    assert command in (ROOT / "README.md").read_text().splitlines()
