"""The layout of a scene: its roles, how many entities each may have, and the dimension of space."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Int

from legoswarm.arrays import AnyArray


@dataclasses.dataclass(frozen=True)
class Layout:
    """Roles in their fixed semantic order, with the slots each one has.

    Entities of one role stand together. The first `controlled` roles act; the rest are objects.
    """

    roles: tuple[str, ...]
    slots: tuple[int, ...]
    controlled: int = 1
    dimension: int = 2

    def __post_init__(self) -> None:
        if len(self.roles) != len(self.slots) or len(set(self.roles)) != len(self.roles):
            raise ValueError(f"a layout needs one number of slots for each distinct role: {self.roles}")
        if not 1 <= self.controlled <= len(self.roles) or min(self.slots) < 0:
            raise ValueError("a layout needs at least one controlled role and no negative slots")
        if self.dimension < 1:
            raise ValueError(f"space has at least one dimension, not {self.dimension}")

    @property
    def controlled_roles(self) -> tuple[str, ...]:
        """Return the roles that act."""
        return self.roles[: self.controlled]

    @property
    def agents(self) -> int:
        """Count the slots of all controlled roles; agent i is entity i."""
        return sum(self.slots[: self.controlled])

    @property
    def entities(self) -> int:
        """Count the slots of all roles."""
        return sum(self.slots)

    def members(self, role: str) -> int:
        """Count the slots of one role."""
        return self.slots[self.roles.index(role)]

    def block(self, role: str) -> slice:
        """Return where the entities of `role` stand."""
        start = sum(self.slots[: self.roles.index(role)])
        return slice(start, start + self.members(role))


def in_turn(member: Int[AnyArray, "*n"], members: int) -> Int[AnyArray, "*n members"]:
    """Return the members of a role in cyclic order from one of them on: i, i + 1, ..., the last, the first, ..., i - 1.

    Whatever lists an agent's own role does so in this order, the agent itself first.
    """
    return (member[..., None] + np.arange(members, dtype=np.int32)) % members
