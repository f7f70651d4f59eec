"""Fly GCBF+'s nominal controller from GCBF+'s own starts, in a world written apart from the package's Navigation.

python tools/nominal.py --out results/references/nominal.json

The draw of starts, goals and obstacles, the keys of the random numbers and the controller follow GCBF+'s published
code, so that its first episodes here are those of its test. Each row tells the share of agents that touched nobody and
nothing in those few episodes, in many, and in many episodes of the package's own task.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.linalg import solve_discrete_are

from legoswarm.files import write_json
from legoswarm.provenance import provenance
from legoswarm.tasks.navigation import Navigation

jax.config.update("jax_threefry_partitionable", False)  # the random numbers of the JAX that GCBF+ was written for
DT, STEPS, TRAVEL, APART, RADIUS, TRIES = 0.03, 256, 3.0, 0.2, 0.05, 1024
ROWS = ((8, 0, 4.0, 20, 1000), (8, 8, 4.0, 20, 500), (32, 0, 8.0, 10, 100), (32, 32, 8.0, 10, 50))


def gains() -> jax.Array:
    """Return the gains of the discrete linear-quadratic regulator for a double integrator of mass 0.1."""
    a, b = np.eye(4), np.zeros((4, 2))
    a[0, 2] = a[1, 3] = DT
    b[2, 0] = b[3, 1] = DT / 0.1
    cost = solve_discrete_are(a, b, 5 * np.eye(4), np.eye(2))
    return jnp.asarray(np.linalg.solve(b.T @ cost @ b + np.eye(2), b.T @ cost @ a), jnp.float32)


def touches(point: jax.Array, obstacles: Any, distance: float) -> jax.Array:
    """Tell whether a point is within a distance of a rectangle, or inside one."""
    centre, sides, angle = obstacles
    if not len(centre):
        return jnp.zeros((), bool)
    x, y = (point - centre).T
    along = jnp.abs(x * jnp.cos(angle) + y * jnp.sin(angle)) - sides[:, 0] / 2
    across = jnp.abs(x * jnp.sin(angle) - y * jnp.cos(angle)) - sides[:, 1] / 2
    return (jnp.hypot(jnp.maximum(along, 0), jnp.maximum(across, 0)) < distance).any()


def draw(key: jax.Array, side: float, agents: int, obstacles: Any) -> tuple[jax.Array, jax.Array]:
    """Draw starts and goals one by one, each again until it fits; unplaced ones count as being at the origin."""

    def near(point: jax.Array, placed: jax.Array) -> jax.Array:
        return (jnp.linalg.norm(placed - point, axis=1).min() <= APART) | touches(point, obstacles, APART)

    def until_it_fits(bad: Any, key: jax.Array, first: jax.Array, again: Any) -> tuple[jax.Array, jax.Array]:
        def more(tried: Any) -> Any:
            use, key = jr.split(tried[1])
            return tried[0] + 1, key, again(use)

        tries, _, point = jax.lax.while_loop(lambda t: bad(t[2]) & (t[0] < TRIES), more, (0, key, first))
        return tries < TRIES, point

    def place(carry: Any) -> Any:
        at, key, starts, goals = carry
        key_start, key_goal, key = jr.split(key, 3)

        def anywhere(key: jax.Array) -> jax.Array:
            return jr.uniform(key, (2,), maxval=side)

        fits, start = until_it_fits(lambda p: near(p, starts), key_start, anywhere(key_start), anywhere)

        def unfit(goal: jax.Array) -> jax.Array:
            outside = (goal < 0).any() | (goal > side).any() | (jnp.linalg.norm(goal - start) > TRAVEL)
            return near(goal, goals) | outside

        def around(key: jax.Array) -> jax.Array:
            return start + jr.uniform(key, (2,), minval=-TRAVEL, maxval=TRAVEL)

        first = start + jr.uniform(key_goal, (2,), maxval=TRAVEL)
        reachable, goal = until_it_fits(unfit, key_goal, first, around)
        whole = fits & reachable  # else all of it is drawn again
        starts, goals = starts.at[at].set(start) * whole, goals.at[at].set(goal) * whole
        return jnp.where(whole, at + 1, 0), key, starts, goals

    none = jnp.zeros((agents, 2))
    return jax.lax.while_loop(lambda c: c[0] < agents, place, (0, key, none, none))[2:]


def episode(key: jax.Array, agents: int, count: int, side: float, gain: jax.Array) -> jax.Array:
    """Return the share of agents that were never unsafe."""
    key, _ = jr.split(key)
    parts = []
    for shape, low, high in (((count, 2), 0, side), ((count, 2), 0.1, 0.5), ((count,), 0, 2 * np.pi)):
        use, key = jr.split(key)
        parts.append(jr.uniform(use, shape, minval=low, maxval=high))
    obstacles = tuple(parts)
    starts, goals = draw(key, side, agents, obstacles)
    goal = jnp.concatenate([goals, jnp.zeros_like(goals)], 1)

    def unsafe(state: jax.Array) -> jax.Array:
        place = state[:, :2]
        gaps = jnp.linalg.norm(place[:, None] - place, axis=-1) + jnp.eye(agents)
        return (gaps < 2 * RADIUS).any(1) | jax.vmap(lambda point: touches(point, obstacles, RADIUS))(place)

    def step(_: int, carry: Any) -> Any:
        state, ever = carry
        error = goal - state
        error = error * jnp.minimum(1, 0.5 / jnp.maximum(jnp.linalg.norm(error, axis=-1, keepdims=True), 1e-9))
        force = jnp.clip(error @ gain.T, -1, 1)
        state = state + DT * jnp.concatenate([state[:, 2:], force / 0.1], 1)
        state = state.at[:, 2:].set(jnp.clip(state[:, 2:], -0.5, 0.5))
        return state, ever | unsafe(state)

    state = jnp.concatenate([starts, jnp.zeros_like(starts)], 1)
    return 1 - jax.lax.fori_loop(0, STEPS, step, (state, unsafe(state)))[1].mean()


def own_episode(key: jax.Array, task: Navigation, gain: jax.Array) -> jax.Array:
    """Return the same share in the package's own world."""

    def step(_: int, state: Any) -> Any:
        n = task.agents
        error = jnp.concatenate([state.position[n : 2 * n] - state.position[:n], -state.velocity[:n]], -1)
        error = error * jnp.minimum(1, 0.5 / jnp.maximum(jnp.linalg.norm(error, axis=-1, keepdims=True), 1e-9))
        return task.step(state, error @ gain.T)

    return task.measure(jax.lax.fori_loop(0, STEPS, step, task.reset(key)))["safe"]


def share(values: np.ndarray) -> dict[str, float]:
    """Return the mean in per cent, its standard error and the number of episodes."""
    error = values.std(ddof=1) / len(values) ** 0.5
    return {"safe": 100 * float(values.mean()), "error": 100 * float(error), "episodes": len(values)}


def main() -> None:
    """Measure all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a .json file")
    args = parser.parse_args()
    gain, keys, rows = gains(), jr.split(jr.PRNGKey(1234), 1000), []
    for agents, obstacles, side, few, many in ROWS:
        fly = jax.jit(jax.vmap(lambda key, n=agents, m=obstacles, side=side: episode(key, n, m, side, gain)))
        theirs = np.asarray(fly(keys[:many]), float)
        task = Navigation(agents=agents, obstacles=obstacles, side=side, travel=TRAVEL)
        ours = np.asarray(jax.jit(jax.vmap(lambda key, task=task: own_episode(key, task, gain)))(keys[:many]), float)
        row = {"first": share(theirs[:few]), "many": share(theirs), "navigation": share(ours)}
        rows.append({"agents": agents, "obstacles": obstacles, "side": side, **row})
        told = ", ".join(f"{name} {of['safe']:.1f} +- {of['error']:.1f} ({of['episodes']})" for name, of in row.items())
        print(f"{agents} agents, {obstacles} obstacles: {told}", flush=True)
    write_json(args.out, {"command": f"python tools/nominal.py --out {args.out}", "rows": rows, **provenance("scipy")})


if __name__ == "__main__":
    main()
