"""Episodes in worlds that live outside JAX: mean actions, the task's own figures, every policy from the same starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from legoswarm.evaluate.episodes import Trajectory
from legoswarm.fast.backend import over_seeds
from legoswarm.policies.networks.team import Actors, decide, world_actions
from legoswarm.policies.saved.trees import take
from legoswarm.scene import Layout, Scene
from legoswarm.tasks.adapters.outside import OutsideTask
from legoswarm.tasks.adapters.processes import Arrays, WorldPool
from legoswarm.tasks.check import check_env
from legoswarm.tasks.task import State

WORLDS = 32  # that episodes are played in side by side, at most

FIELDS = ("position", "velocity", "exists", "visible")


def scene_fields(arrays: Mapping[str, Any], prefix: str = "") -> tuple[Any, ...]:
    """Return the fields of the scenes in a lane's arrays."""
    return tuple(arrays[prefix + name] for name in FIELDS)


class OutsideEpisodes:
    """Plays episodes of mean actions with the policies of several seeds; its processes live until it is closed."""

    def __init__(self, task: OutsideTask, seeds: int, episodes: int):
        self.task, self.seeds, self.episodes = task, seeds, episodes
        self.names = check_env(task)
        self.pool = WorldPool(task, seeds, min(episodes, WORLDS), self.names)
        acts = over_seeds(lambda seed: _mean_actions(task.layout, *seed))
        self._act: Callable[..., Any] = jax.jit(lambda actors, fields: acts((actors, fields)))

    def figures(self, actors: Actors, first_seed: int) -> dict[str, np.ndarray]:
        """Return figures (seeds, episodes); episode e starts from the seed `first_seed` + e, for every policy."""
        rows = [figures for start in self._starts() for figures in self._round(actors, first_seed + start)]
        stacked = {name: np.array([row[name] for row in rows]) for name in rows[0]}  # (episodes, seeds)
        return {name: values[: self.episodes].T for name, values in stacked.items()}

    def _starts(self) -> range:
        return range(0, self.episodes, len(self.pool.lanes) * self.pool.width)

    def _round(self, actors: Actors, first_seed: int) -> Iterator[dict[str, np.ndarray]]:
        """Give the figures of one episode in each world, for each of them (seeds,)."""
        records = [[] for _ in self.pool.lanes]
        for time, lane, arrays in self.steps(actors, first_seed):
            if time:
                records[lane].append(np.array(arrays["measures"]))
        for record in records:
            measures = np.array(record)  # (time, seeds, worlds, names)
            for world in range(measures.shape[2]):
                each = [
                    self.task.figures({name: measures[:, seed, world, at] for at, name in enumerate(self.names)})
                    for seed in range(self.seeds)
                ]
                yield {name: np.array([figures[name] for figures in each], float) for name in each[0]}

    def steps(self, actors: Actors, first_seed: int) -> Iterator[tuple[int, int, Arrays]]:
        """Play an episode in every world; give each lane's arrays at its start (time 0) and after each step."""
        pool = self.pool
        for lane, arrays in enumerate(pool.lanes):
            arrays["seed"][:] = first_seed + lane * pool.width + np.arange(pool.width)
            arrays["time"][:] = 0
            pool.post(lane, "reset")
        for time in range(self.task.horizon + 1):
            for lane in range(len(pool.lanes)):
                arrays = pool.wait(lane)
                yield time, lane, arrays
                if time < self.task.horizon:
                    arrays["action"][:] = self._act(actors, scene_fields(arrays))
                    pool.post(lane, "play")

    def close(self) -> None:
        """End its processes."""
        self.pool.close()


def play_outside(task: OutsideTask, actors: Actors, seed: int) -> Trajectory:
    """Play one episode of mean actions from the environment's start of that seed."""
    played = OutsideEpisodes(task, 1, 1)
    try:
        alone = take(actors, None)
        rows = [jax.tree.map(lambda array: array[0, 0].copy(), arrays) for *_, arrays in played.steps(alone, seed)]
    finally:
        played.close()

    def step(before: dict[str, jax.Array], after: dict[str, jax.Array]) -> Trajectory:
        state = State(before["position"], before["velocity"], before["exists"], before["time"])
        decisions = decide(actors, Scene(*scene_fields(before), layout=task.layout))
        alive = ~(before["terminated"] | before["truncated"])
        measures = dict(zip(played.names, after["measures"], strict=True))
        return Trajectory(state, decisions, task.action_limit(after["action"]), alive, measures)

    return jax.vmap(step)(*(jax.tree.map(lambda *each: jnp.array(each), *part) for part in (rows[:-1], rows[1:])))


def _mean_actions(layout: Layout, actors: Actors, fields: tuple[Any, ...]) -> jax.Array:
    """Return the mean actions of one seed's policy in many worlds."""

    def act(*fields: jax.Array) -> jax.Array:
        decisions = decide(actors, Scene(*fields, layout=layout))
        return world_actions(layout, decisions, {role: d.mode for role, d in decisions.items()})

    return jax.vmap(act)(*fields)
