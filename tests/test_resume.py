"""Interrupted runs: killed at any moment and resumed, they end with the files of an uninterrupted one."""

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from legoswarm.cli import main
from legoswarm.configs import named, option
from legoswarm.fast.kept import FOLDER
from legoswarm.files import FileError, read_arrays, write_arrays
from legoswarm.learn import loop, programs
from legoswarm.learn.algorithms.algorithm import ALGORITHMS, Algorithm
from legoswarm.learn.algorithms.mappo import Mappo
from legoswarm.learn.folder import CHECKPOINT, RunConfig, RunFolder
from legoswarm.learn.loop import resume_run, start_run
from legoswarm.learn.run import patient
from legoswarm.learn.train import TrainConfig, configure, make_train
from legoswarm.policies.saved.file import load_policy
from legoswarm.policies.saved.trees import named_leaves, rebuild
from legoswarm.tasks.spread import Spread
from tests.tiny import TINY, Yard

POLICY = "--width 8 --depth 0 --encoder deepsets --axis none"
MAPPO = "--algorithm mappo --envs 4 --rollout 5 --epochs 1 --minibatches 1"
TRAIN = f"train spread --agents 2 {POLICY} {MAPPO} --steps 2000 --seeds 2 --evaluations 5 --eval-episodes 4"
ITERATIONS = 100
NO_WAIT = ["--checkpoint-seconds", "0"]


def read_rows(folder):
    """Metrics without what a clock measured."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in row if name not in ("seconds", "steps_per_second")} for row in rows]


def checkpoint_iteration(folder):
    return int(read_arrays(folder / CHECKPOINT)["iteration"].max())


def snapshot(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_same_result(one, two):
    """Everything but `config.json` (the command) and timing, to the bit."""
    names = ["checkpoint.safetensors", "config.json", "metrics.jsonl", "policy.json", "policy.safetensors"]
    for folder in (one, two):
        assert sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) == names
    for name in ("policy.safetensors", "policy.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    first, second = (read_arrays(folder / CHECKPOINT) for folder in (one, two))
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)
    assert read_rows(one) == read_rows(two)


# The real command in a process of its own


class Command:
    """`legoswarm` in a process of its own; traced and compiled programs are shared between all of them."""

    def __init__(self, words, log, programs):
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # inherited by the child, as from `nohup`
            signal.signal(signal.SIGINT, signal.default_int_handler)
        env = {**os.environ, FOLDER: str(programs)}
        self.log = log
        with open(log, "w") as file:
            command = [sys.executable, "-m", "legoswarm.cli", *words]
            self.process = subprocess.Popen(command, env=env, stderr=file, stdout=subprocess.DEVNULL)

    def stop(self, number, when):
        """Send a signal as soon as `when()` holds; the process must still be running then."""
        deadline = time.monotonic() + 200
        while not when():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        code = self.process.wait(200)
        return code, self.log.read_text()


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """Starts commands; none of them outlives the tests."""
    started, programs = [], tmp_path_factory.mktemp("programs")

    def start(words):
        log = tmp_path_factory.mktemp("log") / "stderr"
        started.append(Command(words, log, programs))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture(scope="module")
def uninterrupted(command, tmp_path_factory):
    """A run from the first to the last step."""
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    code, said = command([*TRAIN.split(), "--out", str(out)]).wait()
    assert code == 0, said
    return out


@pytest.mark.slow
def test_killed_and_interrupted_it_ends_as_if_nothing_had_happened(command, uninterrupted, tmp_path):
    run = tmp_path / "run"
    metrics = run / "metrics.jsonl"

    def rows(count):
        return lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= count

    # Killed before the first checkpoint: there is a configuration and nothing else to go on from.
    code, _ = command([*TRAIN.split(), *NO_WAIT, "--out", str(run)]).stop(
        signal.SIGKILL, lambda: (run / "config.json").exists()
    )
    assert code == -signal.SIGKILL
    assert not (run / CHECKPOINT).exists()

    # Ctrl-C: the checkpoint is written, the exit code says what happened.
    resume = ["train", "--resume", str(run), *NO_WAIT]
    code, said = command(resume).stop(signal.SIGINT, rows(3))
    assert code == 130, said
    at = checkpoint_iteration(run)
    assert 3 <= at < ITERATIONS
    assert 0 <= read_rows(run)[-1]["iteration"] - at <= 1
    assert f"interrupted at step {at * 20:,}; go on with: legoswarm train --resume {run}" in said
    assert load_policy(run).notes["steps"] == [at * 20, at * 20]

    # Killed in the middle of writing.
    (run / f".{CHECKPOINT}.part123").write_bytes((run / CHECKPOINT).read_bytes()[:1000])
    (run / ".policy.json.part123").write_text('{"format"')
    with open(metrics, "a") as file:
        file.write('{"iteration": 99, "steps": 1980, "agent/ret')
    code, said = command(resume).stop(signal.SIGKILL, rows(at + 10))
    assert code == -signal.SIGKILL
    assert f"resumed {run} at step {at * 20:,}" in said
    assert at < checkpoint_iteration(run) < ITERATIONS

    code, said = command(resume).wait()
    assert code == 0, said
    assert_same_result(run, uninterrupted)
    assert [row["iteration"] for row in read_rows(run)] == list(range(1, ITERATIONS + 1))
    assert sum("eval" in row for row in read_rows(run)) == 5


@pytest.mark.slow
def test_resuming_a_finished_run_is_harmless(uninterrupted):
    before = snapshot(uninterrupted)
    assert main(["train", "--resume", str(uninterrupted)]) == 0
    assert snapshot(uninterrupted) == before


# Refusals, on copies of the finished run


@pytest.fixture
def refuse(uninterrupted, tmp_path, capsys):
    """Refuses to train in one sentence that has `words` in it, and changes nothing in the copied run."""

    def check(line, *words):
        before = snapshot(run)
        code = main([*line.replace("@run", str(run)).split()])
        out, err = capsys.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("legoswarm train: ")
        for word in words:
            assert word in err
        assert snapshot(run) == before

    run = tmp_path / "copy"
    shutil.copytree(uninterrupted, run)
    check.run = run
    return check


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("--lr 1", "--lr"),
        ("--no-anneal", "--anneal"),
        ("--seeds 3", "--seeds"),
        ("--width 8", "--width"),
        ("--eval-episodes 4", "--eval-episodes"),
        ("--out elsewhere", "--out"),
        ("--from @run", "--from"),
        ("spread --agents 2", "spread"),
    ],
)
def test_a_resumed_run_takes_no_other_options(refuse, line, word):
    refuse(f"train --resume @run {line}", "--resume", word)


@pytest.mark.slow
def test_one_process_at_a_time(quick, tmp_path):
    """Two that write into one folder would spoil it; a lock ends with the process that holds it."""
    folder = start_run(quick, tmp_path / "run", quiet=True)
    holder = "import sys, time; from legoswarm.learn.folder import RunFolder\n"
    holder += "with RunFolder(sys.argv[1]).held(): print(1, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", holder, str(folder.path)], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"1\n"
        with pytest.raises(FileError, match="another process is training in"):
            resume_run(folder.path, quiet=True)
        other.kill()
    resume_run(folder.path, quiet=True)


SIDES = """
import dataclasses
from legoswarm.studies.catalogue import STUDIES, Study
from legoswarm.studies.part import SCALES, Part, Training
from tests.tiny import Yard

SCALES["long"] = dataclasses.replace(SCALES["tiny"], name="long", share=1.0)
STUDIES["sides"] = Study("two parts", lambda scale: [
    Part(f"yard-{agents}", (Training(Yard(agents=agents), "tiny", 10**6),), ()) for agents in (2, 3)
])
"""


def test_studies_side_by_side_stop_together(command, tmp_path):
    """The processes of the parts, which take long and know the user's own file, save what they have.

    They end before the command does. It is killed here, and does as after Ctrl-C.
    """
    runs, own = tmp_path / "runs", tmp_path / "sides.py"
    own.write_text(SIDES)
    words = f"study sides --import {own} --scale long --seeds 1 --methods tiny --jobs 2 --runs {runs}"

    def both_train():
        return sum(path.stat().st_size > 0 for path in runs.glob("*/metrics.jsonl")) == 2

    code, said = command([*words.split(), "--out", str(tmp_path / "out")]).stop(signal.SIGTERM, both_train)
    assert code == 130, said
    for log in runs.glob("*.log"):
        assert "interrupted at step" in log.read_text()
    for folder in runs.glob("*/"):
        with RunFolder(folder).held():  # nobody is at it any more
            assert load_policy(folder).seeds == (0,)


def test_only_runs_can_be_resumed(refuse, tmp_path):
    empty, file = tmp_path / "empty", tmp_path / "file"
    empty.mkdir()
    file.write_text("{}")
    refuse(f"train --resume {empty}", "config.json does not exist")
    refuse(f"train --resume {file}", "is not a run folder")
    refuse(f"train --resume {tmp_path / 'nowhere'}", "is not a run folder")
    assert list(empty.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 7, 8, 100, 0.5, 0.99])
def test_a_checkpoint_cut_short(refuse, kept):
    path = refuse.run / CHECKPOINT
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    refuse("train --resume @run", CHECKPOINT, "damaged")


def drop(arrays):
    del arrays["iteration"]


def add(arrays):
    arrays["more"] = np.zeros(2, np.float32)


def spoil(arrays):
    arrays["worlds/position"][0, 0, 0, 0] = np.nan


def shorten(arrays):
    arrays["worlds/position"] = arrays["worlds/position"][:, :3]


def retype(arrays):
    arrays["iteration"] = arrays["iteration"].astype(np.int64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (drop, ["'iteration' is missing"]),
        (add, ["'more' is missing or unknown"]),
        (spoil, ["'worlds/position'", "not finite"]),
        (shorten, ["'worlds/position' is float32[2, 3, 4, 2]", "not float32[2, 4, 4, 2]"]),
        (retype, ["'iteration' is int64[2]"]),
    ],
)
def test_a_checkpoint_of_something_else(refuse, edit, words):
    path = refuse.run / CHECKPOINT
    arrays = {name: array.copy() for name, array in read_arrays(path).items()}
    edit(arrays)
    write_arrays(path, arrays)
    refuse("train --resume @run", CHECKPOINT, *words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values["policy"].update(width=16), ["checkpoint.safetensors does not fit"]),
        (lambda values: values["policy"].update(colour="red"), ["config.json", "'colour'"]),
        (lambda values: values["algorithm"].update(envs="many"), ["config.json", "'envs'"]),
        (lambda values: values["task"].update(name="chess"), ["config.json", "unknown task 'chess'"]),
        (lambda values: values.pop("seeds"), ["config.json", "'seeds' is missing"]),
        (lambda values: values.update(seeds=[2**40]), ["config.json", "seeds must be less than"]),
        (lambda values: values.update(steps=1), ["config.json", "1 steps are not one to"]),
    ],
)
def test_a_configuration_of_something_else(refuse, change, words):
    path = refuse.run / "config.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    refuse("train --resume @run", *words)


@pytest.mark.slow
def test_a_run_is_never_overwritten(refuse, tmp_path):
    refuse(f"{TRAIN} --out @run", "exists and is not an empty folder", "--resume")
    empty = tmp_path / "empty"
    empty.mkdir()
    RunFolder(empty).create(RunConfig(TrainConfig(Spread())), "")
    assert [path.name for path in empty.iterdir()] == ["config.json"]


# Warm starts


def stop_before_the_first_update(monkeypatch):
    """Ctrl-C as soon as training begins; evaluation says nothing."""

    def fake(config):
        program = make_train(config)

        def interrupt(state, iterations):
            raise KeyboardInterrupt

        return program._replace(advance=interrupt, evaluate=no_figures)

    monkeypatch.setattr(programs, "make_train", fake)


def no_figures(state, key, episodes):
    return {"return_2c": jnp.zeros(())}


@pytest.mark.slow
def test_warm_start_with_another_team_size(uninterrupted, tmp_path, monkeypatch, capsys):
    start = tmp_path / "start"
    shutil.copytree(uninterrupted, start)
    run = tmp_path / "run"
    stop_before_the_first_update(monkeypatch)
    line = f"train spread --agents 5 --from {start} {MAPPO} --steps 200 --seeds 3 --out {run}"
    assert main(line.split()) == 130
    arrays, trained = read_arrays(run / CHECKPOINT), read_arrays(start / "policy.safetensors")
    best = json.loads((start / "policy.json").read_text())["best"]
    assert not arrays["iteration"].any()
    assert arrays["worlds/position"].shape == (3, 4, 10, 2)
    for name, array in trained.items():
        role, rest = name.split("/", 1)
        np.testing.assert_array_equal(arrays[f"learners/{role}/policy/{rest}"], array[[best, 1 - best, best]])
    assert not np.array_equal(trained["agent/actor/head/weight"][0], trained["agent/actor/head/weight"][1])

    # Once there is a checkpoint, the run no longer needs what it was started from.
    shutil.rmtree(start)
    monkeypatch.undo()

    def fake(config):
        def advance(state, iterations):
            return jax.tree.map(lambda leaf: leaf, state), {"agent/return": jnp.zeros(())}

        return make_train(config)._replace(advance=advance, evaluate=no_figures)

    monkeypatch.setattr(programs, "make_train", fake)
    assert main(["train", "--resume", str(run)]) == 0
    assert "resumed" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("spread --width 16", "another architecture"),
        ("spread --encoder attention --heads 2", "another architecture"),
        ("tag", "roles"),
    ],
)
def test_warm_start_refuses_what_does_not_fit(refuse, tmp_path, line, word):
    refuse(f"train {line} --from @run {MAPPO} --steps 200 --out {tmp_path / 'new'}", word)
    assert not (tmp_path / "new").exists()


def test_warm_start_may_look_at_fewer_entities():
    """How many an agent looks at is no matter of weights."""
    train = configure("spread", load_policy("zoo:spread").config, nearest=3)
    warm = loop._warm_start(RunConfig(train, start="zoo:spread"))
    assert warm["agent"].actor.nearest == 3
    one, two = (jax.tree.leaves(policies) for policies in (warm, load_policy("zoo:spread").policies))
    assert all((a == b).all() for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(
    ("options", "expected"), [({}, 20_000), ({"steps": 30_000}, 3_000), ({"capacity": 6_000}, 1_000)]
)
def test_fresh_critics_get_to_know_a_trained_policy_first(options, expected):
    assert patient(configure("spread", **options)).algorithm.patience == expected
    other = configure("spread", "mappo")
    assert patient(other) is other


# Every single moment at which a run can stop, with a program that takes no time


class Crash(BaseException):
    """The machine stops."""


SHARED = functools.cache(programs.Programs)


@pytest.fixture
def quick(monkeypatch):
    """A program whose state depends on every iteration and every key, and which compiles at once, and once for all."""
    config = TrainConfig(Yard(), TINY, Mappo(envs=4, rollout=5), steps=40)
    real = make_train(config)
    shapes = jax.eval_shape(real.init, jax.random.key(0))

    def init(key, policies=None):
        del policies
        fields = (shapes.learners, shapes.worlds, shapes.settings)
        learners, worlds, settings = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), fields)
        zero = jnp.zeros((), jnp.int32)
        return type(shapes)(learners, worlds, key, zero, jnp.array(True), zero, settings)

    def advance(state, iterations):
        def step(_, state):
            key, key_draw = jax.random.split(state.key)
            draw = jax.random.normal(key_draw)
            learners = jax.tree.map(lambda leaf: leaf + draw.astype(leaf.dtype), state.learners)
            return dataclasses.replace(state, learners=learners, key=key, iteration=state.iteration + 1)

        state = jax.lax.fori_loop(0, iterations, step, state)
        return state, {"agent/return": state.learners["agent"].policy.critic.bias}

    def evaluate(state, key, episodes):
        return {"score": state.learners["agent"].policy.critic.bias + jax.random.normal(key, (episodes,)).mean()}

    monkeypatch.setattr(
        programs, "make_train", lambda config: real._replace(init=init, advance=advance, evaluate=evaluate)
    )
    monkeypatch.setattr(loop, "Programs", SHARED)
    monkeypatch.setattr("legoswarm.provenance._revision", lambda here: "what git would say in a tenth of a second")
    return RunConfig(config, seeds=(4, 7), evaluations=1, eval_episodes=2)


@pytest.fixture
def crash_at(monkeypatch):
    """Crash at the n-th of the moments before, within and after each write; says how many there were."""
    replace, append = os.replace, RunFolder.append_metrics
    count, limit = 0, None

    def moment():
        nonlocal count
        count += 1
        if count == limit:
            raise Crash

    def crashing_replace(source, target):
        ours = Path(target).parent.name == "run"
        if ours:
            moment()
        replace(source, target)
        if ours:
            moment()

    def crashing_append(folder, row):
        moment()
        try:
            moment()
        except Crash:
            with open(folder.path / "metrics.jsonl", "a") as file:
                file.write(json.dumps(row)[:25])
            raise
        append(folder, row)
        moment()

    def arm(number):
        nonlocal count, limit
        seen, count, limit = count, 0, number
        return seen

    monkeypatch.setattr(os, "replace", crashing_replace)
    monkeypatch.setattr(RunFolder, "append_metrics", crashing_append)
    return arm


def test_a_crash_at_any_moment(quick, crash_at, tmp_path):
    whole = tmp_path / "whole" / "run"
    crash_at(None)
    start_run(quick, whole, quiet=True, checkpoint_seconds=0.0)
    moments = crash_at(None)
    assert moments == 18  # two for each of six files put in place, three for each of two rows
    for number in range(1, moments + 1):
        run = tmp_path / str(number) / "run"
        crash_at(number)
        with pytest.raises(Crash):
            start_run(quick, run, quiet=True, checkpoint_seconds=0.0)
        crash_at(None)
        if number == 1:  # before there was even a configuration
            with pytest.raises(FileError, match="does not exist"):
                resume_run(run, quiet=True)
            start_run(quick, run, quiet=True)
        resume_run(run, quiet=True, checkpoint_seconds=1e9)
        assert_same_result(run, whole)


@pytest.mark.parametrize(("seconds", "kept"), [(20.0, [1, 4]), (0.0, [1, 2, 3, 4])], ids=["usual", "every row"])
def test_checkpoints_that_take_long_are_few(quick, seconds, kept, tmp_path, monkeypatch):
    """After one that took 100 s none follows for 2,000, but at the end, or if each row is to have one."""
    now, took, saved, save = time.monotonic, [0.0], [], RunFolder.save_checkpoint
    monkeypatch.setattr("legoswarm.learn.loop.time.monotonic", lambda: now() + took[0])

    def slow(folder, state):
        save(folder, state)
        took[0] += 100.0
        saved.append(int(np.max(state.iteration)))

    monkeypatch.setattr(RunFolder, "save_checkpoint", slow)
    longer = dataclasses.replace(quick, train=dataclasses.replace(quick.train, steps=80), evaluations=4)
    start_run(longer, tmp_path / "run", quiet=True, checkpoint_seconds=seconds)
    assert saved == kept


def test_crashes_one_after_the_other(quick, crash_at, tmp_path):
    """A run that never gets further than a few writes at a time."""
    whole, run = tmp_path / "whole" / "run", tmp_path / "run"
    start_run(quick, whole, quiet=True)
    crash_at(8)
    with pytest.raises(Crash):
        start_run(quick, run, quiet=True, checkpoint_seconds=0.0)
    crashes = 1
    while True:
        crash_at(12)
        try:
            resume_run(run, quiet=True, checkpoint_seconds=0.0)
        except Crash:
            crashes += 1
            assert crashes < 4
        else:
            break
    assert crashes >= 2
    assert_same_result(run, whole)


def test_an_interrupt_between_training_and_writing_loses_no_row(quick, tmp_path, monkeypatch):
    """Ctrl-C after the compiled program has come back: the row that was not written is computed again."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    start_run(quick, whole, quiet=True)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop._Run, "_report_divergence", interrupt)
        with pytest.raises(KeyboardInterrupt):
            start_run(quick, run, quiet=True)
    assert checkpoint_iteration(run) == 0
    resume_run(run, quiet=True)
    assert_same_result(run, whole)


def test_an_interrupt_that_is_swallowed_stops_at_the_next_row(quick, tmp_path, monkeypatch):
    """As JAX's callback of the garbage collector does it: Python prints an exception there and goes on."""
    monkeypatch.setattr(loop._Run, "_report_divergence", swallowing(loop._Run._report_divergence))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start_run(quick, tmp_path / "run", quiet=True)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(read_rows(tmp_path / "run")) == 1
    assert checkpoint_iteration(tmp_path / "run") > 0


def swallowing(function):
    def interrupted(*arguments):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return function(*arguments)

    return interrupted


# An algorithm of one's own


@dataclasses.dataclass(frozen=True)
class Walk:
    """Every update adds noise to all weights."""

    name: ClassVar[str] = "walk"
    needs: ClassVar[dict] = {"critic": "none"}

    envs: int = option(4, "worlds side by side")
    rollout: int = option(5, "steps between updates")
    stride: float = option(0.1, "deviation of the noise")

    def check(self, policy, task):
        assert policy.critic == "none"

    def init(self, policies, task, iterations, *, key):
        return policies

    def actors(self, learner):
        return {role: policy.actor for role, policy in learner.items()}

    def policies(self, learner):
        return learner

    def update(self, learner, rollout, iterations, *, key):
        weights, back = ravel_pytree(learner)
        return back(weights + self.stride * jax.random.normal(key, weights.shape)), {"agent/weight": weights.max()}


@pytest.mark.usefixtures("quickly_compiled")
def test_an_algorithm_of_ones_own_trains_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(ALGORITHMS, "_things", {**ALGORITHMS._all(), "walk": Walk})
    assert isinstance(Walk(), Algorithm)
    config = RunConfig(configure("yard", "tiny", "walk", stride=0.3, steps=100), (4, 7), evaluations=2, eval_episodes=2)
    whole, run = tmp_path / "whole", tmp_path / "run"
    start_run(config, whole, quiet=True)
    append = RunFolder.append_metrics

    def interrupt(folder, row):
        append(folder, row)
        if row["iteration"] == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_metrics", interrupt)
        with pytest.raises(KeyboardInterrupt):
            start_run(config, run, quiet=True)
    assert checkpoint_iteration(run) == 2
    assert json.loads((run / "config.json").read_text())["algorithm"] == {**named(Walk()), "stride": 0.3}
    resume_run(run, quiet=True)
    assert_same_result(run, whole)
    first, *_, last = read_rows(run)
    assert first["agent/weight"] != last["agent/weight"]
    assert load_policy(run).policies["agent"].critic is None


# What else a run stands on


def test_a_policy_that_refuses_the_task_leaves_nothing_behind(monkeypatch, tmp_path):
    def refuse(policy, layout, role, *, key):
        raise ValueError("not on this task")

    monkeypatch.setattr(type(TINY), "build", refuse)
    config = RunConfig(TrainConfig(Yard(), TINY, Mappo(envs=4, rollout=5), steps=60))
    with pytest.raises(ValueError, match="not on this task"):
        start_run(config, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_trees_survive_the_file(tmp_path):
    """Scalars stay scalars, keys stay keys, types and values stay what they are."""
    tree = {
        "scalar": jnp.float32(3.0),
        "key": jax.random.key(5),
        "keys": jax.random.split(jax.random.key(1), 3),
        "flags": (jnp.array([True, False]), jnp.zeros((2, 0, 3), jnp.int32)),
        "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    }
    path = tmp_path / "tree.safetensors"
    write_arrays(path, named_leaves(tree))
    back = rebuild(jax.eval_shape(lambda: tree), read_arrays(path), str(path))
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for one, two in zip(*map(jax.tree.leaves, (tree, back)), strict=True):
        assert (one.shape, one.dtype) == (two.shape, two.dtype)
    for name, array in named_leaves(tree).items():
        np.testing.assert_array_equal(named_leaves(back)[name], array)
    np.testing.assert_array_equal(jax.random.normal(back["key"]), jax.random.normal(tree["key"]))
