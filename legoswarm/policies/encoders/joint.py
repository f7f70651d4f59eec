"""An encoder of all roles at once: attention among the agent itself and everybody it sees."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from legoswarm.fast.backend import storage
from legoswarm.policies.encoders.encoder import register_view_encoder
from legoswarm.policies.networks.attention import AttentionLayer
from legoswarm.policies.networks.layers import Linear, Perceptron
from legoswarm.policies.networks.pooling import entity_features, pool
from legoswarm.policies.policy import Attentive
from legoswarm.scene import Layout, View


class JointEncoder(eqx.Module):
    """s_i from attention among everybody at once, whatever their roles.

    Encoders of single roles pool before anything compares an agent with a landmark. Here, too, each role has its own
    embedding and is pooled on its own, but after everybody has looked at everybody; the agent's summary stands beside.
    """

    myself: Linear
    roles: tuple[Linear, ...]
    layers: tuple[AttentionLayer, ...]
    fuse: Perceptron
    absolute: bool = eqx.field(static=True)
    policy: Attentive = eqx.field(static=True)

    def __init__(self, policy: Attentive, layout: Layout, *, absolute: bool = False, key: PRNGKeyArray):
        roles, width, size = len(layout.roles), policy.width, layout.dimension
        key_self, key_fuse, *keys = jax.random.split(key, 2 + roles + policy.depth)
        self.absolute, self.policy = absolute, policy
        self.myself = Linear((1 + absolute) * size, width, key=key_self)
        self.roles = tuple(Linear(2 * size, width, key=k) for k in keys[:roles])
        self.layers = tuple(AttentionLayer(width, policy.heads, key=k) for k in keys[roles:])
        self.fuse = Perceptron((1 + roles) * width, (width, width), key=key_fuse)

    @jax.jit
    def __call__(self, view: View) -> Float[Array, " width"]:
        """Return the summary of an observation."""
        own = jnp.concatenate([view.position, view.velocity]) if self.absolute else view.velocity
        embedded = [jax.vmap(embed)(entity_features(o)) for embed, o in zip(self.roles, view.others, strict=True)]
        x = jnp.concatenate([self.myself(own)[None], *embedded]).astype(storage(self.policy.precision))
        masks = [jnp.ones(1, bool), *(others.mask for others in view.others)]
        for layer in self.layers:
            x = layer(x, jnp.concatenate(masks))
        parts, start = [], 0
        for mask in masks:
            parts.append(pool(x[start : start + len(mask)].astype(own.dtype), mask, self.policy.pooling))
            start += len(mask)
        return self.fuse(jnp.concatenate(parts).astype(x.dtype)).astype(own.dtype)


register_view_encoder("joint", JointEncoder)
