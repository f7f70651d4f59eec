"""Navigation: every agent flies to its own goal among others and obstacles, and sees no farther than its sensors do.

The world is GCBF+'s DoubleIntegrator (Zhang et al. 2025), in its physics, limits, starts and measures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from legoswarm.arrays import AnyArray, namespace
from legoswarm.configs import check_fields, option
from legoswarm.limits import Limit
from legoswarm.scene import Layout, Scene
from legoswarm.tasks.task import TASKS, State
from legoswarm.tasks.worlds.particles import distances
from legoswarm.tasks.worlds.rectangles import Rectangles, beams, lidar

DT = 0.03
RADIUS = 0.05
MAX_SPEED = 0.5  # of each component
GAIN = 10.0  # acceleration of an action of 1: a mass of 0.1
APART = 4 * RADIUS  # between starts, between goals, and from either to an obstacle
REACHED = 0.1
RAYS, REACH, ACTIVE = 32, 0.5, 0.4  # of the LiDAR; what is farther than the last is no entity
AREA = 2.0  # that an agent has in the arena
CROWDED = {"agents": 6, "obstacles": 2}  # in a unit of area, at most: among more there is hardly room to start
AROUND = 12  # obstacles that an agent looks at: so crowded, more are hardly ever within its reach
AWAY = 1e3  # where obstacles are that a smaller arena does not have, in its sides
TRIES = 4096
CANDIDATES = 16  # of each try


class NavigationState(State):
    """Agents, goals and LiDAR hits; the obstacles; who was ever unsafe, and who ever reached its goal."""

    obstacles: Rectangles
    unsafe: Bool[AnyArray, " agents"]
    reached: Bool[AnyArray, " agents"]


@TASKS.register
@dataclasses.dataclass(frozen=True)
class Navigation:
    """Reach your own goal and touch nobody and nothing; T = 256 steps of 0.03 s.

    An agent sees others within 0.5, its own goal, and the nearest hit of its LiDAR in each of sixteen sectors: with
    eight, the bottom of a niche is hidden behind its walls, and a niche looks like a gap. Its reward is its speed
    towards the goal, as a share of 0.5, and a little at the goal, less a penalty while it touches another or an
    obstacle, or nearly does.
    """

    name: ClassVar[str] = "navigation"
    primary: ClassVar[str] = "success"
    # A leash would pull at far goals, through others. The limit on costs is what the best seeds of a training without
    # one came to; it begins when agents have learned to fly (docs/experiments.md).
    suits: ClassVar = {
        "mappo": {"leash": 0.0, "nearest": 16},
        "masac": {
            "leash": 0.0, "nearest": 16, "gamma": 0.98, "lr": 1e-3, "tau": 0.01, "updates": 4, "samples": 256,
            "cost_limit": 5e-5, "cost_start": 0.4, "multiplier": 1.0, "multiplier_most": 4.0,
        },
    }  # fmt: skip

    agents: int = option(8, "number of agents", low=1)
    obstacles: int | None = option(None, "number of obstacles (default: as many as agents)", low=0)
    side: float = option(0.0, "side of the arena; 0: it grows with the team, to 2 units of area for each agent", low=0)
    travel: float = option(0.0, "distance from an agent's start within which its goal lies; 0: anywhere", low=0)
    sides: Sequence[float] = option(
        (), "sides to mix in training, with as many obstacles in a unit of area as in --side"
    )
    hits: int = option(
        16, "LiDAR hits that an agent sees: the nearest in each of so many equal sectors", low=0, high=RAYS
    )
    penalty: float = option(20.0, "what a step in touch with another or an obstacle costs", low=0)
    margin: float = option(0.05, "clearance below which nearness costs too, the more the less there is", above=0)
    arrival: float = option(0.5, "what a step within 0.1 of the goal earns", low=0)
    sensing: float = option(0.5, "radius within which agents see each other; 0: they see everybody", low=0)
    horizon: int = option(256, "steps of an episode", low=1, high=2**31 - 1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sides", tuple(self.sides))  # a list when read from JSON; jit needs a hash
        check_fields(self)
        if self.hits and RAYS % self.hits:
            raise ValueError(f"hits must divide the {RAYS} rays into equal sectors, not {self.hits}")
        if any(not 0 < side <= self.length for side in self.sides):
            raise ValueError(f"sides to mix must lie between 0 and {self.length:.3g}, the side of the arena")
        if self.travel and self.travel < REACHED:
            raise ValueError(f"goals must lie farther away than {REACHED}, at which they are reached")
        smallest = min((*self.sides, self.length))
        for what, count, side in (("agents", self.agents, smallest), ("obstacles", self.obstacle_count, self.length)):
            if count > CROWDED[what] * side**2:
                most = f"at most {CROWDED[what]} in a unit of area"
                raise ValueError(f"{count} {what} do not fit into an arena of side {side:.3g}: {most}")

    @property
    def obstacle_count(self) -> int:
        """Count the obstacles: as many as agents, unless said otherwise."""
        return self.agents if self.obstacles is None else self.obstacles

    @property
    def length(self) -> float:
        """Return the side of the arena."""
        return self.side or math.sqrt(AREA * self.agents)

    @property
    def action_limit(self) -> Limit:
        """Return the world's own limit: each component at most 1."""
        return Limit("box", 1.0)

    @property
    def layout(self) -> Layout:
        """Return the roles: agents, and each agent's own goal and hits."""
        slots = (self.agents, self.agents, self.agents * self.hits)
        return Layout(("agent", "goal", "hit"), slots, private=2)

    @property
    def radii(self) -> tuple[float, ...]:
        """Return each entity's radius."""
        return (RADIUS,) * self.agents + (RADIUS,) * self.agents + (0.01,) * (self.agents * self.hits)

    def reset(self, key: PRNGKeyArray) -> NavigationState:
        """Draw obstacles anywhere, then starts and goals that keep apart from their like and from obstacles."""
        key_obstacles, key_starts, key_goals = jax.random.split(key, 3)
        keys, length = jax.random.split(key_obstacles, 3), self.length
        centre = jax.random.uniform(keys[0], (self.obstacle_count, 2))
        if self.sides:
            length = jax.random.choice(jax.random.fold_in(key, 0), jnp.asarray(self.sides, jnp.float32))
            last = self.obstacle_count * (length / self.length) ** 2
            centre = jnp.where((np.arange(self.obstacle_count, dtype=np.float32) + 0.5 < last)[:, None], centre, AWAY)
        obstacles = Rectangles(
            length * centre,
            0.5 * jax.random.uniform(keys[1], (self.obstacle_count, 2), minval=0.1, maxval=0.5),
            2 * math.pi * jax.random.uniform(keys[2], (self.obstacle_count,)),
        )

        def blocked(point: Float[Array, "n 2"]) -> Bool[Array, " n"]:
            corner = (point * point).sum(-1) <= APART**2  # nothing is drawn there, as in the world this one repeats
            return corner | (self._clearance(point, obstacles) <= APART)

        def anywhere(key: PRNGKeyArray, at: Array) -> Float[Array, "n 2"]:
            del at
            return length * jax.random.uniform(key, (self.agents, 2))

        def near(key: PRNGKeyArray, at: Array) -> Float[Array, "n 2"]:
            low = jnp.where(at == 0, 0.0, -self.travel)  # the first try is ahead on both axes
            return starts + low + (self.travel - low) * jax.random.uniform(key, (self.agents, 2))

        def astray(point: Float[Array, "n 2"]) -> Bool[Array, " n"]:
            outside = ((point < 0) | (point > length)).any(-1)
            return blocked(point) | outside | (((point - starts) ** 2).sum(-1) > self.travel**2)

        starts = _draw_apart(key_starts, anywhere, blocked)
        goals = _draw_apart(key_goals, near, astray) if self.travel else _draw_apart(key_goals, anywhere, blocked)
        position = jnp.concatenate([starts, goals, jnp.zeros((self.agents * self.hits, 2))]) - length / 2
        obstacles = obstacles._replace(centre=obstacles.centre - length / 2)  # the arena's middle is the origin
        nobody = jnp.zeros(self.agents, bool)
        start = NavigationState(
            position, jnp.zeros_like(position), jnp.ones(len(position), bool), jnp.zeros((), jnp.int32),
            obstacles, nobody, nobody,
        )  # fmt: skip
        return self._seen(start)

    def step(self, state: Any, action: Float[AnyArray, "agents dim"]) -> Any:
        """Move with the old velocity, then accelerate; look around; note who is unsafe and who has arrived."""
        xp, n = namespace(state.position), self.agents
        mine, velocity = state.position[:n], state.velocity[:n]
        moved = xp.where(state.exists[:n, None], mine + DT * velocity, mine)
        faster = xp.clip(velocity + DT * GAIN * self.action_limit(action), -MAX_SPEED, MAX_SPEED)
        faster = xp.where(state.exists[:n, None], faster, xp.zeros_like(faster))
        position = xp.concatenate([moved, state.position[n:]])
        velocity = xp.concatenate([faster, state.velocity[n:]])
        return self._seen(dataclasses.replace(state, position=position, velocity=velocity, time=state.time + 1))

    def _seen(self, state: Any) -> Any:
        """Return a state with the hits of everybody's LiDAR, and what is known of who was unsafe and who arrived."""
        xp, n = namespace(state.position), self.agents
        mine, there = state.position[:n], state.exists[:n]
        around = state.obstacles.near(mine, AROUND)
        rays = xp.asarray(beams(RAYS), dtype=mine.dtype)
        free, _ = lidar(mine, around, rays, REACH)
        sectors = free.reshape(n, self.hits, -1) if self.hits else free[:, :0, None]
        near, first = sectors.min(-1), sectors.argmin(-1) + xp.arange(self.hits)[None] * (RAYS // max(self.hits, 1))
        hits = mine[:, None] + xp.where((near < ACTIVE)[..., None], near[..., None] * rays[first], 0.0)
        return dataclasses.replace(
            state,
            position=xp.concatenate([mine, state.position[n : 2 * n], hits.reshape(-1, 2)]),
            exists=xp.concatenate([there, there, ((near < ACTIVE) & there[:, None]).reshape(-1)]),
            unsafe=state.unsafe | (self._gap(state) < 0),
            reached=state.reached | (self._way(state)[1] < REACHED),
        )

    def _clearance(self, point: Float[AnyArray, "n 2"], obstacles: Rectangles) -> Float[AnyArray, " n"]:
        """Return how far points are from the nearest obstacle."""
        around = obstacles.near(point, AROUND)
        gaps = Rectangles(*around).distance(namespace(point).broadcast_to(point[:, None], around.centre.shape))
        return gaps.min(-1, initial=math.inf)

    def _gap(self, state: Any) -> Float[AnyArray, " agents"]:
        """Return how far each agent is from touching another or an obstacle; negative if it does."""
        xp, n = namespace(state.position), self.agents
        mine, there = state.position[:n], state.exists[:n]
        apart = there[:, None] & there[None] & ~np.eye(n, dtype=bool)
        others = xp.where(apart, distances(mine, mine), math.inf).min(-1) - 2 * RADIUS
        return xp.minimum(others, self._clearance(mine, state.obstacles) - RADIUS)

    def _way(self, state: Any) -> tuple[Float[AnyArray, "agents 2"], Float[AnyArray, " agents"]]:
        """Return the way to each agent's goal, and its length."""
        way = state.position[self.agents : 2 * self.agents] - state.position[: self.agents]
        return way, namespace(way).sqrt((way * way).sum(-1))

    def reward(self, state: Any) -> Float[AnyArray, " agents"]:
        """Return each agent's speed towards its goal, what being there earns, less what touching, or nearly, costs."""
        xp, (way, length) = namespace(state.position), self._way(state)
        speed = (way * state.velocity[: self.agents]).sum(-1) / xp.maximum(length, REACHED)
        there = (length < REACHED).astype(speed.dtype)
        earned = speed / MAX_SPEED + self.arrival * there
        return earned * state.exists[: self.agents].astype(speed.dtype) - self.penalty * self.cost(state)

    def cost(self, state: Any) -> Float[AnyArray, " agents"]:
        """Return 1 for each agent that touches another or an obstacle, less for those that nearly do, 0 elsewhere."""
        gap = self._gap(state)
        near = namespace(gap).clip(1 - gap / self.margin, 0.0, 1.0) ** 2
        return near * state.exists[: self.agents].astype(gap.dtype)

    def terminated(self, state: Any) -> Bool[AnyArray, ""]:
        """Return False: only the time limit ends an episode."""
        return state.time < 0

    def scene(self, state: Any) -> Scene:
        """Return a scene in which agents see each other within the sensing radius, and their own goals and hits."""
        return Scene(state.position, state.velocity, state.exists, None, self.layout, self.sensing or math.inf)

    def measure(self, state: Any) -> dict[str, AnyArray]:
        """Return the shares of agents that were always safe, that ever reached their goals, and both."""
        there = state.exists[: self.agents]
        shares = {"safe": ~state.unsafe, "reached": state.reached, "success": state.reached & ~state.unsafe}
        shares["at_goal"] = self._way(state)[1] < REACHED
        kind = state.position.dtype
        found = {name: (share & there).astype(kind).sum() / there.astype(kind).sum() for name, share in shares.items()}
        return {**found, "return": self.reward(state).sum() / there.astype(kind).sum()}

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """Return the shares at the end of the episode, and the mean agent's return."""
        return {name: values[-1] for name, values in measures.items() if name != "return"} | {
            "return": measures["return"].sum()
        }


def _draw_apart(
    key: PRNGKeyArray,
    draw: Callable[[PRNGKeyArray, Array], Float[Array, "n 2"]],
    refuse: Callable[[Float[Array, "n 2"]], Bool[Array, " n"]],
) -> Float[Array, "n 2"]:
    """Draw points until none is refused or too near an earlier one; those that are, are drawn again.

    Each try draws several candidates for every point and takes the first that is not refused. On a GPU a try takes as
    long with one candidate, and the worlds that train side by side all wait for the one that needs most tries.
    """

    def pick(key: PRNGKeyArray, at: Array) -> tuple[Float[Array, "n 2"], Bool[Array, " n"]]:
        candidates = jax.vmap(draw)(jax.random.split(key, CANDIDATES), at * CANDIDATES + jnp.arange(CANDIDATES))
        refused = jax.vmap(refuse)(candidates)
        first = refused.argmin(0), jnp.arange(refused.shape[1])
        return candidates[first], refused[first]

    def again(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        at, key, points, wrong = carry
        key, key_draw = jax.random.split(key)
        fresh, refused = pick(key_draw, at)
        points = jnp.where(wrong[:, None], fresh, points)
        earlier = np.tri(len(points), k=-1, dtype=bool)
        near = ((distances(points, points) <= APART) & earlier).any(-1)
        return at + 1, key, points, (wrong & refused) | near

    points = jnp.zeros_like(draw(key, jnp.array(0)))
    start = jnp.array(0), key, points, jnp.ones(len(points), bool)
    return jax.lax.while_loop(lambda carry: carry[3].any() & (carry[0] < TRIES), again, start)[2]
