"""Evaluating trained policies: team sizes, head to head, inside the real mpe2; one row for each seed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key
from rich.console import Console
from rich.progress import track

from legoswarm.configs import plain_fields
from legoswarm.evaluate.episodes import evaluate
from legoswarm.evaluate.outside import OutsideEpisodes
from legoswarm.evaluate.references import PLANNED_WORLDS, REFERENCES, reference_figures
from legoswarm.evaluate.statistics import deviation
from legoswarm.fast.backend import over_seeds
from legoswarm.files import FileError
from legoswarm.policies.networks.team import Actors, knowing
from legoswarm.policies.saved.description import check_slots
from legoswarm.policies.saved.file import PolicyFile, load_policy
from legoswarm.policies.saved.trees import take
from legoswarm.scene import Layout
from legoswarm.tasks.adapters.outside import OutsideTask
from legoswarm.tasks.mpe2_spread import Mpe2Spread
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.task import TASKS, Task

TEAMS = ("pursuers", "evaders", "obstacles")
EPISODE_SEED = 1_000_003  # starts that no training seed has seen
TOGETHER = 2**15  # agents of all worlds that are played at a time


def evaluate_policy(
    policy: str | os.PathLike[str],
    *,
    agents: Sequence[int] | None = None,
    teams: Sequence[str] | None = None,
    opponents: dict[str, str] | None = None,
    nearest: int | None = None,
    episodes: int | None = None,
    seed: int | None = None,
    episode_seed: int | None = None,
    changes: dict[str, Any] | None = None,
    engine: str = "legoswarm",
    plan_from: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Give rows of figures of a policy (every seed, or one) at each team size.

    `policy` is a run, a policy file or `zoo:NAME`; or a task's name, and then `opponents` says which policy
    plays which role; or a reference, and then `plan_from` is the policy that the planner starts from. `changes` are
    fields of the task that differ from training. A task of mixed team sizes is evaluated at each of them.
    """
    if episodes is None:
        episodes = PLANNED_WORLDS if policy == "planner" else 1000
    if episodes < 1:
        raise ValueError("at least one episode is needed")
    policy = os.fspath(policy)
    if plan_from is not None and policy != "planner":
        raise ValueError(f"only the planner starts from a policy (--from), not {policy}")
    starts = EPISODE_SEED if episode_seed is None else episode_seed
    if opponents and nearest:
        raise ValueError("--nearest is for one policy, not for policies that meet")
    if policy in REFERENCES and not opponents:
        if engine == "mpe2" or (nearest and not plan_from):
            raise ValueError(f"{policy} knows neither the engine mpe2 nor --nearest")
        file = load_policy(plan_from, nearest) if plan_from else None
        task = trained_task(file) if file else Spread()
        if not isinstance(task, Spread):
            raise ValueError(f"{policy} plays Spread alone, and {plan_from} was trained on {task.name}")
        tasks = _sized(task, changes or {}, agents, teams)
        yield from _reference_rows(policy, tasks, file, seed, episodes, starts)
        return
    head_to_head = policy in TASKS.names() or bool(opponents)
    files = _opponents(policy, opponents or {}) if head_to_head else {"": load_policy(policy, nearest)}
    world = meeting_task(files.values(), changes or {}) if head_to_head else trained_task(files[""])
    tasks = _sized(world, changes or {}, agents, teams)
    for each, task in itertools.product(files.values(), tasks):
        team = task.layout.only(each.layout.roles) if head_to_head else task.layout
        if team.roles != each.layout.roles:
            raise ValueError(f"a policy that knows {', '.join(each.layout.roles)} does not fit {', '.join(team.roles)}")
        each.check_team(team)
    limited = {"nearest": nearest} if nearest else {}
    if engine == "mpe2":
        if head_to_head:
            raise ValueError("the engine mpe2 runs one policy of Spread, not head to head")
        actors, seeds = _stacked_actors(files[""], seed)
        for task in [inside_mpe2(task) for task in tasks]:
            yield from ({**row, **limited, "engine": "mpe2"} for row in rows_of(task, actors, seeds, episodes, starts))
        return
    actors, seeds = _meeting(files, tasks[0].layout, seed) if head_to_head else _stacked_actors(files[""], seed)
    for task in tasks:
        yield from ({**row, **limited} for row in rows_of(task, actors, seeds, episodes, starts))


def inside_mpe2(task: Task) -> Any:
    """Return Spread as the mpe2 package itself steps it; refuse what that does not have."""
    if not isinstance(task, Spread) or task.protocol != "mpe2":
        raise ValueError("the engine mpe2 runs Spread in the protocol mpe2")
    if task.landmark_count != task.agents or {task.start, task.landmark_start} != {"uniform"}:
        raise ValueError("mpe2 has as many landmarks as agents, and all of them start anywhere")
    if task.sensing or task.density:
        raise ValueError("in mpe2 everybody sees everything, in an arena of one size: --sensing 0 --density 0")
    if not task.action_limit.size <= 1:
        raise ValueError(f"mpe2 clips actions to box:1, which the limit {task.action_limit} exceeds; see --limit")
    return Mpe2Spread(agents=task.agents, horizon=task.horizon, limit=str(task.action_limit))


def trained_task(file: PolicyFile, **changes: Any) -> Task:
    """Return the task that a policy was trained on, with some fields changed."""
    return dataclasses.replace(TASKS.read(file.task, "the policy's task"), **changes)


def rows_of(
    task: Task, actors: Actors, seeds: tuple[int, ...], episodes: int, episode_seed: int = EPISODE_SEED
) -> Iterator[dict[str, Any]]:
    """Give one row for each seed of stacked actors, all on the same starts."""
    if isinstance(task, OutsideTask):
        played = OutsideEpisodes(task, len(seeds), episodes)
        try:
            figures = played.figures(actors, episode_seed)
        finally:
            played.close()
    else:
        figures = _figures(task, actors, jax.random.split(jax.random.key(episode_seed), episodes))
    for at, seed in enumerate(seeds):
        yield _row(task, seed, episodes, {name: figures[name][at] for name in figures})


def _row(task: Task, seed: int, episodes: int, figures: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return a row of figures, the task's primary one first."""
    names = sorted(figures, key=lambda name: (name != task.primary, name))
    own = summarize({name: figures[name] for name in names})
    return {**size_fields(task), "seed": seed, "episodes": episodes, **own}


def _reference_rows(
    name: str, tasks: list[Any], file: PolicyFile | None, seed: int | None, episodes: int, starts: int
) -> Iterator[dict[str, Any]]:
    """Give one row for each team size and each seed of the policy that the planner starts from; else the seed is 0."""
    seeds = (0,) if file is None else file.seeds
    if seed is not None and seed not in seeds:
        raise ValueError(f"no seed {seed} here: {name} has {', '.join(map(str, seeds))}")
    for task in tasks:
        if file:
            file.check_team(task.layout)
    for task, each in itertools.product(tasks, seeds if seed is None else (seed,)):
        actors = {role: policy.actor for role, policy in file.one(each).items()} if file else None
        yield _row(task, each, episodes, reference_figures(name, task, jax.random.key(starts), episodes, actors))


def _figures(task: Task, actors: Actors, starts: Key[Array, " episodes"]) -> dict[str, np.ndarray]:
    """Return the figures of an episode from each start for each of the stacked actors, as many at a time as fit."""
    worlds = min(len(starts), max(1, TOGETHER // task.layout.agents))
    program, parts = _program(task), []
    console = Console(stderr=True)
    hidden = worlds == len(starts) or not console.is_terminal
    for first in track(range(0, len(starts), worlds), "episodes", console=console, disable=hidden, transient=True):
        rows = np.minimum(first + np.arange(worlds), len(starts) - 1)  # the last part is as large as the others
        parts.append(jax.device_get(program(actors, starts[rows])))
    return {name: np.concatenate([part[name] for part in parts], 1)[:, : len(starts)] for name in parts[0]}


@functools.lru_cache(maxsize=32)  # studies ask the same of many policies
def _program(task: Task) -> Callable[[Actors, Array], dict[str, Any]]:
    """Return the program that evaluates stacked actors."""
    return jax.jit(lambda stacked, starts: over_seeds(lambda actors: evaluate(task, actors, starts))(stacked))


def summarize(figures: dict[str, np.ndarray]) -> dict[str, float]:
    """Return mean and standard error of each figure over its episodes."""
    row: dict[str, float] = {}
    for name, values in figures.items():
        values = np.asarray(values, np.float64)
        row[name] = float(values.mean())
        row[f"{name}_se"] = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return row


def size_fields(task: Task) -> dict[str, int]:
    """Return how many of each role there are: agents and landmarks, or pursuers, evaders and obstacles."""
    layout = task.layout
    sizes = {f"{role}s": layout.members(role) for role in layout.roles if not layout.each(role)}
    return sizes | ({"obstacles": count} if (count := getattr(task, "obstacle_count", None)) is not None else {})


def resized(task: Task, agents: Sequence[int] | None = None, teams: Sequence[str] | None = None) -> list[Task]:
    """Return the task at each team size: numbers of agents, or texts such as 3v2 and 3v2v4 (with obstacles)."""
    fields = {field.name for field in dataclasses.fields(task)}  # pyright: ignore[reportArgumentType]
    if agents is not None and "agents" not in fields:
        raise ValueError(f"{task.name} has no single number of agents; use --teams, such as 3v2")
    if teams is not None and not set(TEAMS) <= fields:
        raise ValueError(f"{task.name} has no pursuers and evaders; use --agents")
    if agents is not None:
        plain = {name: () for name in ("sizes", "sides") if name in fields}  # what training mixes
        return [changed(task, {"agents": count, **plain}) for count in agents]
    return [task] if teams is None else [changed(task, sizes) for sizes in [_team_sizes(text) for text in teams]]


def _sized(
    task: Task, changes: dict[str, Any], agents: Sequence[int] | None, teams: Sequence[str] | None
) -> list[Task]:
    """Return the task with some fields changed at each team size, by default at each that it mixes.

    Arenas that training mixes are none to evaluate in.
    """
    task = changed(task, ({"sides": ()} if hasattr(task, "sides") else {}) | changes)
    return resized(task, sorted(set(getattr(task, "sizes", ()))) or None if agents is None else agents, teams)


def _team_sizes(text: str) -> dict[str, int]:
    """Read a text such as 3v2 or 3v2v4."""
    numbers = text.split("v")
    if not 2 <= len(numbers) <= 3 or not all(part.isdecimal() for part in numbers):
        raise ValueError(f"{text!r} is not a team size such as 3v2 or 3v2v4")
    return dict(zip(TEAMS, map(int, numbers), strict=False))


def format_table(rows: list[dict[str, Any]]) -> str:
    """Return a table for people: a line for each team size, the first figure with its spread and worst seed."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    sizes = [name for name, value in rows[0].items() if isinstance(value, int) and name not in ("seed", "episodes")]
    sizes = ["policy", *sizes] if "policy" in rows[0] else sizes
    for row in rows:
        groups.setdefault(tuple(row[name] for name in sizes), []).append(row)
    primary, *others = [name for name in rows[0] if f"{name}_se" in rows[0]]
    several = len(rows) > len(groups)
    worst = ["worst seed"] if several else []
    table = [[*sizes, "seeds", "episodes", primary, *worst, *others]]
    for size, members in groups.items():
        values = np.array([row[primary] for row in members], float)
        spread = members[0][f"{primary}_se"] if not several else deviation(values) if len(values) > 1 else None
        means = [_number(float(np.mean([row[name] for row in members]))) for name in others]
        around = "" if spread is None else f" +- {_number(spread)}"
        figures = [f"{_number(values.mean())}{around}", *[_number(values.min())] * several, *means]
        table.append([str(n) for n in (*size, len(members), members[0]["episodes"])] + figures)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)) for line in table]
    return "\n".join([*lines, f"+- is the standard {'deviation over seeds' if several else 'error over episodes'}"])


def _number(value: float) -> str:
    return f"{value:.{2 if abs(value) >= 1 else 3}f}"


def _opponents(name: str, opponents: dict[str, str]) -> dict[str, PolicyFile]:
    """Return the policies that meet, by role, in the task's order of roles."""
    if name not in TASKS.names():
        raise ValueError(f"head to head needs a task's name ({', '.join(TASKS.names())}) first, not {name!r}")
    layout = TASKS.make(name).layout
    roles = layout.controlled_roles
    if len(roles) < 2:
        raise ValueError(f"{name} has nobody to meet: name a run or a policy file, not the task")
    if set(opponents) != set(roles):
        raise ValueError(f"head to head on {name} needs a policy for {' and '.join(f'--{role}s' for role in roles)}")
    files = {role: load_policy(opponents[role]) for role in roles}
    for role, file in files.items():
        if file.task["name"] != name:
            raise ValueError(f"{opponents[role]} was trained on {file.task['name']}, not on {name}")
        if role not in file.policies:
            raise FileError(f"{opponents[role]} has no policy for the role {role}")
    return files


def meeting_task(files: Iterable[PolicyFile], changes: dict[str, Any]) -> Task:
    """Return the world in which policies meet: one that all were trained in, and that shows what any of them knows."""
    first, *others = [changed(trained_task(file), changes) for file in files]
    shown: dict[str, Any] = {name: getattr(first, name) for name in getattr(first, "shown", ())}
    shown |= {name: value for other in others for name in shown if (value := getattr(other, name))}
    worlds = [_settings(task) for task in (first, *others)]
    for other in worlds[1:]:
        for setting, value in worlds[0].items():
            if value != other[setting] and not (setting in shown and not value * other[setting]):
                raise ValueError(f"they live in different worlds: {setting} {value} and {other[setting]}")
    return dataclasses.replace(first, **shown)  # pyright: ignore[reportArgumentType]


def _settings(task: Task) -> dict[str, Any]:
    """Return what a world is like, whoever is in it."""
    fields = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}  # pyright: ignore[reportArgumentType]
    return {name: fields[name] for name in fields if name not in size_fields(task)} | {"limit": task.action_limit}


def _stacked_actors(file: PolicyFile, seed: int | None) -> tuple[Actors, tuple[int, ...]]:
    """Return the actors of all seeds, or of one, stacked, and the seeds."""
    policies = file.policies if seed is None else file.only(seed).policies
    return {role: policy.actor for role, policy in policies.items()}, file.seeds if seed is None else (seed,)


def _meeting(files: dict[str, PolicyFile], layout: Layout, seed: int | None) -> tuple[Actors, tuple[int, ...]]:
    """Let seed k of one policy meet seed k of the other; the shorter list of seeds starts again."""
    sides = {role: _stacked_actors(file, seed) for role, file in files.items()}
    longest = max((seeds for _, seeds in sides.values()), key=len)

    def repeat(actor: Any, count: int) -> Any:
        return take(actor, np.arange(len(longest)) % count)

    actors = {role: repeat(actors[role], len(seeds)) for role, (actors, seeds) in sides.items()}
    return {role: knowing(actor, files[role].layout.roles, layout.roles) for role, actor in actors.items()}, longest


def changed(task: Task, changes: dict[str, Any]) -> Task:
    """Return the task with other values of some fields, or refuse those that it does not have."""
    fields = {field.name for field in dataclasses.fields(task)}  # pyright: ignore[reportArgumentType]
    if unknown := sorted(set(changes) - fields):
        raise ValueError(f"the task {task.name} has no {unknown[0]}")
    changed = dataclasses.replace(task, **plain_fields(type(task), changes))  # pyright: ignore[reportArgumentType]
    check_slots(changed.layout.slots)
    return changed
