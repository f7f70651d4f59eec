"""Training with worlds that live outside JAX: the same learners, worlds in processes, and both at work together."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from legoswarm.evaluate.outside import OutsideEpisodes, scene_fields
from legoswarm.fast.backend import over_seeds
from legoswarm.learn.programs import Programs
from legoswarm.learn.rollout import Transition, act, log_probs
from legoswarm.learn.train import TrainConfig, TrainState, learn
from legoswarm.policies.networks.roles import Policies
from legoswarm.policies.networks.team import Actors, decide
from legoswarm.policies.saved.trees import from_raw, raw_leaves
from legoswarm.scene import Scene
from legoswarm.tasks.adapters.processes import WorldPool
from legoswarm.tasks.check import check_env

EVALUATION_SEED = 2_000_003  # starts that neither training nor `eval` has seen


class OutsidePrograms:
    """What a run executes, as `Programs` is for worlds in JAX.

    With the task's `overlap` the rollout of an iteration is collected while the update of the one before is computed,
    by the policy from before that update: workers and learner never wait for each other, and the result is still the
    same from run to run. Each update is held near the policy that it begins with, not near the older one that acted:
    with the densities of the older one, clipping would take most of the update away.

    A resumed run starts its worlds anew, so it is not bit for bit an uninterrupted one.
    """

    def __init__(self, config: TrainConfig, seeds: Any, episodes: int = 100, warm: Policies | None = None):
        self.config, self.seeds, self.episodes = config, tuple(seeds), episodes
        self.task: Any = config.task  # an OutsideTask
        self._base = Programs(config, seeds, episodes, warm)
        self.skeleton = self._base.skeleton
        self.measures = check_env(self.task)  # refuses what does not fit, before there is a folder
        self._pool: WorldPool | None = None
        self._episodes: OutsideEpisodes | None = None
        self._rollout: Any = None  # collected and not yet learned from
        self._steps = 0  # that were taken by these worlds, which keys are made of

    def first_state(self) -> TrainState:
        """Return the state that training begins with."""
        return self._base.first_state()

    def with_settings(self, state: TrainState) -> TrainState:
        """Return a state with this run's own settings."""
        return self._base.with_settings(state)

    def compile(self, state: TrainState, *, measuring: bool = True) -> None:
        """Have processes and programs for such a state ready."""
        del measuring  # its processes start with the first evaluation
        algorithm = self.config.algorithm
        self._pool = WorldPool(self.task, len(self.seeds), algorithm.envs, self.measures)
        self._start(int(np.asarray(state.iteration).max()))
        lane, actors = self._pool.wait(0), algorithm.actors(state.learners)
        like = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self._shapes())
        self._base.make(
            (self._act, raw_leaves(actors), scene_fields(lane), *self._key(0)),
            (self._learn, raw_leaves(state), jax.tree.leaves(like)),
        )

    def advance(self, state: TrainState, count: int) -> tuple[TrainState, dict[str, Array]]:
        """Run so many iterations; return the state and the means of their metrics."""
        total: dict[str, Array] = {}
        for _ in range(count):
            rollout = self._collect(state) if self._rollout is None else self._rollout
            self._rollout = None
            args = raw_leaves(state), jax.tree.leaves(rollout)
            leaves, metrics = self._base.made_for(self._learn, *args)(*args)  # computed while this goes on
            if self.task.overlap:
                self._rollout = self._collect(state)
            state = from_raw(self.skeleton, leaves)
            total = {name: value + total[name] for name, value in metrics.items()} if total else metrics
        return state, {name: value / count for name, value in total.items()}

    def measure(self, state: TrainState, seed: int) -> dict[str, np.ndarray]:
        """Return the mean figures of episodes."""
        if self._episodes is None:
            self._episodes = OutsideEpisodes(self.task, len(self.seeds), self.episodes)
        figures = self._episodes.figures(
            self.config.algorithm.actors(state.learners), EVALUATION_SEED + seed * self.episodes
        )
        return {name: values.mean(1) for name, values in figures.items()}

    def close(self) -> None:
        """End all processes."""
        for each in (self._pool, self._episodes):
            if each is not None:
                each.close()

    def _start(self, done: int) -> None:
        """Begin in every world, its clock somewhere in the episode so that rollouts see all of its phases."""
        assert self._pool is not None
        pool, algorithm = self._pool, self.config.algorithm
        self._steps = done * (algorithm.rollout + 1)  # a resumed run does not draw the same noise again
        random = np.random.default_rng([*self.seeds, done])
        phases = max(self.task.horizon // algorithm.rollout, 1)
        for lane, arrays in enumerate(pool.lanes):
            arrays["seed"][:] = random.integers(2**31, size=arrays["seed"].shape)
            arrays["time"][:] = algorithm.rollout * random.integers(phases, size=arrays["time"].shape)
            pool.post(lane, "reset")

    def _collect(self, state: TrainState) -> Transition:
        """Return a rollout of the state's policy: arrays (seeds, steps, worlds, ...)."""
        assert self._pool is not None
        pool, steps = self._pool, self.config.algorithm.rollout
        actors = raw_leaves(self.config.algorithm.actors(state.learners))
        rollout = jax.tree.map(lambda like: np.empty(like.shape, like.dtype), self._shapes())
        for step in range(steps + 1):
            for lane in range(len(pool.lanes)):
                arrays = pool.wait(lane)
                here = slice(lane * pool.width, (lane + 1) * pool.width)
                if step:
                    _put(rollout.next_scene, scene_fields(arrays, "next_"), step - 1, here)
                    for name in ("reward", "terminated", "truncated"):
                        getattr(rollout, name)[:, step - 1, here] = arrays[name]
                if step == steps:
                    continue
                args = actors, scene_fields(arrays), *self._key(lane)
                action, local, log_prob = jax.device_get(self._base.made_for(self._act, *args)(*args))
                arrays["action"][:] = action
                _put(rollout.scene, scene_fields(arrays), step, here)
                pool.post(lane, "step")
                drawn = (action, local, log_prob)
                _put((rollout.action, rollout.local, rollout.log_prob), drawn, step, here)
            self._steps += 1
        return rollout

    def _key(self, lane: int) -> tuple[np.ndarray, np.int32]:
        """Return what the random numbers of a lane's next actions are made of: the seeds, and a number of its own."""
        assert self._pool is not None
        return np.array(self.seeds, np.int32), np.int32(self._steps * len(self._pool.lanes) + lane)

    def _act(self, actors: list[Any], fields: tuple[Any, ...], seeds: Any, number: Any) -> Any:
        """Draw everybody's action in the worlds of a lane."""
        like, layout = self.config.algorithm.actors(self.skeleton.learners), self.task.layout

        def one(seed: Any) -> Any:
            policy, fields, key = seed
            keys = jax.random.split(jax.random.fold_in(jax.random.key(key), number), len(fields[0]))
            return jax.vmap(lambda fields, key: act(policy, Scene(*fields, layout=layout), key))(fields, keys)

        return over_seeds(one)((from_raw(like, actors), fields, seeds))

    def _learn(self, leaves: list[Array], rollout: list[Array]) -> tuple[list[Array], dict[str, Array]]:
        """Update every seed by its rollout."""
        state = from_raw(self.skeleton, leaves)
        rollouts = jax.tree.unflatten(jax.tree.structure(self._shapes()), rollout)

        def one(seed: tuple[TrainState, Transition]) -> tuple[TrainState, dict[str, Array]]:
            state, rollout = seed
            key, key_update = jax.random.split(state.key)
            if self.task.overlap:
                rollout = _as_of_now(self.config.algorithm.actors(state.learners), rollout)
            return learn(self.config, state, rollout, None, key, key_update)

        state, metrics = over_seeds(one)((state, rollouts))
        return raw_leaves(state), metrics

    def _shapes(self) -> Transition:
        """Return the shapes of a rollout of all seeds."""
        layout, algorithm = self.task.layout, self.config.algorithm
        members = {role: jnp.zeros((layout.members(role), layout.dimension)) for role in layout.controlled_roles}

        def one(_: Array) -> Transition:
            scene = self.task.scene(self.task.reset(jax.random.key(0)))
            action, off = jnp.zeros((layout.agents, layout.dimension)), jnp.array(False)
            local, log_prob = members, {role: zeros[:, 0] for role, zeros in members.items()}
            return Transition(scene, scene, action, local, log_prob, action[:, 0], off, off)

        batch = jnp.zeros((len(self.seeds), algorithm.rollout, algorithm.envs))
        return jax.eval_shape(jax.vmap(jax.vmap(jax.vmap(one))), batch)


def _as_of_now(actors: Actors, rollout: Transition) -> Transition:
    """Return a rollout with the log densities that these actors give to its actions."""

    def one(scene: Scene, local: dict[str, Array]) -> dict[str, Array]:
        return log_probs(decide(actors, scene), local)

    return eqx.tree_at(lambda r: r.log_prob, rollout, jax.vmap(jax.vmap(one))(rollout.scene, rollout.local))


def _put(rollout: Any, values: Any, step: int, worlds: slice) -> None:
    """Write what happened at one step in some worlds into a rollout."""
    for into, value in zip(jax.tree.leaves(rollout), jax.tree.leaves(values), strict=True):
        into[:, step, worlds] = value
