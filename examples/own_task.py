"""A task of one's own: rendezvous. Agents that start anywhere meet anywhere, as soon as they can.

python examples/own_task.py train rendezvous --agents 4 --steps 1e6 --out runs/rendezvous
python examples/own_task.py eval runs/rendezvous --agents 2 4 8
python examples/own_task.py watch runs/rendezvous
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

import legoswarm
from legoswarm.configs import option
from legoswarm.layout import Layout
from legoswarm.limits import Limit
from legoswarm.scene import Scene
from legoswarm.tasks.task import State
from legoswarm.tasks.worlds.particles import distances

DT = 0.1


@legoswarm.TASKS.register
@dataclasses.dataclass(frozen=True)
class Rendezvous:
    """Every agent pays the team's mean distance to its centre for each step, until all are together."""

    name: ClassVar[str] = "rendezvous"
    primary: ClassVar[str] = "return"  # the figure that says how good a policy is; higher is better

    # Fields are options on the command line and stand in config.json.
    agents: int = option(4, "number of agents")
    near: float = option(0.2, "the episode ends when no two agents are farther apart")
    horizon: int = option(50, "steps of an episode")

    def __post_init__(self) -> None:
        if self.agents < 2 or self.horizon < 1 or not self.near > 0:
            raise ValueError("a rendezvous needs at least two agents, one step and a positive distance")

    @property
    def layout(self) -> Layout:
        """Return roles in a fixed order and how many of each; the first `controlled` roles act."""
        return Layout(roles=("agent",), slots=(self.agents,), controlled=1)

    @property
    def action_limit(self) -> Limit:
        """Return what `step` does to actions that are too large."""
        return Limit("disc", 1.0)

    @property
    def radii(self) -> tuple[float, ...]:
        """Return each entity's radius, for drawing."""
        return (0.03,) * self.agents

    def reset(self, key: jax.Array) -> State:
        """Place agents anywhere in the square, at rest."""
        position = jax.random.uniform(key, (self.agents, 2), minval=-1.0, maxval=1.0)
        return State(position, jnp.zeros_like(position), jnp.ones(self.agents, bool), jnp.array(0))

    def step(self, state: State, action: jax.Array) -> State:
        """Take actions as accelerations; the air is thick."""
        velocity = 0.75 * state.velocity + 3 * DT * self.action_limit(action)
        return State(state.position + DT * velocity, velocity, state.exists, state.time + 1)

    def reward(self, state: State) -> jax.Array:
        """Return each agent's reward for having come to `state`."""
        centre = state.position.mean(0, keepdims=True)
        return jnp.full(self.agents, -distances(state.position, centre).mean())

    def terminated(self, state: State) -> jax.Array:
        """Tell whether it is over for good; the time limit is the horizon's matter."""
        return distances(state.position, state.position).max() <= self.near

    def scene(self, state: State) -> Scene:
        """Return what policies see: here everybody sees everybody."""
        visible = jnp.ones((self.agents, self.agents), bool)
        return Scene(state.position, state.velocity, state.exists, visible, self.layout)

    def measure(self, state: State) -> dict[str, jax.Array]:
        """Return numbers to record at every step; after the end of an episode they are zero."""
        return {"return": self.reward(state)[0], "steps": jnp.ones(()), "met": self.terminated(state).astype(float)}

    def figures(self, measures: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Return what an evaluation reports of an episode."""
        return {name: values.sum() for name, values in measures.items()}


if __name__ == "__main__":
    from legoswarm.cli import main

    raise SystemExit(main())
