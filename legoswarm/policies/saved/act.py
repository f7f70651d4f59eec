"""Acting with a trained policy: NumPy in, NumPy out, any team size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array, Float

from legoswarm.arrays import AnyArray
from legoswarm.policies.networks.team import Actors
from legoswarm.policies.saved.file import PolicyFile, load_policy
from legoswarm.policies.saved.look import Look, look
from legoswarm.scene import Entities, View


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
    ) -> np.ndarray:
        """Return mean actions in the world frame, limited as in training.

        `positions` and `velocities` are (entities, dimension), `roles` names each entity's role, in any order. The
        result has one row for each entity of a controlled role, in the order given. `visible[i, j]` says
        whether the i-th controlled agent sees entity j; without it everybody sees everything.
        """
        seen, order = look(self.file.layout, positions, velocities, roles, visible)
        self.file.check_team(order.team)
        present = {role: at for at, role in enumerate(self.controlled_roles) if order.team.slots[at]}
        views = {role: _views(seen, at, order.team.slots) for role, at in present.items()}
        actions = np.zeros_like(seen.velocity)
        for role, rows in _mean_actions({role: self.actors[role] for role in present}, views).items():
            actions[present[role], : len(rows)] = self.file.limit(rows)
        return order.join(actions)


Others = tuple[tuple[AnyArray, ...], ...]  # the fields of Entities, role by role
Views = tuple[AnyArray, AnyArray, Others]  # the fields of View, with an axis of agents in front


def _views(seen: Look, own: int, slots: Sequence[int]) -> Views:
    """Return what the agents of one role see, without the slots that fill up."""
    agents = slots[own]
    others = tuple(
        tuple(fields[own, at, :agents, : count - (at == own)] for fields in seen[2:]) for at, count in enumerate(slots)
    )
    return seen.position[own, :agents], seen.velocity[own, :agents], others


@jax.jit
def _mean_actions(actors: Actors, views: dict[str, Views]) -> dict[str, Float[Array, "_ dim"]]:
    def of_role(role: str) -> Float[Array, "_ dim"]:
        def one(position: Array, velocity: Array, others: Others) -> Float[Array, " dim"]:
            decision = actors[role](View(position, velocity, tuple(Entities(*fields) for fields in others)))
            return decision.frame.to_world(decision.mode)

        return jax.vmap(one)(*views[role])

    return {role: of_role(role) for role in views}


def load(name: str | Path, seed: int | None = None, nearest: int | None = None) -> Swarm:
    """Return a trained policy: `zoo:NAME`, a run folder or a policy file; by default its best seed.

    With `nearest` it looks only at so many entities of each role: for large swarms.
    """
    return Swarm(load_policy(name, nearest), seed)
