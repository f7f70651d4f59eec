"""What is learned: an actor and a critic for each controlled role."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.layers import orthogonalise
from legoswarm.policies.networks.pairs import PairCritic
from legoswarm.policies.policy import Policy
from legoswarm.scene import Layout, Scene, View


@runtime_checkable
class Actor(Protocol):
    """Acts for one agent from its own observation alone."""

    def __call__(self, view: View) -> Decision:
        """Return the action's distribution in the agent's frame."""
        ...


@runtime_checkable
class Critic(Protocol):
    """Values the state for one agent; sees everything during training."""

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """Return the normalised value of `scene` for a member of `role`."""
        ...


class RolePolicy(eqx.Module):
    """The parameters that all agents of one role share; an algorithm with critics of its own leaves this one out."""

    actor: Actor
    critic: Critic | None


def over_members(one: Callable[..., Any], scenes: Scene, role: str, *rows: Any) -> Any:
    """Call `one(scene, member, *row)` for every member of a role in a batch of scenes; `rows` are (batch, members)."""
    index = jnp.arange(scenes.layout.members(role))
    per_scene = jax.vmap(one, in_axes=(None, 0, *[0] * len(rows)))
    return jax.vmap(per_scene, in_axes=(0, None, *[0] * len(rows)))(scenes, index, *rows)


Policies = dict[str, RolePolicy]  # one for each controlled role


def make_policies(policy: Policy, layout: Layout, *, key: PRNGKeyArray) -> Policies:
    """Build a fresh policy for each controlled role, with the critic that the policy's options name."""
    roles = layout.controlled_roles
    key_weights, *keys = jax.random.split(key, 1 + len(roles))
    built = {role: policy.build(layout, role, key=k) for role, k in zip(roles, keys, strict=True)}
    if policy.critic != "full":
        near = getattr(policy, "nearest", 0)
        critics = [PairCritic(policy, layout, nearest=near, key=k) if policy.critic == "pairs" else None for k in keys]
        built = {role: RolePolicy(built[role].actor, c) for role, c in zip(roles, critics, strict=True)}
    return orthogonalise(built, key=key_weights)


def count_parameters(policies: Policies) -> dict[str, int]:
    """Count the numbers that all actors, and all critics, of one seed learn."""
    parts = {
        "actor": [policy.actor for policy in policies.values()],
        "critic": [policy.critic for policy in policies.values()],
    }
    return {name: sum(leaf.size for leaf in jax.tree.leaves(part)) for name, part in parts.items()}
