"""One layer of attention among entities."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from legoswarm.fast.attention import attention
from legoswarm.fast.normalise import normalise
from legoswarm.policies.networks.layers import Linear


class AttentionLayer(eqx.Module):
    """x + sigma(concatenated heads of softmax(Q K^T / sqrt(d_h)) V), sigma a linear map and ReLU (equations 7, 8)."""

    qkv: Linear  # the three projections beside each other: one matrix product instead of three
    sigma: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int, *, key: PRNGKeyArray):
        if width % heads:
            raise ValueError(f"the width ({width}) must be a multiple of the heads ({heads})")
        key_qkv, key_sigma = jax.random.split(key)
        self.qkv = Linear(width, 3 * width, gain=3**0.5, bias=False, key=key_qkv)
        self.sigma = Linear(width, width, key=key_sigma)
        self.heads = heads

    def __call__(self, x: Float[Array, "n width"], mask: Bool[Array, " n"]) -> Float[Array, "n width"]:
        """Apply the layer to all entities, in the precision of `x`."""
        mixed = attention(jax.vmap(self.qkv)(normalise(x)), mask, self.heads)
        return x + jax.nn.relu(jax.vmap(self.sigma)(mixed))
