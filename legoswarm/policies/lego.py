"""LEGO: canonicalize, encode by role, decide in the local frame (paper, section IV)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.architecture import JOINT, PolicyConfig
from legoswarm.frames import Frame, canonicalize, make_frame
from legoswarm.policies.networks.layers import Linear, Perceptron, storage
from legoswarm.policies.networks.leash import pull_back
from legoswarm.policies.networks.sets import FEATURES, AttentionLayer, SetEncoder, make_encoder, nearest, pool
from legoswarm.policies.policy import Decision, RolePolicy, over_members, register_policy
from legoswarm.scene import Layout, Scene, View, observe

Tree = TypeVar("Tree")


class RoleEncoder(eqx.Module):
    """s_i: the self branch and one set encoder for each role, concatenated in fixed order and fused (equation 9).

    The self branch sees the agent's velocity; with `absolute`, also its position in the world.
    """

    myself: Perceptron
    roles: tuple[SetEncoder, ...]
    fuse: Perceptron
    absolute: bool = eqx.field(static=True)
    nearest: int = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(self, config: PolicyConfig, layout: Layout, *, absolute: bool = False, key: PRNGKeyArray):
        key_self, key_fuse, *keys = jax.random.split(key, 2 + len(layout.roles))
        width = config.width
        self.absolute, self.nearest, self.precision = absolute, config.nearest, config.precision
        self.myself = Perceptron(4 if absolute else 2, (width,), key=key_self)
        self.roles = tuple(make_encoder(config, key=k) for k in keys)
        self.fuse = Perceptron((1 + len(layout.roles)) * width, (width, width), key=key_fuse)

    @jax.jit  # actor and critic, acting and learning: traced once
    def __call__(self, view: View) -> Float[Array, " width"]:
        """The summary of an observation."""
        own = jnp.concatenate([view.position, view.velocity]) if self.absolute else view.velocity
        parts = [self.myself(own)]
        for encode, everybody in zip(self.roles, view.others, strict=True):
            others = nearest(everybody, self.nearest)
            features = jnp.concatenate([others.position, others.velocity], axis=-1)
            parts.append(encode(features, others.mask))
        return self.fuse(jnp.concatenate(parts).astype(storage(self.precision))).astype(own.dtype)


class JointEncoder(eqx.Module):
    """s_i from attention among everybody at once: the agent itself and all it sees, whatever their roles.

    Encoders of single roles pool before anything compares an agent with a landmark. Here, too, each role has its own
    embedding and is pooled on its own, but after everybody has looked at everybody; the agent's summary stands beside.
    """

    myself: Linear
    roles: tuple[Linear, ...]
    layers: tuple[AttentionLayer, ...]
    fuse: Perceptron
    absolute: bool = eqx.field(static=True)
    config: PolicyConfig = eqx.field(static=True)

    def __init__(self, config: PolicyConfig, layout: Layout, *, absolute: bool = False, key: PRNGKeyArray):
        roles, width = len(layout.roles), config.width
        key_self, key_fuse, *keys = jax.random.split(key, 2 + roles + config.depth)
        self.absolute, self.config = absolute, config
        self.myself = Linear(4 if absolute else 2, width, key=key_self)
        self.roles = tuple(Linear(FEATURES, width, key=k) for k in keys[:roles])
        self.layers = tuple(AttentionLayer(width, config.heads, key=k) for k in keys[roles:])
        self.fuse = Perceptron((1 + roles) * width, (width, width), key=key_fuse)

    @jax.jit
    def __call__(self, view: View) -> Float[Array, " width"]:
        """The summary of an observation."""
        own = jnp.concatenate([view.position, view.velocity]) if self.absolute else view.velocity
        seen = [nearest(everybody, self.config.nearest) for everybody in view.others]
        features = [jnp.concatenate([others.position, others.velocity], axis=-1) for others in seen]
        embedded = [jax.vmap(embed)(rows) for embed, rows in zip(self.roles, features, strict=True)]
        x = jnp.concatenate([self.myself(own)[None], *embedded]).astype(storage(self.config.precision))
        masks = [jnp.ones(1, bool), *(others.mask for others in seen)]
        for layer in self.layers:
            x = layer(x, jnp.concatenate(masks))
        parts, start = [], 0
        for mask in masks:
            parts.append(pool(x[start : start + len(mask)].astype(own.dtype), mask, self.config.pooling))
            start += len(mask)
        return self.fuse(jnp.concatenate(parts).astype(x.dtype)).astype(own.dtype)


ViewEncoder = Callable[[View], Float[Array, " width"]]


def make_view_encoder(
    config: PolicyConfig, layout: Layout, *, absolute: bool = False, key: PRNGKeyArray
) -> RoleEncoder | JointEncoder:
    """The encoder of observations that the configuration names."""
    build = JointEncoder if config.encoder == JOINT else RoleEncoder
    return build(config, layout, absolute=absolute, key=key)


class LegoActor(eqx.Module):
    """a_loc ~ N(head(s_i), sigma^2) in the agent's frame, s_i by default of the encoder that the configuration names.

    The mean is pulled back towards the centroid of what the agent sees when it is farther away than the `leash`.
    With two `hands` the mean is the average over the frame and its mirror image, each turned back by its own
    axes: the action then does not jump where the frame changes handedness.
    """

    encoder: ViewEncoder
    head: Linear
    log_std: Float[Array, "2"]
    config: PolicyConfig = eqx.field(static=True)

    def __init__(
        self,
        config: PolicyConfig,
        layout: Layout,
        *,
        encoder: Callable[..., ViewEncoder] = make_view_encoder,
        key: PRNGKeyArray,
    ):
        key_encoder, key_head = jax.random.split(key)
        self.encoder = encoder(config, layout, key=key_encoder)
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
        return self.decision(view, frame, local)

    def decision(self, view: View, frame: Frame, local: Float[Array, "2"]) -> Decision:
        """The distribution around an action in the agent's frame."""
        return Decision(local + frame.to_local(pull_back(view, self.config.leash)), self.log_std, frame)


class LegoCritic(eqx.Module):
    """V_i: the full state (or, for IPPO, the observation) in the frame that the observation defines."""

    encoder: ViewEncoder
    head: Linear
    config: PolicyConfig = eqx.field(static=True)

    def __init__(
        self,
        config: PolicyConfig,
        layout: Layout,
        *,
        encoder: Callable[..., ViewEncoder] = make_view_encoder,
        key: PRNGKeyArray,
    ):
        key_encoder, key_head = jax.random.split(key)
        self.encoder = encoder(config, layout, key=key_encoder)
        self.head = Linear(config.width, 1, gain=1.0, key=key_head)
        self.config = config

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """The value for one agent."""
        frame = make_frame(observe(scene, role, member), self.config.axis, self.config.rest)
        view = observe(scene, role, member, full=self.config.critic == "full")
        return self.head(self.encoder(canonicalize(view, frame)))[0]


class LegoPolicy(RolePolicy):
    """An actor and a critic with encoders of one kind, which an update runs side by side in one program."""

    actor: LegoActor  # pyright: ignore[reportIncompatibleVariableOverride]
    critic: LegoCritic  # pyright: ignore[reportIncompatibleVariableOverride]

    def assess(self, scenes: Scene, role: str) -> tuple[Decision, Float[Array, "batch members"]]:
        """As the actor and the critic one after the other, with half as many operations, each twice as large.

        Where operations are small that is faster on GPUs; CPUs are slow at the batched matrix products it leads to.
        """
        config = self.actor.config
        if config.hands != 1 or jax.default_backend() == "cpu":
            return super().assess(scenes, role)

        def look(scene: Scene, member: Int[Array, ""]) -> tuple[View, Frame, View, View]:
            seen = observe(scene, role, member)
            frame = make_frame(seen, config.axis, config.rest)
            whole = observe(scene, role, member, full=config.critic == "full")
            return seen, frame, canonicalize(seen, frame), canonicalize(whole, frame)

        seen, frame, *views = over_members(look, scenes, role)
        encoders = _stack(self.actor.encoder, self.critic.encoder)
        summaries = jax.vmap(lambda encoder, view: jax.vmap(jax.vmap(encoder))(view))(encoders, _stack(*views))

        def decide(view: View, frame: Frame, summary: Float[Array, " width"]) -> Decision:
            return self.actor.decision(view, frame, self.actor.head(summary))

        decisions = jax.vmap(jax.vmap(decide))(seen, frame, summaries[0])
        return decisions, jax.vmap(jax.vmap(self.critic.head))(summaries[1])[..., 0]


def _stack(*trees: Tree) -> Tree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def build_lego(config: PolicyConfig, layout: Layout, role: str, *, key: PRNGKeyArray) -> RolePolicy:
    """Actor and critic with separate encoders, the same for every role and team size."""
    del role
    key_actor, key_critic = jax.random.split(key)
    return LegoPolicy(LegoActor(config, layout, key=key_actor), LegoCritic(config, layout, key=key_critic))


register_policy("lego", build_lego)
