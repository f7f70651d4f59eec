"""Particle physics of the multi-agent particle environments (MPE).

Written against the array's own namespace, so NumPy arrays pass through as well as JAX arrays: the same integrator
trains policies and is compared with mpe2 in float64.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from legoswarm.arrays import AnyArray, namespace

DT = 0.1
DAMPING = 0.25
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3


@dataclasses.dataclass(frozen=True)
class Bodies:
    """Physical constants of the entities, slot by slot; movable ones first, and solid ones before others."""

    radius: tuple[float, ...]
    acceleration: tuple[float, ...]  # of the movable ones
    max_speed: tuple[float, ...]  # of the movable ones; inf for none
    solid: int  # the first `solid` entities collide with each other

    @property
    def movable(self) -> int:
        """Count the entities that move: the first ones."""
        return len(self.acceleration)


def unit(vectors: Float[AnyArray, "*batch dim"]) -> Float[AnyArray, "*batch dim"]:
    """Return vectors of length one in the same directions; what has no length stays as it is."""
    xp = namespace(vectors)
    length = xp.sqrt((vectors**2).sum(-1, keepdims=True))
    return vectors / xp.where(length > 0, length, 1.0)


def distances(a: Float[AnyArray, "n dim"], b: Float[AnyArray, "m dim"]) -> Float[AnyArray, "n m"]:
    """Return Euclidean distances between all rows of `a` and all rows of `b`."""
    difference = a[:, None] - b[None]
    return namespace(a).sqrt((difference * difference).sum(-1))


def contact_forces(
    position: Float[AnyArray, "entities dim"], exists: Bool[AnyArray, " entities"], bodies: Bodies
) -> Float[AnyArray, "movable dim"]:
    """Return the sum of contact forces on each movable entity: 100 k log(1 + exp(-(dist - r_a - r_b) / k)) outwards."""
    xp = namespace(position)
    n = min(bodies.movable, bodies.solid)
    mine, other = position[:n], position[: bodies.solid]
    delta = mine[:, None] - other[None]
    touches = exists[:n][:, None] & exists[: bodies.solid][None] & ~np.eye(n, bodies.solid, dtype=bool)
    # Coinciding entities push each other nowhere: their delta is zero, only the division must be safe.
    dist = xp.sqrt(xp.maximum((delta * delta).sum(-1), np.asarray(1e-24, position.dtype)))
    radius = np.asarray(bodies.radius, position.dtype)[: bodies.solid]
    gap = dist - (radius[:n][:, None] + radius[None])
    penetration = CONTACT_MARGIN * xp.logaddexp(xp.zeros_like(gap), -gap / CONTACT_MARGIN)
    push = xp.where(touches, CONTACT_FORCE * penetration / dist, xp.zeros_like(gap))
    force = (push[..., None] * delta).sum(1)
    return xp.concatenate([force, xp.zeros((bodies.movable - n, position.shape[1]), position.dtype)])


def advance(
    position: Float[AnyArray, "entities dim"],
    velocity: Float[AnyArray, "entities dim"],
    exists: Bool[AnyArray, " entities"],
    action: Float[AnyArray, "movable dim"],
    bodies: Bodies,
    *,
    velocity_first: bool,
) -> tuple[Float[AnyArray, "entities dim"], Float[AnyArray, "entities dim"]]:
    """Take one step of DT under force directions `action`.

    `velocity_first`: v = (1 - damping) v + F dt, clamp, p += v dt. Otherwise p moves with the old velocity,
    as in mpe2. Forces use the positions before the step either way.
    """
    xp = namespace(position)
    n = bodies.movable
    force = np.asarray(bodies.acceleration, position.dtype)[:, None] * action
    force = force + contact_forces(position, exists, bodies)
    old = velocity[:n]
    new = (1 - DAMPING) * old + force * DT
    if not all(np.isinf(bodies.max_speed)):
        limit = np.asarray(bodies.max_speed, position.dtype)
        speed = xp.sqrt((new * new).sum(-1))
        scale = xp.where(speed > limit, limit / xp.maximum(speed, limit), xp.ones_like(speed))
        new = new * scale[:, None]
    new = xp.where(exists[:n][:, None], new, xp.zeros_like(new))
    moved = position[:n] + (new if velocity_first else old) * DT
    return xp.concatenate([moved, position[n:]]), xp.concatenate([new, velocity[n:]])
