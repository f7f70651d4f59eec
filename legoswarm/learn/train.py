"""The training program: collect, update, keep the old state if the new one has diverged; pure, for one seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from legoswarm.configs import Registry, option, plain_fields, traced_fields, with_traced
from legoswarm.evaluate.episodes import evaluate
from legoswarm.learn.algorithms.algorithm import ALGORITHMS, Algorithm, Memory
from legoswarm.learn.rollout import Transition, collect, reset_worlds
from legoswarm.policies.lego import LegoPolicy
from legoswarm.policies.networks.roles import Policies, make_policies
from legoswarm.policies.policy import POLICIES, Policy
from legoswarm.policies.saved.description import check_slots
from legoswarm.tasks.adapters.outside import OutsideTask
from legoswarm.tasks.task import TASKS, Task

Tree = TypeVar("Tree")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """All that decides a training run's result, beside the seed.

    Without a policy it is LEGO as it suits the task. Without an algorithm it is the one that the policy's critic is
    for, with the values that were found for the policy and the task.
    """

    task: Task
    policy: Any = None  # a Policy
    algorithm: Any = None  # an Algorithm
    steps: int = option(2_000_000, "environment steps for each seed")
    runaway: float = option(1e3, "coordinate beyond which an agent has left the task for good: its seed has diverged")

    def __post_init__(self) -> None:
        name = self.algorithm.name if self.algorithm else own_algorithm(self.policy or LegoPolicy)
        policy: Any = self.policy or LegoPolicy(**suited(LegoPolicy.name, name, self.task))
        algorithm = self.algorithm or tuned_algorithm(name, policy, self.task)
        object.__setattr__(self, "policy", policy)
        object.__setattr__(self, "algorithm", algorithm)
        algorithm.check(policy, self.task)
        check_slots(self.task.layout.slots)
        envs, rollout = algorithm.envs, algorithm.rollout
        if not self.batch <= self.steps < 2**31 * self.batch:
            raise ValueError(f"{self.steps} steps are not one to 2^31 batches of {envs} envs x {rollout} steps")
        if self.iterations * getattr(algorithm, "updates", 1) >= 2**31:
            raise ValueError(f"{self.steps} steps are 2^31 gradient steps or more, which no run counts")
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
    algorithm: str | None = None,
    recipe: str | None = None,
    **options: Any,
) -> TrainConfig:
    """Return the training that a few words name, the same from Python and from the command line.

    `options` are `steps`, `runaway` and fields of the task, the policy or the algorithm; one that none of them has is
    refused by name. A policy's `recipe` is a set of them. What is not given is what was found for the task, or for the
    policy, with this algorithm, else the class's own default. Without an algorithm it is the one that the policy's
    critic is for.
    """
    if recipe is not None:
        recipes = (POLICIES[policy] if isinstance(policy, str) else policy).recipes
        if recipe not in recipes:
            known = ", ".join(recipes) or "none"
            raise ValueError(f"unknown recipe {recipe!r}; the policy has {known}")
        options = {**recipes[recipe], **options}
        algorithm = algorithm or options.get("algorithm")
        options.pop("algorithm", None)
    kind = POLICIES[policy] if isinstance(policy, str) else policy
    algorithm = algorithm or own_algorithm(kind, options.get("critic"))
    method: Any = ALGORITHMS[algorithm]
    classes: list[Any] = [
        TASKS[task] if isinstance(task, str) else type(task),
        POLICIES[policy] if isinstance(policy, str) else type(policy),
        method,
    ]
    parts = [{field.name for field in dataclasses.fields(cls)} for cls in classes] + [{"steps", "runaway"}]
    if unknown := sorted(set(options) - set().union(*parts)):
        names = [cls.name for cls in classes]
        raise ValueError(f"neither the task {names[0]} nor the policy {names[1]} nor {names[2]} has {unknown[0]!r}")
    given = [{name: value for name, value in options.items() if name in part} for part in parts]
    world = _made(TASKS, task, given[0])
    needed = suited(policy, algorithm, world) if isinstance(policy, str) else {}
    chosen = _made(POLICIES, policy, {**needed, **given[1]})
    return TrainConfig(
        world,
        chosen,
        tuned_algorithm(algorithm, chosen, world, **given[2]),
        **plain_fields(TrainConfig, given[3]),
    )


def _made(registry: Registry[Any], what: Any, fields: dict[str, Any]) -> Any:
    """Build what a name stands for, or change some fields of an object."""
    if isinstance(what, str):
        return registry.make(what, **fields)
    return dataclasses.replace(what, **plain_fields(type(what), fields))


def own_algorithm(policy: Policy | type[Policy], critic: str | None = None) -> str:
    """Name the algorithm that a policy's critic is for: without one, MASAC, which has its own."""
    return "masac" if (critic or policy.critic) == "none" else "mappo"


def suited(policy: str, algorithm: str, task: Task | None = None) -> dict[str, Any]:
    """Return the options of a policy that an algorithm needs, and those it has with it, or in a task, by default."""
    kind = POLICIES[policy]
    found = {**ALGORITHMS[algorithm].needs, **_found(kind.suits, algorithm), **_for_task(task, algorithm, kind)}
    if task and found.get("squash") and math.isfinite(task.action_limit.size):
        found["squash"] = task.action_limit.size  # what is longer would be cut off anyway
    return found


def _kinds(algorithm: str) -> list[str]:
    """Return the names of an algorithm and of what it is a kind of, that first."""
    return [getattr(cls, "name", "") for cls in reversed(ALGORITHMS[algorithm].__mro__)]


def tuned_algorithm(name: str, policy: Policy | type[Policy], task: Any = None, **given: Any) -> Algorithm:
    """Return an algorithm with the values that were found for a policy with it, and for a task."""
    return ALGORITHMS.make(name, **{**_found(policy.tuned, name), **_for_task(task, name, ALGORITHMS[name]), **given})


def _found(values: dict[str, dict[str, Any]], algorithm: str) -> dict[str, Any]:
    """Return the values that stand under an algorithm's name, or under that of what it is a kind of."""
    return {name: value for kind in _kinds(algorithm) for name, value in values.get(kind, {}).items()}


def _for_task(task: Any, algorithm: str, cls: Any) -> dict[str, Any]:
    """Return those values found for a task with an algorithm that are fields of a class."""
    fields = {field.name for field in dataclasses.fields(cls)}
    found = _found(getattr(task, "suits", {}), algorithm)
    return {name: value for name, value in found.items() if name in fields}


class TrainState(eqx.Module):
    """Everything that training carries from one iteration to the next."""

    learners: Any  # the algorithm's
    worlds: Any  # their State; of worlds that live outside JAX, nothing
    key: PRNGKeyArray
    iteration: Int[Array, ""]
    healthy: Bool[Array, ""]  # False once a seed has diverged; its state stays at the last good iteration
    cause: Int[Array, ""]  # why: index into CAUSES
    settings: dict[str, Array]  # numbers of the configuration, see `settings_of`


CAUSES = ("", "parameters that are not finite", "positions beyond {runaway:g}")


def settings_of(config: TrainConfig) -> dict[str, Array]:
    """Return the numbers that the compiled program takes as arguments: traced fields, and how long the run is."""
    numbers = {name: jnp.float32(getattr(config.algorithm, name)) for name in traced_fields(config.algorithm)}
    return {**numbers, "iterations": jnp.int32(config.iterations)}


def with_settings(state: TrainState, settings: dict[str, Array]) -> TrainState:
    """Return a state, of one seed or of several, with other settings."""
    copy = object.__new__(TrainState)  # shapes are checked for one seed only
    for name, value in {**vars(state), "settings": settings}.items():
        object.__setattr__(copy, name, value)
    return copy


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
        worlds = None if outside(task) else reset_worlds(task, key_worlds, algorithm.envs, algorithm.rollout)
        zero, learners, worlds = jnp.zeros((), jnp.int32), _strongly_typed(learners), _strongly_typed(worlds)
        return TrainState(learners, worlds, key_train, zero, jnp.array(True), zero, settings_of(config))

    @jax.jit  # `advance` needs it twice; so it is traced once
    def iterate(state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        """Collect, update, and keep the old state if the new one has diverged."""
        key, key_collect, key_update = jax.random.split(state.key, 3)
        actors = algorithm.actors(state.learners)
        worlds, rollout = collect(task, actors, state.worlds, key_collect, algorithm.rollout)
        return learn(config, state, rollout, worlds, key, key_update)

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
        return {name: values.mean() for name, values in evaluate(task, actors, jax.random.split(key, episodes)).items()}

    return Program(init, advance, measure)


def learn(
    config: TrainConfig,
    state: TrainState,
    rollout: Transition,
    worlds: Any,
    key: PRNGKeyArray,
    key_update: PRNGKeyArray,
) -> tuple[TrainState, dict[str, Array]]:
    """Update the learners by a rollout; keep the old state if the new one has diverged."""
    task, algorithm = config.task, with_traced(config.algorithm, state.settings)
    learners, metrics = algorithm.update(state.learners, rollout, state.settings["iterations"], key=key_update)
    metrics |= {f"{role}/return": _mean_return(task, rollout, role) for role in task.layout.controlled_roles}
    cause = _divergence(algorithm.policies(learners), rollout, config.runaway)
    after = TrainState(learners, worlds, key, state.iteration + 1, cause == 0, cause, state.settings)
    good = state.healthy & after.healthy

    def keep(new: Any, old: Any) -> Any:
        return new if isinstance(new, Memory) else jnp.where(good, new, old)

    kept = jax.tree.map(keep, after, state, is_leaf=lambda part: isinstance(part, Memory))
    cause = jnp.where(state.healthy, cause, state.cause)
    return eqx.tree_at(lambda s: (s.healthy, s.cause), kept, (good, cause)), metrics


def outside(task: Task) -> bool:
    """Tell whether a task's worlds live outside JAX, in processes of their own."""
    return isinstance(task, OutsideTask)


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
