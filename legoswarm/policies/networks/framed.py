"""Actor and critic in the agent's canonical frame: canonicalize, encode, decide there (paper, section IV)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.frames.canonical import Frame, canonicalize, make_frame
from legoswarm.policies.encoders.encoder import ViewEncoder
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.layers import Linear
from legoswarm.policies.networks.leash import pull_back
from legoswarm.policies.networks.roles import RolePolicy
from legoswarm.policies.policy import Framed
from legoswarm.scene import Layout, Scene, View, observe

Tree = TypeVar("Tree")


class FramedActor(eqx.Module):
    """a_loc ~ N(head(s_i), sigma^2) in the agent's frame, s_i the encoder's summary of what it sees there.

    The mean is pulled back towards the centroid of what the agent sees when it is farther away than the `leash`.
    With two `hands` the mean is the average over the frame and its mirror image, each turned back by its own
    axes: the action then does not jump where the frame changes handedness.
    """

    encoder: ViewEncoder
    head: Linear
    log_std: Float[Array, " dim"]
    config: Framed = eqx.field(static=True)

    def __init__(self, config: Framed, layout: Layout, encoder: Callable[..., ViewEncoder], *, key: PRNGKeyArray):
        key_encoder, key_head = jax.random.split(key)
        self.encoder = encoder(config, layout, key=key_encoder)
        self.head = Linear(config.width, layout.dimension, gain=0.01, key=key_head)
        self.log_std = jnp.full(layout.dimension, config.log_std)
        self.config = config

    def __call__(self, view: View) -> Decision:
        """Decide from one agent's observation."""
        frame = frame_of(view, self.config)

        def mean(frame: Frame) -> Float[Array, " dim"]:
            return self.head(self.encoder(canonicalize(view, frame)))

        if self.config.hands == 1:
            local = mean(frame)
        else:
            both = jax.vmap(mean)(_stack(frame, frame.mirrored()))
            local = (both[0] + both[1] * jnp.ones_like(both[1]).at[-1].set(-1.0)) / 2
        return Decision(local + frame.to_local(pull_back(view, self.config)), self.log_std, frame, self.config.squash)


class FramedCritic(eqx.Module):
    """V_i: the full state in the frame that the agent's own observation defines."""

    encoder: ViewEncoder
    head: Linear
    config: Framed = eqx.field(static=True)

    def __init__(self, config: Framed, layout: Layout, encoder: Callable[..., ViewEncoder], *, key: PRNGKeyArray):
        key_encoder, key_head = jax.random.split(key)
        self.encoder = encoder(config, layout, key=key_encoder)
        self.head = Linear(config.width, 1, gain=1.0, key=key_head)
        self.config = config

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """Return the value for one agent."""
        frame = frame_of(observe(scene, role, member), self.config)
        view = observe(scene, role, member, full=True)
        return self.head(self.encoder(canonicalize(view, frame)))[0]


def frame_of(view: View, policy: Framed) -> Frame:
    """Return the frame that a policy's options choose for an observation."""
    return make_frame(view, policy.axis, policy.rest, policy.slow)


def _stack(*trees: Tree) -> Tree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def framed_policy(
    policy: Framed, layout: Layout, encoder: Callable[..., ViewEncoder], *, key: PRNGKeyArray
) -> RolePolicy:
    """Build an actor and a critic in the agent's frame, each with an encoder of its own."""
    key_actor, key_critic = jax.random.split(key)
    return RolePolicy(
        FramedActor(policy, layout, encoder, key=key_actor), FramedCritic(policy, layout, encoder, key=key_critic)
    )
