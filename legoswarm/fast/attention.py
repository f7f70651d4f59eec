"""Attention among a handful of entities: one GPU kernel forward and one backward.

In plain array operations attention is a dozen passes over memory with transposes between them, because the scores of
three entities are far too small for matrix products. Here the entities of several samples stand below each other in one
tile of 16 or 32 rows, so that tensor cores can multiply it, and the scores between samples are thrown away. Nothing but
the input, the output and their gradients touches the GPU's memory. Sums are float32 whatever the arrays are. The plain
function is the reference, and what runs wherever the kernels cannot; among many entities it goes block by block.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from legoswarm.fast.kernels import dot, kernel_mode, next_power, over_samples, power_of_two
from legoswarm.fast.normalise import exact
from legoswarm.fast.switches import switch

MOST = 32  # entities
LEAST = 16  # rows, columns and summands of a product of matrices
WARPS = 2
MANY = 16  # entities from which on matrix products pay, and scores of all pairs at once do not fit
BLOCK = 64  # queries at a time


def attention(qkv: Float[Array, "n triple"], mask: Bool[Array, " n"], heads: int) -> Float[Array, "n width"]:
    """Return softmax(Q K^T / sqrt(d_h)) V of each head, beside each other; masked entities are attended by nobody."""
    if kernel_mode() != "plain" and _fits(qkv.shape, heads):
        return _fused(heads, qkv, mask.astype(jnp.float32))
    return plain_attention(qkv, mask, heads)


def plain_attention(qkv: Float[Array, "n triple"], mask: Bool[Array, " n"], heads: int) -> Float[Array, "n width"]:
    """Compute the same in plain array operations."""
    entities, width = qkv.shape[0], qkv.shape[1] // 3
    q, k, v = (part.reshape(entities, heads, width // heads) for part in jnp.split(exact(qkv), 3, axis=1))
    if entities > MANY and switch("blocks", "on") == "on":
        return _blockwise(q, k, v, mask).reshape(entities, width).astype(qkv.dtype)
    # A handful of entities: sums of products fuse into one loop, tiny batched matrix products do not. The last axis is
    # never the one that is summed over, so that processors add up several numbers at once.
    q, k = q.transpose(1, 2, 0), k.transpose(1, 2, 0)
    scores = (q[..., None] * k[:, :, None]).sum(1) / q.shape[1] ** 0.5
    weights = jax.nn.softmax(jnp.where(mask[None, None], scores, jnp.finfo(scores.dtype).min), axis=2)
    return (weights.transpose(1, 2, 0)[..., None] * v[None]).sum(1).reshape(entities, width).astype(qkv.dtype)


def _blockwise(q: Array, k: Array, v: Array, mask: Array) -> Float[Array, "n heads size"]:
    """Compute the same for many entities: matrix products, some queries at a time, forward and backward.

    A team of N agents that each see N others would otherwise need scores that grow with the cube of N.
    """

    @jax.checkpoint
    def mixed(query: Float[Array, "heads size"]) -> Float[Array, "heads size"]:
        scores = jnp.einsum("hd,nhd->hn", query, k) / query.shape[-1] ** 0.5
        weights = jax.nn.softmax(jnp.where(mask, scores, jnp.finfo(scores.dtype).min), axis=-1)
        return jnp.einsum("hn,nhd->hd", weights, v)

    return jax.lax.map(mixed, q, batch_size=BLOCK)


def _fits(shape: tuple[int, ...], heads: int) -> bool:
    width = shape[1] // 3
    return 0 < shape[0] <= MOST and power_of_two(width) and power_of_two(heads) and LEAST * heads <= width <= 256


def _samples(entities: int) -> int:
    """Return how many samples a program takes: those that fit into its tile."""
    return max(LEAST // next_power(entities), 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(heads: int, qkv: Array, mask: Array) -> Array:
    entities, triple = qkv.shape[-2:]
    return over_samples((_attention_kernel, heads), 2, _samples(entities), triple // 3, qkv, mask, warps=WARPS)


def _backward(heads: int, saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    qkv, mask = saved
    entities, triple = qkv.shape[-2:]
    slope = over_samples(
        (_attention_slope_kernel, heads), 2, _samples(entities), triple, qkv, mask, gradient, warps=WARPS
    )
    return slope, jnp.zeros_like(mask)


_fused.defvjp(lambda heads, qkv, mask: (_fused(heads, qkv, mask), (qkv, mask)), _backward)


class _Tile(NamedTuple):
    """Where the rows of a tile are: the entities of some samples below each other, filled up to a power of two."""

    sample: Array
    entity: Array
    there: Array
    pairs: Array  # of rows: of the same sample
    seen: Array  # by column

    @staticmethod
    def of(mask_ref: Any) -> _Tile:
        """Return the tile of a program."""
        entities = mask_ref.shape[1]
        each = next_power(entities)
        row = jax.lax.iota(jnp.int32, max(each, LEAST))
        sample, entity = row >> (each.bit_length() - 1), row & (each - 1)
        there = entity < entities
        seen = _load(mask_ref, (sample, entity), there) > 0
        return _Tile(sample, entity, there, (sample[:, None] == sample[None]) & there[None], seen)

    def place(self, head: int, size: int, part: int, width: int) -> tuple[Array, Array, Array]:
        """Return the indices of a head's numbers in every row; `part` is 0, 1 or 2 for queries, keys and values."""
        column = part * width + head * size + jax.lax.iota(jnp.int32, size)
        return self.sample[:, None], self.entity[:, None], column[None]

    def weights(self, q: Array, k: Array) -> Array:
        """Return who attends to whom, and how much."""
        scores = dot(q, k, (1, 1)) * q.shape[1] ** -0.5
        scores = jnp.where(self.pairs, jnp.where(self.seen[None], scores, -1e30), -3e38)
        raised = jnp.exp(scores - scores.max(1)[:, None])
        return raised / raised.sum(1)[:, None]


def _load(ref: Any, place: tuple[Array, ...], there: Array) -> Array:
    from jax.experimental.pallas import triton as plgpu

    return plgpu.load(ref.at[place], mask=there, other=0.0)


def _store(ref: Any, place: tuple[Array, ...], there: Array, value: Array) -> None:
    from jax.experimental.pallas import triton as plgpu

    plgpu.store(ref.at[place], value.astype(ref.dtype), mask=there)


def _attention_kernel(heads: int, qkv_ref: Any, mask_ref: Any, out_ref: Any) -> None:
    width, size = out_ref.shape[2], out_ref.shape[2] // heads
    tile = _Tile.of(mask_ref)
    there = jnp.broadcast_to(tile.there[:, None], (len(tile.there), size))
    for head in range(heads):
        q, k, v = (_load(qkv_ref, tile.place(head, size, part, width), there) for part in range(3))
        mixed = dot(tile.weights(q, k).astype(v.dtype), v, (1, 0))
        _store(out_ref, tile.place(head, size, 0, width), there, mixed)


def _attention_slope_kernel(heads: int, qkv_ref: Any, mask_ref: Any, gradient_ref: Any, out_ref: Any) -> None:
    width, size = gradient_ref.shape[2], gradient_ref.shape[2] // heads
    tile = _Tile.of(mask_ref)
    there = jnp.broadcast_to(tile.there[:, None], (len(tile.there), size))
    for head in range(heads):
        q, k, v = (_load(qkv_ref, tile.place(head, size, part, width), there) for part in range(3))
        gradient = _load(gradient_ref, tile.place(head, size, 0, width), there)
        weights = tile.weights(q, k)
        slopes = dot(gradient, v, (1, 1))
        scores = weights * (slopes - (weights * slopes).sum(1)[:, None]) * size**-0.5
        scores = jnp.where(tile.seen[None], scores, 0.0).astype(q.dtype)
        found = dot(scores, k, (1, 0)), dot(scores, q, (0, 0)), dot(weights.astype(q.dtype), gradient, (0, 0))
        for part, value in enumerate(found):
            _store(out_ref, tile.place(head, size, part, width), there, value)
