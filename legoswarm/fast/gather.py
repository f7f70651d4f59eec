"""Messages from all senders to each receiver, and their mean and maximum: one GPU kernel forward and one backward.

In plain array operations two layers on the features of every pair are some thirty passes over memory, each as large as
all messages. Here messages live in registers only: the kernels read features and weights, and write what is gathered
or the gradients of features and weights; the backward kernel computes the messages anew. Products take the tensor
cores' precision (TF32 for float32), sums are float32. The plain function is the reference, and what runs wherever the
kernels cannot.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from legoswarm.fast.kernels import dot, kernel_mode, next_power, power_of_two, quietly
from legoswarm.fast.normalise import centred_slope, normalise, normalised

MOST = 16  # senders
ROWS = 64  # pairs that a program holds at a time
WARPS = 4
TILES = 8  # of so many pairs, one after the other, in one program
TF32 = jax.lax.Precision.HIGH  # what kernels make of it


def gather(
    features: Float[Array, "batch n senders features"], there: Bool[Array, "batch n senders"], first: Any, second: Any
) -> Float[Array, "batch n twice"]:
    """Return mean and maximum, side by side, of relu(second(normalise(relu(first(features))))) over who is there.

    Both are zero where nobody is. `first` and `second` are linear layers. Equal maxima share their gradient. The batch
    is an axis of its own, not a vmap: the gradients of weights are summed over it before they leave a program.
    """
    width = second.weight.shape[1]
    fits = power_of_two(width) and 16 <= width <= 128 and first.weight.shape[1] == width
    if kernel_mode() != "plain" and fits and 0 < features.shape[2] <= MOST:
        return _gather(features, there, first, second)
    return plain_gather(features, there, first, second)


def plain_gather(
    features: Float[Array, "batch n senders features"], there: Bool[Array, "batch n senders"], first: Any, second: Any
) -> Float[Array, "batch n twice"]:
    """Compute the same in plain array operations."""

    def message(pair: Float[Array, " features"]) -> Float[Array, " width"]:
        return jax.nn.relu(second(normalise(jax.nn.relu(first(pair)))))

    messages = jax.vmap(jax.vmap(jax.vmap(message)))(features).astype(first.weight.dtype)
    weight = there[..., None].astype(messages.dtype)
    mean = (messages * weight).sum(2) / jnp.maximum(weight.sum(2), 1.0)
    top = jnp.where(there[..., None], messages, 0.0).max(2)  # no message is below zero
    return jnp.concatenate([mean, top], axis=-1)


def _gather(features: Array, there: Array, first: Any, second: Any) -> Array:
    """Fill up senders and features with nothing to powers of two, and run the kernels."""
    batch, receivers, senders, size = features.shape
    more, wider = next_power(senders) - senders, max(16, next_power(size)) - size
    x = jnp.pad(features, ((0, 0), (0, 0), (0, more), (0, wider))).reshape(batch * receivers, -1, size + wider)
    mask = jnp.pad(there, ((0, 0), (0, 0), (0, more))).reshape(batch * receivers, -1).astype(jnp.float32)
    weight = jnp.pad(first.weight, ((0, wider), (0, 0)))
    mean, top = _fused(x, mask, weight, first.bias[None], second.weight, second.bias[None])
    return jnp.concatenate([mean, top], axis=-1).reshape(batch, receivers, -1)


@jax.custom_vjp
def _fused(x: Array, mask: Array, *weights: Array) -> tuple[Array, Array]:
    return _over_groups(_forward, 0, kernel_mode() == "interpret")((x, mask), weights)


def _backward(saved: tuple[Array, ...], above: tuple[Array, Array]) -> tuple[Array, ...]:
    x, mask, *weights = saved
    slope = _over_groups(_slope, 0, kernel_mode() == "interpret")((x, mask), (*weights, *above))
    return slope[0], jnp.zeros_like(mask), *slope[1:]


_fused.defvjp(lambda *arrays: (_fused(*arrays), arrays), _backward)


@functools.cache
def _over_groups(run: Callable[..., Any], depth: int, interpret: bool) -> Callable[..., Any]:
    """Return `run(interpret, samples, weights)` for weights with leading axes, the first `depth` of samples as well.

    So a vmap over seeds, which have samples and weights of their own, or over networks that look at the same samples is
    one more axis of the kernels' grid; samples that networks share are not copied.
    """

    @jax.custom_batching.custom_vmap
    def call(samples: tuple[Array, ...], weights: tuple[Array, ...]) -> tuple[Array, ...]:
        leading = weights[0].shape[:-2]
        groups, sets = math.prod(leading[:depth]), math.prod(leading[depth:])
        flat = tuple(a.reshape(groups, *a.shape[depth:]) for a in samples)
        own = tuple(a.reshape(groups, sets, *a.shape[len(leading) :]) for a in weights)
        return tuple(out.reshape(*leading, *out.shape[2:]) for out in run(interpret, flat, own))

    @call.def_vmap
    def _(size: int, batched: Any, samples: Any, weights: Any) -> tuple[tuple[Array, ...], Any]:
        def full(arrays: Any, mapped: Any) -> Any:
            return tuple(a if m else jnp.broadcast_to(a, (size, *a.shape)) for a, m in zip(arrays, mapped, strict=True))

        shared = depth == 0 and not any(batched[0])
        samples = samples if shared else full(samples, batched[0])
        out = _over_groups(run, depth + (not shared), interpret)(samples, full(weights, batched[1]))
        return out, (True,) * len(out)

    return call


def _launch(kernel: Any, interpret: bool, samples: Any, weights: Any, above: Any, outs: Any) -> Any:
    """Run a kernel on tiles of samples for each group and each set of weights; fills up the last program.

    `outs` makes what comes out, as (shape, dtype, whether there is one for each sample and not for each program).
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    (groups, count, senders, _), sets = samples[0].shape, weights[0].shape[1]
    wide = weights[0].shape[3] > 64  # twice the numbers in a row: half as many rows, twice as many threads
    receivers = (ROWS // 2 if wide else ROWS) // senders
    tiles = min(TILES, max(1, -(-count // receivers)))
    each = receivers * tiles  # receivers of one program
    programs = max(1, -(-count // each))
    padding = programs * each - count
    if padding:
        samples = [jnp.pad(a, ((0, 0), (0, padding), *((0, 0),) * (a.ndim - 2))) for a in samples]
        above = [jnp.pad(a, ((0, 0), (0, 0), (0, padding), (0, 0))) for a in above]

    def of_samples(a: Array) -> pl.BlockSpec:
        return pl.BlockSpec((None, each, *a.shape[2:]), lambda p, s, g: (g, p, *(0,) * (a.ndim - 2)))

    def of_both(shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, each, *shape), lambda p, s, g: (g, s, p, *(0,) * len(shape)))

    def of_weights(a: Array) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, *a.shape[2:]), lambda p, s, g: (g, s, 0, 0))

    def of_program(shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, None, *shape), lambda p, s, g: (g, s, p, *(0,) * len(shape)))

    call = pl.pallas_call(
        functools.partial(kernel, tiles, receivers, senders),
        out_shape=[
            jax.ShapeDtypeStruct((groups, sets, programs * each if rows else programs, *shape), dtype)
            for shape, dtype, rows in outs
        ],
        grid=(programs, sets, groups),
        in_specs=[
            *map(of_samples, samples),
            *map(of_weights, weights),
            *(of_both(a.shape[3:]) for a in above),
        ],
        out_specs=[of_both(shape) if rows else of_program(shape) for shape, _, rows in outs],
        compiler_params=plgpu.CompilerParams(num_warps=2 * WARPS if wide else WARPS, num_stages=1),
        interpret=interpret,
    )
    found = quietly(call, *samples, *weights, *above)
    return [out[:, :, :count] if rows else out.sum(2) for out, (_, _, rows) in zip(found, outs, strict=True)]


@functools.partial(jax.jit, static_argnums=0)
def _forward(interpret: bool, samples: Any, weights: Any) -> Any:
    width = weights[0].shape[3]
    return _launch(_gather_kernel, interpret, samples, weights, (), [((width,), jnp.float32, True)] * 2)


@functools.partial(jax.jit, static_argnums=0)
def _slope(interpret: bool, samples: Any, weights: Any) -> Any:
    x, own, above = samples[0], weights[:4], weights[4:]
    outs = [(x.shape[2:], x.dtype, True), *((a.shape[2:], a.dtype, False) for a in own)]
    return _launch(_gather_slope_kernel, interpret, samples, own, above, outs)


class _Tile:
    """The messages of some receivers: all that both kernels compute."""

    def __init__(self, at: Any, receivers: int, senders: int, x_ref: Any, mask_ref: Any, weights: list[Array]):
        from jax.experimental import pallas as pl

        rows, first, bias, second, gate = pl.ds(at * receivers, receivers), *weights
        self.shape = (receivers, senders, second.shape[1])
        self.x = x_ref[rows].reshape(receivers * senders, -1)
        self.mask = mask_ref[rows]
        self.pre = dot(self.x, first, (1, 0), TF32) + bias
        self.hidden, self.scale = normalised(jnp.maximum(self.pre, 0.0))
        self.message = jnp.maximum(dot(self.hidden.astype(self.x.dtype), second, (1, 0), TF32) + gate, 0.0)
        self.there = jnp.broadcast_to(self.mask[:, :, None], self.shape)
        self.masked = self.message.reshape(self.shape) * self.there
        self.count = jnp.maximum(self.mask.sum(1), 1.0)
        self.top = self.masked.max(1)


def _read(x_ref: Any, weights: tuple[Any, ...]) -> list[Array]:
    """Return weights in the precision of features, and biases as they are."""
    return [ref[...].astype(x_ref.dtype) if at % 2 == 0 else ref[...] for at, ref in enumerate(weights)]


def _gather_kernel(tiles: int, receivers: int, senders: int, x_ref: Any, mask_ref: Any, *refs: Any) -> None:
    from jax.experimental import pallas as pl

    *weight_refs, mean_ref, top_ref = refs
    weights = _read(x_ref, tuple(weight_refs))

    def step(at: Any, nothing: None) -> None:
        tile, rows = _Tile(at, receivers, senders, x_ref, mask_ref, weights), pl.ds(at * receivers, receivers)
        mean_ref[rows] = tile.masked.sum(1) / tile.count[:, None]
        top_ref[rows] = tile.top

    jax.lax.fori_loop(0, tiles, step, None)


def _gather_slope_kernel(tiles: int, receivers: int, senders: int, x_ref: Any, mask_ref: Any, *refs: Any) -> None:
    from jax.experimental import pallas as pl

    weight_refs, (dmean_ref, dtop_ref, dx_ref), sum_refs = refs[:4], refs[4:7], refs[7:]
    weights = _read(x_ref, weight_refs)
    first, _, second, _ = weights

    def step(at: Any, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        tile, rows = _Tile(at, receivers, senders, x_ref, mask_ref, weights), pl.ds(at * receivers, receivers)
        equal = jnp.where(tile.masked == tile.top[:, None], tile.there, 0.0)
        share = dtop_ref[rows] / jnp.maximum(equal.sum(1), 1.0)
        even = dmean_ref[rows] / tile.count[:, None]
        gradient = (tile.there * even[:, None] + equal * share[:, None]).reshape(tile.message.shape)
        gradient = jnp.where(tile.message > 0, gradient, 0.0)
        short = gradient.astype(x_ref.dtype)
        inner = centred_slope(tile.hidden, tile.scale, dot(short, second, (1, 1), TF32))
        inner = jnp.where(tile.pre > 0, inner, 0.0)
        small = inner.astype(x_ref.dtype)
        dx_ref[rows] = dot(small, first, (1, 1), TF32).reshape(receivers, senders, -1).astype(dx_ref.dtype)
        new = (
            dot(tile.x, small, (0, 0), TF32),
            inner.sum(0)[None],
            dot(tile.hidden.astype(x_ref.dtype), short, (0, 0), TF32),
            gradient.sum(0)[None],
        )
        return tuple(total + part for total, part in zip(sums, new, strict=True))

    sums = jax.lax.fori_loop(0, tiles, step, tuple(jnp.zeros(ref.shape, jnp.float32) for ref in sum_refs))
    for ref, total in zip(sum_refs, sums, strict=True):
        ref[...] = total
