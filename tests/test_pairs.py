"""The critic of pairs, number by number. Its symmetries: test_equivariance; beside MAPPO's actors: test_baselines."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenes import TAG, random_scene

from legoswarm.learn.algorithms.ippo import Ippo
from legoswarm.learn.algorithms.mappo import Mappo, value_of
from legoswarm.policies.networks.pairs import PairCritic
from tests.policies import policy_of
from tests.saved import random_weights
from tests.tiny import FAST

SMALL = policy_of("mappo", width=8, critic="pairs")


@pytest.mark.parametrize("acts", [False, True])
def test_the_value_in_numpy(acts):
    """Messages from every other entity that exists, their mean and maximum; own summary and the mean of each role."""
    rng = np.random.default_rng(0)
    critic = random_weights(functools.partial(PairCritic, SMALL, TAG, acts=acts))
    scene = random_scene(rng, TAG, empty=False)
    action = jnp.asarray(rng.normal(0, 1, (TAG.agents, 2)), jnp.float32) if acts else None
    position, velocity, exists = (np.asarray(x, float) for x in (scene.position, scene.velocity, scene.exists))
    roles = [at for at, slots in enumerate(TAG.slots) for _ in range(slots)]
    there = np.flatnonzero(exists)

    def linear(layer, x):
        return np.asarray(x) @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float)

    def perceptron(layers, x):
        for layer in layers.linears:
            x = np.maximum(linear(layer, x), 0)
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        return x

    def vectors(i):
        acting = np.asarray(action, float)[i] if acts and i < TAG.agents else np.zeros(2)
        return [velocity[i], acting][: 1 + acts]

    def own(i):
        angle = [vectors(i)[0] @ vectors(i)[1]] if acts else []
        return [*(np.hypot(*v) for v in vectors(i)), *angle, *np.eye(len(TAG.roles))[roles[i]]]

    def message(to, sender):
        offset = position[sender] - position[to]
        far = np.hypot(*offset)
        along = [offset @ v / far for both in zip(vectors(to), vectors(sender), strict=True) for v in both]
        told = [far, np.exp(-5 * far), np.exp(-20 * far), *along]
        told += [a @ b for a in vectors(to) for b in vectors(sender)]
        return np.maximum(linear(critic.gather, perceptron(critic.message, [*told, *own(to), *own(sender)])), 0)

    def summary(i):
        heard = np.array([message(i, k) for k in there if k != i])
        return perceptron(critic.summary, [*heard.mean(0), *heard.max(0), *own(i)])

    summaries = {i: summary(i) for i in there}
    means = [np.mean([summaries[i] for i in there if roles[i] == at], 0) for at in range(len(TAG.roles))]
    me = there[0]
    expected = linear(critic.head, perceptron(critic.fuse, np.concatenate([summaries[me], *means])))[0]
    np.testing.assert_allclose(critic(scene, TAG.roles[0], jnp.array(me), action), expected, rtol=1e-4)


def test_of_ippo_it_hears_only_those_whom_its_agent_sees():
    """An evader that a pursuer does not see sends no messages, to nobody, when the pursuer is valued."""
    critic = random_weights(functools.partial(PairCritic, SMALL, TAG))
    scene = random_scene(np.random.default_rng(0), TAG, hidden=0.0, empty=False)
    evader = TAG.block("evader").start
    hidden = dataclasses.replace(scene, visible=scene.visible.at[0, evader].set(False))
    moved = dataclasses.replace(hidden, position=hidden.position.at[evader].add(1.0))
    gone = dataclasses.replace(scene, exists=scene.exists.at[evader].set(False))

    @functools.partial(jax.jit, compiler_options=FAST, static_argnums=1)
    def value(scene, algorithm):
        return value_of(critic, scene, "pursuer", jnp.array(0), algorithm)

    central, alone = ([float(value(s, by)) for s in (scene, hidden, moved, gone)] for by in (Mappo(), Ippo()))
    assert alone[1] == alone[2] == pytest.approx(alone[3], rel=1e-5)
    assert abs(alone[0] - alone[1]) > 1e-4
    assert central[0] == central[1]
    assert abs(central[1] - central[2]) > 1e-4
