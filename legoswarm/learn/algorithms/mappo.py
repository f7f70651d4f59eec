"""MAPPO: clipped policy and value updates for each role, from one rollout (Schulman et al. 2017; Yu et al. 2022)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from legoswarm.configs import check_fields, option
from legoswarm.fast.sharding import divided
from legoswarm.learn.advantage import generalised_advantages
from legoswarm.learn.algorithms.algorithm import ALGORITHMS, Count
from legoswarm.learn.rollout import Transition
from legoswarm.learn.scales import ValueNorm, by_size, masked_mean, of_size
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.pairs import PairCritic
from legoswarm.policies.networks.roles import Policies, RolePolicy, over_members
from legoswarm.policies.networks.team import Actors, decide_one
from legoswarm.policies.policy import Policy
from legoswarm.scene import Scene, seen_alone
from legoswarm.tasks.task import Task


@ALGORITHMS.register
@dataclasses.dataclass(frozen=True)
class Mappo:
    """MAPPO: each role's actor from its own observations, its critic from the whole state; the defaults are LEGO's."""

    name: ClassVar[str] = "mappo"
    needs: ClassVar[dict[str, Any]] = {}
    central: ClassVar[bool] = True  # whether critics know more than their agent sees

    envs: int = option(128, "worlds side by side", low=1)
    rollout: int = option(25, "steps between updates", low=1)
    epochs: int = option(3, "passes over each rollout", low=1)
    minibatches: int = option(4, "parts of each pass", low=1)
    lr: float = option(1.2e-3, "learning rate", above=0, traced=True)
    anneal: bool = option(True, "let the learning rate fall linearly to zero")
    clip: float = option(0.2, "clipping range of policy and value", above=0, traced=True)
    entropy: float = option(0.03, "weight of the entropy bonus", traced=True)
    noise_ceiling: float = option(2.0, "deviation of actions beyond which entropy earns nothing", above=0)
    gamma: float = option(0.99, "discount", low=0, high=1)
    lam: float = option(0.95, "lambda of the advantage estimate", low=0, high=1)
    grad_norm: float = option(10.0, "largest gradient norm", above=0)
    huber: float = option(10.0, "threshold of the value loss", above=0)
    clip_value: bool = option(True, "clip the value loss")
    value_decay: float = option(0.9, "decay of the value normalisation", low=0, high=0.999999)
    value_floor: float = option(0.01, "least variance of the value normalisation", above=0)

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.envs * self.rollout) % self.minibatches:
            raise ValueError(
                f"{self.envs} envs x {self.rollout} steps cannot be split into {self.minibatches} minibatches"
            )

    @property
    def updates(self) -> int:
        """Count the gradient steps after each rollout."""
        return self.epochs * self.minibatches

    def check(self, policy: Policy, task: Task) -> None:
        """Refuse a policy without a critic."""
        del task
        if policy.critic == "none":
            raise ValueError(f"{self.name} needs a critic: {policy.name} has the critic none")

    def init(self, policies: Policies, task: Task, iterations: int, *, key: PRNGKeyArray) -> Learners:
        """Return each role's policy with fresh optimiser states."""
        del key
        optimizer, layout = make_optimizer(self, iterations), task.layout
        return {role: new_learner(policy, optimizer, layout.members(role)) for role, policy in policies.items()}

    def actors(self, learner: Learners) -> Actors:
        """Return the actors as they are."""
        return {role: one.policy.actor for role, one in learner.items()}

    def policies(self, learner: Learners) -> Policies:
        """Return actors and critics as they are."""
        return {role: one.policy for role, one in learner.items()}

    def update(
        self, learner: Learners, rollout: Transition, iterations: Count, *, key: PRNGKeyArray
    ) -> tuple[Learners, dict[str, Array]]:
        """Improve every role by the rollout."""
        optimizer = make_optimizer(self, iterations)
        roles, learners, metrics = rollout.scene.layout.controlled_roles, {}, {}
        for role, key_role in zip(roles, jax.random.split(key, len(roles)), strict=True):
            learners[role], info = improve(self, optimizer, learner[role], rollout, role, key_role)
            info["learning_rate"] = learning_rate(self, iterations, learner[role].actor_opt)
            metrics |= {f"{role}/{name}": value for name, value in info.items()}
        return learners, metrics


class Learner(eqx.Module):
    """Everything one role learns with."""

    policy: RolePolicy
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    norm: ValueNorm


Learners = dict[str, Learner]  # one for each controlled role


class Batch(eqx.Module):
    """What the losses need, one row for each environment step."""

    scene: Scene
    local: Float[Array, "batch members dim"]
    log_prob: Float[Array, "batch members"]
    advantage: Float[Array, "batch members"]
    target: Float[Array, "batch members"]  # normalised returns
    value: Float[Array, "batch members"]  # normalised values before the update
    mask: Bool[Array, "batch members"]


def make_optimizer(config: Any, iterations: Count) -> optax.GradientTransformation:
    """Return Adam with a gradient-norm limit, the rate falling linearly to zero over the whole training."""

    def rate(count: Any) -> Array:
        return config.lr * _share_left(count, iterations * config.updates) if config.anneal else jnp.asarray(config.lr)

    steps = optax.chain(optax.clip_by_global_norm(config.grad_norm), optax.adam(rate, eps=1e-5))
    return optax.flatten(steps)  # one long vector: a handful of operations instead of some for each of 80 arrays


def _share_left(count: Array, total: Count) -> Array:
    """Return which share of all gradient steps is still to come, also if a run was extended."""
    return 1 - jnp.minimum(count.astype(jnp.float32) / jnp.asarray(total, jnp.float32), 1.0)


def learning_rate(config: Any, iterations: Count, state: optax.OptState) -> Float[Array, ""]:
    """Return the rate of the next gradient step of an optimiser in such a state."""
    return config.lr * (share_left(config, iterations, state) if config.anneal else jnp.ones(()))


def share_left(config: Any, iterations: Count, state: optax.OptState) -> Float[Array, ""]:
    """Return which share of a training is still to come after an optimiser's steps."""
    count = optax.tree_utils.tree_get_all_with_path(state, "count")[0][1]
    return _share_left(count, iterations * config.updates)


def new_learner(policy: RolePolicy, optimizer: optax.GradientTransformation, members: int) -> Learner:
    """Return a policy of a role with so many members, with fresh optimiser states."""
    actor: Any = policy.actor  # modules are pytrees of parameters, which optax's types do not say
    critic: Any = policy.critic
    return Learner(policy, optimizer.init(actor), optimizer.init(critic), ValueNorm.fresh(members))


def improve(
    config: Mappo,
    optimizer: optax.GradientTransformation,
    learner: Learner,
    rollout: Transition,
    role: str,
    key: PRNGKeyArray,
) -> tuple[Learner, dict[str, Array]]:
    """Improve one role by one rollout: values, advantages, then epochs of minibatches."""
    norm, batch = _prepare(config, learner, rollout, role)

    def epoch(carry: tuple[RolePolicy, optax.OptState, optax.OptState], key: PRNGKeyArray):
        def step(carry, minibatch: Batch):
            policy, actor_opt, critic_opt = carry
            grads, info = jax.grad(losses, has_aux=True)(policy, minibatch, role, config)
            info["actor_gradient"], info["critic_gradient"] = map(optax.tree.norm, (grads.actor, grads.critic))
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
    metrics = {name: values.mean() for name, values in info.items()}
    return Learner(policy, actor_opt, critic_opt, norm), {
        **metrics,
        "explained_variance": explained_variance(batch, learner.norm, norm, config.value_floor),
    }


def explained_variance(batch: Batch, before: ValueNorm, after: ValueNorm, floor: float) -> Float[Array, ""]:
    """Return the share of the variance of returns that the values before an update explain."""
    (old_mean, old_deviation), (mean, deviation) = (norm.statistics(batch.mask, floor) for norm in (before, after))
    returns = batch.target * deviation + mean
    error = returns - (batch.value * old_deviation + old_mean)
    return 1 - _variance(error, batch.mask) / jnp.maximum(_variance(returns, batch.mask), 1e-8)


def losses(policy: RolePolicy, batch: Batch, role: str, config: Mappo) -> tuple[Array, dict[str, Array]]:
    """Return both losses in one sum: actor and critic share no parameters, so each gets its own gradient."""

    decisions = over_members(lambda scene, member: decide_one(policy.actor, scene, role, member), batch.scene, role)
    actor, actor_info = actor_loss(decisions, batch, config)
    critic, critic_info = critic_loss(values_of(policy.critic, batch.scene, role, config), batch, config)
    return actor + critic, {**actor_info, **critic_info}


def values_of(critic: Any, scenes: Scene, role: str, config: Mappo) -> Float[Array, "batch members"]:
    """Return the critic's values for all members of a role in a batch of scenes."""
    if config.central and isinstance(critic, PairCritic):
        return critic.values(scenes, role)
    return over_members(lambda scene, member: value_of(critic, scene, role, member, config), scenes, role)


def value_of(critic: Any, scene: Scene, role: str, member: Int[Array, ""], config: Mappo) -> Float[Array, ""]:
    """Return the critic's value for one agent, of the whole state or of what the agent itself sees."""
    return critic(scene if config.central else seen_alone(scene, role, member), role, member)


def actor_loss(decisions: Decision, batch: Batch, config: Mappo) -> tuple[Array, dict[str, Array]]:
    """Return -min(rho A, clip(rho) A) - c min(H, enough) over the agents of a role.

    Tasks limit actions, so noise far beyond the limit costs no more: without a ceiling on what entropy earns, noise
    and means would grow together until every action is at the limit.
    """
    log_prob = jax.vmap(jax.vmap(lambda decision, local: decision.log_prob(local)))(decisions, batch.local)
    entropy = jax.vmap(jax.vmap(lambda decision: decision.entropy()))(decisions)
    log_ratio = jnp.clip(log_prob - batch.log_prob, -20.0, 20.0)  # a ratio of e^20 is clipped anyway; inf is not
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    gain = jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
    size = batch.local.shape[-1]
    enough = size * (0.5 + 0.5 * math.log(2 * math.pi) + math.log(config.noise_ceiling))
    bonus = config.entropy * masked_mean(jnp.minimum(entropy, enough), batch.mask)
    loss = -masked_mean(gain, batch.mask) - bonus
    kl = masked_mean(ratio - 1 - log_ratio, batch.mask)
    far = (jnp.abs(ratio - 1) > config.clip).astype(ratio.dtype)
    return loss, {
        "actor_loss": loss,
        "entropy": masked_mean(entropy, batch.mask),
        "kl": kl,
        "clip_fraction": masked_mean(far, batch.mask),
        "deviation": masked_mean(jnp.exp(decisions.log_std).mean(-1), batch.mask),
    }


def critic_loss(value: Float[Array, "batch members"], batch: Batch, config: Mappo) -> tuple[Array, dict[str, Array]]:
    """Return the Huber loss of normalised values, the larger of the plain and the clipped one."""
    loss = optax.huber_loss(value, batch.target, delta=config.huber)
    if config.clip_value:
        near = batch.value + jnp.clip(value - batch.value, -config.clip, config.clip)
        loss = jnp.maximum(loss, optax.huber_loss(near, batch.target, delta=config.huber))
    loss = masked_mean(loss, batch.mask)
    return loss, {"critic_loss": loss}


def _prepare(config: Mappo, learner: Learner, rollout: Transition, role: str) -> tuple[ValueNorm, Batch]:
    """Return values, advantages and returns of a rollout, flattened to one row for each environment step."""
    block = rollout.scene.layout.block(role)
    mask = rollout.scene.exists[..., block]
    mean, deviation = learner.norm.statistics(mask, config.value_floor)

    @jax.jit  # traced once
    def values(scenes: Scene) -> Array:
        return jax.vmap(lambda row: values_of(learner.policy.critic, row, role, config))(scenes)

    normalised = values(rollout.scene)
    value = normalised * deviation + mean
    next_mean, next_deviation = learner.norm.statistics(rollout.next_scene.exists[..., block], config.value_floor)
    next_value = values(rollout.next_scene) * next_deviation + next_mean
    terminated = rollout.terminated[..., None] | ~rollout.next_scene.exists[..., block]
    truncated = jnp.broadcast_to(rollout.truncated[..., None], mask.shape)
    advantage = generalised_advantages(
        rollout.reward[..., block],
        value,
        next_value,
        terminated,
        truncated,
        gamma=config.gamma,
        lam=config.lam,
    )
    returns = advantage + value
    norm = learner.norm.update(returns, mask, config.value_decay)
    new_mean, new_deviation = norm.statistics(mask, config.value_floor)
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


def _variance(values: Float[Array, "*n"], mask: Bool[Array, "*n"]) -> Float[Array, ""]:
    return masked_mean((values - masked_mean(values, mask)) ** 2, mask)


def _split(batch: Batch, minibatches: int, key: PRNGKeyArray) -> Batch:
    """Return shuffled minibatches; a single one is the batch as it is."""
    if minibatches > 1:
        order = jax.random.permutation(key, batch.mask.shape[0])
        batch = jax.tree.map(lambda x: x[order], batch)
    return divided(jax.tree.map(lambda x: x.reshape(minibatches, -1, *x.shape[1:]), batch), axis=1)
