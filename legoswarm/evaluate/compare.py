"""Evaluating trained policies: team sizes, head to head, inside the real mpe2; one row for each seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from legoswarm.evaluate.episodes import evaluate
from legoswarm.files import FileError
from legoswarm.policies import Actors
from legoswarm.policies.act import Swarm
from legoswarm.policies.file import PolicyFile, load_policy
from legoswarm.tasks import Task, make_task, task_names

EPISODE_SEED = 1_000_003  # starts that no training seed has seen


def evaluate_policy(
    policy: str,
    *,
    agents: Sequence[int] | None = None,
    teams: Sequence[str] | None = None,
    opponents: dict[str, str] | None = None,
    episodes: int = 1000,
    seed: int | None = None,
    episode_seed: int | None = None,
    changes: dict[str, Any] | None = None,
    engine: str = "legoswarm",
) -> Iterator[dict[str, Any]]:
    """Rows of figures of a policy (every seed, or one) at each team size.

    `policy` is a run, a policy file or `zoo:NAME`; or a task's name, and then `opponents` says which policy
    plays which role. `changes` are fields of the task that differ from training.
    """
    if episodes < 1:
        raise ValueError("at least one episode is needed")
    starts = EPISODE_SEED if episode_seed is None else episode_seed
    if policy in task_names() or opponents:
        yield from _head_to_head(policy, opponents or {}, teams, episodes, starts, changes or {})
        return
    file = load_policy(policy)
    tasks = resized(_changed(file.make_task(), changes or {}), agents, teams)
    if engine == "mpe2":
        from legoswarm.evaluate.real_mpe2 import evaluate_inside

        swarm = Swarm(file, seed)
        for task in tasks:
            yield evaluate_inside(swarm, task, episodes, starts)
        return
    seeds = file.seeds if seed is None else (seed,)
    policies = file.policies if seed is None else jax.tree.map(lambda leaf: leaf[None], file.one(seed))
    for task in tasks:
        yield from rows_of(task, {role: p.actor for role, p in policies.items()}, seeds, episodes, starts)


def rows_of(
    task: Task, actors: Actors, seeds: tuple[int, ...], episodes: int, episode_seed: int = EPISODE_SEED
) -> Iterator[dict[str, Any]]:
    """One row for each seed of stacked actors, all on the same starts."""
    run = jax.jit(jax.vmap(lambda actors: evaluate(task, actors, jax.random.key(episode_seed), episodes)))
    figures = jax.device_get(run(actors))
    for at, seed in enumerate(seeds):
        own = {figure: values[at] for figure, values in figures.items()}
        yield {**size_fields(task), "seed": seed, "episodes": episodes, **summarize(own)}


def summarize(figures: dict[str, np.ndarray]) -> dict[str, float]:
    """Mean and standard error of each figure over its episodes."""
    row: dict[str, float] = {}
    for name, values in figures.items():
        values = np.asarray(values, np.float64)
        row[name] = float(values.mean())
        row[f"{name}_se"] = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return row


def size_fields(task: Task) -> dict[str, int]:
    """How many of each role: agents and landmarks, or pursuers, evaders and obstacles."""
    return {f"{role}s": slots for role, slots in zip(task.layout.roles, task.layout.slots, strict=True)}


def resized(task: Task, agents: Sequence[int] | None = None, teams: Sequence[str] | None = None) -> list[Task]:
    """The task at each team size: numbers of agents, or texts such as 3v2 and 3v2v4 (with obstacles)."""
    fields = {field.name for field in dataclasses.fields(task)}  # pyright: ignore[reportArgumentType]
    if agents is not None:
        if "agents" not in fields:
            raise ValueError(f"{task.name} has no single number of agents; use --teams, such as 3v2")
        plain = {"sizes": ()} if "sizes" in fields else {}
        return [_changed(task, {"agents": count, **plain}) for count in agents]
    if teams is not None:
        names = ("pursuers", "evaders", "obstacles")
        if not set(names) <= fields:
            raise ValueError(f"{task.name} has no pursuers and evaders; use --agents")
        parts = [text.split("v") for text in teams]
        for text, numbers in zip(teams, parts, strict=True):
            if not 2 <= len(numbers) <= 3 or not all(part.isdecimal() for part in numbers):
                raise ValueError(f"{text!r} is not a team size such as 3v2 or 3v2v4")
        return [_changed(task, dict(zip(names, map(int, numbers), strict=False))) for numbers in parts]
    return [task]


def format_table(rows: list[dict[str, Any]]) -> str:
    """Rows for people: means over seeds with the standard deviation between them, and the worst seed."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        size = tuple(
            (name, row[name]) for name in row if isinstance(row[name], int) and name not in ("seed", "episodes")
        )
        groups.setdefault(size, []).append(row)
    figures = [name for name in rows[0] if f"{name}_se" in rows[0]]
    lines = []
    for size, members in groups.items():
        title = ", ".join(f"{count} {role if count != 1 else role[:-1]}" for role, count in size)
        lines.append(f"{title}: {len(members)} seed(s) x {members[0]['episodes']} episodes")
        for name in figures:
            values = np.array([row[name] for row in members])
            error = np.mean([row[f"{name}_se"] for row in members])
            spread = (
                f"  sd over seeds {values.std(ddof=1):.2f}  lowest seed {values.min():.2f}" if len(values) > 1 else ""
            )
            lines.append(f"  {name:<16}{values.mean():10.2f}  +- {error:.2f} (standard error of a seed){spread}")
    return "\n".join(lines)


def _head_to_head(
    name: str,
    opponents: dict[str, str],
    teams: Sequence[str] | None,
    episodes: int,
    episode_seed: int,
    changes: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """One policy for each role, from different runs; seed k of one meets seed k of the other."""
    if name not in task_names():
        raise ValueError(f"head to head needs a task's name ({', '.join(task_names())}) first, not {name!r}")
    files = {role: load_policy(path) for role, path in opponents.items()}
    roles = make_task(name).layout.controlled_roles
    if set(files) != set(roles):
        raise ValueError(f"head to head on {name} needs a policy for {' and '.join(f'--{role}s' for role in roles)}")
    base = files[roles[0]]
    if base.task["name"] != name:
        raise ValueError(f"{opponents[roles[0]]} was trained on {base.task['name']}, not on {name}")
    task = _changed(base.make_task(), changes)
    seeds = max((file.seeds for file in files.values()), key=len)
    actors = {role: _actors_for(role, file, base, len(seeds)) for role, file in files.items()}
    for sized in resized(task, None, teams):
        yield from rows_of(sized, actors, seeds, episodes, episode_seed)


def _actors_for(role: str, file: PolicyFile, base: PolicyFile, count: int) -> Any:
    if file.layout.roles != base.layout.roles:
        raise FileError(f"policies that meet must know the same roles, not {file.layout.roles} and {base.layout.roles}")
    index = np.arange(count) % len(file.seeds)
    return jax.tree.map(lambda leaf: leaf[index], file.policies[role].actor)


def _changed(task: Task, changes: dict[str, Any]) -> Task:
    fields = {field.name for field in dataclasses.fields(task)}  # pyright: ignore[reportArgumentType]
    if unknown := sorted(set(changes) - fields):
        raise ValueError(f"the task {task.name} has no {unknown[0]}")
    return dataclasses.replace(task, **changes)  # pyright: ignore[reportArgumentType]
