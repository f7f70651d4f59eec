"""Sets of entities: pooling them into one vector, and choosing the nearest."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from legoswarm.scene import Entities


def pool(x: Float[Array, "n width"], mask: Bool[Array, " n"], pooling: str) -> Float[Array, " width"]:
    """Return the mean or the maximum over the entities that are there; zero if none is."""
    if len(x) == 0:
        return jnp.zeros(x.shape[1:], x.dtype)
    if pooling == "max":
        top = jnp.where(mask[:, None], x, -jnp.inf).max(0)
        return jnp.where(mask.any(), top, 0.0)
    weight = mask.astype(x.dtype)
    return (x * weight[:, None]).sum(0) / jnp.maximum(weight.sum(), 1.0)


def nearest(others: Entities, count: int) -> Entities:
    """Return the `count` entities closest to the agent; all of them if `count` is 0 or there are no more."""
    if not 0 < count < len(others.mask):
        return others
    square = (others.position * others.position).sum(-1)
    _, index = jax.lax.top_k(jnp.where(others.mask, -square, -jnp.inf), count)
    return jax.tree.map(lambda values: values[index], others)


def entity_features(others: Entities) -> Float[Array, "n features"]:
    """Return position and velocity of each entity side by side."""
    return jnp.concatenate([others.position, others.velocity], axis=-1)
