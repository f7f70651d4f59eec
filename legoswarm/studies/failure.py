"""Tag in which the first pursuer fails half-way: it stops where it is, or is gone."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from legoswarm.configs import check_fields, option
from legoswarm.tasks.tag import Tag
from legoswarm.tasks.task import State

KINDS = ("without", "kept", "removed")


@dataclasses.dataclass(frozen=True)
class FailingTag(Tag):
    """Tag in which from step `at` on the first pursuer stands still and is `kept` in the scene, or is `removed`.

    Figures are those after the failure and of pursuers that work; `survivors_captures` leaves the first
    pursuer out whether it works or not.
    """

    primary: ClassVar[str] = "captures_after"

    kind: str = option("without", "what becomes of the pursuer: without (nothing), kept or removed", among=KINDS)
    at: int = option(30, "the step at which it fails")

    def __post_init__(self) -> None:
        Tag.__post_init__(self)
        check_fields(self)

    def step(self, state: State, action: Float[Array, "agents dim"]) -> State:
        """Step as Tag does, but for the pursuer that has failed."""
        after = Tag.step(self, state, action)
        stopped = self._failed(state) & (self.kind == "kept")
        position = after.position.at[0].set(jnp.where(stopped, state.position[0], after.position[0]))
        velocity = after.velocity.at[0].set(jnp.where(self._failed(after), 0.0, after.velocity[0]))
        exists = after.exists.at[0].set(~(self._failed(after) & (self.kind == "removed")))
        return dataclasses.replace(after, position=position, velocity=velocity, exists=exists)

    def measure(self, state: State) -> dict[str, Array]:
        """Count touching pairs after the failure: of pursuers that work, and of those other than the first."""
        gone = state.exists.at[0].set(False)
        others = Tag.measure(self, dataclasses.replace(state, exists=gone))["captures"]
        working = others if self.kind != "without" else Tag.measure(self, state)["captures"]
        after = (state.time > self.at).astype(others.dtype)
        return {"captures_after": working * after, "survivors_captures": others * after}

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """Return touching pair-steps after the failure, and whether there was any."""
        totals = {name: values.sum() for name, values in measures.items()}
        any_touch = totals["captures_after"] > 0
        return {**totals, "capture_share_after": any_touch.astype(totals["captures_after"].dtype)}

    def _failed(self, state: State) -> Bool[Array, ""]:
        return (state.time >= self.at) & (self.kind != "without")
