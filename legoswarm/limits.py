"""Limits on an action: none, a disc, or a box."""

from __future__ import annotations

import dataclasses
import math

from jaxtyping import Float

from legoswarm.arrays import AnyArray, namespace


@dataclasses.dataclass(frozen=True)
class Limit:
    """How large an action may be.

    `none` and `disc` commute with rotations and reflections. `box` (each axis on its own, as in mpe2) does
    not: under it a policy is equivariant only for actions inside the box, and for quarter turns.
    """

    kind: str = "none"
    size: float = math.inf

    def __post_init__(self) -> None:
        if self.kind not in ("none", "disc", "box"):
            raise ValueError(f"the action limit must be none, disc:SIZE or box:SIZE, not {self.kind!r}")
        if not self.size > 0:
            raise ValueError(f"the size of an action limit must be positive, not {self.size}")

    @staticmethod
    def parse(text: str) -> Limit:
        """Read `none`, `disc:8` or `box:1`."""
        kind, _, size = text.partition(":")
        if (kind == "none") == bool(size):
            raise ValueError(f"the action limit must be none, disc:SIZE or box:SIZE, not {text!r}")
        try:
            return Limit(kind, float(size) if size else math.inf)
        except ValueError as error:
            if "could not convert" not in str(error):
                raise
            raise ValueError(f"the size of an action limit must be a number, not {size!r}") from None

    def __str__(self) -> str:
        return self.kind if self.kind == "none" else f"{self.kind}:{float(self.size)!r}".removesuffix(".0")

    def __call__(self, action: Float[AnyArray, "*n dim"]) -> Float[AnyArray, "*n dim"]:
        """Return the action, shortened to the disc or clipped to the box."""
        xp = namespace(action)
        if self.kind == "box":
            return xp.clip(action, -self.size, self.size)
        if self.kind == "disc":
            norm = xp.sqrt((action * action).sum(-1, keepdims=True))
            return action * xp.where(norm > self.size, self.size / xp.maximum(norm, self.size), 1.0)
        return action
