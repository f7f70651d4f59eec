"""Running small GPU kernels (Pallas, Triton) over any number of leading axes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from legoswarm.fast.sharding import columns
from legoswarm.fast.switches import switch

Kernel = tuple[Any, ...]  # a function and its first arguments; hashable, so that two of the same are equal


def kernel_mode() -> str:
    """Return `plain`, `fused`, or `interpret` (the kernels, slowly, on a CPU: for tests).

    XLA cannot divide a kernel among the devices that share a seed's worlds: each of them would do all of the work.
    """
    return switch("kernels", "fused" if jax.default_backend() == "gpu" and columns() == 1 else "plain")


def power_of_two(size: int) -> bool:
    """Tell whether a size is a power of two, as the sides of the kernels' arrays must be."""
    return size & (size - 1) == 0


def next_power(size: int) -> int:
    """Return the least power of two that is no less than a size."""
    return 1 << (size - 1).bit_length()


def dot(a: Array, b: Array, over: tuple[int, int], precision: Any = jax.lax.Precision.HIGHEST) -> Array:
    """Return the product of two matrices inside a kernel, summed over an axis of each; sums are float32.

    The precision is that of float32 matrices; short floats are multiplied as they are.
    """
    numbers = (((over[0],), (over[1],)), ((), ()))
    precision = precision if a.dtype == jnp.float32 else None
    return jax.lax.dot_general(a, b, numbers, precision=precision, preferred_element_type=jnp.float32)


def over_samples(kernel: Kernel, rank: int, samples: int, last: int, *arrays: Array, warps: int = 4) -> Array:
    """Run a kernel over all leading axes of some arrays, so many samples in each program.

    `kernel` is a function with what comes before its references; `rank` is the number of a sample's own axes in the
    first array; the result is like that array, but `last` is the size of its last axis. A vmap adds a leading axis, not
    a batch of kernels: each program would hold one sample then.
    """
    return _folded(kernel, rank, samples, last, warps, kernel_mode() == "interpret")(*arrays)


@functools.cache  # the same function each time: JAX then traces a kernel once for each shape, not at each use
def _folded(kernel: Kernel, rank: int, samples: int, last: int, warps: int, interpret: bool) -> Callable[..., Array]:
    @jax.custom_batching.custom_vmap
    def call(*arrays: Array) -> Array:
        leading = arrays[0].shape[: arrays[0].ndim - rank]
        flat = [a.reshape(-1, *a.shape[len(leading) :]) for a in arrays]
        shape = (*flat[0].shape[1:-1], last)
        return _run(kernel, shape, samples, warps, interpret, *flat).reshape(*leading, *shape)

    @call.def_vmap
    def _(size: int, batched: Any, *arrays: Array) -> tuple[Array, bool]:
        pairs = zip(arrays, batched, strict=True)
        return call(*(a if mapped else jnp.broadcast_to(a, (size, *a.shape)) for a, mapped in pairs)), True

    return call


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _run(kernel: Kernel, shape: tuple[int, ...], samples: int, warps: int, interpret: bool, *arrays: Array) -> Array:
    """Run a kernel over all samples, some in each program; each sample's output has this shape."""
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
        functools.partial(*kernel),
        out_shape=jax.ShapeDtypeStruct((count + padding, *shape), arrays[0].dtype),
        grid=((count + padding) // samples,),
        in_specs=[rows(a.shape[1:]) for a in arrays],
        out_specs=rows(shape),
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
    )
    return quietly(call, *arrays)[:count]


def quietly(call: Callable[..., Any], *arrays: Array) -> Any:
    """Call a kernel without the DeprecationWarning of Pallas on Triton, from jax 0.11 on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return call(*arrays)
