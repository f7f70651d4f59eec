"""The examples of docs/extending.md and of the pages it names: run as a user runs them, and what they promise."""

import dataclasses
import functools
import importlib.util
import json
import math
import re
import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import legoswarm
from legoswarm.evaluate.episodes import play
from legoswarm.evaluate.policies import trained_task
from legoswarm.learn.algorithms.algorithm import ALGORITHMS, Algorithm
from legoswarm.policies.encoders.encoder import ENCODERS
from legoswarm.policies.policy import POLICIES
from legoswarm.policies.saved.act import Swarm
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.task import TASKS, State, Task
from tests.saved import SMALL, random_weights, small_policy

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
TINY = "--envs 4 --rollout 5 --epochs 1 --steps 40 --eval-episodes 3 --evaluations 1"


@pytest.fixture(autouse=True)
def own_registries(monkeypatch):
    """What an example registers is forgotten after the test."""
    for registry in (TASKS, POLICIES, ALGORITHMS, ENCODERS):
        registry.names()  # the package's own come first
        for field in ("_things", "_homes"):
            monkeypatch.setattr(registry, field, dict(getattr(registry, field)))


@pytest.fixture
def script(monkeypatch, capsys, tmp_path):
    """Run `python examples/NAME.py WORDS` in an empty folder; gives stdout."""
    monkeypatch.chdir(tmp_path)

    def run(name, line):
        monkeypatch.setattr("sys.argv", [name, *line.split()])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        out, err = capsys.readouterr()
        assert end.value.code == 0, err
        return out

    return run


def rows(out):
    return [json.loads(line) for line in out.splitlines()]


def example(name):
    """Import an example, which registers what it defines."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def random_team(agents, landmarks):
    positions, velocities = np.random.default_rng(agents).uniform(-1, 1, (2, agents + landmarks, 2))
    return positions, velocities, ["agent"] * agents + ["landmark"] * landmarks


def check_symmetries(config):
    """Turning, mirroring and shifting the team, or exchanging its members, does the same to the actions."""
    swarm = Swarm(small_policy(Spread(limit="none"), config=config))
    positions, velocities, roles = random_team(4, 3)
    actions = swarm.act(positions, velocities, roles)
    assert np.linalg.norm(actions, axis=1).min() > 1e-4
    turn = np.array([[math.cos(2.0), -math.sin(2.0)], [math.sin(2.0), math.cos(2.0)]]) @ np.diag([1.0, -1.0])
    turned = swarm.act(positions @ turn.T + 3, velocities @ turn.T, roles)
    np.testing.assert_allclose(turned, actions @ turn.T, atol=1e-4 * np.abs(actions).max())
    order = np.array([2, 0, 3, 1, 6, 4, 5])
    shuffled = swarm.act(positions[order], velocities[order], roles)
    np.testing.assert_allclose(shuffled, actions[order[:4]], atol=1e-4 * np.abs(actions).max())


# A task


@pytest.mark.slow
def test_own_task_is_trained_evaluated_and_watched(script, tmp_path):
    """As its file says, here with the own policy: both meet nowhere but in the registries."""
    example("own_policy")
    script("own_task", f"train rendezvous --agents 3 --near 0.3 --policy linear {TINY} --out run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["task"] == {"name": "rendezvous", "agents": 3, "near": 0.3, "horizon": 50}
    (row,) = rows(script("own_task", "eval run --agents 2 --episodes 4 --json"))
    assert (row["agents"], row["episodes"]) == (2, 4)
    assert row["return"] < 0
    assert 1 <= row["steps"] <= 50
    assert 0 <= row["met"] <= 1
    script("own_task", "watch run --out film.png")
    assert (tmp_path / "film.png").stat().st_size > 0
    # Acting needs nothing of the task's code; evaluating does, and says so.
    del TASKS._things["rendezvous"]
    swarm = legoswarm.load(tmp_path / "run")
    assert swarm.act(np.eye(2), np.zeros((2, 2)), ["agent"] * 2).shape == (2, 2)
    assert {leaf.shape for leaf in jax.tree.leaves(swarm.actors)} == {(4, 2), (2,)}
    with pytest.raises(ValueError, match="unknown task 'rendezvous'"):
        trained_task(swarm.file)


def test_own_task_ends_when_all_have_met():
    rendezvous = example("own_task")["Rendezvous"](agents=2, horizon=6)
    assert isinstance(rendezvous, Task)

    def state(gap):
        return State(jnp.array([[0.0, 0.0], [gap, 0.0]]), jnp.zeros((2, 2)), jnp.ones(2, bool), jnp.array(0))

    assert bool(rendezvous.terminated(state(0.19)))
    assert not bool(rendezvous.terminated(state(0.21)))
    np.testing.assert_allclose(rendezvous.reward(state(0.5)), -0.25)
    swarm = Swarm(small_policy(rendezvous))
    figures = jax.jit(lambda start: rendezvous.figures(play(rendezvous, swarm.actors, start).measures))
    near, far = figures(state(0.05)), figures(state(9.0))
    assert (near["steps"], near["met"]) == (1, 1)
    assert (far["steps"], far["met"]) == (6, 0)
    with pytest.raises(ValueError, match="at least two agents"):
        TASKS.make("rendezvous", agents=1)


# An encoder


def test_own_encoder_is_an_encoder_of_sets():
    encoder = random_weights(functools.partial(example("own_encoder")["Nearby"], SMALL, 4))
    rng = np.random.default_rng(0)
    features, mask = jnp.asarray(rng.normal(size=(5, 4)), jnp.float32), jnp.array([True, True, False, True, False])
    value = encoder(features, mask)
    order = rng.permutation(5)
    np.testing.assert_allclose(encoder(features[order], mask[order]), value, rtol=1e-5)
    np.testing.assert_allclose(encoder(jnp.where(mask[:, None], features, 99.0), mask), value, rtol=1e-5)
    np.testing.assert_allclose(encoder(features[mask], mask[mask]), value, rtol=1e-5)
    for nothing in (encoder(features, jnp.zeros(5, bool)), encoder(features[:0], mask[:0])):
        np.testing.assert_array_equal(nothing, np.zeros(8))
    assert np.isfinite(jax.grad(lambda x: encoder(x, mask).sum())(jnp.zeros((5, 4)))).all()


def test_a_policy_with_the_own_encoder_has_the_symmetries():
    example("own_encoder")
    check_symmetries(dataclasses.replace(SMALL, encoder="nearby"))


@pytest.mark.slow
def test_own_encoder_is_trained_from_python(tmp_path):
    example("own_encoder")
    train = legoswarm.configure(
        "spread",
        agents=2,
        width=8,
        encoder="nearby",
        algorithm="mappo",
        envs=4,
        rollout=5,
        epochs=1,
        minibatches=4,
        steps=40,
    )
    run = legoswarm.start_run(legoswarm.RunConfig(train, evaluations=1, eval_episodes=3), tmp_path / "run", quiet=True)
    assert legoswarm.load(run.path).act(*random_team(3, 2)).shape == (3, 2)


def test_a_policy_with_the_own_encoder_of_observations_has_the_symmetries():
    example("own_view_encoder")
    check_symmetries(dataclasses.replace(SMALL, encoder="glance"))


# A policy


def test_own_policy_has_the_symmetries_and_its_own_options():
    linear = example("own_policy")["LinearPolicy"]
    check_symmetries(linear(speed=3.0))
    assert legoswarm.configure("spread", "linear", speed=2.0).algorithm.lr == 3e-3
    with pytest.raises(ValueError, match="'heads'"):
        legoswarm.configure("spread", "linear", heads=2)


# An algorithm


@pytest.mark.slow
def test_own_algorithm_learns_and_resumes(script, tmp_path):
    """With one agent, one landmark and the own policy, which is enough to learn to go there."""
    example("own_policy")
    words = "--policy linear --agents 1 --envs 64 --eval-episodes 50 --evaluations 4"
    script("own_algorithm", f"train spread --algorithm reinforce {words} --lr 0.05 --steps 48e3 --out run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["algorithm"]["name"] == "reinforce"
    assert config["policy"]["critic"] == "none"
    assert isinstance(ALGORITHMS["reinforce"](), Algorithm)
    first, *_, last = [row["eval"]["return_2c"][0] for row in metrics(tmp_path / "run") if "eval" in row]
    assert last > first + 1
    (row,) = rows(script("own_algorithm", "eval run --agents 2 --episodes 4 --json"))
    assert row["return_2c"] < 0


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_names_that_nobody_registered_are_refused(tmp_path):
    for options, match in (
        ({"policy": "linear"}, "unknown policy 'linear'"),
        ({"algorithm": "reinforce"}, "unknown algorithm 'reinforce'"),
        ({"encoder": "nearby"}, "unknown encoder"),
    ):
        with pytest.raises(ValueError, match=match):
            legoswarm.start_run(legoswarm.RunConfig(legoswarm.configure("spread", **options)), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


# The text


PAGES = ("extending.md", "own-task.md", "own-environment.md", "own-policy.md", "own-algorithm.md")


def test_the_text_names_what_exists():
    """Files and commands in docs/extending.md and the pages that it names are those of the examples."""
    text = "".join((ROOT / "docs" / name).read_text() for name in PAGES)
    names = set(re.findall(r"examples/(\w+)\.py", text))
    assert names == {path.stem for path in EXAMPLES.glob("own_*.py")}
    for command in re.findall(r"^python (examples/.*)$", text, re.MULTILINE):
        path, rest = command.split(" ", 1)
        assert rest in (ROOT / path).read_text()


def test_the_text_counts_what_the_examples_take():
    """The table of docs/extending.md: files touched outside the example, and lines of the example without its tail."""
    text = (ROOT / "docs" / "extending.md").read_text()
    for path in EXAMPLES.glob("own_*.py"):
        body = path.read_text().split("\nif __name__")[0]
        code = [line for line in body.splitlines() if line.strip()]
        assert f"[{path.name}](../examples/{path.name}) | 1 | {len(code)} |" in text
