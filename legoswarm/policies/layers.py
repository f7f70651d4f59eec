"""Small building blocks: linear maps, layer normalisation and stacks of them, for one item."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

RELU_GAIN = 2**0.5


class Linear(eqx.Module):
    """x W + b, with W stored (in, out) so that batches give plain matrix products without transposes."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, gain: float = RELU_GAIN, key: PRNGKeyArray):
        self.weight = jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs))
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The affine map of one vector."""
        return x @ self.weight + self.bias


class LayerNorm(eqx.Module):
    """(x - mean) / deviation, scaled and shifted."""

    scale: Float[Array, " width"]
    shift: Float[Array, " width"]

    def __init__(self, width: int):
        self.scale, self.shift = jnp.ones(width), jnp.zeros(width)

    def __call__(self, x: Float[Array, " width"]) -> Float[Array, " width"]:
        """Normalise one vector."""
        centred = x - x.mean()
        return centred * jax.lax.rsqrt((centred * centred).mean() + 1e-5) * self.scale + self.shift


class Perceptron(eqx.Module):
    """Linear, ReLU, LayerNorm, for each width in turn."""

    linears: tuple[Linear, ...]
    norms: tuple[LayerNorm, ...]

    def __init__(
        self,
        inputs: int,
        widths: Sequence[int],
        *,
        key: PRNGKeyArray,
    ):
        keys = jax.random.split(key, max(len(widths), 1))
        sizes = (inputs, *widths)
        self.linears = tuple(Linear(a, b, key=k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False))
        self.norms = tuple(LayerNorm(width) for width in widths)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The last layer's features of one vector."""
        for linear, norm in zip(self.linears, self.norms, strict=True):
            x = norm(jax.nn.relu(linear(x)))
        return x
