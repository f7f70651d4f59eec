"""Spread: N agents cover the landmarks and keep apart, in an arena that may grow with the team."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from legoswarm.arrays import AnyArray, namespace
from legoswarm.configs import option
from legoswarm.limits import Limit
from legoswarm.scene import Layout, Scene
from legoswarm.tasks.task import TASKS, State, sensing_option
from legoswarm.tasks.worlds.particles import Bodies, distances
from legoswarm.tasks.worlds.protocol import find_protocol

AGENT_RADIUS = 0.15
LANDMARK_RADIUS = 0.05
COVERED = 0.1  # how near a landmark's nearest agent is if it is covered
USUAL = 4.0  # agents, at whose number a distance and a collision are weighed in arenas that grow
_SIDES = {"uniform": (-1.0, 1.0), "left": (-1.0, 0.0), "right": (0.0, 1.0)}


@TASKS.register
@dataclasses.dataclass(frozen=True)
class Spread:
    """Cover every landmark without colliding; T = 25.

    With D the summed distance of each landmark to its nearest agent and C the number of colliding pairs,
    one agent's reward in protocol `paper` is -N D - 2 C; in `mpe2`, -(D + collisions of the agent) / 2. With a
    `density` the arena is as large as the team needs, and N is 4 in the reward whatever the team: what a collision
    costs does not depend on who is far away.
    """

    name: ClassVar[str] = "spread"
    primary: ClassVar[str] = "return_2c"

    agents: int = option(3, "number of agents")
    landmarks: int | None = option(None, "number of landmarks (default: as many as agents)")
    protocol: str = option("paper", "paper or mpe2")
    limit: str | None = option(
        None,
        "none, disc:SIZE or box:SIZE; only a box breaks equivariance (default: disc:8 in paper, box:1 in mpe2)",
    )
    start: str = option("uniform", "where agents start: uniform, left or right")
    landmark_start: str = option("uniform", "where landmarks lie: uniform, left or right")
    sizes: Sequence[int] = option((), "team sizes to mix in training, each at most --agents")
    horizon: int = option(25, "steps of an episode")
    sensing: float = sensing_option()
    density: float = option(
        0.0, "agents in a unit of area, 1 is four in the usual arena: it grows with the team; 0: it does not"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))  # a list when read from JSON; jit needs a hash
        if self.agents < 1 or self.landmark_count < 1:
            raise ValueError("spread needs at least one agent and one landmark")
        if self.start not in _SIDES or self.landmark_start not in _SIDES:
            raise ValueError(f"a start must be one of {', '.join(_SIDES)}")
        if not 1 <= self.horizon < 2**31:
            raise ValueError("the horizon must be at least 1 step, and less than 2^31")
        if any(not 1 <= size <= self.agents for size in self.sizes):
            raise ValueError(f"team sizes must lie between 1 and the {self.agents} agents of the task")
        if self.sizes and self.landmarks is not None:
            raise ValueError("mixed team sizes have as many landmarks as agents")
        if not (0 <= self.sensing < math.inf and 0 <= self.density < math.inf):
            raise ValueError("sensing and density are finite numbers from 0 on")
        smallest = min((*self.sizes, self.agents))
        if self.density and smallest / (4 * self.density) <= (1 - find_protocol(self.protocol).landmark_reach) ** 2:
            raise ValueError(f"{smallest} agents at a density of {self.density:g} leave no room for landmarks")
        _ = self.action_limit

    @property
    def landmark_count(self) -> int:
        """Count the landmarks: as many as agents, unless said otherwise."""
        return self.agents if self.landmarks is None else self.landmarks

    @property
    def action_limit(self) -> Limit:
        """Return the limit on actions, by default the protocol's: a disc of 8, or mpe2's box of 1."""
        return find_protocol(self.protocol).action_limit(self.limit)

    @property
    def layout(self) -> Layout:
        """Return the roles: agents, then landmarks."""
        return Layout(("agent", "landmark"), (self.agents, self.landmark_count))

    @property
    def radii(self) -> tuple[float, ...]:
        """Return each entity's radius."""
        return (AGENT_RADIUS,) * self.agents + (LANDMARK_RADIUS,) * self.landmark_count

    @property
    def bodies(self) -> Bodies:
        """Return the bodies: agents push each other; landmarks touch nobody."""
        n = self.agents
        return Bodies(self.radii, acceleration=(5.0,) * n, max_speed=(math.inf,) * n, solid=n)

    def reset(self, key: PRNGKeyArray) -> State:
        """Place agents at rest on their side, landmarks anywhere (within 0.8 in protocol `paper`)."""
        key_agents, key_landmarks, key_size = jax.random.split(key, 3)
        size, exists = self.agents, jnp.ones(self.layout.entities, bool)
        if self.sizes:
            size = jax.random.choice(key_size, jnp.asarray(self.sizes))
            exists = jnp.tile(jnp.arange(self.agents) < size, 2)
        half = jnp.sqrt(jnp.asarray(size, jnp.float32) / (4 * self.density)) if self.density else 1.0
        reach = half - (1 - find_protocol(self.protocol).landmark_reach)
        agents = _draw(key_agents, self.agents, self.start, half)
        landmarks = _draw(key_landmarks, self.landmark_count, self.landmark_start, reach)
        position = jnp.concatenate([agents, landmarks])
        return State(position, jnp.zeros_like(position), exists, jnp.zeros((), jnp.int32))

    def step(self, state: State, action: Float[AnyArray, "agents dim"]) -> State:
        """Take one step of particle physics under the limited action."""
        return find_protocol(self.protocol).step(state, self.action_limit(action), self.bodies)

    def _gaps(self, state: State) -> Float[AnyArray, " landmarks"]:
        """Return the distance of each landmark to its nearest agent; 0 for those that are not there."""
        xp = namespace(state.position)
        gaps = distances(state.position[self.agents :], state.position[: self.agents])
        gaps = xp.where(state.exists[: self.agents][None], gaps, math.inf)
        return xp.where(state.exists[self.agents :], gaps.min(-1), 0.0)

    def _collisions(self, state: State) -> Float[AnyArray, " agents"]:
        """Count the others that each agent collides with."""
        agents, exists = state.position[: self.agents], state.exists[: self.agents]
        touches = distances(agents, agents) < 2 * AGENT_RADIUS
        touches = touches & exists[:, None] & exists[None] & ~np.eye(self.agents, dtype=bool)
        return touches.astype(agents.dtype).sum(-1)

    def reward(self, state: State) -> Float[AnyArray, " agents"]:
        """Return the sum over agents of -D_t - collisions to each (`paper`), or half and half (`mpe2`)."""
        distance, collisions = self._gaps(state).sum(), self._collisions(state)
        exists = state.exists[: self.agents].astype(collisions.dtype)
        if self.protocol == "mpe2":
            return -0.5 * (distance + collisions) * exists
        weight = USUAL if self.density else exists.sum()
        return -(weight * distance + collisions.sum()) * exists

    def terminated(self, state: State) -> Bool[AnyArray, ""]:
        """Return False: only the time limit ends an episode."""
        return state.time < 0

    def scene(self, state: State) -> Scene:
        """Return a scene in which everybody sees everything within the sensing radius."""
        return Scene(state.position, state.velocity, state.exists, None, self.layout, self.sensing or math.inf)

    def measure(self, state: State) -> dict[str, AnyArray]:
        """Return D_t, C_t, the share of landmarks that are covered and the number of agents."""
        gaps = self._gaps(state)
        there = state.exists[self.agents :].astype(gaps.dtype)
        covered = ((gaps < COVERED).astype(gaps.dtype) * there).sum() / there.sum()
        return {
            "distance": gaps.sum(),
            "covered": covered,
            "collisions": self._collisions(state).sum() / 2,
            "team": state.exists[: self.agents].sum().astype(state.position.dtype),
        }

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """Return distance D, collisions C, return_2c = -N D - 2 C and return_1c = -N D - C of an episode.

        Beside them stand the share of landmarks that are covered at the end, the first step at which nine of ten are
        (the horizon, if that is never), and how often an agent touches another: pairs of an agent and a step.
        """
        distance, collisions = measures["distance"].sum(), measures["collisions"].sum()
        cost = -measures["team"][0] * distance
        enough = measures["covered"] >= 0.9
        first = namespace(enough).argmax(enough).astype(distance.dtype) + 1
        return {
            "return_2c": cost - 2 * collisions,
            "return_1c": cost - collisions,
            "distance": distance,
            "collisions": collisions,
            "covered": measures["covered"][-1],
            "cover_time": namespace(enough).where(enough.any(), first, float(len(enough))),
            "touches": 2 * collisions / namespace(distance).maximum(measures["team"][0], 1.0),
        }


def _draw(key: PRNGKeyArray, count: int, side: str, scale: float | Float[Array, ""]) -> Float[Array, "count 2"]:
    low, high = _SIDES[side]
    return scale * jax.random.uniform(key, (count, 2), minval=jnp.array([low, -1.0]), maxval=jnp.array([high, 1.0]))
