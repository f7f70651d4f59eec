"""The scene: what the world looks like, and what one agent sees of it.

A scene holds a position, a velocity and masks for every entity. Which slot has which role is static
(`Layout`), so that role subgraphs are plain slices; how many slots are in use is dynamic (`exists`), so
that team size never shows in a weight's shape. An agent sees what exists, is not hidden from it and is nearer than the
sensing radius; of what it sees a policy may look at the nearest alone.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from legoswarm.layout import TIE, in_turn
from legoswarm.layout import Layout as Layout


class Scene(eqx.Module):
    """The state X of the paper: every entity's position and velocity, and who sees whom.

    `visible` tells what is hidden from whom, None that nothing is. Private entities are seen by their agent alone, at
    any distance.
    """

    position: Float[Array, "entities dim"]
    velocity: Float[Array, "entities dim"]
    exists: Bool[Array, " entities"]
    visible: Bool[Array, "agents entities"] | None
    layout: Layout = eqx.field(static=True)
    sensing: float = eqx.field(static=True, default=math.inf)  # the radius within which agents see

    def seen(self) -> Bool[Array, "agents entities"]:
        """Tell which entities each agent sees, itself among them: a table for all, which only small teams need."""
        layout = self.layout
        square = ((self.position[None] - self.position[: layout.agents, None]) ** 2).sum(-1)
        far = np.arange(layout.entities)[None] >= layout.shared  # what is private is seen at any distance
        seen = self.exists[None] & layout.owned & (in_range(square, self.sensing) | far)
        return seen if self.visible is None else seen & self.visible


class Entities(eqx.Module):
    """The entities of one role as one agent sees them; `mask` is False for empty and hidden slots."""

    position: Float[Array, "n dim"]
    velocity: Float[Array, "n dim"]
    mask: Bool[Array, " n"]


class View(eqx.Module):
    """The observation O_i: the agent itself and, for each role in fixed order, the others it sees.

    Others' positions are relative to the agent; velocities are not.
    """

    position: Float[Array, " dim"]
    velocity: Float[Array, " dim"]
    others: tuple[Entities, ...]

    def flat(self) -> Entities:
        """Return all others, of every role, in one set."""
        return Entities(*(jnp.concatenate([getattr(e, f) for e in self.others]) for f in _ENTITY_FIELDS))


_ENTITY_FIELDS = tuple(field.name for field in dataclasses.fields(Entities))


def seen_alone(scene: Scene, role: str, member: Int[Array, ""] | int) -> Scene:
    """Return the scene as if nothing existed but one agent and what it sees: all that a decentralised critic knows."""
    agent = scene.layout.block(role).start + member
    myself = jnp.arange(scene.layout.entities) == agent
    return dataclasses.replace(scene, exists=scene.exists & (scene.seen()[agent] | myself))


def observe(scene: Scene, role: str, member: Int[Array, ""] | int, *, full: bool = False, nearest: int = 0) -> View:
    """Return what member number `member` of `role` sees; with `full`, everything that exists (for critics).

    The agent's own slot is left out of its role's set, so a role of n slots gives n - 1 others; with `nearest`, no more
    than so many of each role, in no particular order.
    """
    layout = scene.layout
    agent = layout.block(role).start + member
    position, velocity = scene.position[agent], scene.velocity[agent]

    def others(name: str) -> Entities:
        block, each, slots = layout.block(name), layout.each(name), layout.members(name)
        few = 0 < nearest < slots - (name == role)

        def pick(values: Any) -> Any:
            if each:
                return jax.lax.dynamic_slice_in_dim(values, block.start + each * agent, each)
            if name == role and not few:
                return values[block][in_turn(jnp.asarray(member), slots)[1:]]
            return values[block]

        there, mask = pick(scene.position), pick(scene.exists)
        relative = there - position[None]
        square = (relative * relative).sum(-1)
        if not full:
            mask = mask if each else mask & in_range(square, scene.sensing)
            if scene.visible is not None:
                mask = mask & pick(scene.visible[agent])
        if not 0 < nearest < len(mask):
            return Entities(relative, pick(scene.velocity), mask)
        if name == role:
            mask = mask & (jnp.arange(slots) != member)
        index, mask = closest(square, mask, nearest)
        return Entities(there[index] - position[None], pick(scene.velocity)[index], mask)

    return View(position, velocity, tuple(map(others, layout.roles)))


def in_range(square: Float[Array, "*n"], sensing: float) -> Bool[Array, "*n"]:
    """Tell what is nearer than the sensing radius, by its squared distance; what is as far away is not seen."""
    return square < (1 - TIE) * sensing**2 if math.isfinite(sensing) else jnp.ones(square.shape, bool)


def closest(
    square: Float[Array, " n"], mask: Bool[Array, " n"], count: int
) -> tuple[Int[Array, " count"], Bool[Array, " count"]]:
    """Return where the nearest of those in `mask` are, and which of these places count.

    An entity counts if it is nearer than the one after the last: of several that are as far away as the last one none
    does, so that the outcome does not depend on their order.
    """
    far, index = jax.lax.top_k(jnp.where(mask, -square, -jnp.inf), count + 1)
    return index[:count], mask[index[:count]] & (far[:count] > (1 - TIE) * far[count])
