"""A policy of one's own: an action that is linear in the mean position of each role, seen in the agent's frame.

python examples/own_policy.py train spread --policy linear --steps 5e5 --out runs/linear
python examples/own_policy.py eval runs/linear --agents 3 6
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

import legoswarm
from legoswarm.frames.canonical import canonicalize
from legoswarm.frames.canonical import make_frame
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.roles import RolePolicy
from legoswarm.policies.networks.layers import Linear
from legoswarm.policies.networks.pooling import pool
from legoswarm.layout import Layout
from legoswarm.scene import Scene
from legoswarm.scene import View
from legoswarm.scene import observe


def features(view: View) -> Float[Array, " features"]:
    """The own velocity and, for each role, the mean relative position of the others that are seen."""
    return jnp.concatenate([view.velocity, *(pool(others.position, others.mask, "mean") for others in view.others)])


class LinearActor(eqx.Module):
    """Decides in the canonical frame, so it is equivariant whatever its weights are."""

    head: Linear
    log_std: Float[Array, "2"]
    config: legoswarm.PolicyConfig = eqx.field(static=True)

    def __call__(self, view: View) -> Decision:
        """A Gaussian over actions in the agent's frame; who calls turns them to the world."""
        frame = make_frame(view, self.config.axis, self.config.rest)
        return Decision(self.head(features(canonicalize(view, frame))), self.log_std, frame)


class LinearCritic(eqx.Module):
    """The state's value for one agent; critics see everything, and only training needs them."""

    head: Linear
    config: legoswarm.PolicyConfig = eqx.field(static=True)

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """In the frame of what the agent sees."""
        frame = make_frame(observe(scene, role, member), self.config.axis, self.config.rest)
        return self.head(features(canonicalize(observe(scene, role, member, full=True), frame)))[0]


def build(config: legoswarm.PolicyConfig, layout: Layout, role: str, *, key: PRNGKeyArray) -> RolePolicy:
    """The parameters that all agents of `role` share; nothing here depends on the size of the team."""
    key_actor, key_critic = jax.random.split(key)
    inputs = 2 + 2 * len(layout.roles)
    return RolePolicy(
        LinearActor(Linear(inputs, 2, gain=0.01, key=key_actor), jnp.full(2, config.log_std), config),
        LinearCritic(Linear(inputs, 1, gain=1.0, key=key_critic), config),
    )


legoswarm.register_policy("linear", build)

if __name__ == "__main__":
    from legoswarm.cli import main

    raise SystemExit(main())
