"""What parts measure: rows of the evaluator, trajectories, and the errors of symmetries."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from legoswarm.configs import named
from legoswarm.evaluate.episodes import Trajectory, play
from legoswarm.evaluate.policies import EPISODE_SEED, evaluate_policy, rows_of, trained_task
from legoswarm.policies.networks.roles import make_policies
from legoswarm.policies.networks.team import Actors
from legoswarm.policies.saved.act import Swarm, load
from legoswarm.policies.saved.file import load_policy
from legoswarm.studies.failure import KINDS, failing
from legoswarm.studies.part import Measure, Scale
from legoswarm.tasks.tag import Tag
from legoswarm.tasks.task import Task

SCENES = 200  # in which symmetries are measured


def evaluated(*, label: dict[str, Any] | None = None, at_most: int | None = None, **settings: Any) -> Measure:
    """Rows of `evaluate_policy` with these settings; `label` is added to each row."""

    def measure(policies: Sequence[str], scale: Scale) -> dict[str, Any]:
        episodes = min(scale.episodes, at_most or scale.episodes)
        rows = evaluate_policy(policies[0], episodes=episodes, **settings)
        return {"rows": [{**(label or {}), **row} for row in rows]}

    return measure


def head_to_head() -> Measure:
    """Tag: the first policy's pursuers against the second one's evaders, seed by seed, and one episode of the best."""

    def measure(policies: Sequence[str], scale: Scale) -> dict[str, Any]:
        pursuers, evaders = policies[0], policies[-1]
        meeting = {"pursuer": pursuers, "evader": evaders}
        rows = evaluate_policy("tag", opponents=meeting, episodes=scale.episodes)
        sides = {"pursuer": load(pursuers), "evader": load(evaders)}
        actors = {role: swarm.actors[role] for role, swarm in sides.items()}
        task = trained_task(sides["pursuer"].file)
        return {"rows": list(rows), "trajectories": [_record("", task, *_episodes(task, actors, 1))]}

    return measure


def trajectories(*titles: str, **changes: Any) -> Measure:
    """An episode of the best seed for each title; `changes` are fields of the task."""

    def measure(policies: Sequence[str], scale: Scale) -> dict[str, Any]:
        swarm = load(policies[0])
        task = trained_task(swarm.file, **changes)
        pairs = zip(titles, _episodes(task, swarm.actors, len(titles)), strict=True)
        return {"trajectories": [_record(title, task, episode) for title, episode in pairs]}

    return measure


def agent_failure(trials: int = 3) -> Measure:
    """Tag with a pursuer that fails: figures of each kind of failure on the same starts, and trials of one kept."""

    def measure(policies: Sequence[str], scale: Scale) -> dict[str, Any]:
        file = load_policy(policies[0])
        actors: Actors = {role: policy.actor for role, policy in file.policies.items()}
        best = load(policies[0]).actors
        task = trained_task(file)
        if not isinstance(task, Tag):
            raise ValueError(f"{policies[0]} was not trained on tag")
        rows = [
            {"failure": kind, **row}
            for kind in KINDS
            for row in rows_of(failing(task, kind), actors, file.seeds, scale.episodes, EPISODE_SEED)
        ]
        kept = failing(task, "kept")
        failed = {"entity": 0, "step": kept.at}
        records = [
            {**_record(f"trial {number}", task, trial), "failed": failed}
            for number, trial in enumerate(_episodes(kept, best, trials), 1)
        ]
        return {"rows": rows, "trajectories": records}

    return measure


def symmetries(swapped: tuple[int, int] = (0, 1)) -> Measure:
    """How far actions are from equivariant in float32, in units of action, on states of episodes; a scene to draw.

    Each symmetry maps vectors; positions are moved by a translation too. The swap exchanges two agents of a role.
    """

    def measure(policies: Sequence[str], scale: Scale) -> dict[str, Any]:
        swarm = _in_float32(load(policies[0]))
        task = trained_task(swarm.file)
        position, velocity, visible = _scenes(task, swarm.actors, SCENES if scale.share else 4)
        roles = [role for role, n in zip(task.layout.roles, task.layout.slots, strict=True) for _ in range(n)]
        order = np.arange(len(roles))
        order[list(swapped)] = order[list(reversed(swapped))]
        agents = order[: task.layout.agents]
        turn, mirror = np.array([[0.0, -1.0], [1.0, 0.0]]), np.diag([-1.0, 1.0])
        lean = np.array([[0.8, -0.6], [0.6, 0.8]])
        shift = np.array([0.3, -0.2])
        errors: dict[str, list[float]] = {}
        scenes: list[dict[str, Any]] = []
        for at, (p, v, seen) in enumerate(zip(position, velocity, visible, strict=True)):
            moved = {
                "original": (p, v, seen, lambda a: a),
                "two pursuers swapped": (p[order], v[order], seen[agents][:, order], lambda a: a[agents]),
                "rotated by 90 degrees": (p @ turn.T, v @ turn.T, seen, lambda a: a @ turn.T),
                "reflected": (p @ mirror.T, v @ mirror.T, seen, lambda a: a @ mirror.T),
                "rotated by 37 degrees": (p @ lean.T, v @ lean.T, seen, lambda a: a @ lean.T),
                "moved": (p + shift, v, seen, lambda a: a),
            }
            with jax.default_matmul_precision("highest"):
                acts = {name: swarm.act(*scene[:2], roles, scene[2]) for name, scene in moved.items()}
            base = acts["original"]
            for name, (place, _, _, expected) in moved.items():
                actions = acts[name]
                errors.setdefault(name, []).append(float(np.abs(actions - expected(base)).max()))
                if at == len(position) // 2 and name not in ("moved", "rotated by 37 degrees"):
                    scenes.append({"title": name, "positions": _numbers(place), "actions": _numbers(actions)})
        del errors["original"]
        table = {name: {"quantile": float(np.quantile(e, 0.9)), "largest": max(e)} for name, e in errors.items()}
        return {"errors": table, "scenes": scenes, "roles": roles, "radii": list(task.radii)}

    return measure


def _in_float32(swarm: Swarm) -> Swarm:
    """The same weights without the short floats that GPUs take for speed: no rounding hides a broken symmetry."""
    config = dataclasses.replace(swarm.file.config, precision="float32")
    like = eqx.filter_eval_shape(lambda key: make_policies(config, swarm.file.layout, key=key), jax.random.key(0))
    policies = jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(swarm.file.policies))
    return Swarm(dataclasses.replace(swarm.file, config=config, policies=policies), swarm.seed)


def _scenes(task: Task, actors: Actors, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States of different episodes at different times, not before everybody has moved, and who sees whom there."""

    def one(key: Any, time: Any) -> tuple[Any, Any, Any]:
        state = jax.tree.map(lambda leaf: leaf[time], play(task, actors, task.reset(key)).states)
        return state.position, state.velocity, task.scene(state).visible

    times = np.random.default_rng(0).integers(3, task.horizon, count)
    position, velocity, visible = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), count), times)
    return np.asarray(position, float), np.asarray(velocity, float), np.asarray(visible)


def _episodes(task: Task, actors: Actors, count: int) -> list[Trajectory]:
    """Episodes from different starts, in one program."""
    keys = jax.vmap(jax.random.key)(EPISODE_SEED + np.arange(count))
    run = jax.jit(jax.vmap(lambda key, actors: play(task, actors, task.reset(key)), in_axes=(0, None)))
    stacked = jax.device_get(run(keys, actors))
    return [jax.tree.map(lambda leaf, at=at: leaf[at], stacked) for at in range(count)]


def _record(title: str, task: Task, trajectory: Trajectory) -> dict[str, Any]:
    """A trajectory as JSON: positions (time, entities, 2), None where an entity is not there."""
    states = trajectory.states
    there = np.where(states.exists[..., None], states.position, np.nan)
    return {"title": title, "task": named(task), "positions": _numbers(there)}


def _numbers(values: Float[np.ndarray, "..."]) -> Any:
    return np.round(np.asarray(values, float), 4).tolist()
