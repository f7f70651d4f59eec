"""The training program: collect, update, keep the old state if the new one has diverged; pure, for one seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from legoswarm.configs import option
from legoswarm.evaluate.episodes import evaluate
from legoswarm.learn.algorithms.algorithm import ALGORITHMS, Algorithm
from legoswarm.learn.rollout import Transition, collect, reset_worlds
from legoswarm.policies.lego import LegoPolicy
from legoswarm.policies.networks.roles import Policies, make_policies
from legoswarm.policies.policy import POLICIES, Policy
from legoswarm.policies.saved.description import check_slots
from legoswarm.tasks.task import TASKS, State, Task

Tree = TypeVar("Tree")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """All that decides a training run's result, beside the seed.

    Without an algorithm it is MAPPO with the values that were found for the policy.
    """

    task: Task
    policy: Policy = dataclasses.field(default_factory=LegoPolicy)
    algorithm: Any = None  # an Algorithm
    steps: int = option(2_000_000, "environment steps for each seed")
    runaway: float = option(1e3, "coordinate beyond which an agent has left the task for good: its seed has diverged")

    def __post_init__(self) -> None:
        algorithm = tuned_algorithm("mappo", self.policy) if self.algorithm is None else self.algorithm
        object.__setattr__(self, "algorithm", algorithm)
        algorithm.check(self.policy)
        check_slots(self.task.layout.slots)
        envs, rollout = algorithm.envs, algorithm.rollout
        if not self.batch <= self.steps < 2**31 * self.batch:
            raise ValueError(f"{self.steps} steps are not one to 2^31 batches of {envs} envs x {rollout} steps")
        if not self.runaway > 0:
            raise ValueError(f"runaway must be positive, not {self.runaway}")

    @property
    def batch(self) -> int:
        """Count the environment steps of one iteration."""
        return self.algorithm.envs * self.algorithm.rollout

    @property
    def iterations(self) -> int:
        """Count the rollouts in the whole training."""
        return self.steps // self.batch


def configure(
    task: str | Task,
    policy: str | Policy = "lego",
    algorithm: str = "mappo",
    *,
    steps: int | None = None,
    runaway: float | None = None,
    **options: Any,
) -> TrainConfig:
    """Return the training that a few words name, the same from Python and from the command line.

    `options` are fields of the task, the policy or the algorithm; one that none of them has is refused by name. What is
    not given is what was found for the policy with this algorithm, else the class's own default.
    """
    method: Any = ALGORITHMS[algorithm]
    classes: list[Any] = [
        TASKS[task] if isinstance(task, str) else type(task),
        POLICIES[policy] if isinstance(policy, str) else type(policy),
        method,
    ]
    parts = [{field.name for field in dataclasses.fields(cls)} for cls in classes]
    if unknown := sorted(set(options) - set().union(*parts)):
        names = [cls.name for cls in classes]
        raise ValueError(f"neither the task {names[0]} nor the policy {names[1]} nor {names[2]} has {unknown[0]!r}")
    given = [{name: value for name, value in options.items() if name in part} for part in parts]
    chosen_task = TASKS.make(task, **given[0]) if isinstance(task, str) else dataclasses.replace(task, **given[0])  # pyright: ignore[reportArgumentType]
    if isinstance(policy, str):
        chosen = POLICIES.make(policy, **{**method.needs, **given[1]})
    else:
        chosen = dataclasses.replace(policy, **given[1])
    more: dict[str, Any] = {
        name: value for name, value in (("steps", steps), ("runaway", runaway)) if value is not None
    }
    return TrainConfig(chosen_task, chosen, tuned_algorithm(algorithm, chosen, **given[2]), **more)


def tuned_algorithm(name: str, policy: Policy | type[Policy], **given: Any) -> Algorithm:
    """Return an algorithm with the values that were found for a policy with it, or with what it is a kind of."""
    kinds = [getattr(cls, "name", "") for cls in reversed(ALGORITHMS[name].__mro__)]
    found = {field: value for kind in kinds for field, value in policy.tuned.get(kind, {}).items()}
    return ALGORITHMS.make(name, **{**found, **given})


class TrainState(eqx.Module):
    """Everything that training carries from one iteration to the next."""

    learners: Any  # the algorithm's
    worlds: State
    key: PRNGKeyArray
    iteration: Int[Array, ""]
    healthy: Bool[Array, ""]  # False once a seed has diverged; its state stays at the last good iteration
    cause: Int[Array, ""]  # why: index into CAUSES


CAUSES = ("", "parameters that are not finite", "positions beyond {runaway:g}")


class Program(NamedTuple):
    """The pure functions of a training run."""

    init: Callable[..., TrainState]  # key, policies or None
    advance: Callable[[TrainState, Array], tuple[TrainState, dict[str, Array]]]  # state, iterations
    evaluate: Callable[[TrainState, PRNGKeyArray, int], dict[str, Array]]  # state, key, episodes


def make_train(config: TrainConfig) -> Program:
    """Return the functions that train one seed; jit and vmap compose around them."""
    task, algorithm = config.task, config.algorithm

    def init(key: PRNGKeyArray, policies: Policies | None = None) -> TrainState:
        """Return a fresh state; with `policies`, a warm start from trained ones."""
        key_policy, key_worlds, key_train = jax.random.split(key, 3)
        if policies is None:
            policies = make_policies(config.policy, task.layout, key=key_policy)
        learners = algorithm.init(_strongly_typed(policies), task, config.iterations, key=key_policy)
        worlds = reset_worlds(task, key_worlds, algorithm.envs, algorithm.rollout)
        zero = jnp.zeros((), jnp.int32)
        return TrainState(_strongly_typed(learners), _strongly_typed(worlds), key_train, zero, jnp.array(True), zero)

    @jax.jit  # `advance` needs it twice; so it is traced once
    def iterate(state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        """Collect, update, and keep the old state if the new one has diverged."""
        key, key_collect, key_update = jax.random.split(state.key, 3)
        actors = algorithm.actors(state.learners)
        worlds, rollout = collect(task, actors, state.worlds, key_collect, algorithm.rollout)
        learners, metrics = algorithm.update(state.learners, rollout, config.iterations, key=key_update)
        metrics |= {f"{role}/return": _mean_return(task, rollout, role) for role in task.layout.controlled_roles}
        cause = _divergence(algorithm.policies(learners), rollout, config.runaway)
        after = TrainState(learners, worlds, key, state.iteration + 1, cause == 0, cause)
        good = state.healthy & after.healthy
        kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), after, state)
        cause = jnp.where(state.healthy, cause, state.cause)
        return eqx.tree_at(lambda s: (s.healthy, s.cause), kept, (good, cause)), metrics

    def advance(state: TrainState, iterations: Int[Array, ""]) -> tuple[TrainState, dict[str, Array]]:
        """Run several iterations, any number with one compilation; metrics are means over them."""
        shapes = jax.eval_shape(iterate, state)[1]
        # Tied to the state, or else vmap over seeds goes through the whole loop twice to see that all of it is mapped.
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype) * state.iteration.astype(s.dtype), shapes)

        def body(_: Array, carry: tuple[TrainState, dict[str, Array]]):
            state, total = carry
            state, metrics = iterate(state)
            return state, jax.tree.map(jnp.add, total, metrics)

        state, total = jax.lax.fori_loop(0, iterations, body, (state, zeros))
        return state, jax.tree.map(lambda x: x / jnp.maximum(iterations, 1).astype(x.dtype), total)

    def measure(state: TrainState, key: PRNGKeyArray, episodes: int) -> dict[str, Array]:
        """Return the mean figures of mean-action episodes."""
        actors = algorithm.actors(state.learners)
        return {name: values.mean() for name, values in evaluate(task, actors, key, episodes).items()}

    return Program(init, advance, measure)


def _strongly_typed(tree: Tree) -> Tree:
    """Take weak types off (of what was made from Python numbers): training gives strong ones back, another program."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), tree)


def _mean_return(task: Task, rollout: Transition, role: str) -> Float[Array, ""]:
    """Return an agent's mean reward for a step times the horizon: the return under exploration."""
    block = task.layout.block(role)
    there = rollout.scene.exists[..., block].astype(rollout.reward.dtype)
    return (rollout.reward[..., block] * there).sum() / jnp.maximum(there.sum(), 1.0) * task.horizon


def _divergence(policies: Policies, rollout: Transition, runaway: float) -> Int[Array, ""]:
    """Return the index into CAUSES of what has gone wrong, 0 for nothing."""
    finite = jnp.isfinite(ravel_pytree(policies)[0]).all()
    scene = rollout.next_scene
    inside = (jnp.abs(scene.position) <= runaway).all() & jnp.isfinite(scene.velocity).all()
    return jnp.where(~finite, 1, jnp.where(~inside, 2, 0))
