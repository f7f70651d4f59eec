"""Protocol `mpe2` against the real mpe2 package: positions, velocities and rewards.

mpe2 runs in float64. Its contact step amplifies rounding, so float32 is compared step by step, each step from
a state copied out of mpe2's world; free-running episodes are compared in float64, through the same code.
"""

import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest
from mpe2 import simple_spread_v3, simple_tag_v3

from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from legoswarm.tasks.task import State

STEPS = 25
EPISODES = 120  # of each world below: 240 of Spread, 360 of Tag
FREE_EPISODES = 40
WORLDS = {
    "spread-3": Spread(agents=3, protocol="mpe2"),
    "spread-6": Spread(agents=6, protocol="mpe2"),
    "tag-3v1": Tag(pursuers=3, evaders=1, protocol="mpe2"),
    "tag-3v2": Tag(pursuers=3, evaders=2, protocol="mpe2"),
    "tag-4v2": Tag(pursuers=4, evaders=2, protocol="mpe2"),
}
every_world = pytest.mark.parametrize("world", WORLDS)


class Recording(NamedTuple):
    """Episodes of mpe2 in float64; states have one more step than actions and rewards."""

    position: np.ndarray  # episodes, steps + 1, entities, 2
    velocity: np.ndarray
    action: np.ndarray  # episodes, steps, agents, 2
    reward: np.ndarray  # episodes, steps, agents


def open_mpe2(task):
    options = {"max_cycles": STEPS, "continuous_actions": True}
    if isinstance(task, Spread):
        return simple_spread_v3.parallel_env(N=task.agents, **options)
    return simple_tag_v3.parallel_env(
        num_good=task.evaders, num_adversaries=task.pursuers, num_obstacles=task.obstacles, **options
    )


def random_action(kind, generator, position):
    """mpe2's five numbers in [0, 1] for each agent: free random, or crowding together, or running away."""
    action = generator.random((len(position), 5))
    if kind:
        push = (position.mean(0) - position) * (3.0 if kind == 1 else -3.0)
        push = np.clip(push + generator.normal(0, 0.3, push.shape), -1, 1)
        action[:, [1, 3]], action[:, [2, 4]] = (1 - push) / 2, (1 + push) / 2
    return action.astype(np.float32)


@functools.cache
def record(name):
    """EPISODES episodes of mpe2, a third of each kind of random action."""
    task = WORLDS[name]
    env, generator = open_mpe2(task), np.random.default_rng(0)
    world = env.unwrapped.world

    def now():
        entities = world.entities
        return [e.state.p_pos.copy() for e in entities], [e.state.p_vel.copy() for e in entities]

    episodes = []
    for episode in range(EPISODES):
        env.reset(seed=episode)
        states, actions, rewards = [now()], [], []
        for _ in range(STEPS):
            raw = random_action(episode % 3, generator, np.array(states[-1][0][: task.layout.agents]))
            _, reward, _, _, _ = env.step(dict(zip(env.agents, raw, strict=True)))
            actions.append(np.stack([raw[:, 2] - raw[:, 1], raw[:, 4] - raw[:, 3]], -1))
            rewards.append([reward[agent] for agent in env.possible_agents])
            states.append(now())
        assert not env.agents, "mpe2 truncates at max_cycles"
        position, velocity = (np.array(part) for part in zip(*states, strict=True))
        episodes.append((position, velocity, np.array(actions, np.float64), np.array(rewards)))
    env.close()
    return Recording(*(np.stack(part) for part in zip(*episodes, strict=True)))


def contact_gaps(task, position):
    """Distance less touching distance of every pair of agents whose touch is rewarded: (..., pairs)."""
    radii, agents = np.array(task.radii), task.layout.agents
    left, right = np.triu_indices(agents, 1)
    if isinstance(task, Tag):  # only a pursuer and an evader
        rewarded = (left < task.pursuers) & (right >= task.pursuers)
        left, right = left[rewarded], right[rewarded]
    distance = np.linalg.norm(position[..., left, :] - position[..., right, :], axis=-1)
    return distance - (radii[left] + radii[right])


def nearest_solid(task, position):
    """Distance of each agent to the nearest centre that pushes it: (..., agents)."""
    agents, solid = task.layout.agents, task.bodies.solid
    distance = np.linalg.norm(position[..., :agents, None, :] - position[..., None, :solid, :], axis=-1)
    return np.where(np.eye(agents, solid, dtype=bool), np.inf, distance).min(-1)


@every_world
def test_recorded_episodes_reach_every_branch(world):
    """Contacts, obstacles, speed limits and the boundary all occur: the comparisons below can fail."""
    task, recording = WORLDS[world], record(world)
    assert (contact_gaps(task, recording.position[:, 1:]) < 0).sum() > 100
    if isinstance(task, Tag):
        agents = task.layout.agents
        speed = np.linalg.norm(recording.velocity[:, :, :agents], axis=-1)
        assert (np.abs(speed - np.array(task.bodies.max_speed)) < 1e-9).sum() > 100
        reach = np.abs(recording.position[:, :, task.pursuers : agents])
        assert ((reach > 0.9) & (reach < 1)).sum() > 50
        assert ((reach > 1) & (reach < 2)).sum() > 50
        assert (reach > 1 + np.log(10) / 2).sum() > 50
        obstacles = recording.position[:, :, None, agents:]
        to_obstacle = np.linalg.norm(recording.position[:, :, :agents, None] - obstacles, axis=-1)
        assert (to_obstacle < 0.25).sum() > 100


@every_world
def test_each_step_in_float32_equals_mpe2(world):
    task, recording = WORLDS[world], record(world)
    exists = np.ones(task.layout.entities, bool)

    @jax.jit
    @jax.vmap
    def step(position, velocity, action):
        state = task.step(State(position, velocity, exists, np.zeros((), np.int32)), action)
        return state.position, state.velocity, task.reward(state)

    def flat(values):
        return values.reshape(-1, *values.shape[2:])

    before = (recording.position[:, :-1], recording.velocity[:, :-1], recording.action)
    position, velocity, reward = step(*(flat(values).astype(np.float32) for values in before))
    np.testing.assert_allclose(position, flat(recording.position[:, 1:]), rtol=0, atol=1e-5)
    # Copying a position to float32 turns the contact force of centres d apart by about 1e-7 / d.
    apart = (nearest_solid(task, flat(recording.position[:, :-1])) > 0.01).all(-1)
    assert apart.mean() > 0.99
    np.testing.assert_allclose(velocity[apart], flat(recording.velocity[:, 1:])[apart], rtol=0, atol=1e-5)
    # A pair within 1e-6 of touching may count as touching in one precision and not in the other.
    clear = (np.abs(contact_gaps(task, flat(recording.position[:, 1:]))) > 1e-6).all(-1)
    assert clear.mean() > 0.999
    np.testing.assert_allclose(reward[clear], flat(recording.reward)[clear], rtol=0, atol=1e-5)


@every_world
def test_free_running_episodes_in_float64_equal_mpe2(world):
    task, recording = WORLDS[world], record(world)
    for episode in range(FREE_EPISODES):
        state = State(
            recording.position[episode, 0],
            recording.velocity[episode, 0],
            np.ones(task.layout.entities, bool),
            np.zeros((), np.int64),
        )
        for t in range(STEPS):
            state = task.step(state, recording.action[episode, t])
            assert state.position.dtype == np.float64
            np.testing.assert_allclose(state.position, recording.position[episode, t + 1], rtol=0, atol=1e-9)
            np.testing.assert_allclose(state.velocity, recording.velocity[episode, t + 1], rtol=0, atol=1e-9)
            np.testing.assert_allclose(task.reward(state), recording.reward[episode, t], rtol=0, atol=1e-9)


@pytest.mark.parametrize("world", ["spread-3", "spread-6"])
def test_summed_rewards_of_mpe2_are_half_of_return_2c(world):
    task, recording = WORLDS[world], record(world)
    exists, zero = np.ones(task.layout.entities, bool), np.zeros((), np.int64)
    for episode in range(12):
        moves = zip(recording.position[episode, 1:], recording.velocity[episode, 1:], strict=True)
        measures = [task.measure(State(*move, exists, zero)) for move in moves]
        figures = task.figures({name: np.array([m[name] for m in measures]) for name in measures[0]})
        np.testing.assert_allclose(figures["return_2c"], 2 * recording.reward[episode].sum(), rtol=1e-12)


@pytest.mark.parametrize("world", ["spread-6", "tag-4v2"])
def test_starts_are_drawn_from_the_same_boxes(world):
    """Agents and Spread's landmarks in U(-1, 1), Tag's obstacles in U(-0.9, 0.9), all at rest."""
    task, recording = WORLDS[world], record(world)
    ours = jax.jit(jax.vmap(task.reset))(jax.random.split(jax.random.key(0), EPISODES))
    assert np.array_equal(ours.velocity, recording.velocity[:, 0])
    bound = np.ones(task.layout.entities)
    if isinstance(task, Tag):
        bound[task.layout.block("obstacle")] = 0.9
    for position in (recording.position[:, 0], np.asarray(ours.position)):
        share = position / bound[:, None]
        assert np.abs(share).max() <= 1
        assert np.abs(share).max((0, 2)).min() > 0.95
        assert np.abs(share.mean(0)).max() < 0.25  # the mean of 120 draws has standard error 0.053
