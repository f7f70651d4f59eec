"""The canonical frame of an agent (paper, section IV-B) and the observation expressed in it.

A frame is a matrix R = [x y] in O(2) at the agent's position. Which vector gives the first axis is a choice:

- `velocity`, as in the paper. What happens at v = 0 is a second choice, `rest`: with `global` x is then the
  world's x axis, exactly as in the paper's equations, and an agent at rest has no equivariance; with
  `equivariant` x is, below the speed `slow`, a direction taken from what the agent sees.
- `position`: at every speed a direction taken from what the agent sees. It turns as slowly as the scene does.
- `none`: the world's axes, no canonicalization of rotation and reflection (for the graph-only baseline).

`position`, and `velocity` with an `equivariant` rest, are equivariant at every speed: R(Q o) = Q R(o) for every
rotation and reflection Q of a scene in general position.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from legoswarm.frames.rules import TINY
from legoswarm.scene import Entities, View


class Frame(eqx.Module):
    """R = [x y], and whether x is the velocity's direction."""

    rotation: Float[Array, "dim dim"]
    moving: Bool[Array, ""]

    def to_local(self, vectors: Float[Array, "*n dim"]) -> Float[Array, "*n dim"]:
        """Return R^T v for each row v."""
        return _product(self.rotation.T, vectors)

    def mirrored(self) -> Frame:
        """Return the frame of the other handedness."""
        return Frame(self.rotation * jnp.array([[1.0, -1.0]], self.rotation.dtype), self.moving)

    def to_world(self, vectors: Float[Array, "*n dim"]) -> Float[Array, "*n dim"]:
        """Return R v for each row v (equation 11)."""
        return _product(self.rotation, vectors)


def make_frame(view: View, axis: str = "velocity", rest: str = "equivariant", slow: float = 0.05) -> Frame:
    """Return the frame that the agent's own observation defines; below the speed `slow` it counts as at rest."""
    x_global = jnp.array([1.0, 0.0], view.velocity.dtype)
    if axis == "none":
        return Frame(jnp.eye(len(view.velocity), dtype=view.velocity.dtype), jnp.array(False))
    speed = _norm(view.velocity)
    seen = view.flat()
    to_centroid = centroid_offset(seen)
    if rest == "global":
        moving = speed != 0
        return Frame(_complete(_unit(jnp.where(moving, view.velocity, x_global)), to_centroid), moving)
    outward = third_moment(seen)
    last_resort = jnp.where(speed > 1e-12, view.velocity, x_global)
    at_rest = _first_long(to_centroid, outward, last_resort)
    moving = speed > slow if axis == "velocity" else jnp.array(False)
    x = _unit(jnp.where(moving, view.velocity, at_rest))
    # With x along d the paper's rule for y is empty (x^T J d = 0), so the side comes from other vectors.
    side = jnp.where(moving, to_centroid, outward)
    return Frame(_complete(x, _first_aside(x, side, outward, view.velocity)), moving)


def centroid_offset(seen: Entities) -> Float[Array, " dim"]:
    """Return d_i = c_i - p_i, from the agent to the centroid of itself and what it sees (equation 2)."""
    weight = seen.mask.astype(seen.position.dtype)
    return (seen.position * weight[:, None]).sum(0) / (weight.sum() + 1)


def third_moment(seen: Entities) -> Float[Array, " dim"]:
    """Return e_i, the mean of what the agent sees weighted by |r_j|^2: a direction that is not the centroid's."""
    weight = seen.mask.astype(seen.position.dtype) * (seen.position * seen.position).sum(-1)
    return (seen.position * weight[:, None]).sum(0) / jnp.maximum(weight.sum(), TINY * TINY)


def canonicalize(view: View, frame: Frame) -> View:
    """Return C(O_i), the observation in the agent's frame (equations 4 and 5).

    The agent's own velocity is [|v|, 0] when the frame follows it, and R^T v otherwise. Its position is
    the frame's origin.
    """
    speed = _norm(view.velocity)
    own = jnp.where(frame.moving, speed * jnp.eye(len(view.velocity))[0], frame.to_local(view.velocity))
    others = tuple(Entities(frame.to_local(e.position), frame.to_local(e.velocity), e.mask) for e in view.others)
    return View(jnp.zeros_like(view.position), own, others)


def quarter_turn(vector: Float[Array, "2"]) -> Float[Array, "2"]:
    """Return J v, the vector turned by 90 degrees counterclockwise."""
    return jnp.stack([-vector[1], vector[0]])


def _complete(x: Float[Array, "2"], towards: Float[Array, "2"]) -> Float[Array, "2 2"]:
    """Return [x y] with y = -sgn(x^T J t) J x, so that y^T t > 0 (equation 3); sgn(0) = 1."""
    turned = quarter_turn(x)
    sign = jnp.where(_cross(x, towards) > 0, 1.0, -1.0)
    return jnp.stack([x, sign * turned], axis=1)


def _cross(x: Float[Array, "2"], t: Float[Array, "2"]) -> Float[Array, ""]:
    """Return (J x)^T t = -x^T J t."""
    return x[0] * t[1] - x[1] * t[0]


def _first_aside(x: Float[Array, "2"], *candidates: Float[Array, "2"]) -> Float[Array, "2"]:
    """Return the first candidate that has a direction other than x's, else zero: rounding must not choose the side."""
    chosen = jnp.zeros_like(x)
    for candidate in reversed(candidates):
        length = _norm(candidate)
        aside = (length > TINY) & (jnp.abs(_cross(x, candidate)) > TINY * length)
        chosen = jnp.where(aside, candidate, chosen)
    return chosen


def _first_long(*candidates: Float[Array, "2"]) -> Float[Array, "2"]:
    """Return the first candidate that has a direction, else the last."""
    chosen = candidates[-1]
    for candidate in reversed(candidates[:-1]):
        chosen = jnp.where(_norm(candidate) > TINY, candidate, chosen)
    return chosen


def _norm(vector: Float[Array, "2"]) -> Float[Array, ""]:
    return jnp.hypot(vector[0], vector[1])


def _unit(vector: Float[Array, "2"]) -> Float[Array, "2"]:
    return vector / _norm(vector)


def _product(matrix: Float[Array, "dim dim"], vectors: Float[Array, "*n dim"]) -> Float[Array, "*n dim"]:
    """Return M v for each row v, written out: so small a matrix product is slower than its sums."""
    terms = [[row[k] * vectors[..., k] for k in range(len(matrix))] for row in matrix]
    return jnp.stack([functools.reduce(jnp.add, row) for row in terms], axis=-1)
