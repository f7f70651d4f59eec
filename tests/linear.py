"""The command line with linear maps in place of the networks that studies train at the smallest scale.

They compile in a fraction of the time. The first training of each kind is done; those after it go through the same loop
and leave the same files, but do not learn. What the methods are, and that they learn, has tests of its own, and what
ships in the zoo stays.
"""

import contextlib
import io
import subprocess

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.cli import main
from legoswarm.learn import loop
from legoswarm.learn.programs import Programs
from legoswarm.policies.policy import POLICIES
from legoswarm.policies.saved.trees import from_raw, raw_leaves
from legoswarm.studies.catalogue import METHODS
from legoswarm.studies.part import SCALES
from tests.tiny import TinyPolicy


def run(*words):
    """Run a command here: what it returned, and what it said."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        for name in METHODS:
            patch.setattr(POLICIES[name], "build", instead_of(POLICIES[name].build))
        patch.setattr(loop, "Programs", one_of_each_kind())
        patch.setattr(loop, "device_lock", lambda **_: contextlib.nullcontext())  # nothing here is worth waiting for
        return subprocess.CompletedProcess(words, main([*words]), stderr=said.getvalue())


def instead_of(build):
    """What builds linear maps at the smallest scale."""

    def built(policy, *where, key):
        small = policy.width == SCALES["tiny"].policy["width"]
        return (TinyPolicy.build if small else build)(policy, *where, key=key)

    return built


def one_of_each_kind():
    """What makes the programs of a training: real ones for each task, algorithm, and warm start, the first time."""
    made = set()

    def programs(config, seeds, episodes, warm, devices):
        kind = config.task.name, config.algorithm.name, warm is None
        again = kind in made
        made.add(kind)
        return (Unlearning if again else Programs)(config, seeds, episodes, warm, devices)

    return programs


class Unlearning(Programs):
    """States with random weights, which only count."""

    def first_state(self):
        rng = np.random.default_rng(len(self.config.policy.name))

        def drawn(like):
            draw = (
                rng.normal(0, 0.3, like.shape) if like.dtype == jnp.float32 else np.full(like.shape, like.dtype == bool)
            )
            return jnp.asarray(draw, like.dtype)

        return from_raw(self.skeleton, jax.tree.map(drawn, jax.eval_shape(raw_leaves, self.skeleton)))

    def compile(self, state, *, measuring=True):
        pass

    def advance(self, state, count):
        return eqx.tree_at(lambda s: s.iteration, state, state.iteration + count), {}

    def measure(self, state, seed):
        return {self.config.task.primary: np.full(len(state.iteration), -100.0 / seed)}
