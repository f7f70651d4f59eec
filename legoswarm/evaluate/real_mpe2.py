"""The same policies inside the real mpe2 package, stepped by its own code."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from legoswarm.evaluate.policies import EPISODE_SEED, size_fields, summarize
from legoswarm.policies.saved.act import Swarm
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.task import State, Task


def evaluate_inside(swarm: Swarm, task: Task, episodes: int, seed: int = EPISODE_SEED) -> dict[str, Any]:
    """Play mean-action episodes of Spread in mpe2; D and C are computed from the positions in its `world`.

    Policies see positions and velocities of all entities, read from `world` (mpe2's observation vector lacks
    the others' velocities). An action u becomes mpe2's five numbers: u_x = a2 - a1, u_y = a4 - a3.
    """
    try:
        from mpe2 import simple_spread_v3
    except ImportError:
        raise ValueError("the engine mpe2 needs the mpe2 package: pip install 'legoswarm[mpe2]'") from None
    if not isinstance(task, Spread) or task.protocol != "mpe2":
        raise ValueError("the engine mpe2 runs Spread in the protocol mpe2")
    if task.landmark_count != task.agents or {task.start, task.landmark_start} != {"uniform"}:
        raise ValueError("mpe2 has as many landmarks as agents, and all of them start anywhere")
    if not task.action_limit.size <= 1:
        raise ValueError(f"mpe2 clips actions to box:1, which the limit {task.action_limit} exceeds; see --limit")
    swarm = Swarm(dataclasses.replace(swarm.file, limit=task.action_limit), swarm.seed)
    env = simple_spread_v3.parallel_env(N=task.agents, max_cycles=task.horizon, continuous_actions=True)
    roles = ["agent"] * task.agents + ["landmark"] * task.agents
    results: list[dict[str, float]] = []
    for episode in range(episodes):
        env.reset(seed=seed + episode)
        world = env.unwrapped.world
        measures: list[dict[str, Any]] = []
        reward = 0.0
        while env.agents:
            state = _read(world)
            actions = swarm.act(state.position, state.velocity, roles)
            names = list(env.agents)
            rewards = env.step({name: _five(action) for name, action in zip(names, actions, strict=True)})[1]
            reward += sum(rewards.values())
            measures.append(task.measure(_read(world)))
        stacked = {name: np.array([m[name] for m in measures]) for name in measures[0]}
        results.append({**task.figures(stacked), "reward": reward})
    env.close()
    figures = {name: np.array([r[name] for r in results]) for name in results[0]}
    about = {"seed": swarm.seed, "episodes": episodes, "engine": "mpe2"}
    return {**size_fields(task), **about, **summarize(figures)}


def _read(world: Any) -> State:
    """Return agents and landmarks as a state in NumPy."""
    entities = world.agents + world.landmarks
    position, velocity = (np.array([getattr(e.state, name) for e in entities]) for name in ("p_pos", "p_vel"))
    return State(position, velocity, np.ones(len(entities), bool), np.array(0))


def _five(action: np.ndarray) -> np.ndarray:
    """Return mpe2's action of a force direction in the box of 1."""
    x, y = np.clip(action, -1.0, 1.0)
    return np.array([0.0, max(-x, 0.0), max(x, 0.0), max(-y, 0.0), max(y, 0.0)], np.float32)
