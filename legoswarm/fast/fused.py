"""Attention among a handful of entities, and layer normalisation: one GPU kernel forward and one backward each.

In plain array operations attention is a dozen passes over memory with transposes between them, because the scores of
three entities are far too small for matrix products, and a normalisation is five. Here each program holds some samples
in registers: nothing but the input, the output and their gradients touches the GPU's memory. Sums are float32
whatever the arrays are. The plain functions are the reference, and what runs wherever the kernels cannot.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jaxtyping import Array, Bool, Float

MOST = 8  # entities; the kernels are written out for each pair of them
SAMPLES = 16  # of one program
ROWS = 64  # of one program that normalises
MANY = 16  # entities from which on matrix products pay, and scores of all pairs at once do not fit
BLOCK = 64  # queries at a time


def normalise(x: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
    """Layer normalisation: (x - mean) / deviation of each vector.

    No scale and shift are learned: the linear map that follows can do both.
    """
    if _mode() != "plain" and _power(x.shape[-1]) and 16 <= x.shape[-1] <= 256:
        return _normalise(x)
    return plain_normalise(x)


def plain_normalise(x: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
    """The same in plain array operations."""
    return _normalised(exact(x))[0].astype(x.dtype)


def exact(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """In a type that sums can be taken in: float32 for bfloat16."""
    return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x


def attention(qkv: Float[Array, "n triple"], mask: Bool[Array, " n"], heads: int) -> Float[Array, "n width"]:
    """softmax(Q K^T / sqrt(d_h)) V of each head, beside each other; masked entities are attended by nobody."""
    if _mode() != "plain" and _fits(qkv.shape, heads):
        return _attention(heads, qkv, mask.astype(jnp.float32))
    return plain_attention(qkv, mask, heads)


def plain_attention(qkv: Float[Array, "n triple"], mask: Bool[Array, " n"], heads: int) -> Float[Array, "n width"]:
    """The same in plain array operations."""
    entities, width = qkv.shape[0], qkv.shape[1] // 3
    q, k, v = jnp.moveaxis(exact(qkv).reshape(entities, 3, heads, width // heads), 1, 0)
    if entities > MANY:
        return _blockwise(q, k, v, mask).reshape(entities, width).astype(qkv.dtype)
    # A handful of entities: sums of products fuse into one loop, tiny batched matrix products do not.
    scores = (q[:, None] * k[None]).sum(-1) / q.shape[-1] ** 0.5
    weights = jax.nn.softmax(jnp.where(mask[None, :, None], scores, jnp.finfo(scores.dtype).min), axis=1)
    return (weights[..., None] * v[None]).sum(1).reshape(entities, width).astype(qkv.dtype)


def _blockwise(q: Array, k: Array, v: Array, mask: Array) -> Float[Array, "n heads size"]:
    """The same for many entities: matrix products, some queries at a time, forward and backward.

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
    return 0 < shape[0] <= MOST and _power(width) and _power(width // heads) and width <= 256


def _power(size: int) -> bool:
    """Whether it is a power of two, as the kernels' arrays must be."""
    return size & (size - 1) == 0


def _mode() -> str:
    """`plain`, `fused`, or `interpret` (the kernels, slowly, on a CPU: for tests); LEGOSWARM_KERNELS chooses."""
    default = "fused" if jax.default_backend() == "gpu" else "plain"
    chosen = os.environ.get("LEGOSWARM_KERNELS", default)
    if chosen not in ("plain", "fused", "interpret"):
        raise ValueError(f"LEGOSWARM_KERNELS must be plain, fused or interpret, not {chosen!r}")
    return chosen


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(heads: int, qkv: Array, mask: Array) -> Array:
    return _forward(qkv, mask, heads=heads)


def _attention_fwd(heads: int, qkv: Array, mask: Array) -> tuple[Array, tuple[Array, Array]]:
    return _forward(qkv, mask, heads=heads), (qkv, mask)


def _attention_bwd(heads: int, saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    qkv, mask = saved
    return _backward(qkv, mask, gradient, heads=heads), jnp.zeros_like(mask)


_attention.defvjp(_attention_fwd, _attention_bwd)


@jax.custom_vjp
def _normalise(x: Array) -> Array:
    return _folded_normalise(x)


def _normalise_fwd(x: Array) -> tuple[Array, Array]:
    return _folded_normalise(x), x


def _normalise_bwd(x: Array, gradient: Array) -> tuple[Array]:
    return (_folded_slope(x, gradient),)


_normalise.defvjp(_normalise_fwd, _normalise_bwd)


def _primitive(name: str, run: Callable[..., Array], rank: int, share: int = 1) -> Callable[..., Array]:
    """`run` of arrays with one batch axis each, the first before its `rank` own axes, for any leading axes instead.

    Its result has the shape of the first array, but for a `share` of the last axis. A primitive of its own: a vmap is
    one more leading axis, so no batch of kernels is ever made, and no kernel is traced before the whole program is
    lowered, one for each shape. (Half of a start from the compilation cache was kernels traced anew by every vmap.)
    """
    primitive = Primitive(name)

    def folded(*arrays: Array, **options: Any) -> Array:
        leading = arrays[0].shape[: arrays[0].ndim - rank]
        out = run(*(a.reshape(-1, *a.shape[len(leading) :]) for a in arrays), **options)
        return out.reshape(*leading, *out.shape[1:])

    @primitive.def_abstract_eval
    def shape(first: Any, *_: Any, **options: Any) -> ShapedArray:
        del options
        return ShapedArray((*first.shape[:-1], first.shape[-1] // share), first.dtype)

    def batched(arrays: Sequence[Array], axes: Sequence[int | None], **options: Any) -> tuple[Array, int]:
        size = next(a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None)
        full = [
            jnp.broadcast_to(a, (size, *a.shape)) if axis is None else jnp.moveaxis(a, axis, 0)
            for a, axis in zip(arrays, axes, strict=True)
        ]
        return primitive.bind(*full, **options), 0

    primitive.def_impl(lambda *arrays, **options: jax.jit(functools.partial(primitive.bind, **options))(*arrays))
    batching.primitive_batchers[primitive] = batched
    mlir.register_lowering(primitive, mlir.lower_fun(folded, multiple_results=False), inline=False)
    return primitive.bind


def _run(kernel: Callable[..., None], shape: tuple[int, ...], samples: int, *arrays: Array) -> Array:
    """A kernel over all samples, some in each program; each sample's output has this shape."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    count = len(arrays[0])
    if not count:
        return jnp.zeros((0, *shape), arrays[0].dtype)
    padding = -count % samples
    if padding:
        arrays = tuple(jnp.pad(a, ((0, padding), *((0, 0),) * (a.ndim - 1))) for a in arrays)

    def rows(shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec((samples, *shape), lambda at: (at, *(0,) * len(shape)))

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((count + padding, *shape), arrays[0].dtype),
        grid=((count + padding) // samples,),
        in_specs=[rows(a.shape[1:]) for a in arrays],
        out_specs=rows(shape),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
        interpret=_mode() == "interpret",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Pallas on Triton, from jax 0.11 on
        return call(*arrays)[:count]


def _run_forward(qkv: Array, mask: Array, *, heads: int) -> Array:
    entities = mask.shape[1]
    kernel = functools.partial(_attention_kernel, heads, entities)
    return _run(kernel, (entities, qkv.shape[2] // 3), SAMPLES, qkv, mask)


def _run_backward(qkv: Array, mask: Array, gradient: Array, *, heads: int) -> Array:
    kernel = functools.partial(_attention_slope_kernel, heads, mask.shape[1])
    return _run(kernel, qkv.shape[1:], SAMPLES, qkv, mask, gradient)


_forward = _primitive("attention_forward", _run_forward, 2, share=3)
_backward = _primitive("attention_backward", _run_backward, 2)
_folded_normalise = _primitive("normalise", lambda x: _run(_normalise_kernel, x.shape[1:], ROWS, x), 1)
_folded_slope = _primitive("normalise_slope", lambda x, g: _run(_normalise_slope_kernel, x.shape[1:], ROWS, x, g), 1)


def _normalised(x: Float[Array, "*n width"]) -> tuple[Float[Array, "*n width"], Float[Array, "*n 1"]]:
    """Each row normalised, and one over its deviation."""
    width = x.shape[-1]
    centred = x - x.sum(-1, keepdims=True) / width
    scale = jax.lax.rsqrt((centred * centred).sum(-1, keepdims=True) / width + 1e-5)
    return centred * scale, scale


def _normalise_kernel(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] = _normalised(x_ref[...].astype(jnp.float32))[0].astype(out_ref.dtype)


def _normalise_slope_kernel(x_ref: Any, gradient_ref: Any, out_ref: Any) -> None:
    normed, scale = _normalised(x_ref[...].astype(jnp.float32))
    gradient = gradient_ref[...].astype(jnp.float32)
    width = normed.shape[1]
    along = (gradient * normed).sum(-1, keepdims=True) / width
    slope = gradient - gradient.sum(-1, keepdims=True) / width - normed * along
    out_ref[...] = (slope * scale).astype(out_ref.dtype)


class _Heads:
    """The samples of one program: vectors of each entity, split into heads, and attention weights of each pair."""

    def __init__(self, heads: int, entities: int, qkv_ref: Any, mask_ref: Any):
        self.heads, self.entities, self.width = heads, entities, qkv_ref.shape[2] // 3
        self.scale = (self.width // heads) ** -0.5
        self.q, self.k, self.v = ([self.read(qkv_ref, i, part) for i in range(entities)] for part in range(3))
        seen = [mask_ref[:, j][:, None] > 0 for j in range(entities)]
        self.weights = [self._softmax(i, seen) for i in range(entities)]

    def read(self, ref: Any, entity: int, part: int = 0) -> Array:
        """(SAMPLES, heads, size) of one entity."""
        row = ref[:, entity, part * self.width : (part + 1) * self.width]
        return row.astype(jnp.float32).reshape(-1, self.heads, self.width // self.heads)

    def write(self, ref: Any, entity: int, value: Array, part: int = 0) -> None:
        """The reverse."""
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
