"""Flights in process against the plain task: the same policy, starts, obstacles, fence and capture distance.

The plain task is the virtual drones' own world, `Chase.step`, without drones, safety rules or delays. Both sides are
measured in the same way, on positions at the policy's steps with straight lines between them.
"""

from __future__ import annotations

import concurrent.futures
import functools
import math
import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from legoswarm.deploy.inprocess import World
from legoswarm.deploy.mission import Mission
from legoswarm.deploy.plan import Drone, Plan
from legoswarm.deploy.runtime import load_runtime
from legoswarm.deploy.safety import Plane
from legoswarm.deploy.setting import Setting, draw_obstacles, draw_start
from legoswarm.deploy.sitl.endpoint import make_plant
from legoswarm.deploy.sitl.plants import Plant
from legoswarm.deploy.units import Chase, Pilot
from legoswarm.tasks.worlds.chase import CATCH, boundary_penalty

NEAR_UNITS = 0.3  # units; compared instead of captures where these are rare
RARE = 0.2
OBSTACLE_COUNT = 2


def play_plain_task(policy: Pilot, chase: Chase, start: Plane, plan: Plan) -> Float[np.ndarray, "steps drones 2"]:
    """An episode of the plain task: positions at the beginning of each step and at the end, m."""
    position, velocity = start, np.zeros_like(start)
    free, present = np.ones((2, len(start)), bool)
    track = [position]
    for step in range(plan.horizon):
        if step == plan.fail_at and plan.failure != "none":
            free = np.arange(len(start)) != plan.failing
            present = free | (not plan.drop_failed)
            velocity = velocity * free[:, None]
        action = chase.act(policy, position, velocity, present)
        position, velocity = chase.step(position, velocity, action, free, present)
        track.append(position)
    return np.array(track)


def fly_in_process(
    policy: Pilot,
    setting: Setting,
    start: Plane,
    obstacles: Float[np.ndarray, "obstacles 2"],
    make_plant: Callable[[np.ndarray], Plant],
    *,
    tick: float = 0.02,
    seed: int = 0,
) -> Float[np.ndarray, "steps drones 2"]:
    """The same episode flown: a whole mission on simulated drones."""
    places = np.concatenate([start, np.zeros((len(start), 1))], 1)
    names = [f"cf{at + 1}" for at in range(len(start))]
    world = World(names, make_plant(places), tick=tick, seed=seed)
    drones = [
        Drone(link, role, (float(x), float(y), float(z)))
        for link, role, (x, y, z) in zip(world.links, setting.roles, places, strict=True)
    ]
    chase = setting.chase(obstacles)
    mission = Mission(
        drones, policy, chase, setting.physical(obstacles), rules=setting.rules, plan=setting.plan, clock=world
    )
    outcome = mission.fly()
    if outcome.error is not None:
        raise outcome.error
    return outcome.track


def measure_episode(setting: Setting, track: Float[np.ndarray, "steps drones 2"]) -> dict[str, float]:
    """The figures of an episode; times are in steps, and one more than there are for what never happened.

    With a failure, captures are those of the remaining pursuers after it; returns are those of whole episodes.
    """
    plan, chase = setting.plan, setting.chase(np.zeros((0, 2)))
    reach, first = chase.capture_distance(setting.rules.pause), chase.pursuers
    able = np.ones(first, bool)
    begun = 0
    if plan.failure != "none":
        begun = min(plan.fail_at, len(track) - 1)
        able[np.arange(first) == plan.failing] = False
    gaps = _closest(track[begun:, :first][:, able], track[begun:, first:])
    touches = np.linalg.norm(track[1:, :first, None] - track[1:, None, first:], axis=-1) < reach
    edge = np.array([boundary_penalty(place / setting.scale).sum() for place in track[1:, first:]])
    return {
        "captured": float((gaps < reach).any()),
        "capture_time": _first(gaps < reach),
        "near_time": _first(gaps < NEAR_UNITS * setting.scale),
        "pursuer_return": CATCH * float(touches.sum()),
        "evader_return": -(CATCH * float(touches.sum()) + float(edge.sum())) / (len(chase.roles) - first),
    }


def _closest(
    pursuers: Float[np.ndarray, "steps pursuers 2"], evaders: Float[np.ndarray, "steps evaders 2"]
) -> Float[np.ndarray, " intervals"]:
    """The smallest distance of any pair during each step, if all move straight."""
    offset = pursuers[:, :, None] - evaders[:, None]
    start, along = offset[:-1], np.diff(offset, axis=0)
    length2 = np.maximum((along * along).sum(-1), 1e-12)
    share = np.clip(-(start * along).sum(-1) / length2, 0, 1)
    return np.linalg.norm(start + share[..., None] * along, axis=-1).min((1, 2))


def _first(close: Bool[np.ndarray, " intervals"]) -> float:
    return float(close.argmax() + 1 if close.any() else len(close) + 1)


def compare_episode(policy: Pilot, setting: Setting, plant: str, seed: int) -> tuple[dict[str, float], ...]:
    """Figures of one start in the plain task, and flown."""
    rng = np.random.default_rng(seed)
    obstacles = draw_obstacles(setting, OBSTACLE_COUNT, rng)
    start = draw_start(setting, obstacles, rng)
    make_plant, tick = _plant(plant)
    tracks = (
        play_plain_task(policy, setting.chase(obstacles), start, setting.plan),
        fly_in_process(policy, setting, start, obstacles, make_plant, tick=tick, seed=seed),
    )
    return tuple(measure_episode(setting, track) for track in tracks)


def compare_flights(
    policy: str,
    setting: Setting,
    *,
    plant: str = "point",
    episodes: int = 400,
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Means of both sides over many starts, and the 95 % intervals of the mean differences (flown - plain)."""
    if episodes < 2:
        raise ValueError("a comparison needs at least two episodes")
    work = functools.partial(_work, policy, setting, plant)
    seeds = range(seed, seed + episodes)
    rows = []
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for row in pool.map(work, seeds) if jobs > 1 else map(work, seeds):
            rows.append(row)
            if progress is not None:
                progress(len(rows))
    plain, flown = ({name: np.array([row[side][name] for row in rows]) for name in rows[0][0]} for side in (0, 1))
    return {
        "plain": _means(plain),
        "flown": _means(flown),
        "difference": {name: _interval(flown[name] - plain[name]) for name in plain},
    }


@functools.cache
def _policy(name: str) -> Pilot:
    return load_runtime(name)


def _work(policy: str, setting: Setting, plant: str, seed: int) -> tuple[dict[str, float], ...]:
    return compare_episode(_policy(policy), setting, plant, seed)


def _plant(name: str) -> tuple[Callable[[np.ndarray], Plant], float]:
    """What makes bodies at some places, and how long their ticks are."""
    return (_crazyflow, 0.01) if name == "crazyflow" else (functools.partial(make_plant, name), 0.02)


@functools.cache
def _compiled(drones: int) -> Any:
    from legoswarm.deploy.sitl.crazyflow import Crazyflow

    return Crazyflow(np.zeros((drones, 3)))


def _crazyflow(places: np.ndarray) -> Plant:
    """Crazyflow's quadrotors; compiled once."""
    plant = _compiled(len(places))
    plant.reset(places)
    return plant


def _means(figures: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    return {
        name: {"mean": float(values.mean()), "standard_error": float(values.std(ddof=1) / math.sqrt(len(values)))}
        for name, values in figures.items()
    }


def _interval(differences: Float[np.ndarray, " episodes"]) -> dict[str, Any]:
    """Mean and 95 % interval of paired differences."""
    mean, error = float(differences.mean()), float(differences.std(ddof=1) / math.sqrt(len(differences)))
    return {"mean": mean, "interval": [mean - 1.96 * error, mean + 1.96 * error]}
