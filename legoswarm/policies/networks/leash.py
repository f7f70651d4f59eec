"""The leash: what pulls an agent back that has lost the others; the same for every policy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from legoswarm.frames.canonical import centroid_offset
from legoswarm.policies.policy import Policy
from legoswarm.scene import View


def pull_back(view: View, policy: Policy) -> Float[Array, " dim"]:
    """Return g (|d| - l) d / |d| beyond the leash l and zero within, d the way to the centroid of what is seen.

    The pull is in the world's coordinates; a policy adds it to its mean action. g is the leash's gain, and a leash of 0
    is none.

    An agent that has lost the others gets no learning signal there (it is never the nearest to anything), so a
    policy that drifts outwards would never learn to come back: this is how training runs diverged. The pull grows
    with the distance and the network's own output is bounded (layer normalisation), so nobody gets away.
    """
    leash = policy.leash
    if not leash:
        return jnp.zeros_like(view.position)
    to_centroid = centroid_offset(view.flat())
    distance = jnp.sqrt((to_centroid * to_centroid).sum())
    return to_centroid * (policy.leash_gain * jax.nn.relu(distance - leash) / jnp.maximum(distance, leash))
