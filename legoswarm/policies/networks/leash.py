"""The leash: what pulls an agent back that has lost the others; the same for every policy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from legoswarm.architecture import LEASH_GAIN
from legoswarm.frames import centroid_offset
from legoswarm.scene import View


def pull_back(view: View, leash: float) -> Float[Array, "2"]:
    """LEASH_GAIN (|d| - leash) d / |d| beyond the leash and nothing within, d the way to the centroid of what is seen.

    The pull is in the world's coordinates; a policy adds it to its mean action. A leash of 0 is none.

    An agent that has lost the others gets no learning signal there (it is never the nearest to anything), so a
    policy that drifts outwards would never learn to come back: this is how training runs diverged. The pull grows
    with the distance and the network's own output is bounded (layer normalisation), so nobody gets away.
    """
    if not leash:
        return jnp.zeros_like(view.position)
    to_centroid = centroid_offset(view.flat())
    distance = jnp.hypot(to_centroid[0], to_centroid[1])
    return to_centroid * (LEASH_GAIN * jax.nn.relu(distance - leash) / jnp.maximum(distance, leash))
