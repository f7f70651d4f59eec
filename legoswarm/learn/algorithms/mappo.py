"""MAPPO: clipped policy and value updates for each role, from one rollout."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from legoswarm.configs import option
from legoswarm.learn.algorithms.advantage import generalised_advantages
from legoswarm.learn.algorithms.scales import ValueNorm, by_size, of_size
from legoswarm.learn.rollout import Transition
from legoswarm.policies.policy import Decision, RolePolicy, over_members
from legoswarm.scene import Scene

# That of a deviation of 2; what is beyond it earns nothing. Tasks limit actions: noise that is larger still costs no
# more, and means grow with it until every action is at the limit.
ENOUGH_ENTROPY = 1 + math.log(2 * math.pi) + 2 * math.log(2.0)


@dataclasses.dataclass(frozen=True)
class MappoConfig:
    """Hyper-parameters of the optimiser; the defaults are LEGO's."""

    envs: int = option(128, "worlds side by side")
    rollout: int = option(25, "steps between updates")
    epochs: int = option(3, "passes over each rollout")
    minibatches: int = option(4, "parts of each pass")
    lr: float = option(1.2e-3, "learning rate")
    anneal: bool = option(True, "let the learning rate fall linearly to zero")
    clip: float = option(0.2, "clipping range of policy and value")
    entropy: float = option(0.03, "weight of the entropy bonus")
    gamma: float = option(0.99, "discount")
    lam: float = option(0.95, "lambda of the advantage estimate")
    grad_norm: float = option(10.0, "largest gradient norm")
    huber: float = option(10.0, "threshold of the value loss")
    clip_value: bool = option(True, "clip the value loss")
    value_decay: float = option(0.9, "decay of the value normalisation")

    def __post_init__(self) -> None:
        if min(self.envs, self.rollout, self.epochs, self.minibatches) < 1:
            raise ValueError("envs, rollout, epochs and minibatches must be at least 1")
        if (self.envs * self.rollout) % self.minibatches:
            raise ValueError(
                f"{self.envs} envs x {self.rollout} steps cannot be split into {self.minibatches} minibatches"
            )
        if not (self.lr > 0 and self.clip > 0 and self.grad_norm > 0 and self.huber > 0):
            raise ValueError("lr, clip, grad_norm and huber must be positive")
        if not (0 <= self.gamma <= 1 and 0 <= self.lam <= 1 and 0 <= self.value_decay < 1):
            raise ValueError("gamma and lam must lie in [0, 1], value_decay in [0, 1)")

    @property
    def batch(self) -> int:
        """Environment steps of one iteration."""
        return self.envs * self.rollout


class Learner(eqx.Module):
    """Everything one role learns with."""

    policy: RolePolicy
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    norm: ValueNorm


class Batch(eqx.Module):
    """What the losses need, one row for each environment step."""

    scene: Scene
    local: Float[Array, "batch members 2"]
    log_prob: Float[Array, "batch members"]
    advantage: Float[Array, "batch members"]
    target: Float[Array, "batch members"]  # normalised returns
    value: Float[Array, "batch members"]  # normalised values before the update
    mask: Bool[Array, "batch members"]


def make_optimizer(config: MappoConfig, iterations: int) -> optax.GradientTransformation:
    """Adam with a gradient-norm limit, the rate falling linearly to zero over the whole training."""
    updates = iterations * config.epochs * config.minibatches
    rate = optax.linear_schedule(config.lr, 0.0, updates) if config.anneal else config.lr
    steps = optax.chain(optax.clip_by_global_norm(config.grad_norm), optax.adam(rate, eps=1e-5))
    return optax.flatten(steps)  # one long vector: a handful of operations instead of some for each of 80 arrays


def new_learner(policy: RolePolicy, optimizer: optax.GradientTransformation, members: int) -> Learner:
    """A policy of a role with so many members, with fresh optimiser states."""
    actor: Any = policy.actor  # modules are pytrees of parameters, which optax's types do not say
    critic: Any = policy.critic
    return Learner(policy, optimizer.init(actor), optimizer.init(critic), ValueNorm.fresh(members))


def improve(
    config: MappoConfig,
    optimizer: optax.GradientTransformation,
    learner: Learner,
    rollout: Transition,
    role: str,
    key: PRNGKeyArray,
) -> tuple[Learner, dict[str, Array]]:
    """One role's update from one rollout: values, advantages, then epochs of minibatches."""
    norm, batch = _prepare(config, learner, rollout, role)

    def epoch(carry: tuple[RolePolicy, optax.OptState, optax.OptState], key: PRNGKeyArray):
        def step(carry, minibatch: Batch):
            policy, actor_opt, critic_opt = carry
            grads, info = jax.grad(losses, has_aux=True)(policy, minibatch, role, config)
            with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
                actor_steps, actor_opt = optimizer.update(grads.actor, actor_opt)
                critic_steps, critic_opt = optimizer.update(grads.critic, critic_opt)
            networks: Any = (policy.actor, policy.critic)
            networks = eqx.apply_updates(networks, (actor_steps, critic_steps))
            policy = eqx.tree_at(lambda p: (p.actor, p.critic), policy, networks)
            return (policy, actor_opt, critic_opt), info

        return jax.lax.scan(step, carry, _split(batch, config.minibatches, key))

    carry = (learner.policy, learner.actor_opt, learner.critic_opt)
    carry, info = jax.lax.scan(epoch, carry, jax.random.split(key, config.epochs))
    policy, actor_opt, critic_opt = carry
    return Learner(policy, actor_opt, critic_opt, norm), {name: values.mean() for name, values in info.items()}


def losses(policy: RolePolicy, batch: Batch, role: str, config: MappoConfig) -> tuple[Array, dict[str, Array]]:
    """Both losses in one sum: actor and critic share no parameters, so each gets its own gradient."""
    decisions, values = policy.assess(batch.scene, role)
    actor, actor_info = actor_loss(decisions, batch, config)
    critic, critic_info = critic_loss(values, batch, config)
    return actor + critic, {**actor_info, **critic_info}


def actor_loss(decisions: Decision, batch: Batch, config: MappoConfig) -> tuple[Array, dict[str, Array]]:
    """-min(rho A, clip(rho) A) - c min(H, enough) over the agents of a role."""
    log_prob = jax.vmap(jax.vmap(lambda decision, local: decision.log_prob(local)))(decisions, batch.local)
    entropy = jax.vmap(jax.vmap(lambda decision: decision.entropy()))(decisions)
    log_ratio = jnp.clip(log_prob - batch.log_prob, -20.0, 20.0)  # a ratio of e^20 is clipped anyway; inf is not
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    gain = jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
    bonus = config.entropy * masked_mean(jnp.minimum(entropy, ENOUGH_ENTROPY), batch.mask)
    loss = -masked_mean(gain, batch.mask) - bonus
    kl = masked_mean(ratio - 1 - log_ratio, batch.mask)
    return loss, {"actor_loss": loss, "entropy": masked_mean(entropy, batch.mask), "kl": kl}


def critic_loss(
    value: Float[Array, "batch members"], batch: Batch, config: MappoConfig
) -> tuple[Array, dict[str, Array]]:
    """Huber loss of normalised values, the larger of the plain and the clipped one."""
    loss = optax.huber_loss(value, batch.target, delta=config.huber)
    if config.clip_value:
        near = batch.value + jnp.clip(value - batch.value, -config.clip, config.clip)
        loss = jnp.maximum(loss, optax.huber_loss(near, batch.target, delta=config.huber))
    loss = masked_mean(loss, batch.mask)
    return loss, {"critic_loss": loss}


def masked_mean(values: Float[Array, "*n"], mask: Bool[Array, "*n"]) -> Float[Array, ""]:
    """Mean over the agents that exist."""
    weight = mask.astype(values.dtype)
    return (values * weight).sum() / jnp.maximum(weight.sum(), 1.0)


def _prepare(config: MappoConfig, learner: Learner, rollout: Transition, role: str) -> tuple[ValueNorm, Batch]:
    """Values, advantages and returns of a rollout, flattened to one row for each environment step."""
    block = rollout.scene.layout.block(role)
    mask = rollout.scene.exists[..., block]
    mean, deviation = learner.norm.statistics(mask)

    @jax.jit  # traced once
    def values(scenes: Scene) -> Array:
        return jax.vmap(lambda row: over_members(lambda s, m: learner.policy.critic(s, role, m), row, role))(scenes)

    normalised = values(rollout.scene)
    value = normalised * deviation + mean
    next_mean, next_deviation = learner.norm.statistics(rollout.next_scene.exists[..., block])
    next_value = values(rollout.next_scene) * next_deviation + next_mean
    per_member = jax.tree.map(
        lambda flag: jnp.broadcast_to(flag[..., None], mask.shape), (rollout.terminated, rollout.truncated)
    )
    advantage = generalised_advantages(
        rollout.reward[..., block],
        value,
        next_value,
        *per_member,
        gamma=config.gamma,
        lam=config.lam,
    )
    returns = advantage + value
    norm = learner.norm.update(returns, mask, config.value_decay)
    new_mean, new_deviation = norm.statistics(mask)
    centred = advantage - of_size(by_size(advantage, mask), mask)
    advantage = centred / jnp.sqrt(of_size(by_size(centred**2, mask), mask) + 1e-8)
    fields = (
        rollout.scene,
        rollout.local[role],
        rollout.log_prob[role],
        advantage,
        (returns - new_mean) / new_deviation,
        normalised,
        mask,
    )
    return norm, Batch(*jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), fields))


def _split(batch: Batch, minibatches: int, key: PRNGKeyArray) -> Batch:
    """Shuffled minibatches; a single one is the batch as it is."""
    if minibatches == 1:
        return jax.tree.map(lambda x: x[None], batch)
    order = jax.random.permutation(key, batch.mask.shape[0])
    return jax.tree.map(lambda x: x[order].reshape(minibatches, -1, *x.shape[1:]), batch)
