"""Environments from outside: what is collected is what they did, with every algorithm; and what is wrong is named."""

import dataclasses
import importlib.util
import json
import os
import signal
import time
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import legoswarm
from legoswarm.cli import main
from legoswarm.evaluate.outside import play_outside
from legoswarm.layout import Layout
from legoswarm.learn.outside import OutsidePrograms
from legoswarm.learn.train import configure
from legoswarm.tasks.adapters.processes import OutsideError, WorldPool
from legoswarm.tasks.check import check_env, check_task
from tests.browser import in_ci
from tests.fields import Field, FieldEnv, Fields
from tests.tiny import Yard

MAPPO = {"envs": 4, "rollout": 5, "epochs": 1, "minibatches": 1, "steps": 60}
MASAC = {"algorithm": "masac", "envs": 4, "samples": 4, "warmup": 4, "capacity": 40, "updates": 1, "critic_width": 8}
RUN = {"evaluations": 1, "eval_episodes": 3, "quiet": True}


@pytest.fixture
def collected():
    """A rollout of two seeds in four worlds each, by two processes."""
    programs = OutsidePrograms(configure("field", "tiny", workers=2, **{**MAPPO, "rollout": 7}), (3, 5), 2)
    try:
        state = programs.first_state()
        programs.compile(state)
        yield jax.tree.map(np.asarray, programs._collect(state))
    finally:
        programs.close()


def test_a_rollout_is_what_the_environments_did(collected):
    """Every world again: positions follow from actions, rewards from positions; resets come after the last step."""
    assert collected.reward.shape == (2, 7, 4, 2)
    before, after = collected.scene.position[..., :2, :], collected.next_scene.position[..., :2, :]
    np.testing.assert_allclose(after, before + 0.1 * np.clip(collected.action, -1, 1), atol=1e-6)
    np.testing.assert_allclose(collected.reward, -np.linalg.norm(after - [1.0, 0.0], axis=-1), rtol=1e-5)
    np.testing.assert_array_equal(collected.terminated, np.abs(after[..., 0, 0]) > 2)
    ended = collected.terminated | collected.truncated
    goes_on = ~ended[:, :-1]
    np.testing.assert_array_equal(before[:, 1:][goes_on], after[:, :-1][goes_on])
    assert (before[:, 1:][~goes_on] != after[:, :-1][~goes_on]).all()
    assert collected.truncated.sum() >= 4  # after six steps
    assert not np.array_equal(before[0], before[1])  # each seed has worlds of its own
    assert len(np.unique(before[0, 0, :, 0, 0])) == 4


def test_an_agent_that_dies_is_gone_while_the_episode_goes_on():
    programs = OutsidePrograms(configure("field", "tiny", fault="mortal", **{**MAPPO, "rollout": 7}), (3,), 2)
    try:
        state = programs.first_state()
        programs.compile(state)
        rollout = jax.tree.map(np.asarray, programs._collect(state))
    finally:
        programs.close()
    there, later = rollout.scene.exists[..., 1], rollout.next_scene.exists[..., 1]
    died = there & ~later
    assert died.any()
    assert (~there).any()
    assert not rollout.terminated[died].any()
    assert (rollout.reward[died][:, 1] < 0).all()  # the last one counts
    assert not rollout.reward[~there][:, 1].any()


def test_it_trains_the_same_from_run_to_run_and_resumes(tmp_path):
    """Collection overlaps with learning, and the result is still decided by the seeds alone."""

    def stop(row):
        if row["iteration"] == 2:
            raise RuntimeError("enough")

    words = {**MAPPO, **RUN, "seeds": 2, "workers": 2}
    one, two = (legoswarm.train("field", "tiny", out=tmp_path / name, **words) for name in "ab")
    assert (one.path / "policy.safetensors").read_bytes() == (two.path / "policy.safetensors").read_bytes()
    rows = one.read_metrics()
    assert rows[-1]["eval"].keys() == {"return", "far"}
    with pytest.raises(RuntimeError, match="enough"):
        legoswarm.train("field", "tiny", out=tmp_path / "c", on_row=stop, **words)
    again = legoswarm.resume_run(tmp_path / "c", quiet=True).read_metrics()
    assert [row["iteration"] for row in again] == [row["iteration"] for row in rows]
    found = legoswarm.evaluate(one, agents=[3], episodes=5)
    assert [(row["agents"], row["seed"]) for row in found] == [(3, 0), (3, 1)]


@pytest.mark.parametrize(("task", "options"), [("fields", MAPPO), ("field", {**MASAC, "steps": 24})], ids=str)
def test_vector_environments_and_other_algorithms(task, options, tmp_path):
    rows = legoswarm.train(task, "tiny", out=tmp_path / "run", **options, **RUN).read_metrics()
    assert rows[-1]["eval"]["return"][0] < 0


def test_evaluation_is_the_environments_own(tmp_path):
    """An episode of the mean actions again, step by step, with the same seed."""
    run = legoswarm.train("field", "tiny", out=tmp_path / "run", **MAPPO, **RUN)
    (row,) = legoswarm.evaluate(run, episodes=1, episode_seed=11)
    policy, env, task = legoswarm.load(run), FieldEnv(2), Field()
    env.reset(seed=11)
    out = tmp_path / "field.gif"
    assert main(["watch", str(run.path), "--out", str(out), "--episode", "11", "--axes", "--arrows"]) == 0
    assert out.read_bytes().startswith(b"GIF")
    trajectory = play_outside(task, policy.actors, 11)
    np.testing.assert_allclose(trajectory.states.position[0, :2], env.place, rtol=1e-5)
    assert trajectory.alive.sum() == len(np.asarray(trajectory.states.time)) == 6
    np.testing.assert_allclose(trajectory.measures["return"].sum(), row["return"], rtol=1e-5)
    total = far = 0.0
    while env.agents:
        seen = task.look(env)
        actions = policy.act(seen.position, seen.velocity, ["agent", "agent", "flag"])
        rewards = env.step(dict(zip(env.possible_agents, actions, strict=True)))[1]
        total, far = total + sum(rewards.values()) / 2, far + np.abs(env.place).max()
    np.testing.assert_allclose([row["return"], row["far"]], [total, far], rtol=1e-4)


def test_a_world_that_fails_is_reported_in_one_sentence(tmp_path, capsys):
    words = "train field --fault late --policy tiny --envs 4 --rollout 5 --epochs 1 --steps 60 --eval-episodes 2"
    words = [*words.split(), "--out", str(tmp_path / "run")]
    assert main(words) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "legoswarm train: a world of field failed: KeyError: 'nothing to see at step 3'"


@pytest.mark.parametrize("unread", [False, True], ids=["at rest", "with a command that it has not read"])
def test_a_process_that_dies_is_reported(unread):
    pool = WorldPool(Field(), 1, 4, ("return",))
    try:
        pool.post(0, "reset")
        pool.wait(0)
        (process, _), *_ = pool._workers
        if unread:
            os.kill(process.pid, signal.SIGSTOP)
            pool.post(0, "reset")
        os.kill(process.pid, signal.SIGKILL)
        process.join(5)
        if not unread:
            pool.post(0, "reset")
        with pytest.raises(OutsideError, match="worlds of field ended with the code -9"):
            pool.wait(0)
    finally:
        pool.close()


def test_an_evaluation_that_was_interrupted_leaves_nothing_for_the_next_one():
    task = Field()
    pool = WorldPool(task, 1, 4, ("return",))
    try:
        for lane in range(len(pool.lanes)):
            pool.lanes[lane]["seed"][:] = 7
            pool.post(lane, "reset")
            pool.wait(lane)
            pool.lanes[lane]["action"][:] = 1.0
            pool.post(lane, "step")  # and nobody waits for it
        for lane in range(len(pool.lanes)):
            pool.post(lane, "reset")
        first = [pool.wait(lane)["position"].copy() for lane in range(len(pool.lanes))]
        time.sleep(0.1)  # for whoever still writes
        for lane, before in enumerate(first):
            np.testing.assert_array_equal(pool.lanes[lane]["position"], before)
            pool.post(lane, "reset")
            np.testing.assert_array_equal(pool.wait(lane)["position"], before)
    finally:
        pool.close()


# Checks


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("shape", r"field\.look: position must be numbers of shape \[3, 2\], not float64\[1, 2\]"),
        ("kind", r"field\.look failed: TypeError: it must give Whereabouts, not tuple"),
        ("agents", "the environment has 2 possible agents, and the layout has 3"),
        ("action", r"field\.action, or its environment's step, failed: IndexError"),
        ("measure", r"field\.measure: 'far' must be one number, not of shape \[2, 2\]"),
    ],
)
def test_faults_of_adapters_are_named_before_there_is_a_folder(fault, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        legoswarm.train("field", "tiny", fault=fault, out=tmp_path / "run", **MAPPO, **RUN)
    assert list(tmp_path.iterdir()) == []


def test_adapters_that_fit():
    assert check_env(Field()) == ("return", "far")
    assert check_env(Fields()) == ("return",)
    check_task(Field())
    check_task(Yard())


@dataclasses.dataclass(frozen=True)
class Faulty(Yard):
    """A yard with one faulty method."""

    name: ClassVar[str] = "faulty"
    fault: str = ""

    def reward(self, state):
        return super().reward(state)[:1] if self.fault == "reward" else super().reward(state)

    def cost(self, state):
        return jnp.zeros(3 if self.fault == "cost" else 2)

    def step(self, state, action):
        after = super().step(state, action)
        return dataclasses.replace(after, time=state.time) if self.fault == "time" else after

    def terminated(self, state):
        return jnp.zeros(2, bool) if self.fault == "terminated" else super().terminated(state)

    def measure(self, state):
        return {} if self.fault == "figures" else super().measure(state)

    @property
    def layout(self):
        return Layout(("agent", "flag"), (self.agents, 2)) if self.fault == "layout" else super().layout


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("reward", r"faulty\.reward must be numbers of shape \[2\], not float32\[1\]"),
        ("cost", r"faulty\.cost must be numbers of shape \[2\], not float32\[3\]"),
        ("time", r"faulty\.step must count `time` up by 1"),
        ("terminated", r"faulty\.terminated must be true or false of shape \[\], not bool\[2\]"),
        ("figures", r"faulty\.figures failed: KeyError: 'score'"),
        ("layout", r"faulty\.(radii must have one number|reset: position must be numbers of shape \[4, 2\])"),
    ],
)
def test_faults_of_tasks_are_named(fault, words):
    with pytest.raises(ValueError, match=words):
        check_task(Faulty(fault=fault))


# Packages that nobody here wrote


def test_mpe2_trains(tmp_path):
    run = legoswarm.train("mpe2-spread", "tiny", agents=2, out=tmp_path / "run", **MAPPO, **RUN)
    (row,) = legoswarm.evaluate(run, episodes=2)
    assert row["return_2c"] == pytest.approx(-2 * row["distance"] - 2 * row["collisions"], rel=1e-5)
    assert json.loads((run.path / "config.json").read_text())["task"]["name"] == "mpe2-spread"


@pytest.mark.skipif(importlib.util.find_spec("momaland") is None and not in_ci(), reason="momaland is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_momalands_crazyflies_train(tmp_path):
    legoswarm.import_own(os.path.join(os.path.dirname(__file__), "..", "examples", "own_environment.py"))
    run = legoswarm.train("crazyflie-catch", "mappo", width=8, out=tmp_path / "run", **MAPPO, **RUN)
    assert np.isfinite(legoswarm.evaluate(run, episodes=2)[0]["return"])
