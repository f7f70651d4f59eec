"""What a team's agents see, from plain arrays: the arguments of `act`, checked and put in order; free of JAX."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from legoswarm.layout import Layout, in_turn


class Look(NamedTuple):
    """The observations O_i of all agents, controlled role by controlled role.

    Roles with fewer agents or others than there are slots are filled up; `mask` hides others that are not there or not
    seen. There is at least one slot for the others of each role; their order is that of `scene.observe`, and their
    positions are relative to the agent.
    """

    position: Float[np.ndarray, "controlled agents dim"]
    velocity: Float[np.ndarray, "controlled agents dim"]
    others_position: Float[np.ndarray, "controlled roles agents others dim"]
    others_velocity: Float[np.ndarray, "controlled roles agents others dim"]
    mask: Bool[np.ndarray, "controlled roles agents others"]


@dataclasses.dataclass(frozen=True)
class Order:
    """Where the entities of a team, given in any order, stand in a `Look`."""

    team: Layout  # how many there are of each role
    members: Int[np.ndarray, "controlled agents"]  # which entities the agents are
    others: Int[np.ndarray, "controlled roles agents others"]  # which entities the others are
    there: Bool[np.ndarray, "controlled roles agents others"]  # False for the slots that fill up
    rows: Int[np.ndarray, "controlled agents"]  # which controlled agents they are, in the order given
    place: Int[np.ndarray, " all"]  # where each controlled agent stands among the slots of all controlled roles

    def join(self, actions: Float[np.ndarray, "controlled agents dim"]) -> Float[np.ndarray, "all dim"]:
        """Return one action for each controlled agent, in the order given."""
        joined = actions.reshape(-1, actions.shape[-1])[self.place]
        if not np.isfinite(joined).all():
            raise ValueError("positions or velocities are too large: the actions are not finite")
        return joined


def look(
    layout: Layout,
    positions: np.ndarray,
    velocities: np.ndarray,
    roles: Sequence[str],
    visible: np.ndarray | None = None,
) -> tuple[Look, Order]:
    """Return what everybody sees of entities in any order; they have the roles of `layout`, its slots do not matter.

    `visible[i, j]` says whether the i-th controlled agent sees entity j; without it everybody sees everything.
    """
    dimension = layout.dimension
    position, velocity = _vectors("positions", positions, dimension), _vectors("velocities", velocities, dimension)
    count = len(roles)
    if len(position) != count or len(velocity) != count:
        raise ValueError(
            f"{len(position)} positions, {len(velocity)} velocities and {count} roles do not belong together"
        )
    order = _order(layout.roles, layout.controlled, tuple(roles))
    mask, shape = order.there, (len(order.place), count)
    if visible is not None:
        seen = np.asarray(visible)
        if seen.dtype != bool or seen.shape != shape:
            raise ValueError(f"visible must be bool of shape {shape}, not {seen.dtype} of {seen.shape}")
        mask = mask & seen[order.rows[:, None, :, None], order.others]
    mine, velocity = position[order.members], velocity.astype(np.float32)
    with np.errstate(over="ignore"):  # what is too far away becomes infinite, and the actions with it
        # Far from the origin float32 has few digits left: differences are taken before rounding.
        relative = (position[order.others] - mine[:, None, :, None]).astype(np.float32)
    seen = Look(mine.astype(np.float32), velocity[order.members], relative, velocity[order.others], mask)
    return seen, order


@functools.lru_cache(maxsize=64)
def _order(known: tuple[str, ...], controlled: int, roles: tuple[str, ...]) -> Order:
    if unknown := sorted(set(roles) - set(known)):
        raise ValueError(f"the policy does not know the role {unknown[0]!r}; it knows {', '.join(known)}")
    rank = np.array([known.index(role) for role in roles], int)
    agents = np.flatnonzero(rank < controlled)
    if not len(agents):
        raise ValueError(f"there is nobody to act for: no entity is {' or '.join(known[:controlled])}")
    entities = [np.flatnonzero(rank == at) for at in range(len(known))]
    team = Layout(known, tuple(map(len, entities)), controlled)
    width = max(team.slots[:controlled])
    most = max(len(group) - (at == own) for own in range(controlled) for at, group in enumerate(entities))
    members = np.zeros((controlled, width), int)
    others = np.zeros((controlled, len(known), width, max(most, 1)), int)
    there = np.zeros(others.shape, bool)
    for own in range(controlled):
        n = team.slots[own]
        members[own, :n] = entities[own]
        after = in_turn(np.arange(n), n)[:, 1:]  # everybody of the own role but oneself
        for at, group in enumerate(entities):
            seen = group[after] if at == own else np.tile(group, (n, 1))
            others[own, at, :n, : seen.shape[1]] = seen
            there[own, at, :n, : seen.shape[1]] = True
    place = np.concatenate([own * width + np.arange(team.slots[own]) for own in range(controlled)])
    place = place[np.argsort(np.concatenate(entities[:controlled]))]
    return Order(team, members, others, there, np.searchsorted(agents, members), place)


def _vectors(name: str, values: np.ndarray, dimension: int) -> Float[np.ndarray, "entities dim"]:
    """Return rows of so many numbers in float64, finite in float32 too."""
    array = np.asarray(values, np.float64)
    if array.ndim != 2 or array.shape[1] != dimension:
        raise ValueError(f"{name} must have the shape (entities, {dimension}), not {array.shape}")
    finite = np.abs(array) <= np.finfo(np.float32).max
    if not finite.all():
        raise ValueError(f"{name} must be finite; row {int(np.flatnonzero(~finite.all(1))[0])} is not")
    return array
