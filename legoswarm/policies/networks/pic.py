"""PIC's critic: a permutation-invariant graph convolution over a team (Liu et al. 2020)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from legoswarm.policies.networks.layers import Linear
from legoswarm.policies.networks.mlp import to_vector, vector_size
from legoswarm.policies.networks.pooling import pool
from legoswarm.policies.policy import Policy
from legoswarm.scene import Entities, Layout, Scene, View, observe

GROUP = 2  # numbers that tell the roles of a mixed team apart


class GraphLayer(eqx.Module):
    """(relu(A (W x + b)) + relu(U x + c)) / N with A = (1 - I) / N, among the N agents that exist."""

    others: Linear
    own: Linear

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray):
        key_others, key_own = jax.random.split(key)
        self.others, self.own = Linear(inputs, outputs, key=key_others), Linear(inputs, outputs, key=key_own)

    def __call__(self, x: Float[Array, "agents inputs"], exists: Bool[Array, " agents"]) -> Float[Array, "agents out"]:
        """Return the next features of every agent."""
        count = jnp.maximum(exists.astype(x.dtype).sum(), 1.0)
        sent = jnp.where(exists[:, None], jax.vmap(self.others)(x), 0.0)
        heard = (sent.sum(0, keepdims=True) - sent) / count
        return (jax.nn.relu(heard) + jax.nn.relu(jax.vmap(self.own)(x))) / count


class PicCritic(eqx.Module):
    """V of the state: two graph layers over all agents of all controlled roles, the maximum over agents, a linear map.

    An agent's features are its full observation, with the other agents of each role in the order of their distance:
    with the maximum this makes V independent of how agents are numbered. In teams of several roles a learned
    embedding of the role stands beside it. V is the same for every member.
    """

    layers: tuple[GraphLayer, GraphLayer]
    head: Linear
    groups: Float[Array, "roles 2"] | None

    def __init__(self, config: Policy, layout: Layout, *, key: PRNGKeyArray):
        key_first, key_second, key_head, key_groups = jax.random.split(key, 4)
        width, mixed = 2 * config.width, layout.controlled > 1
        first = GraphLayer(vector_size(layout) + GROUP * mixed, width, key=key_first)
        self.layers = first, GraphLayer(width, width, key=key_second)
        self.head = Linear(width, 1, gain=0.1, key=key_head)
        self.groups = jax.random.normal(key_groups, (layout.controlled, GROUP)) if mixed else None

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """Return the team's value."""
        del role, member
        x, exists = self.features(scene), scene.exists[: scene.layout.agents]
        for layer in self.layers:
            x = layer(x, exists)
        return self.head(pool(x, exists, "max"))[0]

    def features(self, scene: Scene) -> Float[Array, "agents inputs"]:
        """Return every agent's observation and the embedding of its role."""
        layout, rows = scene.layout, []
        for at, (role, slots) in enumerate(zip(layout.controlled_roles, layout.slots, strict=False)):
            views = jax.vmap(lambda m, role=role: nearest_first(observe(scene, role, m, full=True), layout))
            x = jax.vmap(to_vector)(views(jnp.arange(slots)))
            if self.groups is not None:
                x = jnp.concatenate([x, jnp.broadcast_to(self.groups[at], (slots, GROUP))], axis=-1)
            rows.append(x)
        return jnp.concatenate(rows)


def nearest_first(view: View, layout: Layout) -> View:
    """Return the view with agents, and what is private to one, by distance, absent ones last; objects stay."""

    def by_distance(others: Entities) -> Entities:
        squared = (others.position * others.position).sum(-1)
        order = jnp.argsort(jnp.where(others.mask, squared, jnp.inf))
        return jax.tree.map(lambda leaf: leaf[order], others)

    objects = range(layout.controlled, len(layout.roles) - layout.private)
    others = (each if at in objects else by_distance(each) for at, each in enumerate(view.others))
    return View(view.position, view.velocity, tuple(others))
