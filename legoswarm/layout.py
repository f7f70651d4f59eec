"""The layout of a scene: its roles, how many entities each may have, and the dimension of space."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Int

from legoswarm.arrays import AnyArray

TIE = 1e-4  # share of a squared distance by which another one must be less to count as less


@dataclasses.dataclass(frozen=True)
class Layout:
    """Roles in their fixed semantic order, with the slots each one has.

    Entities of one role stand together. The first `controlled` roles act; the rest are objects. Of the last `private`
    roles each agent has an equal share of the slots, in the order of agents, and sees no others: its goal, say.
    """

    roles: tuple[str, ...]
    slots: tuple[int, ...]
    controlled: int = 1
    dimension: int = 2
    private: int = 0

    def __post_init__(self) -> None:
        if len(self.roles) != len(self.slots) or len(set(self.roles)) != len(self.roles):
            raise ValueError(f"a layout needs one number of slots for each distinct role: {self.roles}")
        if not 1 <= self.controlled <= len(self.roles) or min(self.slots) < 0:
            raise ValueError("a layout needs at least one controlled role and no negative slots")
        if not 0 <= self.private <= len(self.roles) - self.controlled:
            raise ValueError(f"{self.private} private roles are more than there are roles of objects")
        for role in self._private_roles:
            if self.members(role) % max(self.agents, 1):
                raise ValueError(f"{self.members(role)} slots of {role} cannot be shared by {self.agents} agents")
        if self.dimension < 1:
            raise ValueError(f"space has at least one dimension, not {self.dimension}")

    @property
    def controlled_roles(self) -> tuple[str, ...]:
        """Return the roles that act."""
        return self.roles[: self.controlled]

    @property
    def _private_roles(self) -> tuple[str, ...]:
        return self.roles[len(self.roles) - self.private :]

    @property
    def agents(self) -> int:
        """Count the slots of all controlled roles; agent i is entity i."""
        return sum(self.slots[: self.controlled])

    @property
    def entities(self) -> int:
        """Count the slots of all roles."""
        return sum(self.slots)

    @property
    def shared(self) -> int:
        """Count the slots of all roles that are not private; they come first."""
        return sum(self.slots[: len(self.roles) - self.private])

    @property
    def viewed(self) -> int:
        """Count the slots that one agent may see, itself among them."""
        return self.shared + sum(map(self.each, self.roles))

    @property
    def owned(self) -> Bool[np.ndarray, "agents entities"]:
        """Tell whether each agent may see an entity: what is not private, and its own share of what is."""
        owners = [np.arange(n) // max(self.each(role), 1) for role, n in zip(self.roles, self.slots, strict=True)]
        shared = np.arange(self.entities)[None] < self.shared
        return shared | (np.concatenate(owners)[None] == np.arange(self.agents)[:, None])

    def only(self, roles: tuple[str, ...]) -> Layout:
        """Return the layout with some of its roles alone; those that it does not have stay away."""
        kept = [role for role in self.roles if role in roles]
        acting, private = (sum(role in kept for role in few) for few in (self.controlled_roles, self._private_roles))
        return Layout(tuple(kept), tuple(map(self.members, kept)), acting, self.dimension, private)

    def each(self, role: str) -> int:
        """Count the slots of a private role that each agent has; 0 if the role is not private."""
        return self.members(role) // max(self.agents, 1) if role in self._private_roles else 0

    def members(self, role: str) -> int:
        """Count the slots of one role."""
        return self.slots[self.roles.index(role)]

    def block(self, role: str) -> slice:
        """Return where the entities of `role` stand."""
        start = sum(self.slots[: self.roles.index(role)])
        return slice(start, start + self.members(role))


def in_turn(member: Int[AnyArray, "*n"], members: int) -> Int[AnyArray, "*n members"]:
    """Return the members of a role in cyclic order from one of them on: i, i + 1, ..., the last, the first, ..., i - 1.

    Whatever lists an agent's own role does so in this order, the agent itself first. Entities of private roles stand as
    the task lists them.
    """
    return (member[..., None] + np.arange(members, dtype=np.int32)) % members
