"""Rollouts: clocks, resets, rewards and log-probabilities, retraced in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.learn.algorithms.mappo import Mappo, _prepare, losses, make_optimizer, new_learner
from legoswarm.learn.rollout import collect, reset_worlds
from legoswarm.learn.train import _mean_return
from legoswarm.policies.networks.roles import make_policies
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from legoswarm.tasks.task import State
from tests.policies import policy_of
from tests.tiny import TINY, TURN, Yard, compiled, random_policies

STEPS, WORLDS = 20, 16


def roll(task, policies, steps, worlds, clock_steps, seed=0):
    """Fresh worlds, then a rollout: the worlds before, the worlds after, the transitions."""

    def run(policies, key):
        key_reset, key_collect = jax.random.split(key)
        before = reset_worlds(task, key_reset, worlds, clock_steps)
        actors = {role: policy.actor for role, policy in policies.items()}
        return before, *collect(task, actors, before, key_collect, steps)

    key = jax.random.key(seed)
    return compiled(run, policies, key)(policies, key)


@pytest.fixture(scope="module")
def yard():
    """The task, its policies, and a rollout long enough for terminations and time limits."""
    task = Yard()
    policies = make_policies(TINY, task.layout, key=jax.random.key(3))
    return task, policies, *roll(task, policies, STEPS, WORLDS, STEPS)


def test_an_episode_ends_at_the_horizon_or_when_the_task_says_so(yard):
    task, _, _, after, rollout = yard
    reached = np.asarray(rollout.next_scene.position)[:, :, 0, 0]
    clock = np.zeros(WORLDS, int)
    for t in range(STEPS):
        clock += 1
        terminated = np.abs(reached[t]) > 1
        truncated = (clock >= task.horizon) & ~terminated
        np.testing.assert_array_equal(rollout.terminated[t], terminated)
        np.testing.assert_array_equal(rollout.truncated[t], truncated)
        clock[terminated | truncated] = 0
    np.testing.assert_array_equal(after.time, clock)
    assert np.asarray(rollout.terminated).sum() > 5
    assert np.asarray(rollout.truncated).sum() > 5


def test_a_world_goes_on_where_it_was_or_starts_anew(yard):
    *_, after, rollout = yard
    ended = np.asarray(rollout.terminated | rollout.truncated)
    scene, reached = rollout.scene, rollout.next_scene
    following = np.concatenate([np.asarray(scene.position)[1:], np.asarray(after.position)[None]])
    np.testing.assert_array_equal(following[~ended], np.asarray(reached.position)[~ended])
    fresh = following[ended]
    assert np.abs(fresh).max() <= 0.9  # a start, while what the step led to is kept in `next_scene`
    assert (fresh != np.asarray(reached.position)[ended]).any(axis=(1, 2)).all()
    assert len(np.unique(fresh[:, 0, 0])) == len(fresh)
    velocity = np.concatenate([np.asarray(scene.velocity)[1:], np.asarray(after.velocity)[None]])
    assert not velocity[ended].any()


def test_actions_are_turned_to_the_world_and_limited(yard):
    _, _, _, _, rollout = yard
    action = np.asarray(rollout.local["agent"], float) @ TURN.T
    np.testing.assert_allclose(rollout.action, action, atol=1e-6)
    norm = np.linalg.norm(action, axis=-1, keepdims=True)
    assert (norm > 2).any()
    action = action * np.minimum(1, 2 / norm)
    moved = np.asarray(rollout.next_scene.position - rollout.scene.position, float)
    np.testing.assert_allclose(moved[:, :, :2], 0.3 * action, atol=1e-6)
    assert not moved[:, :, 2].any()


def test_rewards_are_the_tasks(yard):
    *_, rollout = yard
    place = np.asarray(rollout.next_scene.position, float)[:, :, :2]
    np.testing.assert_allclose(rollout.reward, -(place**2).sum(-1), rtol=1e-5, atol=1e-6)


def test_log_probabilities_are_those_of_the_actions(yard):
    _, policies, _, _, rollout = yard
    actor = policies["agent"].actor
    position, velocity = np.asarray(rollout.scene.position, float), np.asarray(rollout.scene.velocity, float)
    offsets = (position[:, :, None] - position[:, :, :2, None]).sum(3)
    seen = np.concatenate([velocity[:, :, :2], offsets], -1)
    noise = np.asarray(rollout.local["agent"], float) - seen @ np.asarray(actor.weight, float)
    expected = -0.5 * (noise**2).sum(-1) - np.log(2 * np.pi)  # log_std is 0
    np.testing.assert_allclose(rollout.log_prob["agent"], expected, rtol=1e-4, atol=1e-4)
    assert 0.9 < noise.std() < 1.1
    assert abs(np.corrcoef(noise[:, :, 0, 0].ravel(), noise[:, :, 1, 0].ravel())[0, 1]) < 0.15


def test_returns_are_bootstrapped_at_the_time_limit_only(yard):
    """What the critic learns from a task that can end for good, step by step in float64."""
    task, policies, _, _, rollout = yard
    config = Mappo(envs=WORLDS, rollout=STEPS, gamma=0.9, lam=0.8)
    learner = new_learner(policies["agent"], make_optimizer(config, 1), task.layout.members("agent"))
    norm, batch = compiled(lambda r: _prepare(config, learner, r, "agent"), rollout)(rollout)
    critic = jax.tree.map(lambda x: np.asarray(x, float), policies["agent"].critic)

    def value(scene):
        position, velocity = np.asarray(scene.position, float), np.asarray(scene.velocity, float)
        offsets = (position[:, :, None] - position[:, :, :2, None]).sum(3)
        seen = np.concatenate([velocity[:, :, :2], offsets], -1)
        return seen @ critic.weight + position[:, :, :2] @ critic.place + critic.bias

    now, then = value(rollout.scene), value(rollout.next_scene)
    reward, terminated = np.asarray(rollout.reward, float), np.asarray(rollout.terminated)
    ended = terminated | np.asarray(rollout.truncated)
    target, later = np.zeros_like(now), np.zeros((WORLDS, task.agents))
    for t in reversed(range(STEPS)):
        bootstrap = np.where(terminated[t][:, None], 0, then[t])
        later = reward[t] + 0.9 * bootstrap - now[t] + np.where(ended[t][:, None], 0, 0.9 * 0.8 * later)
        target[t] = later + now[t]
    mean, deviation = (float(x[0, 0]) for x in norm.statistics(batch.mask, config.value_floor))
    returns = np.asarray(batch.target, float) * deviation + mean
    np.testing.assert_allclose(returns.reshape(target.shape), target, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(mean, target.mean(), rtol=1e-4)  # the first batch sets the normalisation
    np.testing.assert_allclose(np.asarray(batch.value).reshape(now.shape), now, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("task", "steps", "clocks"),
    [
        (Tag(), 25, {0, 25, 50, 75}),
        (Tag(), 30, {0, 30, 60}),
        (Tag(), 100, {0}),
        (Spread(), 25, {0}),
        (Spread(), 40, {0}),
        (Spread(), 10, {0, 10}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_clocks_are_staggered_in_whole_rollouts(task, steps, clocks):
    key = jax.random.key(0)
    worlds = compiled(lambda key: reset_worlds(task, key, 64, steps), key)(key)
    assert set(np.asarray(worlds.time).tolist()) == clocks


def test_staggered_worlds_end_in_different_rollouts():
    task = Yard(horizon=9)
    policies = make_policies(TINY, task.layout, key=jax.random.key(3))
    before, after, rollout = roll(task, policies, 3, 64, 3)
    ended = np.asarray(rollout.terminated | rollout.truncated)
    steady = ~np.asarray(rollout.terminated).any(0)
    last = np.asarray(before.time) == 6
    assert set(np.asarray(before.time).tolist()) == {0, 3, 6}
    np.testing.assert_array_equal(np.asarray(rollout.truncated)[2, steady], last[steady])
    assert not np.asarray(rollout.truncated)[:2].any()
    quiet = ~ended.any(0)
    np.testing.assert_array_equal(np.asarray(after.time)[quiet], np.asarray(before.time)[quiet] + 3)


@pytest.fixture(scope="module")
def spread():
    """LEGO in mixed team sizes."""
    task = Spread(agents=3, sizes=(2, 3), horizon=8)
    config = policy_of(width=8, depth=1, heads=2)
    policies = random_policies(config, task.layout)
    return task, policies, *roll(task, policies, 10, 8, 10)


def test_rewards_of_spread(spread):
    task, _, _, _, rollout = spread
    scene = jax.tree.map(np.asarray, rollout.next_scene)
    for t in range(10):
        for world in range(8):
            state = State(
                scene.position[t, world].astype(float),
                scene.velocity[t, world].astype(float),
                scene.exists[t, world],
                np.array(t),
            )
            np.testing.assert_allclose(rollout.reward[t, world], task.reward(state), rtol=1e-5, atol=1e-5)
    team = scene.exists[..., :3].sum(-1)
    assert set(team.ravel().tolist()) == {2, 3}
    np.testing.assert_array_equal(np.asarray(rollout.truncated), np.arange(10)[:, None].repeat(8, 1) == 7)
    assert (team[:8] == team[0]).all()  # sizes change with resets only
    assert (team[8:] == team[8]).all()
    assert (team[8] != team[0]).any()


def test_the_mean_return_is_that_of_agents_that_exist(spread):
    task, _, _, _, rollout = spread
    exists = np.asarray(rollout.scene.exists)[..., :3]
    expected = np.asarray(rollout.reward, float)[exists].mean() * task.horizon
    assert not exists.all()
    np.testing.assert_allclose(_mean_return(task, rollout, "agent"), expected, rtol=1e-5)


def test_the_first_epoch_starts_at_a_ratio_of_one(spread):
    """The update computes the log-probabilities that the rollout stored: rho = 1, so loss = -mean(A) = 0."""
    task, policies, _, _, rollout = spread
    config = Mappo(envs=8, rollout=10, entropy=0.0)
    learner = new_learner(policies["agent"], make_optimizer(config, 1), task.layout.members("agent"))

    def check(rollout):
        _, batch = _prepare(config, learner, rollout, "agent")
        stored = jnp.where(batch.mask, batch.log_prob, 0.0)
        return losses(policies["agent"], batch, "agent", config)[1], jnp.abs(stored).max()

    info, size = compiled(check, rollout)(rollout)
    assert size > 3
    assert abs(float(info["actor_loss"])) < 1e-5
    assert float(info["kl"]) < 1e-9
