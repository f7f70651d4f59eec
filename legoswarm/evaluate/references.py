"""References for Spread that learn nothing: a row that learning must beat, and one that says how much is left.

`hungarian` is a central controller: at every step it assigns agents to landmarks so that the sum of distances is
least, and a PD controller drives each agent to its landmark; it ignores collisions. `planner` optimises all forces of
an episode by gradients through the simulator, starting from the episodes of `hungarian` or of a policy. It knows what
its actions will lead to, it is no controller, and it is slow.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from legoswarm.evaluate.episodes import Trajectory, episode_figures, play, take_step
from legoswarm.policies.networks.team import Actors
from legoswarm.tasks.spread import AGENT_RADIUS, Spread
from legoswarm.tasks.task import State

REFERENCES = ("hungarian", "planner")
PLANNED_WORLDS = 64  # unless said otherwise: the planner is slow
GAINS = {"paper": (18.0, 1.5), "mpe2": (12.0, 2.5)}  # of offset and velocity; tools/tune_hungarian.py
UPDATES, STARTS = 1500, 4  # of the planner: Adam's updates, and searches in each world
SOFT = (0.03, 0.005)  # width of a collision's edge, at the first and the last update
CHUNK, BLOCK = 64, 250  # worlds in memory at once, and updates between two lines of progress


def reference_figures(
    name: str, task: Spread, key: PRNGKeyArray, episodes: int, actors: Actors | None = None
) -> dict[str, Float[np.ndarray, " episodes"]]:
    """Return the figures of a reference's episodes, on the starts that policies have; `actors` begin the planner's."""
    states = jax.vmap(task.reset)(jax.random.split(key, episodes))
    if name == "hungarian":
        trajectory = fly_hungarian(task, states)
    else:
        fly = functools.partial(fly_policy, actors=actors) if actors else fly_hungarian
        trajectory = plan(task, states, fly, updates=UPDATES, starts=STARTS)
    return jax.device_get(jax.vmap(lambda one: episode_figures(task, one))(trajectory))


def fly_hungarian(task: Spread, states: State, gains: tuple[float, float] | None = None) -> Trajectory:
    """Let the Hungarian controller fly one episode from each state; arrays are (worlds, time, ...)."""
    pull, brake = GAINS[task.protocol] if gains is None else gains
    carry, steps, n = (states, jnp.ones(len(states.time), bool)), [], task.agents
    for _ in range(task.horizon):
        position, velocity = np.asarray(carry[0].position), np.asarray(carry[0].velocity)
        goals = assign(position[:, :n], position[:, n:])
        carry, step = _step(task)(carry, pull * (goals - position[:, :n]) - brake * velocity[:, :n])
        steps.append(step)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *steps)


@functools.lru_cache(maxsize=32)
def _step(task: Spread) -> Callable[..., Any]:
    """Return the program that takes one step in many worlds."""
    return jax.jit(jax.vmap(lambda carry, actions: take_step(task, carry, {}, actions)))


def assign(
    agents: Float[np.ndarray, "worlds agents dim"], landmarks: Float[np.ndarray, "worlds landmarks dim"]
) -> Float[np.ndarray, "worlds agents dim"]:
    """Return each agent's goal, the sum of distances being least; agents without a landmark stay where they are."""
    from scipy.optimize import linear_sum_assignment

    gaps = np.linalg.norm(agents[:, :, None] - landmarks[:, None], axis=-1)
    goals = agents.copy()
    for world, gap in enumerate(gaps):
        some, theirs = linear_sum_assignment(gap)
        goals[world, some] = landmarks[world, theirs]
    return goals


def fly_policy(task: Spread, states: State, actors: Actors) -> Trajectory:
    """Let a policy fly one episode from each state, without a record of its decisions."""
    return eqx.tree_at(lambda one: one.decisions, _played(task)(actors, states), {})


@functools.lru_cache(maxsize=32)
def _played(task: Spread) -> Callable[..., Trajectory]:
    """Return the program in which a policy plays in many worlds."""
    return jax.jit(jax.vmap(functools.partial(play, task), in_axes=(None, 0)))


class Search(eqx.Module):
    """A plan that improves, Adam's moments, and the best episode so far with its score, the task's own figure."""

    plan: Float[Array, "*batch time agents dim"]
    moments: optax.OptState
    best: Trajectory
    score: Float[Array, "*batch"]


def plan(
    task: Spread,
    states: State,
    fly: Callable[[Spread, State], Trajectory],
    *,
    updates: int,
    starts: int,
) -> Trajectory:
    """Return the best episode that is found from each state, at worst the one that `fly` gives.

    The first search of a world begins with the actions of that episode, the others with noise on them. Progress is
    told on stderr.
    """
    worlds = len(states.time)
    _say(f"the planner is slow: {starts} x {updates} gradients for {task.agents} agents in each of {worlds} worlds")
    keys, begun, found = jax.random.split(jax.random.key(0), (worlds, starts)), time.monotonic(), []
    begin, improve = _programs(task, updates)
    for low in range(0, worlds, CHUNK):
        some, noise = jax.tree.map(lambda leaf, low=low: leaf[low : low + CHUNK], (states, keys))
        search = begin(fly(task, some), noise)
        for done in range(0, updates, BLOCK):
            search = improve(some, search, jnp.arange(done, min(done + BLOCK, updates)))
            about = f"{task.primary} {search.score.max(1).mean():.2f} after {min(done + BLOCK, updates)} updates"
            _say(f"worlds {low + 1} to {low + len(noise)}: {about}, {time.monotonic() - begun:.0f} s")
        rows, first = np.arange(len(noise)), search.score.argmax(1)
        found.append(jax.tree.map(lambda leaf, rows=rows, first=first: leaf[rows, first], search.best))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *found)


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


@functools.lru_cache(maxsize=32)
def _programs(task: Spread, updates: int) -> tuple[Callable[..., Search], Callable[..., Search]]:
    """Return two programs for many worlds, with several searches in each: begin, and make some of the updates."""
    unit = (task.action_limit.size if math.isfinite(task.action_limit.size) else 8.0) / 80
    optimiser = optax.adam(optax.cosine_decay_schedule(unit, updates, 0.05), b2=0.99)

    def score(trajectory: Trajectory) -> Float[Array, ""]:
        return task.figures(trajectory.measures)[task.primary]

    def begin(first: Trajectory, noise: PRNGKeyArray, rank: Float[Array, ""]) -> Search:
        plan = first.actions + rank * unit * jax.random.normal(noise, first.actions.shape)
        return Search(plan, optimiser.init(plan), first, score(first))

    def update(state: State, search: Search, number: Array) -> tuple[Search, None]:
        width = SOFT[0] * (SOFT[1] / SOFT[0]) ** (number.astype(jnp.float32) / updates)
        slope, episode = jax.grad(lambda plan: _soft_cost(task, state, plan, width), has_aux=True)(search.plan)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
            change, moments = optimiser.update(slope, search.moments)
        plan = task.action_limit(optax.apply_updates(search.plan, change))
        old, new = (search.best, search.score), (episode, score(episode))
        return Search(plan, moments, *jax.tree.map(lambda a, b: jnp.where(new[1] > old[1], b, a), old, new)), None

    def improve(state: State, search: Search, numbers: Array) -> Search:
        return jax.lax.scan(lambda search, number: update(state, search, number), search, numbers)[0]

    def begin_all(first: Trajectory, noise: Array) -> Search:
        return jax.vmap(begin, in_axes=(None, 0, 0))(first, noise, jnp.arange(len(noise), dtype=jnp.float32))

    return jax.jit(jax.vmap(begin_all)), jax.jit(
        jax.vmap(jax.vmap(improve, in_axes=(None, 0, None)), in_axes=(0, 0, None))
    )


def _soft_cost(
    task: Spread, state: State, plan: Float[Array, "time agents dim"], width: Float[Array, ""]
) -> tuple[Float[Array, ""], Trajectory]:
    """Return N D + 2 C of an episode, and the episode.

    A pair's collision is softened to a sigmoid of its gap that falls from 0.73 at contact to 0.27 at twice the width.
    """
    n = task.agents
    one, other = np.triu_indices(n, 1)

    def length(offset: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        return jnp.sqrt((offset * offset).sum(-1) + 1e-8)  # the root has no slope at zero

    def step(carry: tuple[State, Array], actions: Float[Array, "agents dim"]) -> tuple[tuple[State, Array], Any]:
        carry, record = take_step(task, carry, {}, actions)
        agents, landmarks = carry[0].position[:n], carry[0].position[n:]
        distance = length(landmarks[:, None] - agents[None]).min(-1).sum()
        gaps = length(agents[one] - agents[other]) - 2 * AGENT_RADIUS
        return carry, (n * distance + 2 * jax.nn.sigmoid(1 - gaps / width).sum(), record)

    costs, trajectory = jax.lax.scan(step, (state, jnp.array(True)), plan)[1]
    return costs.sum(), trajectory
