"""Tag in which the first pursuer fails half-way: it stops where it is, or is gone."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from legoswarm.configs import check_fields, option
from legoswarm.tasks.tag import Tag
from legoswarm.tasks.task import State
from legoswarm.tasks.worlds.particles import unit

SEVERAL = "lego, several policies"  # the label of the part that decides claims
KINDS = ("without", "kept", "removed")


@dataclasses.dataclass(frozen=True)
class FailingTag(Tag):
    """Tag in which from step `at` on the first pursuer stands still and is `kept` in the scene, or is `removed`.

    Figures are those after the failure and of pursuers that work; `survivors_captures` and `heading_after`, the cosine
    between a pursuer's velocity and its way to the nearest evader, leave the first pursuer out whether it works or not.
    """

    primary: ClassVar[str] = "captures_after"

    kind: str = option("without", "what becomes of the pursuer: without (nothing), kept or removed", among=KINDS)
    at: int = option(30, "the step at which it fails")

    def __post_init__(self) -> None:
        Tag.__post_init__(self)
        check_fields(self)

    def step(self, state: State, action: Float[Array, "agents dim"]) -> State:
        """Step as Tag does, but for the pursuer that has failed."""
        after = Tag.step(dataclasses.replace(self, memory=0), state, action)
        stopped = self._failed(state) & (self.kind == "kept")
        position = after.position.at[0].set(jnp.where(stopped, state.position[0], after.position[0]))
        velocity = after.velocity.at[0].set(jnp.where(self._failed(after), 0.0, after.velocity[0]))
        exists = after.exists.at[0].set(~(self._failed(after) & (self.kind == "removed")))
        return self.remembered(dataclasses.replace(after, position=position, velocity=velocity, exists=exists))

    def measure(self, state: State) -> dict[str, Array]:
        """Count touching pairs after the failure, of those that work and of all but the first; add where these head."""
        gone = state.exists.at[0].set(False)
        others = Tag.measure(self, dataclasses.replace(state, exists=gone))["captures"]
        working = others if self.kind != "without" else Tag.measure(self, state)["captures"]
        after = (state.time > self.at).astype(others.dtype)
        chasers, chased = slice(1, self.pursuers), slice(self.pursuers, self.layout.agents)
        ways = state.position[None, chased] - state.position[chasers, None]
        nearest = jnp.take_along_axis(ways, jnp.linalg.norm(ways, axis=-1).argmin(1)[:, None, None], 1)[:, 0]
        heading = (unit(nearest) * unit(state.velocity[chasers])).sum(-1).mean()
        return {"captures_after": working * after, "survivors_captures": others * after, "heading": heading * after}

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """Return touching pair-steps after the failure, whether there was any, and how directly pursuers fly then."""
        totals = {name: values.sum() for name, values in measures.items()}
        heading = totals.pop("heading") / max(self.horizon - self.at, 1)
        any_touch = totals["captures_after"] > 0
        share = any_touch.astype(totals["captures_after"].dtype)
        return {**totals, "capture_share_after": share, "heading_after": heading}

    def _failed(self, state: State) -> Bool[Array, ""]:
        return (state.time >= self.at) & (self.kind != "without")
