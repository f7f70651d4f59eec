"""Layer normalisation: one GPU kernel forward and one backward, where plain operations are five passes over memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from legoswarm.fast.kernels import kernel_mode, over_samples, power_of_two

ROWS = 64  # of one program


def normalise(x: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
    """Return (x - mean) / deviation of each vector.

    No scale and shift are learned: the linear map that follows can do both.
    """
    if kernel_mode() != "plain" and power_of_two(x.shape[-1]) and 16 <= x.shape[-1] <= 256:
        return _fused(x)
    return plain_normalise(x)


def plain_normalise(x: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
    """Compute the same in plain array operations."""
    return normalised(exact(x))[0].astype(x.dtype)


def exact(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Return the array in a type that sums can be taken in: float32 for bfloat16."""
    return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x


def normalised(x: Float[Array, "*n width"]) -> tuple[Float[Array, "*n width"], Float[Array, "*n 1"]]:
    """Return each row normalised, and one over its deviation."""
    width = x.shape[-1]
    centred = x - x.sum(-1, keepdims=True) / width
    scale = jax.lax.rsqrt((centred * centred).sum(-1, keepdims=True) / width + 1e-5)
    return centred * scale, scale


def centred_slope(
    normed: Float[Array, "*n width"], scale: Float[Array, "*n 1"], gradient: Float[Array, "*n width"]
) -> Float[Array, "*n width"]:
    """Return the gradient of rows before they were normalised, from that of what they became."""
    width = normed.shape[-1]
    along = (gradient * normed).sum(-1, keepdims=True) / width
    return (gradient - gradient.sum(-1, keepdims=True) / width - normed * along) * scale


def _normalise_kernel(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] = normalised(x_ref[...].astype(jnp.float32))[0].astype(out_ref.dtype)


def _normalise_slope_kernel(x_ref: Any, gradient_ref: Any, out_ref: Any) -> None:
    normed, scale = normalised(x_ref[...].astype(jnp.float32))
    out_ref[...] = centred_slope(normed, scale, gradient_ref[...].astype(jnp.float32)).astype(out_ref.dtype)


@jax.custom_vjp
def _fused(x: Array) -> Array:
    return over_samples((_normalise_kernel,), 1, ROWS, x.shape[-1], x)


_fused.defvjp(
    lambda x: (_fused(x), x),
    lambda x, gradient: (over_samples((_normalise_slope_kernel,), 1, ROWS, x.shape[-1], x, gradient),),
)
