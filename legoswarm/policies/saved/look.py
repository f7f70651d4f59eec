"""What a team's agents see, from plain arrays: the arguments of `act`, checked and put in order; free of JAX."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree

from legoswarm.layout import TIE, Layout, in_turn


class Look(NamedTuple):
    """The observations O_i of all agents, controlled role by controlled role.

    Roles with fewer agents or others than there are slots are filled up; `mask` hides others that are not there or not
    seen. There is at least one slot for the others of each role; their positions are relative to the agent.
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
    entities: tuple[Int[np.ndarray, " _"], ...]  # which entities have each role
    members: Int[np.ndarray, "controlled agents"]  # which entities the agents are
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
    sensing: float = math.inf,
    nearest: int = 0,
) -> tuple[Look, Order]:
    """Return what everybody sees of entities in any order; they have the roles of `layout`, its slots do not matter.

    `visible[i, j]` says whether the i-th controlled agent sees entity j; without it everybody sees everything. Nobody
    sees what is not private farther than `sensing`; with `nearest` everybody looks at no more than so many of each
    role. Rows of entities that nobody sees, themselves included, may be anything, NaN too: an agent that is lost is
    declared so, and its own action means nothing. Of a private role each agent has an equal share, in the order of
    agents; rows of it may be NaN.
    """
    dimension = layout.dimension
    count = len(roles)
    if not sensing > 0:
        raise ValueError(f"the sensing radius must be positive, not {sensing}")
    order = _order(layout, tuple(roles))
    hidden = _hidden(visible, count)
    if layout.private:
        hidden = hidden | _lost(order.entities[-layout.private :], positions, count)
    position = _vectors("positions", positions, dimension, hidden)
    velocity = _vectors("velocities", velocities, dimension, hidden)
    if len(position) != count or len(velocity) != count:
        raise ValueError(
            f"{len(position)} positions, {len(velocity)} velocities and {count} roles do not belong together"
        )
    shape = (len(order.place), count)
    seen = None if visible is None else np.asarray(visible)
    if seen is not None and (seen.dtype != bool or seen.shape != shape):
        raise ValueError(f"visible must be bool of shape {shape}, not {seen.dtype} of {seen.shape}")
    if 0 < nearest < max(order.team.slots):
        others, mask = _nearest(order, position, seen, hidden, sensing, nearest)
    else:
        others, mask = _everybody(layout, tuple(roles))
        if seen is not None:
            mask = mask & seen[order.rows[:, None, :, None], others]
    if layout.private:
        mask = mask & ~hidden[others]
    mine, velocity = position[order.members], velocity.astype(np.float32)
    with np.errstate(over="ignore"):  # what is too far away becomes infinite, and the actions with it
        # Far from the origin float32 has few digits left: differences are taken before rounding.
        relative = (position[others] - mine[:, None, :, None]).astype(np.float32)
        if math.isfinite(sensing):
            shared = len(layout.roles) - layout.private
            near = np.vecdot(relative[:, :shared], relative[:, :shared]) < (1 - TIE) * sensing**2
            mask = np.concatenate([mask[:, :shared] & near, mask[:, shared:]], axis=1)
    return Look(mine.astype(np.float32), velocity[order.members], relative, velocity[others], mask), order


@functools.lru_cache(maxsize=64)
def _order(layout: Layout, roles: tuple[str, ...]) -> Order:
    known, controlled = layout.roles, layout.controlled
    if unknown := sorted(set(roles) - set(known)):
        raise ValueError(f"the policy does not know the role {unknown[0]!r}; it knows {', '.join(known)}")
    rank = np.array([known.index(role) for role in roles], int)
    agents = np.flatnonzero(rank < controlled)
    if not len(agents):
        raise ValueError(f"there is nobody to act for: no entity is {' or '.join(known[:controlled])}")
    entities = tuple(np.flatnonzero(rank == at) for at in range(len(known)))
    team = Layout(known, tuple(map(len, entities)), controlled, layout.dimension, layout.private)
    width = max(team.slots[:controlled])
    members = np.zeros((controlled, width), int)
    for own in range(controlled):
        members[own, : team.slots[own]] = entities[own]
    place = np.concatenate([own * width + np.arange(team.slots[own]) for own in range(controlled)])
    place = place[np.argsort(np.concatenate(entities[:controlled]))]
    return Order(team, entities, members, np.searchsorted(agents, members), place)


def _own(order: Order, own: int, at: int) -> Int[np.ndarray, "agents each"]:
    """Return which entities of a private role the agents of a role have."""
    rows = order.rows[own, : order.team.slots[own]]
    return order.entities[at].reshape(order.team.agents, -1)[rows]


@functools.lru_cache(maxsize=64)
def _everybody(layout: Layout, roles: tuple[str, ...]) -> tuple[Int[np.ndarray, "..."], Bool[np.ndarray, "..."]]:
    """Return which entities the others of each agent are, in the order of `scene.observe`; False fills up."""
    order = _order(layout, roles)
    team, width = order.team, order.members.shape[1]
    sizes = [team.each(role) or count for role, count in zip(team.roles, team.slots, strict=True)]
    most = max(size - (at == own) for own in range(team.controlled) for at, size in enumerate(sizes))
    others = np.zeros((team.controlled, len(team.roles), width, max(most, 1)), int)
    there = np.zeros(others.shape, bool)
    for own in range(team.controlled):
        n = team.slots[own]
        after = in_turn(np.arange(n), n)[:, 1:]  # everybody of the own role but oneself
        for at, group in enumerate(order.entities):
            private = team.each(team.roles[at])
            seen = _own(order, own, at) if private else group[after] if at == own else np.tile(group, (n, 1))
            others[own, at, :n, : seen.shape[1]] = seen
            there[own, at, :n, : seen.shape[1]] = True
    return others, there


def _nearest(
    order: Order, position: np.ndarray, seen: np.ndarray | None, hidden: np.ndarray, sensing: float, count: int
) -> tuple[Int[np.ndarray, "controlled roles agents count"], Bool[np.ndarray, "controlled roles agents count"]]:
    """Return which entities the nearest others of each agent are, by the rule of `scene.closest`; False fills up."""
    team = order.team
    others = np.zeros((team.controlled, len(team.roles), order.members.shape[1], count), int)
    there = np.zeros(others.shape, bool)
    for own in range(team.controlled):
        n = team.slots[own]
        mine, rows = order.entities[own], order.rows[own, :n, None]
        for at, group in enumerate(order.entities):
            private = team.each(team.roles[at])
            if not n or not len(group):
                continue
            if private or seen is not None or len(group) <= count + 1:
                index = _own(order, own, at) if private else np.tile(group, (n, 1))
                offset = position[index] - position[mine][:, None]
                square = np.vecdot(offset, offset)
                if seen is not None:
                    square = np.where(seen[rows, index], square, np.inf)
            else:
                more = min(count + 1 + (at == own), len(group))
                distance, found = KDTree(position[group]).query(position[mine], more, distance_upper_bound=sensing)
                index, square = group[np.minimum(found, len(group) - 1)], distance**2
            square = np.where((index == mine[:, None]) | hidden[index], np.inf, square)
            if not private and math.isfinite(sensing):
                square = np.where(square < (1 - TIE) * sensing**2, square, np.inf)
            first = np.argsort(square, axis=1)[:, : count + 1]  # the agent itself comes last
            index, square = (np.take_along_axis(x, first, axis=1) for x in (index, square))
            if square.shape[1] > count:
                square = np.where(square < (1 - TIE) * square[:, -1:], square, np.inf)[:, :count]
            others[own, at, :n, : square.shape[1]] = index[:, :count]
            there[own, at, :n, : square.shape[1]] = np.isfinite(square)
    return others, there


def _lost(private: Sequence[np.ndarray], positions: np.ndarray, count: int) -> Bool[np.ndarray, " entities"]:
    """Return which entities of private roles are nowhere."""
    array, lost = np.asarray(positions, np.float64), np.zeros(count, bool)
    rows = np.concatenate(private)
    if array.ndim == 2 and len(array) == count:
        lost[rows] = ~np.isfinite(array[rows]).all(1)
    return lost


def _hidden(visible: np.ndarray | None, count: int) -> Bool[np.ndarray, " entities"]:
    """Return which entities nobody sees, themselves included."""
    seen = None if visible is None else np.asarray(visible)
    if seen is None or seen.dtype != bool or seen.ndim != 2 or seen.shape[1] != count:
        return np.zeros(count, bool)
    return np.asarray(~seen.any(0))


def _vectors(
    name: str, values: np.ndarray, dimension: int, hidden: Bool[np.ndarray, " _"]
) -> Float[np.ndarray, "entities dim"]:
    """Return rows of so many numbers in float64, finite in float32 too; what is not, of hidden entities, is zero."""
    array = np.asarray(values, np.float64)
    if array.ndim != 2 or array.shape[1] != dimension:
        raise ValueError(f"{name} must have the shape (entities, {dimension}), not {array.shape}")
    finite = np.abs(array) <= np.finfo(np.float32).max
    if hidden.any() and len(array) == len(hidden):
        array, finite = np.where(hidden[:, None] & ~finite, 0.0, array), finite | hidden[:, None]
    if not finite.all():
        raise ValueError(f"{name} must be finite; row {int(np.flatnonzero(~finite.all(1))[0])} is not")
    return array
