"""Acting with a trained policy: NumPy in, NumPy out, any team size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from legoswarm.policies.file import PolicyFile, load_policy
from legoswarm.policies.team import Actors, decide, world_actions
from legoswarm.scene import Layout, Scene


class Swarm:
    """A trained policy for a whole team; what `legoswarm.load` gives."""

    def __init__(self, file: PolicyFile, seed: int | None = None):
        self.file = file
        self.seed = file.seeds[file.best] if seed is None else seed
        self.actors: Actors = {role: policy.actor for role, policy in file.one(seed).items()}

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles it knows, in their fixed order."""
        return self.file.layout.roles

    @property
    def controlled_roles(self) -> tuple[str, ...]:
        """The roles it acts for."""
        return self.file.layout.controlled_roles

    def act(
        self,
        positions: np.ndarray,
        velocities: np.ndarray,
        roles: Sequence[str],
        visible: np.ndarray | None = None,
    ) -> np.ndarray:
        """Mean actions in the world frame, limited as in training.

        `positions` and `velocities` are (entities, 2), `roles` names each entity's role, in any order. The
        result has one row for each entity of a controlled role, in the order given. `visible[i, j]` says
        whether the i-th controlled agent sees entity j; without it everybody sees everything.
        """
        position, velocity = _vectors("positions", positions), _vectors("velocities", velocities)
        count = len(roles)
        if len(position) != count or len(velocity) != count:
            raise ValueError(
                f"{len(position)} positions, {len(velocity)} velocities and {count} roles do not belong together"
            )
        if unknown := sorted(set(roles) - set(self.roles)):
            raise ValueError(f"the policy does not know the role {unknown[0]!r}; it knows {', '.join(self.roles)}")
        rank = np.array([self.roles.index(role) for role in roles], int)
        controlled = self.file.layout.controlled
        agents = np.flatnonzero(rank < controlled)
        if not len(agents):
            raise ValueError(f"there is nobody to act for: no entity is {' or '.join(self.controlled_roles)}")
        if visible is None:
            seen = np.ones((len(agents), count), bool)
        else:
            seen = np.asarray(visible)
            if seen.dtype != bool or seen.shape != (len(agents), count):
                raise ValueError(
                    f"visible must be bool of shape ({len(agents)}, {count}), not {seen.dtype} of {seen.shape}"
                )
        order = np.argsort(rank, kind="stable")
        agent_order = np.argsort(rank[agents], kind="stable")
        slots = tuple(int((rank == r).sum()) for r in range(len(self.roles)))
        scene = Scene(
            jnp.asarray(position[order]),
            jnp.asarray(velocity[order]),
            jnp.ones(count, bool),
            jnp.asarray(seen[agent_order][:, order]),
            Layout(self.roles, slots, controlled),
        )
        actions = np.empty((len(agents), 2), np.float32)
        actions[agent_order] = np.asarray(self.file.limit(_mean_actions(self.actors, scene)))
        if not np.isfinite(actions).all():
            raise ValueError("positions or velocities are too large: the actions are not finite")
        return actions


@jax.jit
def _mean_actions(actors: Actors, scene: Scene) -> Float[Array, "agents 2"]:
    decisions = decide(actors, scene)
    return world_actions(scene.layout, decisions, {role: d.mean for role, d in decisions.items()})


def _vectors(name: str, values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large for float32: infinite, and refused below
        array = np.asarray(values, np.float32)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"{name} must have the shape (entities, 2), not {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; row {int(np.flatnonzero(~np.isfinite(array).all(1))[0])} is not")
    return array


def load(name: str | Path, seed: int | None = None) -> Swarm:
    """A trained policy: `zoo:NAME`, a run folder or a policy file; by default its best seed."""
    return Swarm(load_policy(name), seed)
