"""Steerable features in the plane, and the linear maps between them that commute with rotations and reflections.

A feature is a number of scalars, vectors and second-order tensors: the irreps 0e, 1o and 2e of O(3), as in SEGNN
(Brandstetter et al. 2022). All entities lie in the plane z = 0, which the mirror image z -> -z leaves alone, so every
component that this mirror turns into its negative is zero and is left out. What remains of a vector is (x, y), of a
tensor (cos 2a, sin 2a) and one number that rotations of the plane do not change.

The tensor product with the spherical harmonics of an edge's direction is cheap in the edge's own frame: there the
harmonics are constants, and the product with its learned weights is one matrix for what is even under the reflection
at the edge and one for what is odd.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float, PRNGKeyArray

Tree = TypeVar("Tree")
HARMONICS = 3  # highest order of the edges' spherical harmonics
SILU_GAIN, SIGMOID_GAIN = 1.67653, 1.84623  # keep the second moment of a standard normal input, as in e3nn


class Irreps(NamedTuple):
    """How many scalars, vectors and tensors."""

    scalars: int
    vectors: int
    tensors: int

    @property
    def invariant(self) -> int:
        """Numbers that rotations of the plane do not change: the scalars, and one of each tensor."""
        return self.scalars + self.tensors

    @property
    def turning(self) -> int:
        """Pairs of numbers that they turn: each vector by the angle, each tensor by twice the angle."""
        return self.vectors + self.tensors


def balanced(width: int) -> Irreps:
    """Share out `width` numbers in three dimensions, about a third of each order: 64 are 23x0e + 7x1o + 4x2e."""
    share = width // 3
    vectors, tensors = max(share // 3, 1), max(share // 5, 1)
    scalars = width - 3 * vectors - 5 * tensors
    if scalars < 1:
        raise ValueError(f"steerable features (segnn) need a width of at least 9, not {width}")
    return Irreps(scalars, vectors, tensors)


class Features(eqx.Module):
    """Steerable features of one item or many, in the world's frame or in that of an edge.

    One array, so that each map is one matrix product: many small ones take a GPU as long as large ones. What a gated
    map gives has the gates before the other invariants; `activate` uses them up.
    """

    values: Float[Array, "*n width"]  # invariant, along, across
    turning: int = eqx.field(static=True)

    @property
    def parts(self) -> list[Float[Array, "*n part"]]:
        """Split into what does not turn; x of vectors and cos 2a of tensors; y of vectors and sin 2a of tensors."""
        end = self.values.shape[-1]
        return jnp.split(self.values, [end - 2 * self.turning, end - self.turning], axis=-1)


def activate(x: Features, irreps: Irreps) -> Features:
    """Apply SiLU to the scalars; multiply vectors and tensors by the sigmoids of their gates."""
    gates, values = jnp.split(x.values, [irreps.turning], axis=-1)
    by = jnp.concatenate([values[..., : irreps.scalars], gates[..., irreps.vectors :], gates, gates], axis=-1)
    gain = np.where(np.arange(by.shape[-1]) < irreps.scalars, SILU_GAIN, SIGMOID_GAIN).astype(np.float32)
    return Features(jnp.expand_dims(gain, range(by.ndim - 1)) * values * jax.nn.sigmoid(by), x.turning)


def rows_by_feature(matrix: Float[Array, "inputs outputs"], irreps: Irreps) -> Float[Array, "inputs outputs"]:
    """Sort the rows of a matrix for two features order by order, for one after the other; further rows stay first.

    Sorting a matrix costs less than sorting what it is multiplied with.
    """
    sizes = 2 * np.array(
        [irreps.scalars, irreps.tensors, irreps.vectors, irreps.tensors, irreps.vectors, irreps.tensors]
    )
    further, *blocks = jnp.split(matrix, np.cumsum([len(matrix) - sizes.sum(), *sizes[:-1]]))
    rows = jnp.concatenate([block.reshape(2, -1, matrix.shape[1]) for block in blocks], axis=1)
    return jnp.concatenate([further, rows.reshape(-1, matrix.shape[1])])


class Turn(eqx.Module):
    """The directions of edges: cos a and sin a for each vector, cos 2a and sin 2a for each tensor."""

    cos: Float[Array, "*n turning"]
    sin: Float[Array, "*n turning"]

    def into(self, x: Features) -> Features:
        """Turn features from the world's frame to the edges'."""
        return Turn(self.cos, -self.sin).back(x)

    def back(self, x: Features) -> Features:
        """Turn features from the edges' frames to the world's."""
        invariant, along, across = x.parts
        turned = invariant, self.cos * along - self.sin * across, self.cos * across + self.sin * along
        return Features(jnp.concatenate(turned, axis=-1), x.turning)


def turn_of(direction: Float[Array, "*n 2"], irreps: Irreps) -> Turn:
    """Return the turn of unit vectors; for a zero vector everything that has a direction becomes zero."""
    c, s = direction[..., :1], direction[..., 1:]
    is_vector = np.expand_dims(np.arange(irreps.turning) < irreps.vectors, tuple(range(direction.ndim - 1)))
    return Turn(jnp.where(is_vector, c, c * c - s * s), jnp.where(is_vector, s, 2 * c * s))


def deviations(*shape: int) -> Float[Array, "*shape"]:
    """Return the deviations of random weights that keep the scale of what they are applied to; see `randomise`."""
    return jnp.full(shape, shape[-2] ** -0.5)


def randomise(tree: Tree, *, key: PRNGKeyArray) -> Tree:
    """Normally distributed weights in place of their deviations, in one draw: a hundred would compile slowly."""
    flat, unflatten = ravel_pytree(tree)
    return unflatten(flat * jax.random.normal(key, flat.shape))


class NodeMap(eqx.Module):
    """A linear map for each kind of node: the tensor product with the one-hot kind."""

    scalars: Float[Array, "kinds s_in s_out"] | None
    vectors: Float[Array, "kinds v_in v_out"] | None
    tensors: Float[Array, "kinds t_in t_out"] | None
    bias: Float[Array, " s_out"] | None
    before: Irreps = eqx.field(static=True)
    after: Irreps = eqx.field(static=True)  # the gates are scalars here

    def __init__(self, before: Irreps, after: Irreps, kinds: int = 1, *, gated: bool = False, gain: float = 1.0):
        self.before, self.after = before, after._replace(scalars=after.scalars + gated * after.turning)
        self.scalars, self.vectors, self.tensors = (
            gain * deviations(kinds, n, m) if n and m else None for n, m in zip(self.before, self.after, strict=True)
        )
        self.bias = jnp.zeros(self.after.scalars) if self.after.scalars else None

    def __call__(
        self, x: Float[Array, "nodes inputs"], kinds: tuple[int, ...], joined: Irreps | None = None
    ) -> Features:
        """Map every node by the map of its kind; `joined` are the irreps of each of two features side by side."""
        one_hot = np.eye(max(kinds) + 1, dtype=np.float32)[np.array(kinds)]
        blocks = zip((self.scalars, self.vectors, self.tensors), self.before, self.after, strict=True)
        count = one_hot.shape[1]
        weights = [jnp.zeros((count, n, m)) if each is None else each[:count] for each, n, m in blocks]

        def matrix(scalars: Array, vectors: Array, tensors: Array) -> Array:
            whole = block_diag(scalars, tensors, vectors, tensors, vectors, tensors)
            return whole if joined is None else rows_by_feature(whole, joined)

        # A product rather than an index: the gradient is a sum then, not a scatter.
        chosen = (one_hot[..., None, None] * jax.vmap(matrix)(*weights)[None]).sum(1)
        return Features(_add(jnp.einsum("ni,nio->no", x, chosen), self.bias), self.after.turning)


class PlanarWeights(eqx.Module):
    """Between irreps of O(2): any matrix for what is even under the reflection at the edge, any for what is odd."""

    even: Float[Array, "even_in even_out"]  # from invariant and along to gates, invariant and along
    odd: Float[Array, "odd_in odd_out"]  # from across to across

    def planar(self) -> PlanarWeights:
        """Return the weights as they are."""
        return self


def planar_weights(before: Irreps, after: Irreps) -> PlanarWeights:
    """Return the deviations of a planar gated map's weights."""
    even = deviations(before.invariant + before.turning, after.invariant + 2 * after.turning)
    return PlanarWeights(even, deviations(before.turning, after.turning))


class SphericalWeights(eqx.Module):
    """Between irreps of O(3): the tensor product with the edge's spherical harmonics, then weights for each path.

    A path (l1, l2, l3) takes features of order l1 and harmonics of order l2 to order l3. As in e3nn, the paths to one
    order stand below each other, each with the multiplicity of l1.
    """

    scalars: Float[Array, "paths_0 s_out"]
    vectors: Float[Array, "paths_1 v_out"]
    tensors: Float[Array, "paths_2 t_out"]
    before: Irreps = eqx.field(static=True)

    def planar(self) -> PlanarWeights:
        """Return the same map in the edge's frame, where the harmonics are constants: sums of paths."""
        paths: dict[tuple[int, int, int], Array] = {}
        for order, weights in enumerate((self.scalars, self.vectors, self.tensors)):
            ends = np.cumsum([self.before[l1] for l1, _ in paths_to(order)])
            parts = jnp.split(weights, ends[:-1])
            paths |= {(*path, order): part for path, part in zip(paths_to(order), parts, strict=True)}

        def block(row: tuple[int, int], column: tuple[int, int]) -> Float[Array, "inputs outputs"]:
            terms = [
                coefficient(path, row[1], column[1]) * part
                for path, part in paths.items()
                if (path[0], path[2]) == (row[0], column[0])
            ]
            return functools.reduce(jnp.add, terms)

        even, odd = (jnp.block([[block(row, column) for column in part] for row in part]) for part in (EVEN, ODD))
        return PlanarWeights(even, odd)


def spherical_weights(before: Irreps, after: Irreps) -> SphericalWeights:
    """Return the deviations of a spherical gated map's weights."""
    import_e3nn()
    inputs = [sum(before[l1] for l1, _ in paths_to(order)) for order in range(3)]
    outputs = after.turning + after.scalars, after.vectors, after.tensors
    scalars, vectors, tensors = (deviations(*shape) for shape in zip(inputs, outputs, strict=True))
    return SphericalWeights(scalars, vectors, tensors, before)


class EdgeMap(eqx.Module):
    """A gated linear map in the edge's frame."""

    weights: PlanarWeights | SphericalWeights
    bias: Float[Array, " scalars"]  # of gates and scalars

    def __init__(self, weights: PlanarWeights | SphericalWeights, after: Irreps):
        self.weights = weights
        self.bias = jnp.zeros(after.turning + after.scalars)

    def __call__(self, x: Float[Array, "*n inputs"], joined: Irreps | None = None) -> Features:
        """Map many edges at once; `joined` as for `NodeMap`."""
        planar = self.weights.planar()
        matrix = block_diag(planar.even, planar.odd)
        y = x @ (matrix if joined is None else rows_by_feature(matrix, joined))
        return Features(_add(y, self.bias), planar.odd.shape[1])


def _add(y: Float[Array, "*n width"], bias: Float[Array, " first"] | None) -> Float[Array, "*n width"]:
    """Add the bias to the first numbers."""
    if bias is None:
        return y
    return y + jnp.expand_dims(jnp.pad(bias, (0, y.shape[-1] - len(bias))), range(y.ndim - 1))


# Order and degree (l, m) of the components that remain in the plane, even and odd under the reflection at the x axis.
EVEN, ODD = ((0, 0), (2, 0), (1, 1), (2, 2)), ((1, -1), (2, -2))


def paths_to(order: int) -> list[tuple[int, int]]:
    """Return (l1, l2) of all tensor products of features with harmonics that give `order`, of natural parity."""
    pairs = ((l1, l2) for l1 in range(3) for l2 in range(HARMONICS + 1))
    return [(a, b) for a, b in pairs if abs(a - b) <= order <= a + b and (a + b + order) % 2 == 0]


@functools.cache
def coefficient(path: tuple[int, int, int], before: int, after: int) -> float:
    """Return the coefficient of a path (l1, l2, l3) with the harmonics of the x axis, normalised as in e3nn."""
    clebsch_gordan = import_e3nn().clebsch_gordan
    harmonics = np.ones(1)
    for n in range(path[1]):  # e3nn's axes are (y, z, x) of the usual harmonics
        raised = harmonics @ clebsch_gordan(n, 1, n + 1)[:, 2]
        harmonics = raised * (2 * n + 3) ** 0.5 / np.linalg.norm(raised)
    chosen = clebsch_gordan(*path)[path[0] + before, :, path[2] + after]
    return float((2 * path[2] + 1) ** 0.5 * (chosen @ harmonics))


def import_e3nn() -> ModuleType:
    """Return the package e3nn-jax, or refuse with one sentence."""
    try:
        import e3nn_jax
    except ImportError as error:
        raise ValueError(
            f"the policy segnn needs e3nn-jax ({error}): pip install 'legoswarm[segnn]'; segnn-planar does not"
        ) from None
    return e3nn_jax
