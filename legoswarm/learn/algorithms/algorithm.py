"""What an algorithm is to the training loop: the loop collects, the algorithm learns from what was collected.

An algorithm is a frozen dataclass, as a task and a policy are: its fields are its hyper-parameters. `Mappo` is the one
to read first; docs/own-algorithm.md has one of a few dozen lines.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Int, PRNGKeyArray

from legoswarm.configs import Registry
from legoswarm.learn.rollout import Transition
from legoswarm.policies.networks.roles import Policies
from legoswarm.policies.networks.team import Actors
from legoswarm.policies.policy import Policy
from legoswarm.tasks.task import Task

Count = Int[Array, ""] | int  # traced in an update, so that a run of another length needs no other program


class Memory(eqx.Module):
    """What an algorithm remembers and never takes back, such as a replay; of a seed that has diverged it is anything.

    All else stays at the last good iteration then, which needs a copy of it. This may be far too large to copy.
    """


@runtime_checkable
class Algorithm(Protocol):
    """The protocol that the training loop relies on; functions are for one seed."""

    name: ClassVar[str]
    needs: ClassVar[dict[str, Any]]  # options that a policy must have to be trained by it

    @property
    def envs(self) -> int:
        """Count the worlds that it collects from, side by side."""
        ...

    @property
    def rollout(self) -> int:
        """Count the steps that it collects between two updates."""
        ...

    def check(self, policy: Policy, task: Task) -> None:
        """Refuse a policy or a task that it cannot train."""
        ...

    def init(self, policies: Policies, task: Task, iterations: int, *, key: PRNGKeyArray) -> Any:
        """Return what it carries from update to update, any pytree, beginning with these policies."""
        ...

    def actors(self, learner: Any) -> Actors:
        """Return who acts, in training and evaluation."""
        ...

    def policies(self, learner: Any) -> Policies:
        """Return what the policy file holds, and what a warm start begins with."""
        ...

    def update(
        self, learner: Any, rollout: Transition, iterations: Count, *, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        """Learn from a rollout, one of so many `iterations` in all; metrics are named `ROLE/METRIC`."""
        ...


ALGORITHMS: Registry[Any] = Registry("algorithm", "legoswarm.learn.algorithms")
