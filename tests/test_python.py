"""Python as good as the command line: train, evaluate, curves, load, callbacks, own files; and the notebook."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import legoswarm
from legoswarm import own
from legoswarm.cli import main
from legoswarm.fast.caches import use_caches
from legoswarm.files import read_arrays
from legoswarm.learn import loop
from legoswarm.learn.folder import CHECKPOINT
from tests import tiny  # registers the yard and the linear policy

ROOT = Path(__file__).resolve().parents[1]
SMALL = {"envs": 4, "rollout": 5, "epochs": 1, "minibatches": 1, "steps": 100, "eval_episodes": 3, "quiet": True}
THREE = {**SMALL, "agents": 3.0, "seeds": [4, 7], "evaluations": 2}
assert tiny


@pytest.fixture(scope="module")
def rows():
    return []


@pytest.fixture(scope="module")
def run(tmp_path_factory, rows):
    """A run of five iterations that tells every row."""
    out = tmp_path_factory.mktemp("runs") / "run"
    return legoswarm.train("yard", "tiny", **THREE, out=out, on_row=rows.append)


def test_a_run_gives_its_rows_its_curves_and_its_policy(run, rows):
    assert rows == run.read_metrics()
    assert len(rows) == 5
    curves = run.curves()
    score, loss = curves["score"], curves["agent/actor_loss"]
    np.testing.assert_array_equal(score.values, [row["eval"]["score"] for row in rows if "eval" in row])
    np.testing.assert_array_equal(score.steps, [20, 100])
    np.testing.assert_array_equal(loss.steps, [20, 40, 60, 80, 100])
    assert loss.values.shape == (5, 2)
    np.testing.assert_allclose(loss.seconds, np.cumsum([row["seconds"] for row in rows]))
    assert legoswarm.load(run).act(np.eye(2), np.zeros((2, 2)), ["agent"] * 2).shape == (2, 2)


def test_evaluation_from_python(run):
    rows = legoswarm.evaluate(run, agents=[2, 3], episodes=4)
    assert [(row["agents"], row["seed"]) for row in rows] == [(2, 4), (2, 7), (3, 4), (3, 7)]
    several = legoswarm.evaluate([run, str(run.path)], episodes=4, seed=7)
    assert [row.pop("policy") for row in several] == [str(run.path)] * 2
    assert several == [row for row in rows if row["agents"] == 3 and row["seed"] == 7] * 2


def test_several_runs_on_the_command_line(run, capsys):
    assert main(["eval", str(run.path), str(run.path), "--episodes", "4"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["policy", "agents"]
    assert [line.split()[0] for line in lines[:-1]] == [str(run.path)]  # the same policy twice is one line


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"agents": "3"}, "agents must be a whole number, not '3'"),
        ({"agents": 2.5}, "agents must be a whole number, not 2.5"),
        ({"steps": "many"}, "steps must be a whole number"),
        ({"steps": 1e12}, "1000000000000 steps are not"),
        ({"lr": float("inf")}, "lr must be a finite number, not inf"),
        ({"anneal": 1}, "anneal must be true or false, not 1"),
        ({"seeds": "all"}, "seeds must be a whole number, or several, not 'all'"),
        ({"seeds": 0}, "seeds must be one or more"),
        ({"seeds": 10**9}, "at most 10,000 seeds"),
        ({"evaluations": 0}, "at least 1"),
        ({"colour": "red"}, "has 'colour'"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds must be a finite number from 0 on, not -1"),
    ],
)
def test_wrong_values_are_refused_before_there_is_a_folder(given, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        legoswarm.train("yard", "tiny", out=tmp_path / "run", **{**SMALL, **given})
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_are_numbers(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_Run", stop)
    given = {
        **SMALL,
        "agents": np.int64(2),
        "lr": np.float32(0.5),
        "steps": np.float64(1e3),
        "seeds": list(np.arange(2)),
    }
    with pytest.raises(KeyboardInterrupt):
        legoswarm.train("yard", "tiny", out=tmp_path / "run", **given)
    values = json.loads((tmp_path / "run" / "config.json").read_text())
    found = values["task"]["agents"], values["algorithm"]["lr"], values["steps"], values["seeds"]
    assert found == (2, 0.5, 1000, [0, 1])


def test_what_a_callback_raises_stops_the_run_which_can_go_on(run, tmp_path):
    def stop(row):
        if row["iteration"] == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        legoswarm.train("yard", "tiny", **THREE, out=tmp_path / "run", on_row=stop)
    seen = []
    again = legoswarm.resume_run(tmp_path / "run", quiet=True, on_row=seen.append)
    assert [row["iteration"] for row in seen] == [4, 5]
    first, second = (read_arrays(each.path / CHECKPOINT) for each in (run, again))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_the_caches_are_the_command_lines(monkeypatch, tmp_path):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.delenv("LEGOSWARM_PROGRAMS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        use_caches()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "legoswarm" / "jax")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


# Curves, logs, and more steps


def test_curves_are_drawn_and_listed(run, tmp_path, capsys):
    out = tmp_path / "c.png"
    assert main(["curves", str(run.path), str(run.path), "--out", str(out), "--axis", "seconds"]) == 0
    head, line, name = capsys.readouterr().out.splitlines()  # the same run twice is one line
    assert head.split()[:5] == ["run", "seeds", "steps", "seconds", "score"]
    last = run.curves()["score"].values[-1]
    assert line.split()[:3] == [str(run.path), "2", "100"]
    assert float(line.split()[4]) == pytest.approx(last.mean(), abs=0.01)
    assert name == str(out)
    assert out.read_bytes().startswith(b"\x89PNG")
    for words, said in (
        (["--metric", "joy"], "has no metric 'joy'; it has extent, frame_flips, score, steps_per_second, "),
        (["--out", "c.txt"], "does not end in .png"),
    ):
        assert main(["curves", str(run.path), *words]) == 2
        assert said in capsys.readouterr().err


def test_tensorboard_gets_every_row_and_a_resumed_run_goes_on(run, tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    def stop(row):
        if row["iteration"] == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        legoswarm.train("yard", "tiny", **THREE, out=tmp_path / "run", on_row=stop, log=["tensorboard"])
    legoswarm.resume_run(tmp_path / "run", quiet=True)
    points, purged = {}, []
    for path in sorted((tmp_path / "run" / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:  # each record: its length, a checksum, itself, another checksum
            size = int.from_bytes(data[:8], "little")
            event, data = Event.FromString(data[12 : 12 + size]), data[16 + size :]
            if event.HasField("session_log"):
                purged.append(event.step)
            for value in event.summary.value:
                points.setdefault(value.tag, {})[event.step] = value.simple_value
    assert purged == [61]  # what was written beyond the checkpoint is dropped
    expected = run.curves()["agent/actor_loss"]
    np.testing.assert_allclose(list(points["agent/actor_loss"].values()), expected.values.mean(1), rtol=1e-4)
    assert list(points["agent/actor_loss"]) == list(expected.steps)
    assert list(points["eval/score/seed-1"]) == [20, 100]


def test_weights_and_biases_gets_every_row(run, tmp_path, monkeypatch):
    """The library writes its own file; a resumed run goes on under the same identity."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")

    def stop(row):
        if row["iteration"] == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        legoswarm.train("yard", "tiny", **THREE, out=tmp_path / "run", on_row=stop, log=["wandb"])
    legoswarm.resume_run(tmp_path / "run", quiet=True)
    first, second = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert first.name == second.name  # the identity of the run
    points = {**_wandb_points(first), **_wandb_points(second)}
    expected = run.curves()["agent/actor_loss"]
    assert list(points) == list(expected.steps)
    losses = [numbers["agent/actor_loss"] for numbers in points.values()]
    np.testing.assert_allclose(losses, expected.values.mean(1), rtol=1e-4)
    assert [steps for steps, numbers in points.items() if "eval/score/seed-1" in numbers] == [20, 100]


def _wandb_points(path):
    """Numbers by step in a file of W&B: blocks of 32 KiB with pieces of records, each behind a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record, points = path.read_bytes(), 7, b"", {}
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # too little is left of the block
            at += 32768 - at % 32768
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record, at = record + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # whole, or the last piece
            history, record = Record.FromString(record).history, b""
            if history.item:
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in history.item}
                points[row["_step"]] = row
    return points


@pytest.mark.parametrize(
    ("log", "words"), [("paper", "unknown log 'paper'"), ("wandb", r"pip install 'legoswarm\[wandb\]'")]
)
def test_logs_that_cannot_be_written(log, words, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=words):
        legoswarm.train("yard", "tiny", **THREE, out=tmp_path / "run", log=[log])
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_is_extended(tmp_path, capsys):
    """Its rows go on, and the learning rate falls to zero over all of its steps."""
    path = tmp_path / "run"
    run = legoswarm.train("yard", "tiny", **SMALL, lr=0.5, out=path)
    for words, said in (("--steps 100", "has 100 steps already"), ("--steps 200 --seeds 3", "leave --seeds out")):
        assert main(["train", "--resume", str(path), *words.split()]) == 2
        assert said in capsys.readouterr().err
    before = (path / "config.json").read_text()
    with pytest.raises(ValueError, match="device"):
        legoswarm.resume_run(path, steps=200, devices=64, quiet=True)
    assert (path / "config.json").read_text() == before  # what is refused changes nothing
    assert main(["train", "--resume", str(path), "--steps", "200"]) == 0
    rows = run.read_metrics()
    assert [row["iteration"] for row in rows] == list(range(1, 11))
    rates = [row["agent/learning_rate"][0] for row in rows]
    np.testing.assert_allclose(rates[:5], 0.5 * (1 - np.arange(5) / 5), atol=1e-5)
    np.testing.assert_allclose(rates[5:], 0.5 * (1 - np.arange(5, 10) / 10), atol=1e-5)
    config = json.loads((path / "config.json").read_text())
    assert (config["steps"], config["extended"]) == (200, [{"from": 100, "to": 200}])


def test_a_crash_while_compiling_leaves_a_folder_that_can_be_trained_in(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(loop.Programs, "compile", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            legoswarm.train("yard", "tiny", **SMALL, out=tmp_path / "run")
    assert (tmp_path / "run" / "config.json").exists()
    legoswarm.train("yard", "tiny", **SMALL, out=tmp_path / "run")


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*config\.json'"):
        legoswarm.train("yard", "tiny", **SMALL, out=tmp_path / "run")


# Files of one's own


TASK = """
import dataclasses
import legoswarm
from tests.tiny import Yard

@legoswarm.TASKS.register
@dataclasses.dataclass(frozen=True)
class Meadow(Yard):
    name = "{name}"
    flowers: int = legoswarm.option(3, "how many")
"""


def test_a_file_of_ones_own_is_known_to_every_command(tmp_path):
    """In processes of their own: the hints that one prints work in the next."""
    (tmp_path / "meadow.py").write_text(TASK.format(name="meadow"))

    def legoswarm(*words):
        done = subprocess.run(
            [sys.executable, "-m", "legoswarm.cli", *words], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return done.returncode, done.stderr

    line = (
        "train meadow --policy tiny --flowers 5 --envs 4 --rollout 5 --epochs 1 --steps 20 --eval-episodes 2 --out run"
    )
    code, said = legoswarm(*line.split(), "--import", "meadow.py")
    assert code == 0, said
    hint = said.splitlines()[-1].split("try: legoswarm ")[1]
    assert hint == "eval run --import meadow.py"
    code, said = legoswarm(*hint.split(), "--episodes", "2")
    assert code == 0, said
    code, said = legoswarm("eval", "run")
    assert (code, said.count("\n")) == (2, 1)
    assert "--import" in said


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("nowhere.py", None, "nowhere.py does not exist"),
        ("broken_field.py", "import math\nmath.nothing", "AttributeError: module 'math' has no attribute 'nothing'"),
        ("json.py", "", "another module is called json"),
    ],
)
def test_files_that_cannot_be_imported(name, text, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(own, "_imported", [])
    if text is not None:
        (tmp_path / name).write_text(text)
    assert main(["train", "spread", "--import", name]) == 2
    assert words in capsys.readouterr().err
    assert main(["train", "spread", "--import", name, "--debug"]) == 2
    assert capsys.readouterr().err.startswith("Traceback")


# The notebook


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    """Every cell, with fewer steps; CI has no browser for it, so cells are executed one after the other."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "docs" / "start.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert sum("steps=100_000" in cell for cell in code) == 1
    names: dict = {}
    for cell in code:
        exec(cell.replace("steps=100_000", "steps=3_200"), names)
    assert [row["agents"] for row in names["rows"]] == [2, 3, 5]
    assert names["curve"].values.shape == (2, 1)
    assert names["actions"].shape == (5, 2)


@pytest.mark.parametrize(("command", "wait"), [("eval", 3.0), ("eval", 6.0), ("watch", 3.0)])
def test_an_interrupt_ends_what_leaves_nothing_behind(command, wait, tmp_path):
    """While programs are traced, and while XLA compiles, when Python does not get to run."""
    rest = {"eval": "--agents 9 --episodes 3000", "watch": f"--agents 99 --out {tmp_path / 'film.gif'}"}
    words = [command, "zoo:spread", *rest[command].split()]
    process = subprocess.Popen(
        [sys.executable, "-m", "legoswarm.cli", *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_COMPILATION_CACHE_DIR": ""},
    )  # fmt: skip
    time.sleep(wait)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1].endswith(f"legoswarm {command}: interrupted\n")
    assert process.returncode == 130
