"""MLPs on vectors with a fixed place for everyone; they fit one team size only.

The vector of an observation: the agent's own position in the world (raw observations only) and velocity, then for
each role of the layout in turn, slot by slot, relative position, velocity and a flag. The flag is 1 for who is
there and seen; for the others the whole slot is zero. The other members of the agent's own role stand in the cyclic
order of `layout.in_turn`.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.fast.normalise import normalise
from legoswarm.layout import in_turn
from legoswarm.policies.networks.layers import Linear, Perceptron
from legoswarm.policies.policy import Policy
from legoswarm.scene import Entities, Layout, Scene, View, observe


class Mlp(eqx.Module):
    """LayerNorm of the input, then two hidden layers, each with a LayerNorm after its activation."""

    hidden: Perceptron

    def __init__(self, inputs: int, width: int, *, key: PRNGKeyArray):
        self.hidden = Perceptron(inputs, (width, width), key=key)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " width"]:
        """Return the last hidden layer of one vector."""
        return self.hidden(normalise(x))


class SlotEncoder(eqx.Module):
    """An MLP on the vector of one observation; with `absolute`, the agent's own position is part of it."""

    mlp: Mlp
    absolute: bool = eqx.field(static=True)

    def __init__(self, config: Policy, layout: Layout, *, absolute: bool = False, key: PRNGKeyArray):
        self.absolute = absolute
        self.mlp = Mlp(vector_size(layout) - layout.dimension * (not absolute), config.width, key=key)

    def __call__(self, view: View) -> Float[Array, " width"]:
        """Return the features of an observation."""
        vector = to_vector(view)
        return self.mlp(vector if self.absolute else vector[len(view.position) :])


class TeamCritic(eqx.Module):
    """V_i of the full observations of all members of the role, the agent's own first, then in cyclic order."""

    mlp: Mlp
    head: Linear

    def __init__(self, config: Policy, layout: Layout, role: str, *, key: PRNGKeyArray):
        key_mlp, key_head = jax.random.split(key)
        self.mlp = Mlp(layout.members(role) * vector_size(layout), config.width, key=key_mlp)
        self.head = Linear(config.width, 1, gain=1.0, key=key_head)

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """Return the value for one agent."""
        exists = scene.exists[scene.layout.block(role)]
        team = in_turn(member, len(exists))
        vectors = jax.vmap(lambda m: to_vector(observe(scene, role, m, full=True)))(team)
        vectors = jnp.where(exists[team][:, None], vectors, 0.0)
        return self.head(self.mlp(vectors.reshape(-1)))[0]


def to_vector(view: View) -> Float[Array, " inputs"]:
    """Return the observation as one vector, everyone at a fixed place."""
    return jnp.concatenate([view.position, view.velocity, slot_rows(view.flat()).reshape(-1)])


def slot_rows(others: Entities) -> Float[Array, "n _"]:
    """Return relative position, velocity and flag of each; zeros for who is not there or not seen."""
    flags = jnp.ones_like(others.position[:, :1])
    rows = jnp.concatenate([others.position, others.velocity, flags], axis=-1)
    return jnp.where(others.mask[:, None], rows, 0.0)


def vector_size(layout: Layout) -> int:
    """Count the numbers that `to_vector` gives for any agent of a layout."""
    return 2 * layout.dimension + (2 * layout.dimension + 1) * (layout.viewed - 1)
