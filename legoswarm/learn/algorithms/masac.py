"""MASAC: soft actor-critic for teams, from a replay of what was collected (Haarnoja et al. 2018; Lowe et al. 2017).

Each role has an actor, two critics of everybody's actions, and a temperature that holds the noise of its actions at a
given deviation. The critics see actions through numbers that no rotation, reflection, translation or exchange of
entities changes, whatever the policy.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.configs import check_fields, option
from legoswarm.learn.algorithms.algorithm import ALGORITHMS, Count
from legoswarm.learn.algorithms.mappo import learning_rate, make_optimizer, share_left
from legoswarm.learn.replay import Experience, Replay
from legoswarm.learn.rollout import Transition, draw
from legoswarm.learn.scales import ValueNorm, masked_mean
from legoswarm.policies.networks.layers import orthogonalise
from legoswarm.policies.networks.pairs import PairCritic
from legoswarm.policies.networks.roles import Actor, Policies, RolePolicy
from legoswarm.policies.networks.team import Actors, world_actions
from legoswarm.policies.policy import Policy
from legoswarm.scene import Scene
from legoswarm.tasks.task import Task


@ALGORITHMS.register
@dataclasses.dataclass(frozen=True)
class Masac:
    """MASAC: each role's actor from its own observations, its critics from the whole state and everybody's actions."""

    name: ClassVar[str] = "masac"
    needs: ClassVar[dict[str, Any]] = {"critic": "none", "squash": 8.0}

    envs: int = option(256, "worlds side by side", low=1)
    rollout: int = option(1, "steps between updates", low=1)
    updates: int = option(8, "gradient steps after each rollout", low=1)
    samples: int = option(512, "transitions in each gradient step", low=1)
    capacity: int = option(100_000, "transitions that are kept", low=1)
    warmup: int = option(5_000, "transitions to collect before the first gradient step", low=0)
    patience: int = option(
        0, "transitions after the warmup in which critics learn alone; with --from a tenth of the steps", low=0
    )
    lr: float = option(1e-3, "learning rate", above=0, traced=True)
    anneal: bool = option(True, "let the learning rate fall linearly to zero")
    gamma: float = option(0.95, "discount", low=0, high=0.9999, traced=True)
    tau: float = option(
        0.01, "share of the way that target critics follow in a gradient step", above=0, high=1, traced=True
    )
    noise: float = option(0.3, "deviation of actions that the temperature aims at", above=0, traced=True)
    temperature: float = option(0.01, "initial temperature", above=0)
    cost_limit: float = option(
        0.0, "mean cost of a step to stay below, where the task counts costs; 0: costs are not looked at", low=0
    )
    cost_start: float = option(
        0.5, "share of the training after which costs are held below their limit", low=0, high=1, traced=True
    )
    multiplier: float = option(0.1, "initial weight of costs, which grows while they are above the limit", above=0)
    multiplier_most: float = option(10.0, "largest weight of costs", above=0)
    population: int = option(
        0, "parts of the training whose last actors the other roles go on learning against; 0: none", low=0, high=64
    )
    critic_width: int = option(64, "features of every layer of the critics", low=1)
    reward_decay: float = option(0.999, "decay of the reward normalisation", low=0, high=0.999999)
    reward_floor: float = option(0.01, "least variance of the reward normalisation", above=0)
    grad_norm: float = option(10.0, "largest gradient norm", above=0)

    def __post_init__(self) -> None:
        check_fields(self)
        if max(self.envs * self.rollout, self.warmup + self.patience) > self.capacity:
            raise ValueError(
                f"a capacity of {self.capacity} transitions must hold a rollout, the warmup and the patience"
            )
        if self.population == 1:
            raise ValueError("population must be 0 or at least 2: the first part of a training has no part before it")
        if self.multiplier > self.multiplier_most:
            raise ValueError(f"multiplier must be at most multiplier_most, {self.multiplier_most}")

    def check(self, policy: Policy, task: Task) -> None:
        """Refuse a policy with a critic or without a bound on its actions, and a limit on costs that nobody counts."""
        if self.cost_limit and not hasattr(task, "cost"):
            raise ValueError(
                f"the task {task.name} counts no costs: there is nothing that a cost limit could hold down"
            )
        if self.population and task.layout.controlled < 2:
            raise ValueError(f"the task {task.name} has one role that acts: it meets no population")
        if policy.critic != "none" or not policy.squash > 0:
            raise ValueError(f"{self.name} needs a policy with the critic none and a squash, the bound of its actions")

    def init(self, policies: Policies, task: Task, iterations: int, *, key: PRNGKeyArray) -> Learner:
        """Return the policies' actors with fresh critics and temperatures, and an empty replay."""
        optimizer, roles = make_optimizer(self, iterations), {}
        config = Policy(width=self.critic_width, precision="float32")  # actors learn from the slope of critics
        for (role, policy), key_role in zip(policies.items(), jax.random.split(key, len(policies)), strict=True):
            key_weights, *keys = jax.random.split(key_role, 3)
            near = getattr(policy.actor, "nearest", 0)
            pair = [PairCritic(config, task.layout, acts=True, nearest=near, key=k) for k in keys]
            pair = orthogonalise(pair, key=key_weights)
            critics, log_weight = Critics(jax.tree.map(lambda *both: jnp.stack(both), *pair), None), None
            if self.cost_limit:
                own = PairCritic(config, task.layout, acts=True, nearest=near, key=jax.random.fold_in(key_role, 0))
                critics = Critics(critics.reward, jax.tree.map(lambda x: x[None], own))
                log_weight = jnp.log(jnp.array(self.multiplier))
            learned: Any = Learned(policy.actor, critics, jnp.log(jnp.array(self.temperature)), log_weight)
            rewards = ValueNorm.fresh(task.layout.members(role))
            roles[role] = RoleLearner(learned, critics, rewards, optimizer.init(learned))
        actors = {role: one.learned.actor for role, one in roles.items()}
        past = jax.tree.map(lambda x: jnp.stack([x] * self.population), actors) if self.population else None
        return Learner(roles, Replay.empty(task, self.capacity), past)

    def actors(self, learner: Learner) -> Actors:
        """Return the actors as they are."""
        return {role: one.learned.actor for role, one in learner.roles.items()}

    def policies(self, learner: Learner) -> Policies:
        """Return the actors alone."""
        return {role: RolePolicy(one.learned.actor, None) for role, one in learner.roles.items()}

    def update(
        self, learner: Learner, rollout: Transition, iterations: Count, *, key: PRNGKeyArray
    ) -> tuple[Learner, dict[str, Array]]:
        """Store a rollout, then take gradient steps on samples of all that is stored."""
        new = Experience(
            rollout.scene, rollout.next_scene, rollout.action, rollout.reward, rollout.terminated, rollout.cost
        )
        new = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), new)
        replay = learner.replay.store(new)
        before = {role: self._rescaled(one, new, role) for role, one in learner.roles.items()}
        acts = (replay.filled >= self.warmup + self.patience).astype(jnp.float32)
        past, era = self._population(learner, iterations)
        paid = {role: replay.rows.paid(role) for role in before}

        def step(roles: Roles, key: PRNGKeyArray) -> tuple[Roles, dict[str, Array]]:
            key_sample, key_improve = jax.random.split(key)
            batch, after, metrics = replay.sample(self.samples, key=key_sample), {}, {}
            everybody = opponents(roles, past, era, key=jax.random.fold_in(key, 0))
            for role in roles:
                how: dict[str, Any] = {"acts": acts, "paid": paid[role], "everybody": everybody, "key": key_improve}
                after[role], info = self.improve(roles, role, batch, iterations, **how)
                metrics |= {f"{role}/{name}": value for name, value in info.items()}
            return after, metrics

        after, metrics = jax.lax.scan(step, before, jax.random.split(key, self.updates))
        ready = replay.filled >= self.warmup
        roles = jax.tree.map(lambda new, old: jnp.where(ready, new, old), after, before)
        return Learner(roles, replay, past), {name: values.mean() for name, values in metrics.items()}

    def _population(self, learner: Learner, iterations: Count) -> tuple[Actors | None, Int[Array, ""]]:
        """Return the population with the actors of now in the place of the present era, and which era that is.

        A training has as many eras of equal length as the population has places; later places are still unused.
        """
        optimizer = next(iter(learner.roles.values())).optimizer
        gone = self.population * (1 - share_left(self, iterations, optimizer))
        era = jnp.clip(gone.astype(jnp.int32), 0, max(self.population - 1, 0))
        if learner.past is None:
            return None, era
        return jax.tree.map(lambda old, new: old.at[era].set(new), learner.past, self.actors(learner)), era

    def improve(
        self,
        roles: Roles,
        role: str,
        batch: Experience,
        iterations: Count,
        *,
        acts: Float[Array, ""] | float = 1.0,
        paid: Float[Array, ""] | float = 0.0,
        everybody: Actors | None = None,
        key: PRNGKeyArray,
    ) -> tuple[RoleLearner, dict[str, Array]]:
        """Take one gradient step with a role's critics, actor and temperature, and let its target critics follow.

        The actor and the temperature stay as they are while `acts` is 0. `paid` is the mean cost of late, which decides
        whether costs are to weigh more. `everybody` says who plays the other roles, by default as they are now.
        """
        learner, actors = roles[role], everybody or opponents(roles, None, 0, key=key)
        actors = {**actors, role: learner.learned.actor}
        key_next, key_now = jax.random.split(key)
        limits = (share_left(self, iterations, learner.optimizer) <= 1 - self.cost_start).astype(jnp.float32)
        (target, cost_target), there = self.target(learner, actors, batch, role, key=key_next), batch.exists(role)

        def losses(learned: Learned) -> tuple[Array, dict[str, Array]]:
            """Return the losses in one sum: each part of what is learned gets its gradient from one of them."""
            error = values(learned.critics.reward, batch.scene, batch.action, role) - target[None]
            critic = masked_mean(error * error, jnp.broadcast_to(there, error.shape))
            critics, everybody = stop_gradient(learned.critics), {**actors, role: learned.actor}
            value, entropy, cost = outlook(critics, everybody, batch.scene, role, key=key_now)
            temperature = jnp.exp(learned.log_temperature)
            actor = -masked_mean(value + stop_gradient(temperature) * entropy, there)
            entropy = masked_mean(entropy, there)
            enough = batch.action.shape[-1] * (0.5 * math.log(2 * math.pi * math.e) + jnp.log(self.noise))
            info = {"critic_loss": critic, "actor_loss": actor, "entropy": entropy, "temperature": temperature}
            duals = learned.log_temperature * stop_gradient(entropy - enough)
            if learned.critics.cost is not None and learned.log_weight is not None:
                wrong = values(learned.critics.cost, batch.scene, batch.action, role)[0] - cost_target
                weight = limits * jnp.exp(learned.log_weight)
                duals -= limits * learned.log_weight * jnp.clip(paid / self.cost_limit - 1, -1.0, 1.0)
                critic += masked_mean(wrong * wrong, there)
                actor += stop_gradient(weight) * masked_mean(cost, there)
                info |= {"cost": jnp.asarray(paid, weight.dtype), "cost_weight": weight}
            return critic + acts * (actor + duals), info

        learned: Any = learner.learned
        gradient, info = jax.grad(losses, has_aux=True)(learned)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
            steps, optimizer = make_optimizer(self, iterations).update(gradient, learner.optimizer)
        info["gradient"] = optax.tree.norm(gradient)
        info["learning_rate"] = learning_rate(self, iterations, learner.optimizer)
        learned = eqx.apply_updates(learned, steps)
        if learned.log_weight is not None:
            within = jnp.clip(learned.log_weight, jnp.log(self.multiplier), jnp.log(self.multiplier_most))
            learned = eqx.tree_at(lambda one: one.log_weight, learned, within)
        targets = jax.tree.map(lambda old, new: old + self.tau * (new - old), learner.targets, learned.critics)
        return RoleLearner(learned, targets, learner.rewards, optimizer), info

    def target(
        self, learner: RoleLearner, actors: Actors, batch: Experience, role: str, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "batch members"], Float[Array, "batch members"]]:
        """Return r + gamma (1 - terminated) (min Q' + temperature H') in the units of the critics; the dead end too.

        Beside it stands c + gamma (1 - terminated) Q_c', the costs to come; zero if they are not limited.

        Critics say how many s / (1 - gamma) a value lies above m / (1 - gamma), with m and s the mean and the deviation
        of rewards in teams of that size: numbers of order 1 in every task, at which the initial weights, the step size
        and the temperature are right. An episode that its time limit cuts off goes on in the target.
        """
        value, entropy, cost = outlook(learner.targets, actors, batch.next_scene, role, key=key)
        soft = value + jnp.exp(learner.learned.log_temperature) * entropy
        block = batch.scene.layout.block(role)
        survive = batch.next_scene.exists[:, block]
        (mean, deviation), (next_mean, next_deviation) = (
            (x / (1 - self.gamma) for x in learner.rewards.statistics(there, self.reward_floor))
            for there in (batch.exists(role), survive)
        )
        goes_on = (~batch.terminated[:, None] & survive).astype(soft.dtype)
        reward = batch.reward[:, block]
        target = (reward + self.gamma * goes_on * (next_mean + next_deviation * soft) - mean) / deviation
        paid = jnp.zeros_like(reward) if batch.cost is None else batch.cost[:, block]
        return target, paid + self.gamma * goes_on * cost

    def _rescaled(self, learner: RoleLearner, new: Experience, role: str) -> RoleLearner:
        """Let the mean and the deviation of a role's rewards follow what was collected."""
        reward = new.reward[:, new.scene.layout.block(role)]
        rewards = learner.rewards.update(reward, new.exists(role), self.reward_decay)
        return eqx.tree_at(lambda one: one.rewards, learner, rewards)


class Critics(eqx.Module):
    """What is expected of rewards and, if costs are limited, of costs."""

    reward: PairCritic  # two of them, along a leading axis
    cost: PairCritic | None  # one, along a leading axis


class Learned(eqx.Module):
    """What gradients change, for one role."""

    actor: Actor
    critics: Critics
    log_temperature: Float[Array, ""]
    log_weight: Float[Array, ""] | None  # of costs (Ha et al. 2020)


class RoleLearner(eqx.Module):
    """Everything one role learns with."""

    learned: Learned
    targets: Critics  # which follow the critics slowly
    rewards: ValueNorm
    optimizer: optax.OptState


Roles = dict[str, RoleLearner]  # one for each controlled role


class Learner(eqx.Module):
    """All roles, and what they remember together."""

    roles: Roles
    replay: Replay
    past: Actors | None  # the population: actors of each era of the training, along a leading axis


def opponents(roles: Roles, past: Actors | None, era: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Actors:
    """Return all actors as they are now or, every other time if there is a population, those of an era so far."""
    now = {role: one.learned.actor for role, one in roles.items()}
    if past is None:
        return now
    key_whether, key_which = jax.random.split(key)
    newest, at = jax.random.bernoulli(key_whether), jax.random.randint(key_which, (), 0, era + 1)
    return jax.tree.map(lambda new, old: jnp.where(newest, new, old[at]), now, past)


def outlook(
    critics: Critics, actors: Actors, scenes: Scene, role: str, *, key: PRNGKeyArray
) -> tuple[Float[Array, "batch members"], Float[Array, "batch members"], Float[Array, "batch members"]]:
    """Return what the more cautious critic expects of actions that everybody draws now, their entropy, and their costs.

    Of a draw's -log pi only the squash's share is taken from the draw: the mean of the Gaussian's is known.
    """

    def one(scene: Scene, key: PRNGKeyArray) -> tuple[Array, Array]:
        decisions, local = draw(actors, scene, key)
        entropy = jax.vmap(lambda decision, action: decision.entropy() + decision.log_slope(action))
        return world_actions(scene.layout, decisions, local), entropy(decisions[role], local[role])

    action, entropy = jax.vmap(one)(scenes, jax.random.split(key, len(scenes.exists)))
    cost = jnp.zeros_like(entropy) if critics.cost is None else values(critics.cost, scenes, action, role)[0]
    return values(critics.reward, scenes, action, role).min(0), entropy, cost


def values(
    critics: PairCritic, scenes: Scene, action: Float[Array, "batch agents dim"], role: str
) -> Float[Array, "critics batch members"]:
    """Return what each critic says of everybody's actions, for each member of a role."""
    return jax.vmap(lambda critic: critic.values(scenes, role, action))(critics)
