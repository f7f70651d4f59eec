"""The training program: collect, estimate advantages, update; pure, for one seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from legoswarm.evaluate.episodes import evaluate
from legoswarm.learn.algorithms.mappo import Learner, MappoConfig, improve, make_optimizer, masked_mean, new_learner
from legoswarm.learn.rollout import Transition, collect, reset_worlds
from legoswarm.policies import Policies, PolicyConfig, make_policies
from legoswarm.tasks import State, Task

Tree = TypeVar("Tree")

RUNAWAY = 1e3  # an agent this far from the origin has left the task for good


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """All that decides a training run's result, beside the seed."""

    task: Task
    policy: PolicyConfig = dataclasses.field(default_factory=PolicyConfig)
    mappo: MappoConfig = dataclasses.field(default_factory=MappoConfig)
    steps: int = 2_000_000

    def __post_init__(self) -> None:
        if self.steps < self.mappo.batch:
            raise ValueError(
                f"{self.steps} steps are fewer than one batch"
                f" ({self.mappo.envs} envs x {self.mappo.rollout} steps = {self.mappo.batch})"
            )

    @property
    def iterations(self) -> int:
        """Rollouts in the whole training."""
        return self.steps // self.mappo.batch


class TrainState(eqx.Module):
    """Everything that training carries from one iteration to the next."""

    learners: dict[str, Learner]
    worlds: State
    key: PRNGKeyArray
    iteration: Int[Array, ""]
    healthy: Bool[Array, ""]  # False once a seed has diverged; its state stays at the last good iteration
    cause: Int[Array, ""]  # why: index into CAUSES


CAUSES = ("", "parameters that are not finite", f"positions beyond {RUNAWAY:g}")


class Training(NamedTuple):
    """The pure functions of a training run."""

    init: Callable[..., TrainState]  # key, policies or None
    advance: Callable[[TrainState, Array], tuple[TrainState, dict[str, Array]]]  # state, iterations
    evaluate: Callable[[TrainState, PRNGKeyArray, int], dict[str, Array]]  # state, key, episodes


def make_train(config: TrainConfig) -> Training:
    """The functions that train one seed; jit and vmap compose around them."""
    task, mappo = config.task, config.mappo
    optimizer = make_optimizer(mappo, config.iterations)

    def init(key: PRNGKeyArray, policies: Policies | None = None) -> TrainState:
        """A fresh state; with `policies`, a warm start from trained ones."""
        key_policy, key_worlds, key_train = jax.random.split(key, 3)
        if policies is None:
            policies = make_policies(config.policy, task.layout, key=key_policy)
        learners = {
            role: new_learner(_strongly_typed(policy), optimizer, task.layout.members(role))
            for role, policy in policies.items()
        }
        worlds = _strongly_typed(reset_worlds(task, key_worlds, mappo.envs, mappo.rollout))
        zero = jnp.zeros((), jnp.int32)
        return TrainState(learners, worlds, key_train, zero, jnp.array(True), zero)

    @jax.jit  # `advance` needs it twice; so it is traced once
    def iterate(state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        """Collect, improve every role, and keep the old state if the new one has diverged."""
        key, key_collect, key_improve = jax.random.split(state.key, 3)
        actors = {role: learner.policy.actor for role, learner in state.learners.items()}
        worlds, rollout = collect(task, actors, state.worlds, key_collect, mappo.rollout)
        learners, metrics = {}, {}
        roles = task.layout.controlled_roles
        for role, key_role in zip(roles, jax.random.split(key_improve, len(roles)), strict=True):
            learners[role], info = improve(mappo, optimizer, state.learners[role], rollout, role, key_role)
            metrics |= {f"{role}/{name}": value for name, value in info.items()}
            metrics[f"{role}/return"] = _mean_return(task, rollout, role)
        cause = _divergence(learners, rollout)
        after = TrainState(learners, worlds, key, state.iteration + 1, cause == 0, cause)
        good = state.healthy & after.healthy
        kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), after, state)
        cause = jnp.where(state.healthy, cause, state.cause)
        return eqx.tree_at(lambda s: (s.healthy, s.cause), kept, (good, cause)), metrics

    def advance(state: TrainState, iterations: Int[Array, ""]) -> tuple[TrainState, dict[str, Array]]:
        """Several iterations, any number with one compilation; metrics are means over them."""
        shapes = jax.eval_shape(iterate, state)[1]
        # Tied to the state, or else vmap over seeds goes through the whole loop twice to see that all of it is mapped.
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype) * state.iteration.astype(s.dtype), shapes)

        def body(_: Array, carry: tuple[TrainState, dict[str, Array]]):
            state, total = carry
            state, metrics = iterate(state)
            return state, jax.tree.map(jnp.add, total, metrics)

        state, total = jax.lax.fori_loop(0, iterations, body, (state, zeros))
        return state, jax.tree.map(lambda x: x / jnp.maximum(iterations, 1).astype(x.dtype), total)

    def figures(state: TrainState, key: PRNGKeyArray, episodes: int) -> dict[str, Array]:
        """Mean figures of mean-action episodes."""
        actors = {role: learner.policy.actor for role, learner in state.learners.items()}
        return {name: values.mean() for name, values in evaluate(task, actors, key, episodes).items()}

    return Training(init, advance, figures)


def _strongly_typed(tree: Tree) -> Tree:
    """Without weak types (of what was made from Python numbers): training gives strong ones back, another program."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), tree)


def _mean_return(task: Task, rollout: Transition, role: str) -> Float[Array, ""]:
    """An agent's mean reward for a step times the horizon: the return under exploration."""
    block = task.layout.block(role)
    return masked_mean(rollout.reward[..., block], rollout.scene.exists[..., block]) * task.horizon


def _divergence(learners: dict[str, Learner], rollout: Transition) -> Int[Array, ""]:
    """Index into CAUSES."""
    learned = [(learner.policy, learner.norm) for learner in learners.values()]
    finite = jnp.isfinite(ravel_pytree(learned)[0]).all()
    scene = rollout.next_scene
    inside = (jnp.abs(scene.position) <= RUNAWAY).all() & jnp.isfinite(scene.velocity).all()
    return jnp.where(~finite, 1, jnp.where(~inside, 2, 0))
