"""Attention among a handful of entities: one GPU kernel forward and one backward.

In plain array operations attention is a dozen passes over memory with transposes between them, because the scores of
three entities are far too small for matrix products. Here each program holds some samples in registers: nothing but the
input, the output and their gradients touches the GPU's memory. Sums are float32 whatever the arrays are. The plain
function is the reference, and what runs wherever the kernels cannot; among many entities it goes block by block.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from legoswarm.fast.kernels import kernel_mode, over_samples, power_of_two
from legoswarm.fast.normalise import exact
from legoswarm.fast.switches import switch

MOST = 8  # entities; the kernels are written out for each pair of them
SAMPLES = 16  # of one program
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
    q, k, v = jnp.moveaxis(exact(qkv).reshape(entities, 3, heads, width // heads), 1, 0)
    if entities > MANY and switch("blocks", "on") == "on":
        return _blockwise(q, k, v, mask).reshape(entities, width).astype(qkv.dtype)
    # A handful of entities: sums of products fuse into one loop, tiny batched matrix products do not.
    scores = (q[:, None] * k[None]).sum(-1) / q.shape[-1] ** 0.5
    weights = jax.nn.softmax(jnp.where(mask[None, :, None], scores, jnp.finfo(scores.dtype).min), axis=1)
    return (weights[..., None] * v[None]).sum(1).reshape(entities, width).astype(qkv.dtype)


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
    return 0 < shape[0] <= MOST and power_of_two(width) and power_of_two(width // heads) and width <= 256


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(heads: int, qkv: Array, mask: Array) -> Array:
    return over_samples((_attention_kernel, heads, mask.shape[-1]), 2, SAMPLES, qkv.shape[-1] // 3, qkv, mask)


def _backward(heads: int, saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    qkv, mask = saved
    kernel = (_attention_slope_kernel, heads, mask.shape[-1])
    return over_samples(kernel, 2, SAMPLES, qkv.shape[-1], qkv, mask, gradient), jnp.zeros_like(mask)


_fused.defvjp(lambda heads, qkv, mask: (_fused(heads, qkv, mask), (qkv, mask)), _backward)


class _Heads:
    """The samples of one program: vectors of each entity, split into heads, and attention weights of each pair."""

    def __init__(self, heads: int, entities: int, qkv_ref: Any, mask_ref: Any):
        self.heads, self.entities, self.width = heads, entities, qkv_ref.shape[2] // 3
        self.scale = (self.width // heads) ** -0.5
        self.q, self.k, self.v = ([self.read(qkv_ref, i, part) for i in range(entities)] for part in range(3))
        seen = [mask_ref[:, j][:, None] > 0 for j in range(entities)]
        self.weights = [self._softmax(i, seen) for i in range(entities)]

    def read(self, ref: Any, entity: int, part: int = 0) -> Array:
        """Return the vectors of one entity, (samples, heads, size)."""
        row = ref[:, entity, part * self.width : (part + 1) * self.width]
        return row.astype(jnp.float32).reshape(-1, self.heads, self.width // self.heads)

    def write(self, ref: Any, entity: int, value: Array, part: int = 0) -> None:
        """Write the vectors of one entity, as `read` gives them."""
        ref[:, entity, part * self.width : (part + 1) * self.width] = value.reshape(-1, self.width).astype(ref.dtype)

    def _softmax(self, i: int, seen: list[Array]) -> list[Array]:
        scores = [jnp.where(s, (self.q[i] * k).sum(-1) * self.scale, -1e30) for k, s in zip(self.k, seen, strict=True)]
        top = functools.reduce(jnp.maximum, scores)
        raised = [jnp.exp(score - top) for score in scores]
        total = sum(raised[1:], start=raised[0])
        return [r / total for r in raised]


def _attention_kernel(heads: int, entities: int, qkv_ref: Any, mask_ref: Any, out_ref: Any) -> None:
    of = _Heads(heads, entities, qkv_ref, mask_ref)
    for i in range(entities):
        terms = [w[..., None] * v for w, v in zip(of.weights[i], of.v, strict=True)]
        of.write(out_ref, i, sum(terms[1:], start=terms[0]))


def _attention_slope_kernel(
    heads: int, entities: int, qkv_ref: Any, mask_ref: Any, gradient_ref: Any, out_ref: Any
) -> None:
    of = _Heads(heads, entities, qkv_ref, mask_ref)
    dk, dv = [jnp.zeros_like(of.q[0])] * entities, [jnp.zeros_like(of.q[0])] * entities
    for i in range(entities):
        gradient, weights = of.read(gradient_ref, i), of.weights[i]
        slopes = [(gradient * v).sum(-1) for v in of.v]
        weighted = [w * s for w, s in zip(weights, slopes, strict=True)]
        mean = sum(weighted[1:], start=weighted[0])
        dq = jnp.zeros_like(gradient)
        for j in range(entities):
            dscore = (weights[j] * (slopes[j] - mean) * of.scale)[..., None]
            dq += dscore * of.k[j]
            dk[j] += dscore * of.q[i]
            dv[j] += weights[j][..., None] * gradient
        of.write(out_ref, i, dq)
    for j in range(entities):
        of.write(out_ref, j, dk[j], 1)
        of.write(out_ref, j, dv[j], 2)
