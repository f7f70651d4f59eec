"""Small policies with random weights, saved as a run's policy files are."""

import functools

import equinox as eqx
import jax
import numpy as np

from legoswarm.configs import named
from legoswarm.policies.networks.roles import make_policies
from legoswarm.policies.saved.file import PolicyFile, save_policy
from tests.policies import policy_of

SMALL = policy_of(width=8, depth=1, heads=2)


def random_weights(build, seed=0):
    """What `build(key=...)` builds, with other weights: those take a compiler to make, these do not."""
    rng = np.random.default_rng(seed)
    shapes = eqx.filter_eval_shape(lambda key: build(key=key), jax.random.key(0))
    return jax.tree.map(lambda like: jax.device_put(rng.normal(0, 0.7, like.shape).astype(like.dtype)), shapes)


def small_policy(task, seeds=(0,), best=0, config=SMALL):
    """A policy file for `task`; weights depend on the seed."""
    build = functools.partial(make_policies, config, task.layout)
    policies = jax.tree.map(
        lambda *leaves: jax.device_put(np.stack(leaves)), *(random_weights(build, seed) for seed in seeds)
    )
    figures = {task.primary: [-float(abs(at - best)) for at in range(len(seeds))]}
    return PolicyFile(
        config, task.layout, task.action_limit, named(task), tuple(seeds), figures, best, policies=policies
    )


def save_small(folder, task, **how):
    """The folder, with a small policy for `task` in it."""
    folder.mkdir(parents=True)
    save_policy(folder, small_policy(task, **how))
    return folder
