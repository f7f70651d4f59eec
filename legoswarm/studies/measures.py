"""What parts measure: rows of the evaluator, trajectories, and the errors of symmetries."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec

import equinox as eqx
import jax
import numpy as np

from legoswarm.configs import named
from legoswarm.evaluate.episodes import Trajectory, play
from legoswarm.evaluate.policies import EPISODE_SEED, evaluate_policy, meeting_task, rows_of, trained_task
from legoswarm.files import finite
from legoswarm.policies.networks.roles import make_policies
from legoswarm.policies.networks.team import Actors, knowing
from legoswarm.policies.saved.act import Swarm, load
from legoswarm.policies.saved.file import load_policy
from legoswarm.show.draw import entity_roles
from legoswarm.studies.failure import KINDS, FailingTag
from legoswarm.studies.part import Measure, Scale
from legoswarm.tasks.tag import Tag
from legoswarm.tasks.task import Task

SCENES = 200  # in which symmetries are measured


Words = ParamSpec("Words")


def measure(take: Callable[Concatenate[Sequence[str], Scale, Words], dict[str, Any]]) -> Callable[Words, Measure]:
    """Let a function take its settings first, and the policies and the scale when a part is measured."""

    @functools.wraps(take)
    def made(*words: Words.args, **named: Words.kwargs) -> Measure:
        return lambda policies, scale: take(policies, scale, *words, **named)

    return made


@measure
def evaluated(
    policies: Sequence[str], scale: Scale, *, label: Mapping[str, Any] = {}, at_most: int | None = None, **settings: Any
) -> dict[str, Any]:
    """Return rows of `evaluate_policy` with these settings; `label` is added to each row."""
    episodes = min(scale.episodes, at_most or scale.episodes)
    return {"rows": [{**label, **row} for row in evaluate_policy(policies[0], episodes=episodes, **settings)]}


@measure
def head_to_head(policies: Sequence[str], scale: Scale) -> dict[str, Any]:
    """Let the first policy's pursuers meet the second one's evaders in Tag, seed by seed; record one of the best."""
    meeting = {"pursuer": policies[0], "evader": policies[-1]}
    rows = list(evaluate_policy("tag", opponents=meeting, episodes=scale.episodes))
    sides = {role: load(policy) for role, policy in meeting.items()}
    task = meeting_task([swarm.file for swarm in sides.values()], {})
    actors = {role: knowing(s.actors[role], s.file.layout.roles, task.layout.roles) for role, s in sides.items()}
    return {"rows": rows, "trajectories": _records([""], task, _episodes(task, actors, 1))}


@measure
def trajectories(policies: Sequence[str], scale: Scale, *titles: str, **changes: Any) -> dict[str, Any]:
    """Record an episode of the best seed for each title; `changes` are fields of the task."""
    swarm = load(policies[0])
    task = trained_task(swarm.file, **changes)
    return {"trajectories": _records(titles, task, _episodes(task, swarm.actors, len(titles)))}


@measure
def agent_failure(policies: Sequence[str], scale: Scale, trials: int = 3) -> dict[str, Any]:
    """Return figures of each kind of failure in Tag on the same starts, and trials with the failed pursuer kept."""
    file = load_policy(policies[0])
    actors: Actors = {role: policy.actor for role, policy in file.policies.items()}
    task = trained_task(file)
    if not isinstance(task, Tag):
        raise ValueError(f"{policies[0]} was not trained on tag")
    rows = [
        {"failure": kind, **row}
        for kind in KINDS
        for row in rows_of(FailingTag(**vars(task), kind=kind), actors, file.seeds, scale.episodes, EPISODE_SEED)
    ]
    kept = FailingTag(**vars(task), kind="kept")
    titles = [f"trial {number}" for number in range(1, trials + 1)]
    records = _records(titles, task, _episodes(kept, load(policies[0]).actors, trials))
    return {"rows": rows, "trajectories": [{**record, "failed": {"entity": 0, "step": kept.at}} for record in records]}


TURN, LEAN = np.array([[0.0, -1.0], [1.0, 0.0]]), np.array([[0.8, -0.6], [0.6, 0.8]])
MIRROR, SHIFT = np.diag([-1.0, 1.0]), np.array([0.3, -0.2])
MAPS = {"rotated by 90 degrees": TURN, "reflected": MIRROR, "rotated by 37 degrees": LEAN}
UNDRAWN = ("moved", "rotated by 37 degrees")


@measure
def symmetries(policies: Sequence[str], scale: Scale, swapped: tuple[int, int] = (0, 1)) -> dict[str, Any]:
    """Measure how far actions are from equivariant in float32, in units of action, on states of episodes.

    Each symmetry maps vectors; a translation moves positions alone; the swap exchanges two agents of a role. One scene
    is kept to be drawn.
    """
    swarm = _in_float32(load(policies[0]))
    task = trained_task(swarm.file)
    position, velocity, visible = _scenes(task, swarm.actors, SCENES if scale.share else 4)
    roles = list(entity_roles(task.layout))
    order = np.arange(len(roles))
    order[list(swapped)] = order[list(reversed(swapped))]
    agents = order[: task.layout.agents]
    errors: dict[str, list[float]] = {}
    scenes: list[dict[str, Any]] = []
    for at, (p, v, seen) in enumerate(zip(position, velocity, visible, strict=True)):
        with jax.default_matmul_precision("highest"):
            base = swarm.act(p, v, roles, seen)
            # Each scene, what is done there, and what should be done.
            cases = {
                "original": (p, base, base),
                "two pursuers swapped": (
                    p[order], swarm.act(p[order], v[order], roles, seen[agents][:, order]), base[agents],
                ),
                **{name: (p @ m.T, swarm.act(p @ m.T, v @ m.T, roles, seen), base @ m.T) for name, m in MAPS.items()},
                "moved": (p + SHIFT, swarm.act(p + SHIFT, v, roles, seen), base),
            }  # fmt: skip
        for name, (place, actions, expected) in cases.items():
            errors.setdefault(name, []).append(float(np.abs(actions - expected).max()))
            if at == len(position) // 2 and name not in UNDRAWN:
                scenes.append({"title": name, "positions": finite(place, 4), "actions": finite(actions, 4)})
    del errors["original"]
    table = {name: {"quantile": float(np.quantile(e, 0.9)), "largest": max(e)} for name, e in errors.items()}
    return {"errors": table, "scenes": scenes, "roles": roles, "radii": list(task.radii)}


def _in_float32(swarm: Swarm) -> Swarm:
    """Return the same weights without the short floats that GPUs take for speed, which would hide a broken symmetry."""
    config = dataclasses.replace(swarm.file.config, precision="float32")
    like = eqx.filter_eval_shape(lambda key: make_policies(config, swarm.file.layout, key=key), jax.random.key(0))
    policies = jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(swarm.file.policies))
    return Swarm(dataclasses.replace(swarm.file, config=config, policies=policies), swarm.seed)


def _scenes(task: Task, actors: Actors, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return states of different episodes at different times, after everybody has moved, and who sees whom there."""

    def one(key: Any, time: Any) -> tuple[Any, Any, Any]:
        state = jax.tree.map(lambda leaf: leaf[time], play(task, actors, task.reset(key)).states)
        return state.position, state.velocity, task.scene(state).seen()

    times = np.random.default_rng(0).integers(3, task.horizon, count)
    position, velocity, visible = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), count), times)
    return np.asarray(position, float), np.asarray(velocity, float), np.asarray(visible)


def _episodes(task: Task, actors: Actors, count: int) -> list[Trajectory]:
    """Play episodes from different starts, in one program."""
    keys = jax.vmap(jax.random.key)(EPISODE_SEED + np.arange(count))
    stacked = jax.device_get(_program(task)(keys, actors))
    return [jax.tree.map(lambda leaf, at=at: leaf[at], stacked) for at in range(count)]


@functools.lru_cache(maxsize=32)  # studies ask the same of many policies
def _program(task: Task) -> Callable[[Any, Actors], Trajectory]:
    """Return the program that plays an episode from each start."""
    return jax.jit(jax.vmap(lambda key, actors: play(task, actors, task.reset(key)), in_axes=(0, None)))


def _records(titles: Sequence[str], task: Task, episodes: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """Return trajectories as JSON: positions (time, entities, 2), None where an entity is not there."""
    states = [episode.states for episode in episodes]
    paths = [finite(np.where(each.exists[..., None], each.position, np.nan), 4) for each in states]
    return [{"title": title, "task": named(task), "positions": path} for title, path in zip(titles, paths, strict=True)]
