"""Spread: N agents cover the landmarks and keep apart."""

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
from legoswarm.tasks.task import TASKS, State
from legoswarm.tasks.worlds.particles import Bodies, distances
from legoswarm.tasks.worlds.protocol import find_protocol

AGENT_RADIUS = 0.15
LANDMARK_RADIUS = 0.05
_SIDES = {"uniform": (-1.0, 1.0), "left": (-1.0, 0.0), "right": (0.0, 1.0)}


@TASKS.register
@dataclasses.dataclass(frozen=True)
class Spread:
    """Cover every landmark without colliding; T = 25.

    With D the summed distance of each landmark to its nearest agent and C the number of colliding pairs,
    one agent's reward in protocol `paper` is -N D - 2 C; in `mpe2`, -(D + collisions of the agent) / 2.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))  # a list when read from JSON; jit needs a hash
        if self.agents < 1 or self.landmark_count < 1:
            raise ValueError("spread needs at least one agent and one landmark")
        if self.start not in _SIDES or self.landmark_start not in _SIDES:
            raise ValueError(f"a start must be one of {', '.join(_SIDES)}")
        if self.horizon < 1:
            raise ValueError("the horizon must be at least 1 step")
        if any(not 1 <= size <= self.agents for size in self.sizes):
            raise ValueError(f"team sizes must lie between 1 and the {self.agents} agents of the task")
        if self.sizes and self.landmarks is not None:
            raise ValueError("mixed team sizes have as many landmarks as agents")
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
        reach = find_protocol(self.protocol).landmark_reach
        agents = _draw(key_agents, self.agents, self.start, 1.0)
        landmarks = _draw(key_landmarks, self.landmark_count, self.landmark_start, reach)
        position = jnp.concatenate([agents, landmarks])
        exists = jnp.ones(len(position), bool)
        if self.sizes:
            size = jax.random.choice(key_size, jnp.asarray(self.sizes))
            exists = jnp.tile(jnp.arange(self.agents) < size, 2)
        return State(position, jnp.zeros_like(position), exists, jnp.zeros((), jnp.int32))

    def step(self, state: State, action: Float[AnyArray, "agents dim"]) -> State:
        """Take one step of particle physics under the limited action."""
        return find_protocol(self.protocol).step(state, self.action_limit(action), self.bodies)

    def _distance(self, state: State) -> Float[AnyArray, ""]:
        """Return D_t, the sum over landmarks of the distance to the nearest agent."""
        xp = namespace(state.position)
        gaps = distances(state.position[self.agents :], state.position[: self.agents])
        gaps = xp.where(state.exists[: self.agents][None], gaps, math.inf)
        return xp.where(state.exists[self.agents :], gaps.min(-1), 0.0).sum()

    def _collisions(self, state: State) -> Float[AnyArray, " agents"]:
        """Count the others that each agent collides with."""
        agents, exists = state.position[: self.agents], state.exists[: self.agents]
        touches = distances(agents, agents) < 2 * AGENT_RADIUS
        touches = touches & exists[:, None] & exists[None] & ~np.eye(self.agents, dtype=bool)
        return touches.astype(agents.dtype).sum(-1)

    def reward(self, state: State) -> Float[AnyArray, " agents"]:
        """Return the sum over agents of -D_t - collisions to each (`paper`), or half and half (`mpe2`)."""
        distance, collisions = self._distance(state), self._collisions(state)
        exists = state.exists[: self.agents].astype(collisions.dtype)
        if self.protocol == "mpe2":
            return -0.5 * (distance + collisions) * exists
        return -(exists.sum() * distance + collisions.sum()) * exists

    def terminated(self, state: State) -> Bool[AnyArray, ""]:
        """Return False: only the time limit ends an episode."""
        return state.time < 0

    def scene(self, state: State) -> Scene:
        """Return a scene in which everybody sees everything."""
        visible = jnp.ones((self.agents, self.layout.entities), bool)
        return Scene(state.position, state.velocity, state.exists, visible, self.layout)

    def measure(self, state: State) -> dict[str, AnyArray]:
        """Return D_t, C_t and the number of agents."""
        return {
            "distance": self._distance(state),
            "collisions": self._collisions(state).sum() / 2,
            "team": state.exists[: self.agents].sum().astype(state.position.dtype),
        }

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """Return distance D, collisions C, return_2c = -N D - 2 C and return_1c = -N D - C of an episode."""
        distance, collisions = measures["distance"].sum(), measures["collisions"].sum()
        covered = -measures["team"][0] * distance
        return {
            "return_2c": covered - 2 * collisions,
            "return_1c": covered - collisions,
            "distance": distance,
            "collisions": collisions,
        }


def _draw(key: PRNGKeyArray, count: int, side: str, scale: float) -> Float[Array, "count 2"]:
    low, high = _SIDES[side]
    return scale * jax.random.uniform(key, (count, 2), minval=jnp.array([low, -1.0]), maxval=jnp.array([high, 1.0]))
