"""Small building blocks: linear maps, layer normalisation and stacks of them, for one item."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from legoswarm.fast.normalise import normalise
from legoswarm.fast.products import product

RELU_GAIN = 2**0.5
Tree = TypeVar("Tree")


class Linear(eqx.Module):
    """x W + b, with W stored (in, out) so that batches give plain matrix products without transposes.

    W starts as a Gaussian; `orthogonalise` draws it anew as `gain` times an orthogonal matrix.
    """

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"] | None
    gain: float = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, *, gain: float = RELU_GAIN, bias: bool = True, key: PRNGKeyArray):
        self.weight = jax.random.normal(key, (inputs, outputs))
        self.bias = jnp.zeros(outputs) if bias else None
        self.gain = gain

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """Apply the affine map to one vector, in its precision; sums are float32."""
        total = product(x, self.weight.astype(x.dtype))
        return total if self.bias is None else (total.astype(self.bias.dtype) + self.bias).astype(x.dtype)


def orthogonalise(tree: Tree, *, key: PRNGKeyArray) -> Tree:
    """Draw every `Linear` of a tree as a random orthogonal matrix.

    One draw for all and one batched orthogonalisation for each shape: every other one would be a kernel to compile.
    """
    leaves, treedef = jax.tree.flatten(tree, is_leaf=lambda node: isinstance(node, Linear))
    places = collections.defaultdict(list)
    for at, leaf in enumerate(leaves):
        if isinstance(leaf, Linear):
            places[tuple(sorted(leaf.weight.shape, reverse=True))].append(at)
    numbers = jax.random.normal(key, (sum(n * m * len(group) for (n, m), group in places.items()),))
    used = 0
    for (large, small), group in places.items():
        end = used + len(group) * large * small
        columns = jax.vmap(orthonormal)(numbers[used:end].reshape(len(group), large, small))
        for at, matrix in zip(group, columns, strict=True):
            linear = leaves[at]
            weight = linear.gain * (matrix if linear.weight.shape == (large, small) else matrix.T)
            leaves[at] = eqx.tree_at(lambda linear: linear.weight, linear, weight)
        used = end
    return jax.tree.unflatten(treedef, leaves)


def orthonormal(a: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Return a tall matrix with orthonormal columns, by Gram and Schmidt; uniform if it was Gaussian.

    jnp.linalg.qr would do, but programs with its LAPACK calls sometimes never end on CPUs (jax 0.10.1).
    """

    def column(at: Array, q: Float[Array, "n m"]) -> Float[Array, "n m"]:
        done = jnp.where(jnp.arange(q.shape[1])[None] < at, q, 0.0)
        v = q[:, at]
        for _ in range(2):  # once more, for what rounding left
            v = v - done @ (done.T @ v)
        return q.at[:, at].set(v / jnp.sqrt((v * v).sum()))

    return jax.lax.fori_loop(0, a.shape[1], column, a)


class Perceptron(eqx.Module):
    """Linear, ReLU, layer normalisation, for each width in turn."""

    linears: tuple[Linear, ...]

    def __init__(self, inputs: int, widths: Sequence[int], *, key: PRNGKeyArray):
        keys = jax.random.split(key, max(len(widths), 1))
        sizes = (inputs, *widths)
        self.linears = tuple(Linear(a, b, key=k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """Return the last layer's features of one vector."""
        for linear in self.linears:
            x = normalise(jax.nn.relu(linear(x)))
        return x
