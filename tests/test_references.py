"""References for Spread: the Hungarian controller, and the planner that improves somebody's episodes."""

import dataclasses
import functools
import itertools
import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.cli import main
from legoswarm.evaluate import references
from legoswarm.evaluate.episodes import Trajectory, episode_figures
from legoswarm.evaluate.policies import EPISODE_SEED, evaluate_policy
from legoswarm.evaluate.references import assign, fly_hungarian, plan
from legoswarm.files import read_json
from legoswarm.tasks.spread import Spread
from tests.saved import save_small

TASK = Spread(agents=3, horizon=8)
WORLDS = 4


@pytest.fixture(scope="module")
def states():
    return jax.vmap(TASK.reset)(jax.random.split(jax.random.key(EPISODE_SEED), WORLDS))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return str(save_small(tmp_path_factory.mktemp("policies") / "spread", TASK, seeds=(4, 5)))


@pytest.fixture
def quick(monkeypatch):
    """A few updates, and two chunks of worlds."""
    settings = {"updates": 30, "starts": 2}
    for name, value in {"CHUNK": 2, "UPDATES": 30, "STARTS": 2}.items():
        monkeypatch.setattr(references, name, value)
    return settings


def returns(trajectory: Trajectory):
    return np.asarray(jax.vmap(TASK.figures)(trajectory.measures)["return_2c"])


def test_the_assignment_is_the_best_of_all_and_not_the_greedy_one():
    """On a line, agents at 0 and 1, landmarks at 1.1 and -3: the agent at 0 must leave the near one to the other."""
    agents, landmarks = np.array([[[0.0, 0.0], [1.0, 0.0]]]), np.array([[[1.1, 0.0], [-3.0, 0.0]]])
    assert assign(agents, landmarks)[0].tolist() == [[-3.0, 0.0], [1.1, 0.0]]
    rng = np.random.default_rng(0)
    agents, landmarks = rng.uniform(-1, 1, (2, 20, 4, 2))
    mine = np.linalg.norm(assign(agents, landmarks) - agents, axis=-1).sum(1)
    every = [np.linalg.norm(landmarks[:, order] - agents, axis=-1).sum(1) for order in itertools.permutations(range(4))]
    np.testing.assert_allclose(mine, np.min(every, 0))


def test_agents_without_a_landmark_stay():
    agents, landmarks = np.array([[[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]]]), np.array([[[1.0, 0.9]]])
    assert assign(agents, landmarks)[0].tolist() == [[0.0, 0.0], [1.0, 0.9], [5.0, 5.0]]


def test_the_controllers_force(states):
    """Pull towards the landmark, brake against the velocity."""
    moving = eqx.tree_at(lambda state: state.velocity, states, states.velocity + 0.3)
    flown = fly_hungarian(TASK, moving, (0.5, 2.0))
    agents, landmarks = np.split(np.asarray(states.position), 2, axis=1)
    np.testing.assert_allclose(flown.actions[:, 0], 0.5 * (assign(agents, landmarks) - agents) - 2 * 0.3, rtol=1e-4)


def test_the_controller_covers_landmarks_and_keeps_the_limit():
    """Three agents far from three landmarks that lie apart: all are covered at the end, with forces of the limit."""
    task = Spread(agents=3, limit="disc:2")
    position = jnp.array([[[-0.9, -0.9], [0.9, -0.9], [0.0, 0.9], [-0.6, 0.0], [0.6, 0.0], [0.0, 0.6]]])
    start = jax.tree.map(lambda leaf: leaf[None], task.reset(jax.random.key(0)))
    start = eqx.tree_at(lambda state: state.position, start, position)
    flown = fly_hungarian(task, start)
    assert flown.measures["distance"].shape == (1, task.horizon)
    assert flown.measures["distance"][0, -1] < 0.05
    sizes = np.linalg.norm(flown.actions, axis=-1)
    assert sizes.max() == pytest.approx(2, rel=1e-5)
    still = jax.vmap(jax.vmap(task.measure))(jax.tree.map(lambda leaf: leaf[:, None], start))["distance"] * task.horizon
    assert flown.measures["distance"].sum() < 0.5 * still.sum()


def test_the_planner_is_never_worse_than_its_start(states, quick):
    """It gains much on doing nothing, keeps the limit, and what it reports is what its actions give."""
    still = functools.partial(fly_hungarian, gains=(0.0, 0.0))
    found = plan(TASK, states, still, **quick)
    assert (returns(found) >= returns(still(TASK, states))).all()
    assert returns(found).mean() > 0.8 * returns(still(TASK, states)).mean()
    assert np.linalg.norm(found.actions, axis=-1).max() <= 8 * (1 + 1e-5)
    replayed = jax.vmap(lambda state, actions: references._soft_cost(TASK, state, actions, jnp.float32(0.01))[1])
    np.testing.assert_allclose(returns(replayed(states, found.actions)), returns(found), rtol=1e-3)
    np.testing.assert_array_equal(found.states.position[:, 0], states.position)


def test_plans_that_only_get_worse_are_not_taken(states, quick):
    """Nothing is better than an episode without distance and collisions, so that one comes back."""

    def perfect(task, some):
        flown = fly_hungarian(task, some)
        costs = {name: flown.measures[name] * 0 for name in ("distance", "collisions")}
        return dataclasses.replace(flown, measures={**flown.measures, **costs})

    found = plan(TASK, states, perfect, **quick)
    assert returns(found).tolist() == [0] * WORLDS
    np.testing.assert_allclose(found.actions, fly_hungarian(TASK, states).actions, atol=1e-5)


def test_rows_have_the_keys_and_starts_of_a_policys(saved, capsys, quick):
    """The planner has a row for each seed of the policy that it starts from, never worse than the policy's own."""
    own = list(evaluate_policy(saved, episodes=WORLDS))
    planned = list(evaluate_policy("planner", plan_from=saved, episodes=WORLDS))
    told = capsys.readouterr().err
    assert "the planner is slow: 2 x 30 gradients for 3 agents in each of 4 worlds" in told
    assert "worlds 3 to 4: return_2c -" in told
    assert [row["seed"] for row in planned] == [4, 5]
    for mine, theirs in zip(own, planned, strict=True):
        assert list(mine) == list(theirs)
        assert theirs["return_2c"] > mine["return_2c"]
    assert main(["eval", "hungarian", "--agents", "2", "3", "--episodes", "4", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["agents"], row["seed"], row["episodes"]) for row in rows] == [(2, 0, 4), (3, 0, 4)]
    assert list(rows[0]) == list(own[0])
    task = Spread(agents=3)
    starts = jax.vmap(task.reset)(jax.random.split(jax.random.key(EPISODE_SEED), WORLDS))
    figures = jax.vmap(lambda one: episode_figures(task, one))(fly_hungarian(task, starts))
    assert rows[1]["return_2c"] == pytest.approx(float(figures["return_2c"].mean()), rel=1e-5)


def test_gains_are_those_that_the_sweep_found():
    rows = read_json(Path(__file__).parent.parent / "results" / "references" / "gains.json")["rows"]
    for protocol, gains in references.GAINS.items():
        best = min((row for row in rows if row["protocol"] == protocol), key=lambda row: row["score"])
        assert tuple(best["gains"]) == gains
