"""A critic that looks at every pair of entities, in numbers that no rotation, reflection or translation changes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.fast.backend import storage
from legoswarm.policies.networks.layers import Linear, Perceptron
from legoswarm.policies.networks.pooling import pool
from legoswarm.policies.policy import Policy
from legoswarm.scene import Layout, Scene

NEAR = (5.0, 20.0)  # inverse lengths at which nearness is told apart


class PairCritic(eqx.Module):
    """V_i from messages between all entities, one round of them; with `acts`, Q_i of everybody's actions as well.

    What a team is paid for is often a matter of pairs, such as the distance of each landmark to its nearest agent. An
    agent that sums up each role on its own cannot compare agents with landmarks; here every entity gathers messages
    from all others, and the value is read from the agent's own summary and the mean summary of each role.
    """

    message: Perceptron
    gather: Linear
    summary: Perceptron
    fuse: Perceptron
    head: Linear
    precision: str = eqx.field(static=True)

    def __init__(self, config: Policy, layout: Layout, *, acts: bool = False, key: PRNGKeyArray):
        roles, width, vectors = len(layout.roles), config.width, 1 + acts  # velocity and action
        own = vectors * (vectors + 1) // 2 + roles  # their lengths and products, role
        key_message, key_gather, key_summary, key_fuse, key_head = jax.random.split(key, 5)
        self.message = Perceptron((1 + vectors) ** 2 + len(NEAR) + 2 * own, (width,), key=key_message)
        self.gather = Linear(width, width, key=key_gather)
        self.summary = Perceptron(2 * width + own, (width,), key=key_summary)
        self.fuse = Perceptron((1 + roles) * width, (width,), key=key_fuse)
        self.head = Linear(width, 1, gain=1.0, key=key_head)
        self.precision = config.precision

    def __call__(
        self, scene: Scene, role: str, member: Int[Array, ""], action: Float[Array, "agents dim"] | None = None
    ) -> Float[Array, ""]:
        """Return the value for one agent; all but the last two layers is the same for every agent of a scene."""
        layout = scene.layout
        vectors = [scene.velocity]
        if action is not None:
            vectors.append(jnp.pad(action, ((0, layout.entities - layout.agents), (0, 0))))  # objects do not act
        kinds = jnp.asarray(np.repeat(np.eye(len(layout.roles), dtype=np.float32), layout.slots, axis=0))
        products = [(a * b).sum(1, keepdims=True) for a, b in itertools.combinations(vectors, 2)]
        own = jnp.concatenate([*map(_length, vectors), *products, kinds], axis=1)

        def message(pair: Float[Array, " features"]) -> Float[Array, " width"]:
            return jax.nn.relu(self.gather(self.message(pair.astype(storage(self.precision)))))

        messages = jax.vmap(jax.vmap(message))(pairs(scene, vectors, own)).astype(own.dtype)
        there = scene.exists[:, None] & scene.exists[None] & ~np.eye(len(own), dtype=bool)
        gathered = [jax.vmap(lambda x, mask, way=way: pool(x, mask, way))(messages, there) for way in ("mean", "max")]
        summaries = jax.vmap(self.summary)(jnp.concatenate([*gathered, own], axis=1))
        blocks = [layout.block(name) for name in layout.roles]
        means = [pool(summaries[block], scene.exists[block], "mean") for block in blocks]
        mine = summaries[layout.block(role).start + member]
        return self.head(self.fuse(jnp.concatenate([mine, *means])))[0]


def pairs(
    scene: Scene, vectors: Sequence[Float[Array, "n dim"]], own: Float[Array, "n own"]
) -> Float[Array, "n n features"]:
    """Return for every pair distance, nearness, and their vectors along the line between them and along each other.

    With the lengths and products of each one's vectors, which are in `own`, that is everything about a pair that has no
    direction.
    """
    offset = scene.position[None] - scene.position[:, None]
    distance = jnp.linalg.norm(offset, axis=-1, keepdims=True)
    direction = offset / jnp.where(distance > 0, distance, 1.0)
    shape = (*offset.shape[:2], own.shape[1])
    return jnp.concatenate(
        [
            distance,
            *(jnp.exp(-scale * distance) for scale in NEAR),
            *((direction * each).sum(-1, keepdims=True) for v in vectors for each in (v[:, None], v[None])),
            *((a @ b.T)[..., None] for a, b in itertools.product(vectors, vectors)),
            jnp.broadcast_to(own[:, None], shape),
            jnp.broadcast_to(own[None], shape),
        ],
        axis=-1,
    )


def _length(vectors: Float[Array, "n dim"]) -> Float[Array, "n 1"]:
    """Return the length of each row, with a gradient of zero where it is zero."""
    square = (vectors * vectors).sum(1, keepdims=True)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
