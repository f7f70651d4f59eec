"""Tag in which the first pursuer fails half-way: it stops where it is, or is gone."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from legoswarm.limits import Limit
from legoswarm.scene import Layout, Scene
from legoswarm.tasks.tag import Tag
from legoswarm.tasks.task import State

KINDS = ("without", "kept", "removed")


@dataclasses.dataclass(frozen=True)
class Failing:
    """A task around Tag: from step `at` on the first pursuer stands still and is `kept` in the scene, or is `removed`.

    Figures are those after the failure and of pursuers that work; `survivors_captures` leaves the first
    pursuer out whether it works or not.
    """

    name: ClassVar[str] = "tag"
    primary: ClassVar[str] = "captures_after"

    tag: Tag
    kind: str
    at: int = 30

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a failure is one of {', '.join(KINDS)}, not {self.kind!r}")

    @property
    def horizon(self) -> int:
        """As in Tag."""
        return self.tag.horizon

    @property
    def layout(self) -> Layout:
        """As in Tag."""
        return self.tag.layout

    @property
    def action_limit(self) -> Limit:
        """As in Tag."""
        return self.tag.action_limit

    @property
    def radii(self) -> tuple[float, ...]:
        """As in Tag."""
        return self.tag.radii

    def reset(self, key: PRNGKeyArray) -> State:
        """As in Tag."""
        return self.tag.reset(key)

    def step(self, state: State, action: Float[Array, "agents 2"]) -> State:
        """As in Tag, but for the pursuer that has failed."""
        before = self._failed(state)
        after = self.tag.step(state, action)
        stopped = before & (self.kind == "kept")
        position = after.position.at[0].set(jnp.where(stopped, state.position[0], after.position[0]))
        velocity = after.velocity.at[0].set(jnp.where(self._failed(after), 0.0, after.velocity[0]))
        exists = after.exists.at[0].set(~(self._failed(after) & (self.kind == "removed")))
        return dataclasses.replace(after, position=position, velocity=velocity, exists=exists)

    def reward(self, state: State) -> Float[Array, " agents"]:
        """As in Tag."""
        return self.tag.reward(state)

    def terminated(self, state: State) -> Bool[Array, ""]:
        """As in Tag."""
        return self.tag.terminated(state)

    def scene(self, state: State) -> Scene:
        """As in Tag: a pursuer that stands still is still seen."""
        return self.tag.scene(state)

    def measure(self, state: State) -> dict[str, Array]:
        """Touching pairs after the failure: of pursuers that work, and of those other than the first."""
        gone = state.exists.at[0].set(False)
        others = self.tag.measure(dataclasses.replace(state, exists=gone))["captures"]
        working = others if self.kind != "without" else self.tag.measure(state)["captures"]
        after = (state.time > self.at).astype(others.dtype)
        return {"captures_after": working * after, "survivors_captures": others * after}

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """Touching pair-steps after the failure, and whether there was any."""
        totals = {name: values.sum() for name, values in measures.items()}
        any_touch = totals["captures_after"] > 0
        return {**totals, "capture_share_after": any_touch.astype(totals["captures_after"].dtype)}

    def _failed(self, state: State) -> Bool[Array, ""]:
        return (state.time >= self.at) & (self.kind != "without")
