"""Actor and critic as a head on an encoder's summary: canonicalize, encode, decide in the frame (paper, section IV).

Policies without a frame of their own (`Framed`) work in the world's axes, and see the agent's position in the world.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.frames.canonical import Frame, canonicalize, make_frame
from legoswarm.policies.encoders.encoder import ViewEncoder
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.layers import Linear
from legoswarm.policies.networks.leash import pull_back
from legoswarm.policies.networks.roles import Critic, RolePolicy
from legoswarm.policies.policy import Framed, Policy
from legoswarm.scene import Layout, Scene, View, observe


class EncodedActor(eqx.Module):
    """a_loc ~ N(head(s_i), sigma^2) in the agent's frame, s_i the encoder's summary of what it sees there.

    The mean is pulled back towards the centroid of what the agent sees when it is farther away than the `leash`.
    """

    encoder: ViewEncoder
    head: Linear
    log_std: Float[Array, " dim"]
    config: Policy = eqx.field(static=True)

    def __init__(self, config: Policy, layout: Layout, encoder: Callable[..., ViewEncoder], *, key: PRNGKeyArray):
        key_encoder, key_head = jax.random.split(key)
        self.encoder = encoder(config, layout, key=key_encoder)
        self.head = Linear(config.width, layout.dimension, gain=0.01, key=key_head)
        self.log_std = jnp.full(layout.dimension, config.log_std)
        self.config = config

    @property
    def nearest(self) -> int:
        """Count the entities of each role that the actor looks at; 0: all."""
        return getattr(self.config, "nearest", 0)

    def __call__(self, view: View) -> Decision:
        """Decide from one agent's observation."""
        frame = frame_of(view, self.config)
        local = self.head(self.encoder(seen_in(frame, view, self.config)))
        return Decision(local + frame.to_local(pull_back(view, self.config)), self.log_std, frame, self.config.squash)


class EncodedCritic(eqx.Module):
    """V_i: the full state in the frame that the agent's own observation defines."""

    encoder: ViewEncoder
    head: Linear
    config: Policy = eqx.field(static=True)

    def __init__(self, config: Policy, layout: Layout, encoder: Callable[..., ViewEncoder], *, key: PRNGKeyArray):
        key_encoder, key_head = jax.random.split(key)
        self.encoder = encoder(config, layout, key=key_encoder)
        self.head = Linear(config.width, 1, gain=1.0, key=key_head)
        self.config = config

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """Return the value for one agent."""
        near = getattr(self.config, "nearest", 0)
        frame = frame_of(observe(scene, role, member, nearest=near), self.config)
        whole = observe(scene, role, member, full=True, nearest=near)
        return self.head(self.encoder(seen_in(frame, whole, self.config)))[0]


def frame_of(view: View, policy: Policy) -> Frame:
    """Return the frame that a policy's options choose for an observation."""
    own = isinstance(policy, Framed)
    return make_frame(view, policy.axis, policy.rest, policy.slow, policy.tie) if own else make_frame(view, "none")


def seen_in(frame: Frame, view: View, policy: Policy) -> View:
    """Return what a policy encodes of an observation: all of it, in the agent's frame if the policy has one."""
    return canonicalize(view, frame) if isinstance(policy, Framed) else view


def encoded_policy(
    policy: Policy,
    layout: Layout,
    encoder: Callable[..., ViewEncoder],
    critic: Callable[..., Critic] | None = None,
    *,
    key: PRNGKeyArray,
) -> RolePolicy:
    """Build an actor and a critic, each with an encoder of its own; or with another critic, `critic(key=...)`."""
    key_actor, key_critic = jax.random.split(key)
    own = EncodedCritic(policy, layout, encoder, key=key_critic) if critic is None else critic(key=key_critic)
    return RolePolicy(EncodedActor(policy, layout, encoder, key=key_actor), own)
