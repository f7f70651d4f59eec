"""Tag-occlusion: slower pursuers chase faster evaders around obstacles that block the view."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from legoswarm.arrays import AnyArray, namespace
from legoswarm.configs import option
from legoswarm.limits import Limit
from legoswarm.scene import Layout, Scene
from legoswarm.tasks.task import TASKS, State, sensing_option
from legoswarm.tasks.worlds.chase import CATCH, EVADER_RADIUS, PURSUER_RADIUS, boundary_penalty, chase_bodies, occluded
from legoswarm.tasks.worlds.particles import Bodies, distances, unit
from legoswarm.tasks.worlds.protocol import find_protocol


class Chase(State):
    """A world whose agents remember: for how many steps each of them has not seen each other one."""

    unseen: Int[AnyArray, "agents agents"]


@TASKS.register
@dataclasses.dataclass(frozen=True)
class Tag:
    """Pursuers touch evaders, evaders stay away and inside; T = 100.

    Every pursuer gets +10 for each touching pair; an evader gets -10 for each pursuer that touches it and a
    growing penalty beyond |x| = 0.9. An entity is hidden when an obstacle cuts the line of sight to it. With `memory`
    an agent then has an entity of its own where it last saw the other one, with the velocity that this one had.
    """

    name: ClassVar[str] = "tag"
    primary: ClassVar[str] = "pursuer_return"
    shown: ClassVar[tuple[str, ...]] = ("arena", "memory")

    pursuers: int = option(3, "number of pursuers")
    evaders: int = option(2, "number of evaders")
    obstacles: int = option(2, "number of obstacles")
    protocol: str = option("paper", "paper or mpe2")
    limit: str | None = option(
        None,
        "none, disc:SIZE or box:SIZE; only a box breaks equivariance (default: disc:8 in paper, box:1 in mpe2)",
    )
    occlusion: bool = option(True, "obstacles block the line of sight")
    arena: bool = option(False, "show the arena's centre to policies as an entity of its own role")
    memory: int = option(0, "steps for which agents remember where they last saw those they no longer see; 0: none")
    horizon: int = option(100, "steps of an episode")
    sensing: float = sensing_option()

    def __post_init__(self) -> None:
        if self.pursuers < 1 or self.evaders < 1 or self.obstacles < 0:
            raise ValueError("tag needs at least one pursuer, one evader and no negative number of obstacles")
        if not 1 <= self.horizon < 2**31:
            raise ValueError("the horizon must be at least 1 step, and less than 2^31")
        if not self.sensing >= 0:
            raise ValueError(f"sensing must be at least 0, not {self.sensing}")
        if not 0 <= self.memory < 2**30:
            raise ValueError("the memory must be at least 0 steps, and less than 2^30")
        _ = self.action_limit

    @property
    def action_limit(self) -> Limit:
        """Return the limit on actions, by default the protocol's: a disc of 8, or mpe2's box of 1."""
        return find_protocol(self.protocol).action_limit(self.limit)

    @property
    def layout(self) -> Layout:
        """Return pursuers, evaders, obstacles and, if asked for, the arena's centre and who was last seen where."""
        slots = {"pursuer": self.pursuers, "evader": self.evaders, "obstacle": self.obstacles}
        if self.arena:
            slots["centre"] = 1
        if self.memory:
            slots |= {f"lost-{role}": (self.pursuers + self.evaders) * slots[role] for role in ("pursuer", "evader")}
        return Layout(tuple(slots), tuple(slots.values()), controlled=2, private=2 if self.memory else 0)

    @property
    def obstacle_radius(self) -> float:
        """Return 0.1 in `paper`, 0.2 in `mpe2`."""
        return find_protocol(self.protocol).obstacle_radius

    @property
    def radii(self) -> tuple[float, ...]:
        """Return each entity's radius."""
        return self.bodies.radius + (0.02,) * (self.layout.entities - self.bodies.solid)

    @property
    def bodies(self) -> Bodies:
        """Return those that push: agents and obstacles."""
        return chase_bodies(self.pursuers, self.evaders, self.obstacles, self.obstacle_radius)

    def reset(self, key: PRNGKeyArray) -> State:
        """Place agents anywhere in the arena at rest, obstacles within 0.8 (`paper`) or 0.9 (`mpe2`)."""
        key_agents, key_obstacles = jax.random.split(key)
        reach = find_protocol(self.protocol).obstacle_reach
        position = jnp.concatenate(
            [
                jax.random.uniform(key_agents, (self.layout.agents, 2), minval=-1.0, maxval=1.0),
                jax.random.uniform(key_obstacles, (self.obstacles, 2), minval=-reach, maxval=reach),
                jnp.zeros((self.layout.entities - self.bodies.solid, 2)),
            ]
        )
        start = position, jnp.zeros_like(position), jnp.ones(len(position), bool), jnp.zeros((), jnp.int32)
        if not self.memory:
            return State(*start)
        agents = self.layout.agents
        return self.remembered(Chase(*start, jnp.full((agents, agents), self.memory, jnp.int32)))

    def step(self, state: State, action: Float[AnyArray, "agents dim"]) -> State:
        """Take one step of particle physics under the limited action."""
        return self.remembered(find_protocol(self.protocol).step(state, self.action_limit(action), self.bodies))

    def remembered(self, state: Any) -> Any:
        """Return a state in which everybody remembers those it saw within the last `memory` steps but does not now."""
        if not self.memory:
            return state
        xp, layout = namespace(state.position), self.layout
        agents, shared = layout.agents, layout.shared

        def rows(table: AnyArray) -> AnyArray:
            parts = table[:, : self.pursuers], table[:, self.pursuers :]
            return xp.concatenate([part.reshape(-1, *table.shape[2:]) for part in parts])

        seen = self.scene(state).seen()[:, :agents]
        unseen = xp.where(seen, 0, xp.minimum(state.unseen, self.memory) + 1)
        lost = (unseen > 0) & (unseen <= self.memory) & state.exists[:agents, None]

        def last(values: AnyArray) -> AnyArray:
            now = rows(xp.broadcast_to(values[None, :agents], (agents, *values[:agents].shape)))
            return xp.concatenate([values[:shared], xp.where(rows(seen)[:, None], now, values[shared:])])

        exists = xp.concatenate([state.exists[:shared], rows(lost)])
        return dataclasses.replace(
            state, position=last(state.position), velocity=last(state.velocity), exists=exists, unseen=unseen
        )

    def _touches(self, state: State) -> Float[AnyArray, "pursuers evaders"]:
        """Return 1 for each pursuer that touches an evader."""
        agents, exists = self.layout.agents, state.exists
        pursuers, evaders = state.position[: self.pursuers], state.position[self.pursuers : agents]
        touches = distances(pursuers, evaders) < PURSUER_RADIUS + EVADER_RADIUS
        touches = touches & exists[: self.pursuers][:, None] & exists[self.pursuers : agents][None]
        return touches.astype(state.position.dtype)

    def reward(self, state: State) -> Float[AnyArray, " agents"]:
        """Return the pursuers' shared reward, then each evader's own."""
        xp = namespace(state.position)
        touches = self._touches(state)
        shared = CATCH * xp.ones_like(touches[:, 0]) * touches.sum()
        evaders = state.position[self.pursuers : self.layout.agents]
        own = -CATCH * touches.sum(0) - boundary_penalty(evaders)
        exists = state.exists[: self.layout.agents].astype(shared.dtype)
        return xp.concatenate([shared, own]) * exists

    def terminated(self, state: State) -> Bool[AnyArray, ""]:
        """Return False: a touch does not end the chase."""
        return state.time < 0

    def scene(self, state: State) -> Scene:
        """Hide entities behind an obstacle, friend and foe; obstacles and the centre are never hidden."""
        layout = self.layout
        visible = jnp.ones((layout.agents, layout.entities), bool).at[:, : layout.agents].set(~self._hidden(state))
        return Scene(state.position, state.velocity, state.exists, visible, layout, self.sensing or math.inf)

    def _hidden(self, state: State) -> Bool[AnyArray, "agents agents"]:
        """Tell which agents do not see each other."""
        agents, block = state.position[: self.layout.agents], self.layout.block("obstacle")
        if not (self.occlusion and self.obstacles):
            return namespace(agents).zeros((len(agents), len(agents)), bool)
        return occluded(agents, state.position[block], state.exists[block], self.obstacle_radius)

    def measure(self, state: State) -> dict[str, AnyArray]:
        """Return touching pairs, rewards of a pursuer and of the mean evader, who is hidden, the evaders' gap."""
        xp, chased = namespace(state.position), slice(self.pursuers, self.layout.agents)
        reward, exists = self.reward(state), state.exists[: self.layout.agents].astype(state.position.dtype)
        evaders = exists[self.pursuers :].sum()
        pairs = exists[: self.pursuers, None] * exists[None, chased]
        hidden = self._hidden(state)[: self.pursuers, chased].astype(exists.dtype)
        mates = exists[chased, None] * exists[None, chased] * (1 - xp.eye(self.evaders, dtype=exists.dtype))
        gaps = distances(state.position[chased], state.position[chased])
        ways = unit(state.position[: self.pursuers, None] - state.position[None, chased]) * pairs[..., None]
        one_sided = xp.sqrt((ways.sum(0) ** 2).sum(-1)) / xp.maximum(pairs.sum(0), 1.0)
        return {
            "hidden_share": (pairs * hidden).sum() / xp.maximum(pairs.sum(), 1.0),
            "evader_gap": (mates * gaps).sum() / xp.maximum(mates.sum(), 1.0),
            "surround": (exists[self.pursuers :] * (1 - one_sided)).sum() / xp.maximum(evaders, 1.0),
            "captures": self._touches(state).sum(),
            "pursuer_return": reward[: self.pursuers].max(),
            "evader_return": reward[self.pursuers :].sum() / xp.maximum(evaders, 1.0),
        }

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """Return one pursuer's return, the mean evader's, touching pair-steps and whether there was any.

        Beside them stand, as means over the steps, the share of pursuers and evaders that do not see each other, the
        distance between evaders, and how evenly pursuers stand around an evader: 0 if all are on one side of it, 1 if
        the directions to them add up to nothing.
        """
        totals = {name: values.sum() for name, values in measures.items()}
        return {
            "pursuer_return": totals["pursuer_return"],
            "evader_return": totals["evader_return"],
            "captures": totals["captures"],
            "capture_share": (totals["captures"] > 0).astype(totals["captures"].dtype),
            "hidden_share": measures["hidden_share"].mean(),
            "evader_gap": measures["evader_gap"].mean(),
            "surround": measures["surround"].mean(),
        }
