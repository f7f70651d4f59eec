"""LEGO: canonicalize, encode by role, decide in the local frame (paper, section IV)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.frames import Frame, canonicalize, centroid_offset, make_frame
from legoswarm.policies.config import PolicyConfig
from legoswarm.policies.layers import Linear, Perceptron
from legoswarm.policies.policy import Decision, RolePolicy, register_policy
from legoswarm.policies.sets import SetEncoder, make_encoder
from legoswarm.scene import Layout, Scene, View, observe

LEASH_GAIN = 8.0


class RoleEncoder(eqx.Module):
    """s_i: the self branch and one set encoder for each role, concatenated in fixed order and fused (equation 9)."""

    myself: Perceptron
    roles: tuple[SetEncoder, ...]
    fuse: Perceptron

    def __init__(self, config: PolicyConfig, layout: Layout, *, key: PRNGKeyArray):
        key_self, key_fuse, *keys = jax.random.split(key, 2 + len(layout.roles))
        width = config.width
        self.myself = Perceptron(2, (width,), key=key_self)
        self.roles = tuple(make_encoder(config, key=k) for k in keys)
        self.fuse = Perceptron((1 + len(layout.roles)) * width, (width, width), key=key_fuse)

    def __call__(self, view: View) -> Float[Array, " width"]:
        """The summary of a canonical observation."""
        parts = [self.myself(view.velocity)]
        for encode, others in zip(self.roles, view.others, strict=True):
            features = jnp.concatenate([others.position, others.velocity], axis=-1)
            parts.append(encode(features, others.mask))
        return self.fuse(jnp.concatenate(parts))


class LegoActor(eqx.Module):
    """a_loc ~ N(head(s_i), sigma^2) in the agent's frame.

    The mean is pulled back towards the centroid of what the agent sees when it is farther away than the `leash`.
    With two `hands` the mean is the average over the frame and its mirror image, each turned back by its own
    axes: the action then does not jump where the frame changes handedness.
    """

    encoder: RoleEncoder
    head: Linear
    log_std: Float[Array, "2"]
    config: PolicyConfig = eqx.field(static=True)

    def __init__(self, config: PolicyConfig, layout: Layout, *, key: PRNGKeyArray):
        key_encoder, key_head = jax.random.split(key)
        self.encoder = RoleEncoder(config, layout, key=key_encoder)
        self.head = Linear(config.width, 2, gain=0.01, key=key_head)
        self.log_std = jnp.full(2, config.log_std)
        self.config = config

    def __call__(self, view: View) -> Decision:
        """Decide from one agent's observation."""
        frame = make_frame(view, self.config.axis, self.config.rest)

        def mean(frame: Frame) -> Float[Array, "2"]:
            return self.head(self.encoder(canonicalize(view, frame)))

        if self.config.hands == 1:
            local = mean(frame)
        else:
            both = jax.vmap(mean)(_stack(frame, frame.mirrored()))
            local = (both[0] + both[1] * jnp.array([1.0, -1.0])) / 2
        if self.config.leash:
            local = local + frame.to_local(pull_back(view, self.config.leash))
        return Decision(local, self.log_std, frame)


class LegoCritic(eqx.Module):
    """V_i: the full state (or, for IPPO, the observation) in the frame that the observation defines."""

    encoder: RoleEncoder
    head: Linear
    config: PolicyConfig = eqx.field(static=True)

    def __init__(self, config: PolicyConfig, layout: Layout, *, key: PRNGKeyArray):
        key_encoder, key_head = jax.random.split(key)
        self.encoder = RoleEncoder(config, layout, key=key_encoder)
        self.head = Linear(config.width, 1, gain=1.0, key=key_head)
        self.config = config

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """The value for one agent."""
        frame = make_frame(observe(scene, role, member), self.config.axis, self.config.rest)
        view = observe(scene, role, member, full=self.config.critic == "full")
        return self.head(self.encoder(canonicalize(view, frame)))[0]


def pull_back(view: View, leash: float) -> Float[Array, "2"]:
    """LEASH_GAIN (|d| - leash) d / |d| beyond the leash and nothing within, d the way to the centroid of what is seen.

    An agent that has lost the others gets no learning signal there (it is never the nearest to anything), so a
    policy that drifts outwards would never learn to come back: this is how training runs diverged. The pull grows
    with the distance and the network's own output is bounded (layer normalisation), so nobody gets away.
    """
    to_centroid = centroid_offset(view.flat())
    distance = jnp.hypot(to_centroid[0], to_centroid[1])
    return to_centroid * (LEASH_GAIN * jax.nn.relu(distance - leash) / jnp.maximum(distance, leash))


def _stack(*frames: Frame) -> Frame:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *frames)


def build_lego(config: PolicyConfig, layout: Layout, role: str, *, key: PRNGKeyArray) -> RolePolicy:
    """Actor and critic with separate encoders; the same for every role and team size."""
    del role
    key_actor, key_critic = jax.random.split(key)
    return RolePolicy(LegoActor(config, layout, key=key_actor), LegoCritic(config, layout, key=key_critic))


register_policy("lego", build_lego)
