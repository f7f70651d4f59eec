"""What a policy is: an actor and a critic for each controlled role, and a Gaussian in the agent's frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.frames import Frame
from legoswarm.policies.config import PolicyConfig
from legoswarm.scene import Layout, Scene, View


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


Policies = dict[str, RolePolicy]  # one for each controlled role
Builder = Callable[..., RolePolicy]
_BUILDERS: dict[str, Builder] = {}


def register_policy(name: str, build: Builder) -> None:
    """Make `build(config, layout, role, *, key) -> RolePolicy` known as `--policy name`."""
    _BUILDERS[name] = build


def policy_names() -> list[str]:
    """The registered policies."""
    return sorted(_BUILDERS)


def make_policies(config: PolicyConfig, layout: Layout, *, key: PRNGKeyArray) -> Policies:
    """A fresh policy for each controlled role."""
    if config.policy not in _BUILDERS:
        raise ValueError(f"unknown policy {config.policy!r}; known: {', '.join(policy_names())}")
    build = _BUILDERS[config.policy]
    roles = layout.controlled_roles
    keys = jax.random.split(key, len(roles))
    return {role: build(config, layout, role, key=k) for role, k in zip(roles, keys, strict=True)}
