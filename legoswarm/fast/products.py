"""Products of rows with a matrix, as one plain matrix product however many axes the rows have.

Networks are written for one vector, so `vmap` makes arrays of many axes. The gradient of their weights sums over all of
these axes at once, and on CPUs XLA first writes out a transposed copy of such an array: that took a sixth of the time
of a training. A primitive of our own flattens the axes before XLA sees them. It was not tried on GPUs: they take
the plain way.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from legoswarm.fast.switches import switch


def product(x: Float[Array, "*n inputs"], weight: Float[Array, "inputs outputs"]) -> Float[Array, "*n outputs"]:
    """Return x @ weight."""
    flat = switch("products", "plain" if jax.default_backend() == "gpu" else "flat") == "flat"
    return _product.bind(x, weight) if flat else x @ weight


def _flat(x: Array, weight: Array) -> Array:
    return (x.reshape(-1, x.shape[-1]) @ weight).reshape(*x.shape[:-1], weight.shape[1])


def _slope(x: Array, above: Array) -> Array:
    """Return the gradient of the weight: a sum over rows, which are one axis here."""
    return x.reshape(-1, x.shape[-1]).T @ above.reshape(-1, above.shape[-1])


def _batch(arrays: tuple[Array, Array], axes: tuple[Any, Any]) -> tuple[Array, int]:
    """Make another axis of rows; weights that differ along it, such as those of two seeds, get a product each."""
    (x, weight), (x_axis, weight_axis) = arrays, axes
    if weight_axis is None:
        return _product.bind(jnp.moveaxis(x, x_axis, 0), weight), 0
    return jax.vmap(_flat, in_axes=(x_axis, weight_axis))(x, weight), 0


_product = Primitive("product")
_product.def_impl(jax.jit(_flat))
_product.def_abstract_eval(lambda x, weight: x.update(shape=(*x.shape[:-1], weight.shape[1]), weak_type=False))
mlir.register_lowering(_product, mlir.lower_fun(_flat, multiple_results=False))
batching.primitive_batchers[_product] = _batch
ad.defbilinear(
    _product,
    lambda above, _, weight: _product.bind(above, weight.T),
    lambda above, x, _: _slope(x, above),
)
