"""The canonical frame of an agent (paper, section IV-B) and the observation expressed in it.

A frame is a matrix R = [x y] at the agent's position. Which vector gives the first axis is a choice:

- `velocity`, as in the paper. What happens at v = 0 is a second choice, `rest`: with `global` x is then the
  world's x axis, exactly as in the paper's equations, and an agent at rest has no equivariance; with
  `equivariant` x turns, between twice the speed `slow` and that speed, into a direction taken from what it sees.
- `position`: at every speed a direction taken from what the agent sees. It turns as slowly as the scene does.
- `none`: the world's axes, no canonicalization of rotation and reflection (for the graph-only baseline).

`position`, and `velocity` with an `equivariant` rest, are equivariant and continuous in every scene: R(Q o) = Q R(o)
for every rotation and reflection Q. R is orthogonal but near a tie, where its axes shrink: y where the scene singles
out no side of x (a scene that is its own mirror image has an action along x), and both where it singles out no
direction (the action is zero). So a tie is no special case, and costs nothing.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from legoswarm.frames.rules import AMID, CLOSE
from legoswarm.scene import Entities, View


class Frame(eqx.Module):
    """R = [x y]."""

    rotation: Float[Array, "dim dim"]

    def to_local(self, vectors: Float[Array, "*n dim"]) -> Float[Array, "*n dim"]:
        """Return R^T v for each row v."""
        return _product(self.rotation.T, vectors)

    def to_world(self, vectors: Float[Array, "*n dim"]) -> Float[Array, "*n dim"]:
        """Return R v for each row v (equation 11)."""
        return _product(self.rotation, vectors)


def make_frame(
    view: View, axis: str = "velocity", rest: str = "equivariant", slow: float = 0.05, tie: float = 0.005
) -> Frame:
    """Return the frame that the agent's own observation defines.

    Below the speed `slow` it counts as at rest. `tie` is how near a tie the axes shrink, where directions are measured
    against the distances of what the agent sees.
    """
    velocity = view.velocity
    if axis == "none":
        return Frame(jnp.eye(len(velocity), dtype=velocity.dtype))
    seen = view.flat()
    to_centroid = centroid_offset(seen)
    if rest == "global":
        x = _unit(jnp.where(_norm(velocity) != 0, velocity, jnp.array([1.0, 0.0], velocity.dtype)))
        side = jnp.where(_cross(x, to_centroid) > 0, 1.0, -1.0)  # y = -sgn(x^T J d) J x (equation 3); sgn(0) = 1
        return Frame(jnp.stack([x, side * quarter_turn(x)], axis=1))
    outward, spread = third_moment(seen)
    towards, outward = to_centroid / spread, outward / spread
    # Amid all that it sees an agent at rest looks where the third moment points.
    amid = jnp.maximum(1 - _norm(towards) / AMID, 0.0)
    swift = velocity / max(slow, 1e-9)
    resting = jnp.clip(2 - _norm(swift), 0.0, 1.0) if axis == "velocity" else 1.0
    x = resting * (towards + amid * outward) + (1 - resting) * swift
    length = _norm(x)
    x = x / jnp.maximum(length, tie)
    # With x along d the paper's rule for y is empty (x^T J d = 0), so at rest the side comes from the third moment.
    side = _cross(x, resting * outward + (1 - resting) * towards)
    return Frame(jnp.stack([x, jnp.clip(side / tie, -1.0, 1.0) * quarter_turn(x)], axis=1))


def centroid_offset(seen: Entities) -> Float[Array, " dim"]:
    """Return d_i = c_i - p_i, from the agent to the centroid of itself and what it sees (equation 2)."""
    weight = seen.mask.astype(seen.position.dtype)
    return (seen.position * weight[:, None]).sum(0) / (weight.sum() + 1)


def third_moment(seen: Entities) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
    """Return e_i, the mean of what the agent sees weighted by |r_j|^2, and the root mean square of the |r_j|.

    e_i is a direction that is not the centroid's. The distance is never less than `CLOSE`.
    """
    there = seen.mask.astype(seen.position.dtype)
    weight = there * (seen.position * seen.position).sum(-1)
    outward = (seen.position * weight[:, None]).sum(0) / jnp.maximum(weight.sum(), CLOSE * CLOSE)
    return outward, jnp.sqrt(weight.sum() / jnp.maximum(there.sum(), 1.0) + CLOSE * CLOSE)


def canonicalize(view: View, frame: Frame) -> View:
    """Return C(O_i), the observation in the agent's frame, whose origin is the agent (equations 4 and 5)."""
    others = tuple(Entities(frame.to_local(e.position), frame.to_local(e.velocity), e.mask) for e in view.others)
    return View(jnp.zeros_like(view.position), frame.to_local(view.velocity), others)


def quarter_turn(vector: Float[Array, "2"]) -> Float[Array, "2"]:
    """Return J v, the vector turned by 90 degrees counterclockwise."""
    return jnp.stack([-vector[1], vector[0]])


def _cross(x: Float[Array, "2"], t: Float[Array, "2"]) -> Float[Array, ""]:
    """Return (J x)^T t = -x^T J t."""
    return x[0] * t[1] - x[1] * t[0]


def _norm(vector: Float[Array, "2"]) -> Float[Array, ""]:
    return jnp.hypot(vector[0], vector[1])


def _unit(vector: Float[Array, "2"]) -> Float[Array, "2"]:
    return vector / _norm(vector)


def _product(matrix: Float[Array, "dim dim"], vectors: Float[Array, "*n dim"]) -> Float[Array, "*n dim"]:
    """Return M v for each row v, written out: so small a matrix product is slower than its sums."""
    terms = [[row[k] * vectors[..., k] for k in range(len(matrix))] for row in matrix]
    return jnp.stack([functools.reduce(jnp.add, row) for row in terms], axis=-1)
