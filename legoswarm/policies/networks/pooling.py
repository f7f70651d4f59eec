"""Sets of entities: their features, and pooling them into one vector."""

from __future__ import annotations

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


def entity_features(others: Entities) -> Float[Array, "n features"]:
    """Return position and velocity of each entity side by side."""
    return jnp.concatenate([others.position, others.velocity], axis=-1)
