"""Lint, format, types, and that CI runs what the README says."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import browser

ROOT = Path(__file__).parent.parent


def run(*command):
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("command", ["check", "format --check"])
def test_lint_and_format(command):
    done = run("ruff", *command.split(), ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_types(tmp_path):
    """With the packages of this interpreter: a `venv` in the settings would win over --pythonpath."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyright"]
    settings = {name: value for name, value in settings.items() if not name.startswith("venv")}
    settings["include"] = [os.path.relpath(ROOT / folder, tmp_path) for folder in settings["include"]]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    found = json.loads(run("pyright", "--outputjson", "-p", str(tmp_path), "--pythonpath", sys.executable).stdout)
    assert found["summary"]["filesAnalyzed"] > 50
    assert not found["generalDiagnostics"], json.dumps(found["generalDiagnostics"], indent=1)


def test_ci_runs_the_readmes_test_command():
    command = (ROOT / ".ci/run").read_text().splitlines()[-1]
    assert "pytest" in command
    assert command in (ROOT / "README.md").read_text().splitlines()


def test_a_page_that_no_browser_opens_fails_in_ci_and_is_skipped_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(browser, "BROWSER", None)
    for value, outcome in (("true", pytest.fail.Exception), ("", pytest.skip.Exception)):
        monkeypatch.setenv("CI", value)
        with pytest.raises(outcome, match="no browser is installed"):
            browser.opened("<head></head><body></body>", tmp_path)


PLAIN = """
import json, os, sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in lacking:
            raise ModuleNotFoundError(name)

lacking = set(json.loads(sys.argv[2]))
sys.meta_path.insert(0, Lacking())
from legoswarm.cli import main
words = "train spread --agents 2 --policy mappo --width 8 --envs 4 --rollout 5 --epochs 1 --minibatches 1 --steps 20"
assert main([*words.split(), "--out", sys.argv[1]]) == 0
assert main(["eval", sys.argv[1], "--episodes", "2"]) == 0
assert len(os.listdir(os.environ["LEGOSWARM_PROGRAMS"])) == 3
"""


def test_a_plain_installation_is_enough(tmp_path):
    """Training, keeping programs and evaluating, without any package that comes with the extras alone."""
    allowed = needed("legoswarm")
    owners = importlib.metadata.packages_distributions().items()
    lacking = [name for name, those in owners if allowed.isdisjoint(map(canonicalize_name, those))]
    assert {"onnx", "cflib", "pytest"} <= set(lacking)
    env = {**os.environ, "LEGOSWARM_PROGRAMS": str(tmp_path / "kept")}
    command = [sys.executable, "-c", PLAIN, str(tmp_path / "run"), json.dumps(lacking)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def needed(name, found=None):
    """A distribution and all that it depends on without extras."""
    found = set() if found is None else found
    if canonicalize_name(name) in found:
        return found
    found.add(canonicalize_name(name))
    for line in importlib.metadata.requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed(requirement.name, found)
    return found
