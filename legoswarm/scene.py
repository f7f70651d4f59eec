"""The scene: what the world looks like, and what one agent sees of it.

A scene holds a position, a velocity and masks for every entity. Which slot has which role is static
(`Layout`), so that role subgraphs are plain slices; how many slots are in use is dynamic (`exists`), so
that team size never shows in a weight's shape.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from legoswarm.layout import Layout as Layout
from legoswarm.layout import in_turn


class Scene(eqx.Module):
    """The state X of the paper: every entity's position and velocity, and who sees whom."""

    position: Float[Array, "entities dim"]
    velocity: Float[Array, "entities dim"]
    exists: Bool[Array, " entities"]
    visible: Bool[Array, "agents entities"]
    layout: Layout = eqx.field(static=True)


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
    return dataclasses.replace(scene, exists=scene.exists & (scene.visible[agent] | myself))


def observe(scene: Scene, role: str, member: Int[Array, ""] | int, *, full: bool = False) -> View:
    """Return what member number `member` of `role` sees; with `full`, everything that exists (for critics).

    The agent's own slot is left out of its role's set, so a role of n slots gives n - 1 others.
    """
    layout = scene.layout
    agent = layout.block(role).start + member
    seen = scene.exists if full else scene.exists & scene.visible[agent]
    position, velocity = scene.position[agent], scene.velocity[agent]

    def others(name: str, slots: int) -> Entities:
        def pick(values: Any) -> Any:
            block = values[layout.block(name)]
            if name != role:
                return block
            return block[in_turn(jnp.asarray(member), slots)[1:]]

        return Entities(pick(scene.position) - position[None], pick(scene.velocity), pick(seen))

    return View(position, velocity, tuple(others(*item) for item in zip(layout.roles, layout.slots, strict=True)))
