"""The paper's encoder: each role on its own by a set encoder, then all roles fused (equation 9).

A set encoder is a module with `__call__(features (n, 2 dim), mask (n,)) -> (width,)` that does not depend on the
order of the entities, ignores masked ones and gives zero for an empty set. `register_encoder` makes another one known;
see docs/own-policy.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from legoswarm.fast.backend import storage
from legoswarm.policies.encoders.encoder import ENCODERS
from legoswarm.policies.networks.attention import AttentionLayer
from legoswarm.policies.networks.layers import Linear, Perceptron
from legoswarm.policies.networks.pooling import entity_features, pool
from legoswarm.policies.policy import Attentive
from legoswarm.scene import Layout, View


@runtime_checkable
class SetEncoder(Protocol):
    """Summarises the entities of one role."""

    def __call__(self, features: Float[Array, "n features"], mask: Bool[Array, " n"]) -> Float[Array, " width"]:
        """Return the summary s_i^(r)."""
        ...


class RoleEncoder(eqx.Module):
    """s_i: the self branch and one set encoder for each role, concatenated in fixed order and fused.

    The self branch sees the agent's velocity; with `absolute`, also its position in the world.
    """

    myself: Perceptron
    roles: tuple[SetEncoder, ...]
    fuse: Perceptron
    absolute: bool = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(
        self,
        build_set: Callable[..., SetEncoder],
        policy: Attentive,
        layout: Layout,
        *,
        absolute: bool = False,
        key: PRNGKeyArray,
    ):
        key_self, key_fuse, *keys = jax.random.split(key, 2 + len(layout.roles))
        width = policy.width
        self.absolute, self.precision = absolute, policy.precision
        self.myself = Perceptron((1 + absolute) * layout.dimension, (width,), key=key_self)
        self.roles = tuple(build_set(policy, 2 * layout.dimension, key=k) for k in keys)
        self.fuse = Perceptron((1 + len(layout.roles)) * width, (width, width), key=key_fuse)

    @jax.jit  # actor and critic, acting and learning: traced once
    def __call__(self, view: View) -> Float[Array, " width"]:
        """Return the summary of an observation."""
        own = jnp.concatenate([view.position, view.velocity]) if self.absolute else view.velocity
        parts = [self.myself(own)]
        for encode, others in zip(self.roles, view.others, strict=True):
            parts.append(encode(entity_features(others), others.mask))
        return self.fuse(jnp.concatenate(parts).astype(storage(self.precision))).astype(own.dtype)


class Attention(eqx.Module):
    """The paper's set encoder: embedding, L layers of attention among the role's entities, pooling."""

    embed: Linear
    layers: tuple[AttentionLayer, ...]
    pooling: str = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(self, policy: Attentive, features: int, *, key: PRNGKeyArray):
        key_embed, *keys = jax.random.split(key, policy.depth + 1)
        self.embed = Linear(features, policy.width, key=key_embed)
        self.layers = tuple(AttentionLayer(policy.width, policy.heads, key=k) for k in keys)
        self.pooling, self.precision = policy.pooling, policy.precision

    def __call__(self, features: Float[Array, "n features"], mask: Bool[Array, " n"]) -> Float[Array, " width"]:
        """Attend, then pool."""
        x = jax.vmap(self.embed)(features).astype(storage(self.precision))
        for layer in self.layers:
            x = layer(x, mask)
        return pool(x.astype(features.dtype), mask, self.pooling)


class DeepSets(eqx.Module):
    """Every entity through the same layers, then pooling: no entity looks at another."""

    embed: Linear
    layers: tuple[Linear, ...]
    pooling: str = eqx.field(static=True)

    def __init__(self, policy: Attentive, features: int, *, key: PRNGKeyArray):
        key_embed, *keys = jax.random.split(key, policy.depth + 1)
        self.embed = Linear(features, policy.width, key=key_embed)
        self.layers = tuple(Linear(policy.width, policy.width, key=k) for k in keys)
        self.pooling = policy.pooling

    def __call__(self, features: Float[Array, "n features"], mask: Bool[Array, " n"]) -> Float[Array, " width"]:
        """Apply the layers to each entity, then pool."""
        x = jax.vmap(self.embed)(features)
        for layer in self.layers:
            x = jax.vmap(layer)(jax.nn.relu(x))
        return pool(x, mask, self.pooling)


def register_encoder(name: str, build: Callable[..., SetEncoder]) -> None:
    """Make the set encoder `build(policy, features, *, key)`, one for each role, known as `--encoder name`."""
    ENCODERS.register(functools.partial(RoleEncoder, build), name, build.__module__)


register_encoder("attention", Attention)
register_encoder("deepsets", DeepSets)
