"""Acting with a trained policy: NumPy in, NumPy out, any team size."""

from __future__ import annotations

import os
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Float

from legoswarm.arrays import AnyArray
from legoswarm.policies.networks.team import Actors
from legoswarm.policies.saved.file import PolicyFile, load_policy
from legoswarm.policies.saved.look import Look, look
from legoswarm.scene import Entities, Layout, View


class Swarm:
    """A trained policy for a whole team; what `legoswarm.load` gives."""

    def __init__(self, file: PolicyFile, seed: int | None = None):
        self.file = file
        self.seed = file.seeds[file.best] if seed is None else seed
        self.actors: Actors = {role: policy.actor for role, policy in file.one(seed).items()}

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles it knows, in their fixed order."""
        return self.file.layout.roles

    @property
    def controlled_roles(self) -> tuple[str, ...]:
        """Return the roles it acts for."""
        return self.file.layout.controlled_roles

    def act(
        self,
        positions: np.ndarray,
        velocities: np.ndarray,
        roles: Sequence[str],
        visible: np.ndarray | None = None,
        sensing: float | None = None,
    ) -> np.ndarray:
        """Return mean actions in the world frame, limited as in training.

        `positions` and `velocities` are (entities, dimension), `roles` names each entity's role, in any order. The
        result has one row for each entity of a controlled role, in the order given. `visible[i, j]` says
        whether the i-th controlled agent sees entity j. Nobody sees farther than `sensing`, by default the
        radius of training.
        """
        near = getattr(self.file.config, "nearest", 0)
        radius = self.file.sensing if sensing is None else sensing
        seen, order = look(self.file.layout, positions, velocities, roles, visible, radius, near)
        self.file.check_team(order.team)
        present = {role: at for at, role in enumerate(self.controlled_roles) if order.team.slots[at]}
        classes = order.team.slots if self.file.config.one_size else [size_class(count) for count in order.team.slots]
        views = {role: _views(seen, at, order.team, classes, near) for role, at in present.items()}
        actions = np.zeros_like(seen.velocity)
        for role, rows in _mean_actions({role: self.actors[role] for role in present}, views).items():
            count = order.team.slots[present[role]]
            actions[present[role], :count] = self.file.limit(np.asarray(rows)[:count])
        return order.join(actions)


def size_class(count: int) -> int:
    """Return the smallest of 0, 1, 2, 3, 4, 6, 8, 12, 16, ... that is not less: programs are compiled for these sizes.

    A team that changes, as when a drone is lost, then rarely waits for a compilation, and few programs are kept.
    """
    if count < 4:
        return count
    power = 1 << (count - 1).bit_length()
    return 3 * power // 4 if count <= 3 * power // 4 else power


Others = tuple[tuple[AnyArray, ...], ...]  # the fields of Entities, role by role
Views = tuple[AnyArray, AnyArray, Others]  # the fields of View, with an axis of agents in front


def _views(seen: Look, own: int, team: Layout, classes: Sequence[int], near: int) -> Views:
    """Return what the agents of one role see, in as many slots as their classes have; those that fill up are masked."""
    agents = team.slots[own]

    def of_role(at: int) -> tuple[np.ndarray, ...]:
        each = team.each(team.roles[at])
        count, size = (each or n - (at == own) for n in (team.slots[at], classes[at]))
        if near:
            count, size = min(count, near), min(size, near)
        return tuple(_fill(fields[own, at, :agents, :count], classes[own], size) for fields in seen[2:])

    others = tuple(map(of_role, range(len(team.roles))))
    return _fill(seen.position[own, :agents], classes[own]), _fill(seen.velocity[own, :agents], classes[own]), others


def _fill(array: np.ndarray, *sizes: int) -> np.ndarray:
    """Fill the first axes of an array up with zeros, which mean False in masks."""
    return np.pad(
        array, [(0, size - have) for have, size in zip(array.shape, (*sizes, *array.shape[len(sizes) :]), strict=True)]
    )


@jax.jit
def _mean_actions(actors: Actors, views: dict[str, Views]) -> dict[str, Float[Array, "_ dim"]]:
    def of_role(role: str) -> Float[Array, "_ dim"]:
        def one(position: Array, velocity: Array, others: Others) -> Float[Array, " dim"]:
            decision = actors[role](View(position, velocity, tuple(Entities(*fields) for fields in others)))
            return decision.frame.to_world(decision.mode)

        return jax.vmap(one)(*views[role])

    return {role: of_role(role) for role in views}


def load(name: str | os.PathLike[str], seed: int | None = None, nearest: int | None = None) -> Swarm:
    """Return a trained policy: `zoo:NAME`, a run folder or a policy file; by default its best seed.

    With `nearest` it looks only at so many entities of each role: for large swarms.
    """
    return Swarm(load_policy(name, nearest), seed)
