"""What a task is: a world to reset and step, a scene to look at, figures to report.

A task is a frozen dataclass: its fields are its configuration, on the command line and in `config.json`.
Functions act on one world; batches come from `jax.vmap`. See docs/extending.md for a task of your own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import equinox as eqx
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from legoswarm.arrays import AnyArray
from legoswarm.limits import Limit
from legoswarm.scene import Layout, Scene


class State(eqx.Module):
    """One world: entities in the order of the task's layout, and the number of steps taken."""

    position: Float[AnyArray, "entities 2"]
    velocity: Float[AnyArray, "entities 2"]
    exists: Bool[AnyArray, " entities"]
    time: Int[AnyArray, ""]


@runtime_checkable
class Task(Protocol):
    """The protocol that the rollout, the evaluator and the viewers rely on."""

    name: ClassVar[str]
    primary: ClassVar[str]  # the figure that says how good a policy is; higher is better

    @property
    def horizon(self) -> int:
        """Steps until the episode is truncated."""
        ...

    @property
    def layout(self) -> Layout:
        """Roles and slots."""
        ...

    @property
    def action_limit(self) -> Limit:
        """The limit that `step` puts on actions."""
        ...

    @property
    def radii(self) -> tuple[float, ...]:
        """Each entity's radius, for drawing."""
        ...

    def reset(self, key: PRNGKeyArray) -> State:
        """A start state."""
        ...

    def step(self, state: State, action: Float[AnyArray, "agents 2"]) -> State:
        """The state after one step."""
        ...

    def reward(self, state: State) -> Float[AnyArray, " agents"]:
        """Each agent's reward for having reached `state`."""
        ...

    def terminated(self, state: State) -> Bool[AnyArray, ""]:
        """Whether the episode is over for good (not by the time limit)."""
        ...

    def scene(self, state: State) -> Scene:
        """The state as policies see it."""
        ...

    def measure(self, state: State) -> dict[str, AnyArray]:
        """Scalars to record at every step."""
        ...

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """An episode's figures from its recorded scalars, each of shape (time,)."""
        ...


AnyTask = TypeVar("AnyTask", bound=type)
_TASKS: dict[str, Callable[..., Task]] = {}


def register_task(cls: AnyTask) -> AnyTask:
    """Make a task known by its `name` to `make_task` and the command line."""
    _TASKS[cls.name] = cls  # pyright: ignore[reportAttributeAccessIssue]
    return cls


def task_class(name: str) -> Callable[..., Task]:
    """The class of a registered task."""
    if name not in _TASKS:
        raise ValueError(f"unknown task {name!r}; known: {', '.join(sorted(_TASKS))}")
    return _TASKS[name]


def task_names() -> list[str]:
    """The registered tasks."""
    return sorted(_TASKS)


def make_task(name: str, **fields: Any) -> Task:
    """A task from its name and fields."""
    try:
        return task_class(name)(**fields)
    except TypeError as error:
        raise ValueError(f"task {name!r}: {error}") from None
