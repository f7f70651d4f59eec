"""What Tag is made of, for NumPy and JAX arrays alike: sizes and speeds, line of sight, the edge of the arena."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from legoswarm.arrays import AnyArray, namespace
from legoswarm.tasks.worlds.particles import Bodies

PURSUER_RADIUS = 0.075
EVADER_RADIUS = 0.05
CATCH = 10.0


def chase_bodies(pursuers: int, evaders: int, obstacles: int, obstacle_radius: float) -> Bodies:
    """Return the bodies of Tag. Pursuers: acceleration 3, speed 1.0. Evaders: 4, 1.3. Obstacles push and stay."""
    return Bodies(
        (PURSUER_RADIUS,) * pursuers + (EVADER_RADIUS,) * evaders + (obstacle_radius,) * obstacles,
        acceleration=(3.0,) * pursuers + (4.0,) * evaders,
        max_speed=(1.0,) * pursuers + (1.3,) * evaders,
        solid=pursuers + evaders + obstacles,
    )


def boundary_penalty(position: Float[AnyArray, "n dim"]) -> Float[AnyArray, " n"]:
    """Return the sum over axes of 0 below |x| = 0.9, 10 (|x| - 0.9) below 1, else min(exp(2 |x| - 2), 10)."""
    xp = namespace(position)
    x = xp.abs(position)
    outside = xp.exp(xp.minimum(2 * x - 2, xp.full_like(x, 3.0)))  # exp(3) > 10: the cap, without overflow
    outside = xp.minimum(outside, xp.full_like(x, 10.0))
    return xp.where(x < 0.9, 0.0, xp.where(x < 1.0, 10 * (x - 0.9), outside)).sum(-1)


def occluded(
    position: Float[AnyArray, "n dim"],
    obstacles: Float[AnyArray, "m dim"],
    exists: Bool[AnyArray, " m"],
    radius: float,
) -> Bool[AnyArray, "n n"]:
    """Tell whether the segment from i to j comes within `radius` of the centre of an obstacle that exists.

    Nobody is hidden from itself; an agent inside an obstacle's disc sees and is seen by nobody else.
    """
    xp = namespace(position)
    start = position[:, None, None]
    along = position[None, :, None] - start
    to_centre = obstacles[None, None] - start
    length2 = (along * along).sum(-1)
    share = (along * to_centre).sum(-1) / xp.maximum(length2, xp.full_like(length2, 1e-12))
    closest = to_centre - xp.clip(share, 0.0, 1.0)[..., None] * along
    blocked = ((closest * closest).sum(-1) < radius * radius) & exists[None, None]
    return blocked.any(-1) & ~np.eye(len(position), dtype=bool)
