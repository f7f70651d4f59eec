"""Set encoders: the entities of one role, any number of them, to one vector.

A set encoder is a module with `__call__(features (n, 4), mask (n,)) -> (width,)` that does not depend on the
order of the entities, ignores masked ones and gives zero for an empty set. Register another one with
`register_encoder`; see docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from legoswarm.architecture import JOINT, PolicyConfig
from legoswarm.fast.fused import attention, normalise
from legoswarm.policies.networks.layers import Linear, storage
from legoswarm.scene import Entities

FEATURES = 4  # position and velocity in the agent's frame


@runtime_checkable
class SetEncoder(Protocol):
    """Summarises the entities of one role."""

    def __call__(self, features: Float[Array, "n 4"], mask: Bool[Array, " n"]) -> Float[Array, " width"]:
        """The summary s_i^(r)."""
        ...


class AttentionLayer(eqx.Module):
    """x + sigma(concatenated heads of softmax(Q K^T / sqrt(d_h)) V), sigma a linear map and ReLU (equations 7, 8)."""

    qkv: Linear  # the three projections beside each other: one matrix product instead of three
    sigma: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int, *, key: PRNGKeyArray):
        key_qkv, key_sigma = jax.random.split(key)
        self.qkv = Linear(width, 3 * width, gain=3**0.5, bias=False, key=key_qkv)
        self.sigma = Linear(width, width, key=key_sigma)
        self.heads = heads

    def __call__(self, x: Float[Array, "n width"], mask: Bool[Array, " n"]) -> Float[Array, "n width"]:
        """One layer over all entities, in the precision of `x`."""
        mixed = attention(jax.vmap(self.qkv)(normalise(x)), mask, self.heads)
        return x + jax.nn.relu(jax.vmap(self.sigma)(mixed))


class Attention(eqx.Module):
    """The paper's role encoder: embedding, L layers of attention among the role's entities, pooling."""

    embed: Linear
    layers: tuple[AttentionLayer, ...]
    pooling: str = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(self, config: PolicyConfig, *, key: PRNGKeyArray):
        key_embed, *keys = jax.random.split(key, config.depth + 1)
        self.embed = Linear(FEATURES, config.width, key=key_embed)
        self.layers = tuple(AttentionLayer(config.width, config.heads, key=k) for k in keys)
        self.pooling, self.precision = config.pooling, config.precision

    def __call__(self, features: Float[Array, "n 4"], mask: Bool[Array, " n"]) -> Float[Array, " width"]:
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

    def __init__(self, config: PolicyConfig, *, key: PRNGKeyArray):
        key_embed, *keys = jax.random.split(key, config.depth + 1)
        self.embed = Linear(FEATURES, config.width, key=key_embed)
        self.layers = tuple(Linear(config.width, config.width, key=k) for k in keys)
        self.pooling = config.pooling

    def __call__(self, features: Float[Array, "n 4"], mask: Bool[Array, " n"]) -> Float[Array, " width"]:
        """phi of each entity, pooled."""
        x = jax.vmap(self.embed)(features)
        for layer in self.layers:
            x = jax.vmap(layer)(jax.nn.relu(x))
        return pool(x, mask, self.pooling)


def pool(x: Float[Array, "n width"], mask: Bool[Array, " n"], pooling: str) -> Float[Array, " width"]:
    """Mean or maximum over the entities that are there; zero if none is."""
    if len(x) == 0:
        return jnp.zeros(x.shape[1:], x.dtype)
    if pooling == "max":
        top = jnp.where(mask[:, None], x, -jnp.inf).max(0)
        return jnp.where(mask.any(), top, 0.0)
    weight = mask.astype(x.dtype)
    return (x * weight[:, None]).sum(0) / jnp.maximum(weight.sum(), 1.0)


def nearest(others: Entities, count: int) -> Entities:
    """The `count` entities closest to the agent; all of them if `count` is 0 or there are no more."""
    if not 0 < count < len(others.mask):
        return others
    square = (others.position * others.position).sum(-1)
    _, index = jax.lax.top_k(jnp.where(others.mask, -square, -jnp.inf), count)
    return jax.tree.map(lambda values: values[index], others)


_OWN: dict[str, Callable[..., SetEncoder]] = {"attention": Attention, "deepsets": DeepSets}  # of the package
_ENCODERS = dict(_OWN)


def register_encoder(name: str, build: Callable[..., SetEncoder]) -> None:
    """Make `build(config, *, key)` known as `--encoder name`."""
    if name == JOINT:
        raise ValueError(f"the name {name!r} is taken by an encoder of all roles at once")
    _ENCODERS[name] = build


def own_encoder(name: str) -> bool:
    """Whether an encoder comes with the package, and nobody has put another one in its place."""
    return name == JOINT or (name in _OWN and _ENCODERS[name] is _OWN[name])


def make_encoder(config: PolicyConfig, *, key: PRNGKeyArray) -> SetEncoder:
    """The set encoder that the configuration names."""
    if config.encoder not in _ENCODERS:
        raise ValueError(f"unknown encoder {config.encoder!r}; known: {', '.join(sorted([*_ENCODERS, JOINT]))}")
    return _ENCODERS[config.encoder](config, key=key)
