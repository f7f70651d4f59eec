"""A policy of one's own: an action that is linear in the mean position of each role, seen in the agent's frame.

python examples/own_policy.py train spread --policy linear --speed 2 --steps 5e5 --out runs/linear
python examples/own_policy.py eval runs/linear --agents 3 6
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

import legoswarm
from legoswarm.configs import option
from legoswarm.frames.canonical import canonicalize, make_frame
from legoswarm.layout import Layout
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.layers import Linear
from legoswarm.policies.networks.pooling import pool
from legoswarm.policies.networks.roles import RolePolicy
from legoswarm.policies.policy import Policy
from legoswarm.scene import Scene, View, observe


@legoswarm.POLICIES.register
@dataclasses.dataclass(frozen=True)
class LinearPolicy(Policy):
    """What every policy has (width, critic, leash ...) and one option more; all of it stands in `policy.json`."""

    name: ClassVar[str] = "linear"
    label: ClassVar[str] = "Linear"
    colour: ClassVar[str] = "#444444"
    tuned: ClassVar = {"mappo": {"lr": 3e-3}}  # defaults of an algorithm that suit this policy

    speed: float = option(1.0, "how large actions are", above=0)

    def build(self, layout: Layout, role: str, *, key: PRNGKeyArray) -> RolePolicy:
        """Return the parameters that all agents of `role` share; nothing here depends on the size of the team."""
        key_actor, key_critic = jax.random.split(key)
        size = layout.dimension
        inputs = size * (1 + len(layout.roles))
        return RolePolicy(
            LinearActor(Linear(inputs, size, gain=0.01, key=key_actor), jnp.full(size, self.log_std), self.speed),
            LinearCritic(Linear(inputs, 1, gain=1.0, key=key_critic)),
        )


def features(view: View) -> Float[Array, " features"]:
    """Return the own velocity and, for each role, the mean relative position of the others that are seen."""
    return jnp.concatenate([view.velocity, *(pool(others.position, others.mask, "mean") for others in view.others)])


class LinearActor(eqx.Module):
    """Decides in the canonical frame, so it is equivariant whatever its weights are."""

    head: Linear
    log_std: Float[Array, " dim"]
    speed: float = eqx.field(static=True)

    def __call__(self, view: View) -> Decision:
        """Return a Gaussian over actions in the agent's frame; who calls turns them to the world."""
        frame = make_frame(view)
        return Decision(self.speed * self.head(features(canonicalize(view, frame))), self.log_std, frame)


class LinearCritic(eqx.Module):
    """The state's value for one agent; critics see everything, and only training needs them."""

    head: Linear

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """Return the value of everything, in the frame of what the agent sees."""
        frame = make_frame(observe(scene, role, member))
        return self.head(features(canonicalize(observe(scene, role, member, full=True), frame)))[0]


if __name__ == "__main__":
    from legoswarm.cli import main

    raise SystemExit(main())
