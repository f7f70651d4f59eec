"""Rectangles as obstacles, for NumPy and JAX arrays alike: how far away they are, and what a LiDAR sees of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from legoswarm.arrays import AnyArray, namespace


class Rectangles(NamedTuple):
    """Rectangles in the plane, turned by an angle."""

    centre: Float[AnyArray, "*m 2"]
    half: Float[AnyArray, "*m 2"]  # of the sides
    angle: Float[AnyArray, "*m"]

    def near(self, point: Float[AnyArray, "n 2"], count: int) -> Rectangles:
        """Return for each point the rectangles whose centres are nearest, at most so many: (n, count)."""
        xp, m = namespace(point), self.centre.shape[-2]
        if m <= count:
            return Rectangles(*(xp.broadcast_to(part[None], (len(point), *part.shape)) for part in self))
        offset = self.centre[None] - point[:, None]
        square = (offset * offset).sum(-1)
        if xp is np:
            first = np.argpartition(square, count)[:, :count]
        else:
            import jax  # here, because flights are drawn where there is no JAX

            first = jax.lax.top_k(-square, count)[1]
        return Rectangles(*(part[first] for part in self))

    def inwards(self, vector: Float[AnyArray, "*m 2"]) -> Float[AnyArray, "*m 2"]:
        """Return vectors in the axes of each rectangle."""
        xp = namespace(vector)
        cos, sin = xp.cos(self.angle), xp.sin(self.angle)
        x, y = vector[..., 0], vector[..., 1]
        return xp.stack([cos * x + sin * y, cos * y - sin * x], axis=-1)

    def distance(self, point: Float[AnyArray, "*m 2"]) -> Float[AnyArray, "*m"]:
        """Return how far each point is from its rectangle; 0 inside."""
        xp = namespace(point)
        outside = xp.maximum(xp.abs(self.inwards(point - self.centre)) - self.half, xp.zeros_like(self.half))
        return xp.sqrt((outside * outside).sum(-1))


def beams(count: int) -> Float[np.ndarray, "rays 2"]:
    """Return the directions of a LiDAR's rays: equal steps from -pi on."""
    angle = -np.pi + 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(np.float32)


def lidar(
    point: Float[AnyArray, "n 2"], around: Rectangles, rays: Float[AnyArray, "rays 2"], reach: float
) -> tuple[Float[AnyArray, "n rays"], Bool[AnyArray, " n"]]:
    """Return how far each ray gets before it meets one of the rectangles around its point (n, m), at most `reach`.

    Also tell who is inside a rectangle: there every ray gets nowhere.
    """
    xp = namespace(point)
    if not around.half.shape[1]:
        return xp.full((len(point), len(rays)), reach, point.dtype), xp.zeros(len(point), bool)
    wide = Rectangles(around.centre[:, None], around.half[:, None], around.angle[:, None])  # an axis for rays
    start = wide.inwards(point[:, None, None] - wide.centre)
    along = wide.inwards(xp.broadcast_to(rays[None, :, None], (len(point), len(rays), around.half.shape[1], 2)))
    along = xp.where(xp.abs(along) < 1e-9, xp.full_like(along, 1e-9), along)
    first, second = (-wide.half - start) / along, (wide.half - start) / along
    enters, leaves = xp.minimum(first, second).max(-1), xp.maximum(first, second).min(-1)
    met = (leaves >= enters) & (enters >= 0)
    inside = (xp.abs(start[:, 0]) <= around.half).all(-1).any(-1)
    free = xp.where(met, enters, xp.full_like(enters, reach)).min(-1)
    free = xp.minimum(free, xp.full_like(free, reach))
    return xp.where(inside[:, None], xp.zeros_like(free), free), inside
