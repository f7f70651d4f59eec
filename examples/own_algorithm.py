"""An algorithm of one's own: REINFORCE, the policy gradient without a critic (Williams 1992).

python examples/own_algorithm.py train spread --algorithm reinforce --steps 1e6 --out runs/reinforce
python examples/own_algorithm.py eval runs/reinforce --agents 3 6
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

import legoswarm
from legoswarm.configs import check_fields, option
from legoswarm.learn.advantage import generalised_advantages
from legoswarm.learn.rollout import Transition
from legoswarm.policies.networks.roles import Policies, RolePolicy, over_members
from legoswarm.policies.networks.team import Actors
from legoswarm.policies.policy import Policy
from legoswarm.scene import observe
from legoswarm.tasks.task import Task


class Learner(eqx.Module):
    """What one role carries from update to update; arrays in it are saved in checkpoints."""

    actor: Any
    optimizer: optax.OptState


@legoswarm.ALGORITHMS.register
@dataclasses.dataclass(frozen=True)
class Reinforce:
    """Gradient steps on log pi(a) times the return that followed, less the mean return of that step of the episode."""

    name: ClassVar[str] = "reinforce"
    needs: ClassVar[dict[str, Any]] = {"critic": "none"}  # options that the policy must have

    envs: int = option(256, "worlds side by side", low=1)
    rollout: int = option(25, "steps between updates", low=1)
    lr: float = option(3e-3, "learning rate", above=0)
    gamma: float = option(0.95, "discount", low=0, high=1)

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self, policy: Policy, task: Task) -> None:
        """Refuse nothing: every actor will do."""

    def init(self, policies: Policies, task: Task, iterations: int, *, key: PRNGKeyArray) -> dict[str, Learner]:
        """Return the actors with fresh optimiser states."""
        return {role: Learner(one.actor, self._adam().init(one.actor)) for role, one in policies.items()}

    def actors(self, learner: dict[str, Learner]) -> Actors:
        """Return who acts."""
        return {role: one.actor for role, one in learner.items()}

    def policies(self, learner: dict[str, Learner]) -> Policies:
        """Return what the policy file holds."""
        return {role: RolePolicy(one.actor, None) for role, one in learner.items()}

    def update(
        self, learner: dict[str, Learner], rollout: Transition, iterations: int, *, key: PRNGKeyArray
    ) -> tuple[dict[str, Learner], dict[str, Array]]:
        """Take one gradient step for each role."""
        after, metrics = {}, {}
        for role, one in learner.items():
            block = rollout.scene.layout.block(role)
            reward, there = rollout.reward[..., block], rollout.scene.exists[..., block]
            ended, cut = (jnp.broadcast_to(x[..., None], there.shape) for x in (rollout.terminated, rollout.truncated))
            none = jnp.zeros_like(reward)
            returns = generalised_advantages(reward, none, none, ended, cut, gamma=self.gamma, lam=1.0)
            better = jnp.where(there, returns - returns.mean(1, keepdims=True), 0.0)
            better = better / (better.std() + 1e-6)

            def loss(actor: Any, role: str = role, better: Array = better) -> Array:
                def log_prob(scene: Any, member: Array, local: Array) -> Array:
                    return actor(observe(scene, role, member)).log_prob(local)

                rows = jax.vmap(lambda scenes, local: over_members(log_prob, scenes, role, local))
                return -(rows(rollout.scene, rollout.local[role]) * better).mean()

            value, gradient = jax.value_and_grad(loss)(one.actor)
            with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
                steps, optimizer = self._adam().update(gradient, one.optimizer)
            after[role] = Learner(eqx.apply_updates(one.actor, steps), optimizer)
            metrics[f"{role}/actor_loss"] = value
        return after, metrics

    def _adam(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(self.lr))


if __name__ == "__main__":
    from legoswarm.cli import main

    raise SystemExit(main())
