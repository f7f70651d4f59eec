"""The PettingZoo wrapper: PettingZoo's own tests, and the task's numbers behind it."""

import pickle
import runpy
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

from legoswarm.tasks.adapters import pettingzoo as wrapper
from legoswarm.tasks.adapters.pettingzoo import ParallelTask
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from legoswarm.tasks.task import State

TASKS = [
    Spread(agents=3),
    Spread(agents=2, protocol="mpe2"),
    Tag(),
    Tag(pursuers=2, evaders=1, protocol="mpe2", arena=True),
]
every_task = pytest.mark.parametrize("task", TASKS, ids=["spread", "spread-mpe2", "tag", "tag-mpe2"])


def random_actions(env):
    return {name: env.action_space(name).sample() for name in env.agents}


def seed_actions(env):
    for number, name in enumerate(env.possible_agents):
        env.action_space(name).seed(number)


@every_task
def test_pettingzoos_own_tests(task):
    parallel_api_test(ParallelTask(task), num_cycles=150)
    parallel_seed_test(lambda: ParallelTask(task), num_cycles=30)


@every_task
def test_rewards_and_observations_are_the_tasks(task):
    """Every step again through the task itself; only the horizon ends the episode."""

    @jax.jit
    def again(state, action):
        state = task.step(state, action)
        return state, task.reward(state)

    env, look = ParallelTask(task), jax.jit(task.scene)
    observations, infos = env.reset(seed=5)
    assert set(infos) == set(env.agents) == set(env.possible_agents)
    seed_actions(env)
    for steps in range(1, task.horizon + 1):
        scene, names, actions = look(env._state), env.agents, random_actions(env)
        for agent, name in enumerate(names):
            assert env.observation_space(name).contains(observations[name])
            np.testing.assert_allclose(observations[name], expected_observation(scene, agent), atol=1e-6)
        state, reward = again(env._state, np.stack([actions[name] for name in names]))
        observations, rewards, terminations, truncations, _ = env.step(actions)
        np.testing.assert_allclose([rewards[name] for name in names], reward, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(env._state.position, state.position, atol=1e-5)
        assert terminations == dict.fromkeys(names, False)
        assert truncations == dict.fromkeys(names, steps == task.horizon)
    assert env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})


def expected_observation(scene, agent):
    """The documented vector, written as a loop."""
    position, velocity, exists, visible = (
        np.asarray(part) for part in (scene.position, scene.velocity, scene.exists, scene.seen())
    )
    parts = [velocity[agent], position[agent]]
    for other in range(len(position)):
        if other == agent:
            continue
        if exists[other] and visible[agent, other]:
            parts += [position[other] - position[agent], velocity[other], [1.0]]
        else:
            parts.append(np.zeros(5))
    return np.concatenate(parts)


def test_a_hidden_entity_is_zeros():
    task = Tag(pursuers=1, evaders=1, obstacles=1)
    position = jnp.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    state = State(position, jnp.ones((3, 2)), jnp.ones(3, bool), jnp.zeros((), jnp.int32))
    observations = wrapper._observations(task, state)
    np.testing.assert_array_equal(observations[0], [1, 1, -1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(observations[1], [1, 1, 1, 0, 0, 0, 0, 0, 0, -1, 0, 1, 1, 1])


def test_names_and_spaces():
    assert ParallelTask(Spread(agents=2)).possible_agents == ["agent_0", "agent_1"]
    env = ParallelTask(Tag(pursuers=1, evaders=2, protocol="mpe2"))
    assert env.possible_agents == ["pursuer_0", "evader_0", "evader_1"]
    assert env.action_space("evader_1").high.tolist() == [1, 1]
    assert env.observation_space("evader_1").shape == (4 + 4 * 5,)
    assert ParallelTask(Tag(limit="disc:3")).action_space("evader_0").low.tolist() == [-3, -3]
    assert not ParallelTask(Tag(limit="none")).action_space("evader_0").is_bounded()
    assert env.metadata["render_modes"] == []


def test_seeds():
    env = ParallelTask(Spread())
    first, second = env.reset(seed=7)[0], env.reset()[0]
    again, other = env.reset(seed=7)[0], ParallelTask(Spread()).reset(seed=8)[0]
    np.testing.assert_array_equal(first["agent_0"], again["agent_0"])
    for different in (second, other):
        assert not np.array_equal(first["agent_0"], different["agent_0"])
    np.testing.assert_array_equal(env.reset()[0]["agent_0"], second["agent_0"])
    unseeded = [ParallelTask(Spread()).reset()[0]["agent_0"] for _ in range(2)]
    assert not np.array_equal(*unseeded)


def test_mixed_sizes_list_only_the_agents_of_the_episode():
    env, seen = ParallelTask(Spread(agents=3, sizes=(1, 3))), set()
    for seed in range(12):
        observations, _ = env.reset(seed=seed)
        assert env.agents == env.possible_agents[: len(env.agents)]
        assert set(observations) == set(env.agents)
        seen.add(len(env.agents))
        if len(env.agents) == 1:
            flags = observations["agent_0"][4:].reshape(5, 5)[:, 4]
            assert flags.tolist() == [0, 0, 1, 0, 0]  # no team-mates, one landmark
        outcome = env.step(random_actions(env))
        assert all(set(part) == set(observations) for part in outcome)
    assert seen == {1, 3}


def test_termination_is_not_truncation():
    class Ending(Spread):
        """Spread that is over once two steps are taken."""

        def terminated(self, state):
            return state.time >= 2

    env = ParallelTask(Ending(agents=1))
    env.reset(seed=0)
    _, _, terminations, truncations, _ = env.step(random_actions(env))
    assert (terminations, truncations) == ({"agent_0": False}, {"agent_0": False})
    _, _, terminations, truncations, _ = env.step(random_actions(env))
    assert (terminations, truncations) == ({"agent_0": True}, {"agent_0": False})
    assert env.agents == []


def test_misuse_is_told_in_one_sentence(monkeypatch):
    env = ParallelTask(Spread(agents=2))
    with pytest.raises(RuntimeError, match="call reset before the first step"):
        env.step({})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions are missing for agent_1"):
        env.step({"agent_0": np.zeros(2, np.float32)})
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(ImportError, match=r"pip install legoswarm\[mpe2\]"):
        runpy.run_path(wrapper.__file__)


def test_an_environment_can_be_sent_to_another_process():
    env = ParallelTask(Tag())
    env.reset(seed=1)
    copy = pickle.loads(pickle.dumps(env))
    actions = random_actions(env)
    jax.tree.map(np.testing.assert_array_equal, env.step(actions)[0], copy.step(actions)[0])
