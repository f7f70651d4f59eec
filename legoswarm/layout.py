"""The layout of a scene: its roles and how many entities each may have."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Layout:
    """Roles in their fixed semantic order, with the slots each one has.

    Entities of one role stand together. The first `controlled` roles act; the rest are objects.
    """

    roles: tuple[str, ...]
    slots: tuple[int, ...]
    controlled: int = 1

    def __post_init__(self) -> None:
        if len(self.roles) != len(self.slots) or len(set(self.roles)) != len(self.roles):
            raise ValueError(f"a layout needs one number of slots for each distinct role: {self.roles}")
        if not 1 <= self.controlled <= len(self.roles) or min(self.slots) < 0:
            raise ValueError("a layout needs at least one controlled role and no negative slots")

    @property
    def controlled_roles(self) -> tuple[str, ...]:
        """The roles that act."""
        return self.roles[: self.controlled]

    @property
    def agents(self) -> int:
        """Slots of all controlled roles; agent i is entity i."""
        return sum(self.slots[: self.controlled])

    @property
    def entities(self) -> int:
        """Slots of all roles."""
        return sum(self.slots)

    def members(self, role: str) -> int:
        """Slots of one role."""
        return self.slots[self.roles.index(role)]

    def block(self, role: str) -> slice:
        """Where the entities of `role` stand."""
        start = sum(self.slots[: self.roles.index(role)])
        return slice(start, start + self.members(role))
