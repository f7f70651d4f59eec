"""A whole team's decisions: every agent acts from its own observation with its role's actor."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.roles import Actor
from legoswarm.scene import Layout, Scene, View, observe

Actors = dict[str, Actor]  # one for each controlled role


class Knowing(eqx.Module):
    """An actor in a world that has more roles than it knows: it does not see the others."""

    actor: Actor
    known: tuple[int, ...] = eqx.field(static=True)  # where its roles stand among the world's

    @property
    def nearest(self) -> int:
        """Count the entities of each role that the actor looks at; 0: all."""
        return getattr(self.actor, "nearest", 0)

    def __call__(self, view: View) -> Decision:
        """Decide from what the actor knows of an observation."""
        return self.actor(View(view.position, view.velocity, tuple(view.others[at] for at in self.known)))


def knowing(actor: Actor, known: tuple[str, ...], roles: tuple[str, ...]) -> Actor:
    """Return an actor for a world of such roles, all those that it knows among them."""
    return actor if known == roles else Knowing(actor, tuple(map(roles.index, known)))


def decide(actors: Actors, scene: Scene) -> dict[str, Decision]:
    """Return every agent's decision from its own observation, by role."""
    layout = scene.layout
    members = {role: jnp.arange(layout.members(role)) for role in layout.controlled_roles}
    return {
        role: jax.vmap(lambda member, role=role: decide_one(actors[role], scene, role, member))(members[role])
        for role in layout.controlled_roles
    }


def decide_one(actor: Actor, scene: Scene, role: str, member: Int[Array, ""]) -> Decision:
    """Return one agent's decision from its own observation, or what its actor looks at of it."""
    return actor(observe(scene, role, member, nearest=getattr(actor, "nearest", 0)))


def join(layout: Layout, by_role: dict[str, Array]) -> Array:
    """Put the rows of each controlled role together in the order of agents."""
    return jnp.concatenate([by_role[role] for role in layout.controlled_roles])


def world_actions(layout: Layout, decisions: dict[str, Decision], local: dict[str, Array]) -> Array:
    """Turn the actions of all agents from their frames to the world: a_i = R_i a_i^loc."""
    turned = {role: jax.vmap(lambda d, a: d.frame.to_world(a))(decisions[role], local[role]) for role in decisions}
    return join(layout, turned)
