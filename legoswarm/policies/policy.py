"""What a policy is: an actor and a critic for each controlled role, and a Gaussian in the agent's frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.architecture import PolicyConfig
from legoswarm.frames import Frame
from legoswarm.policies.networks.layers import orthogonalise
from legoswarm.policies.networks.pairs import PairCritic
from legoswarm.scene import Layout, Scene, View, observe


class Decision(eqx.Module):
    """A Gaussian over actions in an agent's own frame.

    The frame is orthogonal, so densities in the frame and in the world are the same.
    """

    mean: Float[Array, "2"]
    log_std: Float[Array, "2"]
    frame: Frame

    def sample(self, key: PRNGKeyArray) -> Float[Array, "2"]:
        """A random action in the frame."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, (2,), self.mean.dtype)

    def log_prob(self, local: Float[Array, "2"]) -> Float[Array, ""]:
        """Log density of an action in the frame."""
        z = (local - self.mean) * jnp.exp(-self.log_std)
        return -0.5 * (z * z).sum() - self.log_std.sum() - jnp.log(2 * jnp.pi)

    def entropy(self) -> Float[Array, ""]:
        """Entropy of the Gaussian."""
        return self.log_std.sum() + 1 + jnp.log(2 * jnp.pi)


@runtime_checkable
class Actor(Protocol):
    """Acts for one agent from its own observation alone."""

    def __call__(self, view: View) -> Decision:
        """The action's distribution in the agent's frame."""
        ...


@runtime_checkable
class Critic(Protocol):
    """Values the state for one agent; sees everything during training."""

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """The normalised value of `scene` for a member of `role`."""
        ...


class RolePolicy(eqx.Module):
    """The parameters that all agents of one role share."""

    actor: Actor
    critic: Critic

    def assess(self, scenes: Scene, role: str) -> tuple[Decision, Float[Array, "batch members"]]:
        """Decisions and values of all members in a batch of scenes: what an update needs.

        A policy whose actor and critic can share work overrides it.
        """

        def one(scene: Scene, member: Int[Array, ""]) -> tuple[Decision, Float[Array, ""]]:
            return self.actor(observe(scene, role, member)), self.critic(scene, role, member)

        return over_members(one, scenes, role)


def over_members(one: Callable[..., Any], scenes: Scene, role: str, *rows: Any) -> Any:
    """`one(scene, member, *row)` for every member of a role in every scene of a batch; `rows` are (batch, members)."""
    index = jnp.arange(scenes.layout.members(role))
    per_scene = jax.vmap(one, in_axes=(None, 0, *[0] * len(rows)))
    return jax.vmap(per_scene, in_axes=(0, None, *[0] * len(rows)))(scenes, index, *rows)


Policies = dict[str, RolePolicy]  # one for each controlled role
Builder = Callable[..., RolePolicy]
_BUILDERS: dict[str, Builder] = {}
_OWN: dict[str, Builder] = {}  # of the package
_ONE_SIZE: set[str] = set()


def register_policy(name: str, build: Builder, *, one_size: bool = False) -> None:
    """Make `build(config, layout, role, *, key) -> RolePolicy` known as `--policy name`.

    A policy of `one_size` has weights that depend on the layout's slots: it acts for no other team than its own.
    """
    _BUILDERS[name] = build
    (_ONE_SIZE.add if one_size else _ONE_SIZE.discard)(name)


def check_team(policy: str, trained: Layout, team: Layout) -> None:
    """Refuse another team than the one it was trained with for a policy of one size."""
    if policy in _ONE_SIZE and team.slots != trained.slots:
        raise ValueError(f"{policy} acts only for the team it was trained with ({_words(trained)}), not {_words(team)}")


def _words(layout: Layout) -> str:
    """How many of each role, such as `3 agents, 1 landmark`."""
    return ", ".join(f"{n} {role}{'s' * (n != 1)}" for role, n in zip(layout.roles, layout.slots, strict=True))


def policy_names() -> list[str]:
    """The registered policies."""
    return sorted(_BUILDERS)


def seal_policies() -> None:
    """What is registered by now comes with the package."""
    _OWN.update(_BUILDERS)


def own_policy(name: str) -> bool:
    """Whether a policy comes with the package, and nobody has put another one in its place."""
    return name in _OWN and _BUILDERS[name] is _OWN[name]


def make_policies(config: PolicyConfig, layout: Layout, *, key: PRNGKeyArray) -> Policies:
    """A fresh policy for each controlled role."""
    if config.policy not in _BUILDERS:
        raise ValueError(f"unknown policy {config.policy!r}; known: {', '.join(policy_names())}")
    build = _BUILDERS[config.policy]
    roles = layout.controlled_roles
    key_weights, *keys = jax.random.split(key, 1 + len(roles))
    policies = {role: build(config, layout, role, key=k) for role, k in zip(roles, keys, strict=True)}
    if config.critic == "pairs":
        critics = [PairCritic(config, layout, key=k) for k in keys]
        policies = {role: RolePolicy(policies[role].actor, c) for role, c in zip(roles, critics, strict=True)}
    return orthogonalise(policies, key=key_weights)


def count_parameters(policies: Policies) -> dict[str, int]:
    """The numbers that all actors, and all critics, of one seed learn."""
    parts = {
        "actor": [policy.actor for policy in policies.values()],
        "critic": [policy.critic for policy in policies.values()],
    }
    return {name: sum(leaf.size for leaf in jax.tree.leaves(part)) for name, part in parts.items()}
