"""Flights compared with the plain task, of the same policy, starts, obstacles, fence and capture distance.

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

from legoswarm.deploy.fleet import Simulation, simulated_fleet
from legoswarm.deploy.mission import Mission
from legoswarm.deploy.runtime import load_runtime
from legoswarm.deploy.safety import Plane
from legoswarm.deploy.setting import Pilot, Setting, draw_obstacles, draw_start
from legoswarm.tasks.worlds.chase import CATCH, boundary_penalty

NEAR_UNITS = 0.3  # units; compared instead of captures where these are rare
RARE = 0.2
OBSTACLE_COUNT = 2


def play_plain_task(policy: Pilot, setting: Setting, start: Plane) -> Float[np.ndarray, "steps drones 2"]:
    """Play an episode of the plain task; return positions at the beginning of each step and at the end, m."""
    plan, position, velocity = setting.plan, start, np.zeros_like(start)
    free, present = np.ones((2, len(start)), bool)
    track = [position]
    for step in range(plan.horizon):
        if step == plan.fail_at and plan.failure != "none":
            free = np.arange(len(start)) != plan.failing
            present = free | (not plan.drop_failed)
            velocity = velocity * free[:, None]
        action = setting.act(policy, position, velocity, present)
        position, velocity = setting.step(position, velocity, action, free, present)
        track.append(position)
    return np.array(track)


def fly_in_process(
    policy: Pilot, setting: Setting, start: Plane, plant: str = "point", seed: int = 0
) -> Float[np.ndarray, "steps drones 2"]:
    """Fly the same episode as a whole mission of simulated drones; return the same positions."""
    with simulated_fleet(Simulation(plant, dry=True), setting, start, seed) as fleet:
        mission = Mission(policy, setting, fleet.names)
        outcome = fleet.fly(mission)
    if outcome.error is not None:
        raise outcome.error
    return mission.track


def measure_episode(setting: Setting, track: Float[np.ndarray, "steps drones 2"]) -> dict[str, float]:
    """Return the figures of an episode; times count steps, and one step more than there are means never.

    With a failure, captures are those of the remaining pursuers after it; returns are those of whole episodes.
    """
    plan, reach, first = setting.plan, setting.capture_distance, setting.pursuers
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
        "evader_return": -(CATCH * float(touches.sum()) + float(edge.sum())) / (len(setting.roles) - first),
    }


def _closest(
    pursuers: Float[np.ndarray, "steps pursuers 2"], evaders: Float[np.ndarray, "steps evaders 2"]
) -> Float[np.ndarray, " intervals"]:
    """Return the smallest distance of any pair during each step if all move straight."""
    offset = pursuers[:, :, None] - evaders[:, None]
    start, along = offset[:-1], np.diff(offset, axis=0)
    length2 = np.maximum((along * along).sum(-1), 1e-12)
    share = np.clip(-(start * along).sum(-1) / length2, 0, 1)
    return np.linalg.norm(start + share[..., None] * along, axis=-1).min((1, 2))


def _first(close: Bool[np.ndarray, " intervals"]) -> float:
    return float(close.argmax() + 1 if close.any() else len(close) + 1)


def compare_episode(policy: str, setting: Setting, plant: str, seed: int) -> tuple[dict[str, float], ...]:
    """Return the figures of one start in the plain task and in flight."""
    rng, pilot = np.random.default_rng(seed), _load(policy)
    setting = setting.among(draw_obstacles(setting, OBSTACLE_COUNT, rng))
    start = draw_start(setting, rng)
    tracks = play_plain_task(pilot, setting, start), fly_in_process(pilot, setting, start, plant, seed)
    return tuple(measure_episode(setting, track) for track in tracks)


def compare_flights(
    policy: str,
    setting: Setting,
    *,
    plant: str = "point",
    episodes: int = 400,
    seed: int = 0,
    jobs: int = 1,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """Return means of both sides over many starts, and 95 % intervals of their mean differences (flown - plain)."""
    if episodes < 2:
        raise ValueError("a comparison needs at least two episodes")
    work = functools.partial(compare_episode, policy, setting, plant)
    seeds = range(seed, seed + episodes)
    rows = []
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for row in pool.map(work, seeds) if jobs > 1 else map(work, seeds):
            rows.append(row)
            if len(rows) % 20 == 0:
                say(f"{len(rows)} of {episodes} episodes")
    plain, flown = ({name: np.array([row[side][name] for row in rows]) for name in rows[0][0]} for side in (0, 1))
    gaps = {name: flown[name] - plain[name] for name in plain}
    sides = {"plain": plain, "flown": flown, "difference": gaps}
    return {side: {name: _mean(values) for name, values in figures.items()} for side, figures in sides.items()}


_load = functools.cache(load_runtime)


def _mean(values: Float[np.ndarray, " episodes"]) -> dict[str, Any]:
    """Return the mean, its standard error and its 95 % interval."""
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    return {"mean": mean, "standard_error": error, "interval": [mean - 1.96 * error, mean + 1.96 * error]}
