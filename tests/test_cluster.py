"""Studies and sweeps on a Ray cluster: what a lost machine had begun is done again, and results land in one place."""

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from legoswarm.cli import main

ROOT = Path(__file__).parent.parent
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: no wheel for it?")


@needs_ray
@pytest.mark.slow
@pytest.mark.longest
def test_a_lost_machines_parts_are_done_again(tmp_path):
    command, env = [sys.executable, "-m", "tests.yards", str(tmp_path)], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "[3/3]" in done.stderr
    begun = [line.split() for line in (tmp_path / "begun").read_text().splitlines()]
    doomed = (tmp_path / "doomed").read_text()
    [lost] = [name for name, node in begun if node == doomed]
    assert Counter(name for name, _ in begun) == {**dict.fromkeys(["p0", "p1", "p2"], 1), lost: 2}
    parts = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out" / "yards").iterdir()}
    assert parts.keys() == {"p0", "p1", "p2"}
    assert len({part["node"] for part in parts.values()} - {doomed}) == 1
    trials = json.loads((tmp_path / "sweep" / "sweep.json").read_text())["trials"]
    assert {trial["params"]["lr"] for trial in trials} == {0.001, 0.1}


@pytest.mark.parametrize(
    "line", ["study ood --engine ray", "sweep spread --space lr=1e-3,1e-4 --engine ray --out sweep"]
)
def test_ray_is_an_extra(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(line.split()) == 2
    assert capsys.readouterr().err.endswith("the engine ray needs Ray: pip install 'legoswarm[ray]'\n")
    assert list(tmp_path.iterdir()) == []
