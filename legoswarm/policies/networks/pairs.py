"""A critic that looks at every pair of entities, in numbers that no rotation, reflection or translation changes."""

from __future__ import annotations

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
    """V_i from messages between all entities, one round of them.

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

    def __init__(self, config: Policy, layout: Layout, *, key: PRNGKeyArray):
        roles, width = len(layout.roles), config.width
        own = 1 + roles  # speed and role
        key_message, key_gather, key_summary, key_fuse, key_head = jax.random.split(key, 5)
        self.message = Perceptron(4 + len(NEAR) + 2 * own, (width,), key=key_message)
        self.gather = Linear(width, width, key=key_gather)
        self.summary = Perceptron(2 * width + own, (width,), key=key_summary)
        self.fuse = Perceptron((1 + roles) * width, (width,), key=key_fuse)
        self.head = Linear(width, 1, gain=1.0, key=key_head)
        self.precision = config.precision

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """Return the value for one agent; all but the last two layers is the same for every agent of a scene."""
        layout = scene.layout
        kinds = jnp.asarray(np.repeat(np.eye(len(layout.roles), dtype=np.float32), layout.slots, axis=0))
        speed = jnp.linalg.norm(scene.velocity, axis=1, keepdims=True)
        own = jnp.concatenate([speed, kinds], axis=1)

        def message(pair: Float[Array, " features"]) -> Float[Array, " width"]:
            return jax.nn.relu(self.gather(self.message(pair.astype(storage(self.precision)))))

        messages = jax.vmap(jax.vmap(message))(pairs(scene, own)).astype(own.dtype)
        there = scene.exists[:, None] & scene.exists[None] & ~np.eye(len(own), dtype=bool)
        gathered = [jax.vmap(lambda x, mask, way=way: pool(x, mask, way))(messages, there) for way in ("mean", "max")]
        summaries = jax.vmap(self.summary)(jnp.concatenate([*gathered, own], axis=1))
        blocks = [layout.block(name) for name in layout.roles]
        means = [pool(summaries[block], scene.exists[block], "mean") for block in blocks]
        mine = summaries[layout.block(role).start + member]
        return self.head(self.fuse(jnp.concatenate([mine, *means])))[0]


def pairs(scene: Scene, own: Float[Array, "n own"]) -> Float[Array, "n n features"]:
    """Return for every receiver and sender: distance, nearness, velocities along the line between them and along each other.

    With both speeds, which are in `own`, that is everything about a pair that has no direction.
    """
    offset = scene.position[None] - scene.position[:, None]
    distance = jnp.linalg.norm(offset, axis=-1, keepdims=True)
    direction = offset / jnp.where(distance > 0, distance, 1.0)
    velocity = scene.velocity
    shape = (*offset.shape[:2], own.shape[1])
    return jnp.concatenate(
        [
            distance,
            *(jnp.exp(-scale * distance) for scale in NEAR),
            (direction * velocity[:, None]).sum(-1, keepdims=True),
            (direction * velocity[None]).sum(-1, keepdims=True),
            (velocity @ velocity.T)[..., None],
            jnp.broadcast_to(own[:, None], shape),
            jnp.broadcast_to(own[None], shape),
        ],
        axis=-1,
    )
