"""What a task is: a world to reset and step, a scene to look at, figures to report.

A task is a frozen dataclass: its fields are its configuration, on the command line and in `config.json`.
Functions act on one world; batches come from `jax.vmap`. See docs/own-task.md for a task of your own.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from legoswarm.arrays import AnyArray
from legoswarm.configs import Registry, option
from legoswarm.limits import Limit
from legoswarm.scene import Layout, Scene


class State(eqx.Module):
    """One world: entities in the order of the task's layout, and the number of steps taken."""

    position: Float[AnyArray, "entities dim"]
    velocity: Float[AnyArray, "entities dim"]
    exists: Bool[AnyArray, " entities"]
    time: Int[AnyArray, ""]


@runtime_checkable
class Task(Protocol):
    """The protocol that the rollout, the evaluator and the viewers rely on.

    A task may also have `cost(state)`: for each agent, what an algorithm can hold below a limit (`--cost-limit`); and
    `suits`: by algorithm, the options of policies and algorithms that were found for it, which are defaults then; and
    `shown`, the names of fields that give policies a role more and leave the world as it is: policies with and without
    may meet.
    """

    name: ClassVar[str]
    primary: ClassVar[str]  # the figure that says how good a policy is; higher is better

    @property
    def horizon(self) -> int:
        """Count the steps until the episode is truncated."""
        ...

    @property
    def layout(self) -> Layout:
        """Return roles, slots and the dimension of space."""
        ...

    @property
    def action_limit(self) -> Limit:
        """Return the limit that `step` puts on actions."""
        ...

    @property
    def radii(self) -> tuple[float, ...]:
        """Return each entity's radius, for drawing."""
        ...

    def reset(self, key: PRNGKeyArray) -> State:
        """Draw a start state."""
        ...

    def step(self, state: State, action: Float[AnyArray, "agents dim"]) -> State:
        """Return the state after one step."""
        ...

    def reward(self, state: State) -> Float[AnyArray, " agents"]:
        """Return each agent's reward for having reached `state`."""
        ...

    def terminated(self, state: State) -> Bool[AnyArray, ""]:
        """Tell whether the episode is over for good (not by the time limit)."""
        ...

    def scene(self, state: State) -> Scene:
        """Return the state as policies see it."""
        ...

    def measure(self, state: State) -> dict[str, AnyArray]:
        """Return scalars to record at every step."""
        ...

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """Return an episode's figures from its recorded scalars, each of shape (time,)."""
        ...


def cost_of(task: Task, state: State) -> Float[AnyArray, " agents"] | None:
    """Return each agent's cost of having reached `state`, where the task counts costs beside rewards."""
    count = getattr(task, "cost", None)
    return None if count is None else count(state)


def sensing_option() -> Any:
    """Return the option of a task for the radius within which agents see."""
    return option(0.0, "radius within which agents see others; 0: they see everything", low=0)


TASKS: Registry[Any] = Registry("task", "legoswarm.tasks")
