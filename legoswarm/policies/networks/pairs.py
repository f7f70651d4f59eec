"""A critic that looks at pairs of entities, in numbers that no rotation, reflection or translation changes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from legoswarm.fast.backend import storage
from legoswarm.fast.gather import gather
from legoswarm.policies.networks.layers import Linear, Perceptron
from legoswarm.policies.networks.pooling import pool
from legoswarm.policies.policy import Policy
from legoswarm.scene import Layout, Scene, closest

NEAR = (5.0, 20.0)  # inverse lengths at which nearness is told apart


class PairCritic(eqx.Module):
    """V_i from messages between entities, one round of them; with `acts`, Q_i of everybody's actions as well.

    What a team is paid for is often a matter of pairs, such as the distance of each landmark to its nearest agent. An
    agent that sums up each role on its own cannot compare agents with landmarks; here every entity gathers messages
    from all others, or with `nearest` from so many of each role, and the value is read from the agent's own summary and
    the mean summary of each role. What is private to an agent sends to that agent, and gathers nothing.
    """

    message: Perceptron
    gather: Linear
    summary: Perceptron
    fuse: Perceptron
    head: Linear
    precision: str = eqx.field(static=True)
    nearest: int = eqx.field(static=True)

    def __init__(self, config: Policy, layout: Layout, *, acts: bool = False, nearest: int = 0, key: PRNGKeyArray):
        roles, width, vectors = len(layout.roles), config.width, 1 + acts  # velocity and action
        own = vectors * (vectors + 1) // 2 + roles  # their lengths and products, role
        key_message, key_gather, key_summary, key_fuse, key_head = jax.random.split(key, 5)
        self.message = Perceptron((1 + vectors) ** 2 + len(NEAR) + 2 * own, (width,), key=key_message)
        self.gather = Linear(width, width, key=key_gather)
        self.summary = Perceptron(2 * width + own, (width,), key=key_summary)
        self.fuse = Perceptron((1 + roles - layout.private) * width, (width,), key=key_fuse)
        self.head = Linear(width, 1, gain=1.0, key=key_head)
        self.precision, self.nearest = config.precision, nearest

    def __call__(
        self, scene: Scene, role: str, member: Int[Array, ""], action: Float[Array, "agents dim"] | None = None
    ) -> Float[Array, ""]:
        """Return the value for one agent."""
        one = jax.tree.map(lambda x: x[None], (scene, action))
        summaries, means = self._summaries(*one)
        return self._value(summaries[0, scene.layout.block(role).start + member], means[0])

    def values(
        self, scenes: Scene, role: str, action: Float[Array, "batch agents dim"] | None = None
    ) -> Float[Array, "batch members"]:
        """Return the value for every member of a role in a batch of scenes.

        All but the last two layers is the same for every agent of a scene.
        """
        summaries, means = self._summaries(scenes, action)
        of_role = jax.vmap(self._value, in_axes=(0, None))
        return jax.vmap(of_role)(summaries[:, scenes.layout.block(role)], means)

    def _summaries(
        self, scenes: Scene, action: Float[Array, "batch agents dim"] | None
    ) -> tuple[Float[Array, "batch n width"], Float[Array, "batch means"]]:
        """Return every entity's summary, and the mean of each role, side by side."""

        def prepare(scene: Scene, action: Float[Array, "agents dim"] | None) -> tuple[Array, Array, Array]:
            layout, vectors = scene.layout, [scene.velocity]
            if action is not None:
                vectors.append(jnp.pad(action, ((0, layout.entities - layout.agents), (0, 0))))  # objects do not act
            kinds = jnp.asarray(np.repeat(np.eye(len(layout.roles), dtype=np.float32), layout.slots, axis=0))
            products = [(a * b).sum(1, keepdims=True) for a, b in itertools.combinations(vectors, 2)]
            own = jnp.concatenate([*map(_length, vectors), *products, kinds], axis=1)
            senders, there = sending(scene, self.nearest)
            features = pairs(scene.position, vectors, own, senders).astype(storage(self.precision))
            return own[: layout.shared], features, there

        def summarise(
            gathered: Float[Array, "n twice"], own: Float[Array, "n own"], scene: Scene
        ) -> tuple[Float[Array, "n width"], Float[Array, " means"]]:
            summaries = jax.vmap(self.summary)(jnp.concatenate([gathered, own], axis=1))
            blocks = [scene.layout.block(name) for name in scene.layout.roles if not scene.layout.each(name)]
            return summaries, jnp.concatenate([pool(summaries[b], scene.exists[b], "mean") for b in blocks])

        own, features, there = jax.vmap(prepare)(scenes, action)
        [first] = self.message.linears
        return jax.vmap(summarise)(gather(features, there, first, self.gather), own, scenes)

    def _value(self, mine: Float[Array, " width"], means: Float[Array, " means"]) -> Float[Array, ""]:
        return self.head(self.fuse(jnp.concatenate([mine, means])))[0]


def sending(scene: Scene, nearest: int) -> tuple[Int[Array, "_ senders"] | slice, Bool[Array, "shared senders"]]:
    """Return who sends to each entity that is not private, one row each or all to all, and which of them are there."""
    layout, shared = scene.layout, scene.layout.shared
    exists, roles = scene.exists[:shared], [role for role in layout.roles if not layout.each(role)]
    if not layout.private and not any(0 < nearest < layout.members(role) for role in roles):
        return slice(None), exists[:, None] & exists[None] & ~np.eye(shared, dtype=bool)

    def to(one: Int[Array, ""]) -> tuple[Array, Array]:
        index, there = [], []
        for role in layout.roles:
            block, each = layout.block(role), layout.each(role)
            start = block.start + each * jnp.where(one < layout.agents, one, 0)
            slots = start + jnp.arange(each or layout.members(role))
            mask = scene.exists[slots] & (one < layout.agents if each else slots != one)
            if 0 < nearest < len(mask):
                offset = scene.position[slots] - scene.position[one][None]
                chosen, mask = closest((offset * offset).sum(-1), mask, nearest)
                slots = slots[chosen]
            index.append(slots)
            there.append(mask)
        return jnp.concatenate(index), jnp.concatenate(there)

    index, there = jax.vmap(to)(jnp.arange(shared))
    return index, there & exists[:, None]


def pairs(
    position: Float[Array, "n dim"],
    vectors: Sequence[Float[Array, "n dim"]],
    own: Float[Array, "n own"],
    senders: Int[Array, "receivers senders"] | slice = slice(None),
) -> Float[Array, "receivers senders features"]:
    """Return for every pair distance, nearness, and their vectors along the line between them and along each other.

    With the lengths and products of each one's vectors, which are in `own`, that is everything about a pair that has no
    direction. The first entities receive; who sends to each of them is in its row of `senders`, or is everybody.
    """

    def both(values: Float[Array, "n k"]) -> tuple[Array, Array]:
        """Return values of receivers and of their senders, which broadcast against each other."""
        theirs = values[None] if isinstance(senders, slice) else values[senders]
        return values[: len(values) if isinstance(senders, slice) else len(senders), None], theirs

    mine, theirs = both(position)
    offset = theirs - mine
    distance = jnp.linalg.norm(offset, axis=-1, keepdims=True)
    direction = offset / jnp.where(distance > 0, distance, 1.0)
    moving = [both(vector) for vector in vectors]
    return jnp.concatenate(
        [
            distance,
            *(jnp.exp(-scale * distance) for scale in NEAR),
            *((direction * each).sum(-1, keepdims=True) for pair in moving for each in pair),
            *((a * b).sum(-1, keepdims=True) for (a, _), (_, b) in itertools.product(moving, moving)),
            *(jnp.broadcast_to(each, (*offset.shape[:2], own.shape[1])) for each in both(own)),
        ],
        axis=-1,
    )


def _length(vectors: Float[Array, "n dim"]) -> Float[Array, "n 1"]:
    """Return the length of each row, with a gradient of zero where it is zero."""
    square = (vectors * vectors).sum(1, keepdims=True)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
