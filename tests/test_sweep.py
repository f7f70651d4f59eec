"""Sweeps: trials are runs, found again, pruned, shared between processes; spaces are read as they are written."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from legoswarm.cli import main
from legoswarm.learn import loop
from legoswarm.studies import sweep as sweeps
from legoswarm.studies.sweep import read_space
from tests import tiny

WORDS = (
    "sweep yard --policy tiny --envs 4 --rollout 5 --epochs 1 --minibatches 1 --steps 40 --seeds 2"
    " --eval-episodes 2 --evaluations 2"
)
ROOT = Path(__file__).parent.parent
assert tiny


@pytest.fixture
def sweep(tmp_path, capsys, monkeypatch):
    """Runs a sweep in a folder; gives the exit code, the best trial or what was said, and what stands in its file."""
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "sweep"

    def run(words):
        code = main([*WORDS.split(), "--out", str(out), *words.split()])
        said = capsys.readouterr()
        best = json.loads(said.out) if code == 0 else said.err
        return code, best, json.loads((out / "sweep.json").read_text()) if (out / "sweep.json").exists() else None

    return run


def test_a_grid_is_searched_once_and_goes_on(sweep, monkeypatch):
    grid = "--sampler grid --no-prune --space lr=0.001,0.1 entropy=0,0.01"
    run, calls = sweeps.train, []

    def stop_at_the_second(*args, **options):
        calls.append(options)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(*args, **options)

    monkeypatch.setattr(sweeps, "train", stop_at_the_second)
    assert sweep(f"{grid} --trials 4")[0] == 130
    code, best, file = sweep(f"{grid} --trials 4")
    assert code == 0
    trials = file["trials"]
    assert {(row["params"]["lr"], row["params"]["entropy"]) for row in trials} == {
        (lr, entropy) for lr in (0.001, 0.1) for entropy in (0, 0.01)
    }
    assert len(trials) == 4
    assert len(calls) == 5  # the one that was interrupted was done again, and no other one
    assert best["value"] == trials[0]["value"] == max(row["value"] for row in trials)
    assert best["value"] == pytest.approx(sum(trials[0]["values"]) / 2)
    assert file["revision"] is not None
    assert "another sweep" in sweep("--space lr=0.1,0.2")[1]


@pytest.mark.slow
def test_two_processes_share_a_sweep(sweep, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    code, best, file = sweep("--sampler grid --no-prune --space lr=0.001,0.1 --trials 2 --jobs 2 --import tests.tiny")
    assert code == 0
    assert sorted(row["params"]["lr"] for row in file["trials"]) == [0.001, 0.1]
    assert best["value"] == max(row["value"] for row in file["trials"])


def test_trials_of_the_same_run_are_listed_once(tmp_path):
    def trial(value, run, state):
        return SimpleNamespace(value=value, params={}, state=SimpleNamespace(name=state), user_attrs={"run": run})

    trials = [trial(None, "a", "PRUNED"), trial(-2.0, "a", "COMPLETE"), trial(-1.0, "b", "COMPLETE")]
    sweeps._write(SimpleNamespace(trials=trials, user_attrs={"content": {}}), tmp_path, "")
    rows = json.loads((tmp_path / "sweep.json").read_text())["trials"]
    assert [(row["run"], row["value"]) for row in rows] == [("b", -1.0), ("a", -2.0)]


def test_a_trial_that_is_worse_is_pruned(sweep, monkeypatch):
    """After five trials to compare with; scores are made up."""
    scores = iter([5.0, 5.0] * 5 + [0.0, 5.0])
    monkeypatch.setattr(
        loop._Run, "_publish", lambda run, state, done: loop.write_policy(
            run.folder, run.config, state, {"score": np.zeros(2)}
        ) or {"score": [next(scores)] * 2},
    )  # fmt: skip
    code, best, file = sweep("--sampler random --space lr=log:1e-4:1e-2 --trials 6")
    assert code == 0
    assert best["value"] == 5
    states = [row["state"] for row in file["trials"]]
    assert states.count("pruned") == 1
    assert all(1e-4 <= row["params"]["lr"] <= 1e-2 for row in file["trials"])


def test_spaces(tmp_path):
    (tmp_path / "space.json").write_text('{"lr": "log:1e-4:1e-2", "anneal": [true, false]}')
    words = [str(tmp_path / "space.json"), "epochs=3:10", "clip=0.1:0.3", "encoder=attention,joint"]
    assert read_space(words) == {
        "lr": (1e-4, 1e-2, True), "anneal": [True, False], "epochs": (3, 10, False), "clip": (0.1, 0.3, False),
        "encoder": ["attention", "joint"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--space lr", "'lr' is neither a .json file nor"),
        ("--space lr=2:1", "the range of lr must be LOW:HIGH"),
        ("--space lr=log:0:1", "the range of lr must be LOW:HIGH"),
        ("--space lr=1:2 --sampler grid", "a grid needs choices"),
        ("--space lr=1:2 --trials 0", "at least one trial"),
        ("--space colour=1,2 --trials 1", "there is no option colour to search"),
    ],
)
def test_sweeps_that_cannot_be(sweep, words, said):
    code, why, _ = sweep(words)
    assert code == 2
    assert said in why
    assert not Path("sweep").exists()


def test_options_that_do_not_go_together_cost_one_trial(sweep):
    code, best, file = sweep("--sampler grid --no-prune --space minibatches=1,7 --trials 2")
    assert code == 0
    assert best["params"] == {"minibatches": 1}
    assert sorted(row["state"] for row in file["trials"]) == ["complete", "pruned"]


@pytest.mark.parametrize("jobs", ["--jobs 2", "--jobs=2", "--jobs 3 --jobs 2"])
def test_processes_of_a_sweep_start_no_others(jobs, sweep, monkeypatch):
    begun, start = [], subprocess.Popen

    def note(words, *rest, **how):
        if "legoswarm.cli" not in words:
            return start(words, *rest, **how)
        begun.append(words)
        return start(["true"])

    monkeypatch.setattr(subprocess, "Popen", note)
    assert sweep(f"--space lr=0.1,0.2 --trials 1 {jobs}")[0] == 0
    assert [words[-2:] for words in begun] == [["--jobs", "1"]]
