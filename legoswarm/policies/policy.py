"""What a policy is to the rest of the package, free of JAX: a name, a label, options, and how to build its networks.

A policy is a frozen dataclass, as a task is: its fields are its options, on the command line and in `policy.json`, and
an option that it does not have cannot be given. The networks are imported when they are built.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from legoswarm.configs import Registry, check_fields, option
from legoswarm.frames.rules import AXES, RESTS, check_frame
from legoswarm.layout import Layout


@dataclasses.dataclass(frozen=True)
class Policy:
    """The base of all policies: what each of them has."""

    name: ClassVar[str]
    label: ClassVar[str]  # in tables and figures
    colour: ClassVar[str]  # in figures
    in_paper: ClassVar[bool] = False  # whether it is one of the paper's methods
    one_size: ClassVar[bool] = False  # its weights depend on the layout's slots: it acts for no other team than its own
    tuned: ClassVar[dict[str, dict[str, Any]]] = {}  # by algorithm: the values of its fields that were found for it
    suits: ClassVar[dict[str, dict[str, Any]]] = {}  # by algorithm: options that the policy has then by default
    recipes: ClassVar[dict[str, dict[str, Any]]] = {}  # by name: options of a whole training

    width: int = option(64, "features of every layer", low=1, high=4096)
    critic: str = option(
        "full",
        "full: the policy's own, of the whole state; pairs: messages between all pairs of entities; none: the "
        "algorithm has its own",
        among=("full", "pairs", "none"),
    )
    leash: float = option(
        1.5, "distance from the centroid of what it sees beyond which an agent is pulled back; 0: never", low=0
    )
    leash_gain: float = option(8.0, "how much the pull grows with the distance beyond the leash", low=0)
    log_std: float = option(0.0, "initial log standard deviation of actions", low=-10, high=3)
    squash: float = option(0.0, "bound of a tanh on actions in the agent's frame; 0: none", low=0)
    precision: str = option(
        "auto", "of hidden layers: float32, bfloat16, or auto (bfloat16 on GPUs)", among=("auto", "float32", "bfloat16")
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def build(self, layout: Layout, role: str, *, key: Any) -> Any:
        """Build the `RolePolicy` of one role: a fresh actor and the policy's own critic."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Framed(Policy):
    """The options of policies that act in the agent's canonical frame."""

    axis: str = option("velocity", "what the frame's first axis follows: velocity, position or none", among=AXES)
    rest: str = option("equivariant", "the frame at rest: equivariant, or global as in the paper", among=RESTS)
    slow: float = option(0.05, "speed below which an agent counts as at rest", low=0)
    tie: float = option(0.005, "how near a tie of directions the frame's axes shrink: actions stay continuous", above=0)

    def __post_init__(self) -> None:
        check_fields(self)
        check_frame(self.axis, self.rest)


@dataclasses.dataclass(frozen=True)
class Graph(Policy):
    """The options of policies that encode any number of entities."""

    depth: int = option(2, "layers of each encoder", low=0, high=32)
    nearest: int = option(0, "encode only so many entities of each role, the nearest; 0: all", low=0, high=10_000)


@dataclasses.dataclass(frozen=True)
class Attentive(Graph):
    """The options of policies with an encoder of observations that is chosen by name."""

    encoder: str = option(
        "attention",
        "attention (among the entities of a role), joint (among all entities and the agent itself), deepsets or a "
        "registered one",
    )
    heads: int = option(4, "attention heads", low=1, high=4096)
    pooling: str = option("mean", "mean or max", among=("mean", "max"))


POLICIES: Registry[type[Policy]] = Registry("policy", "legoswarm.policies")


def check_team(policy: Policy | type[Policy], trained: Layout, team: Layout) -> None:
    """Refuse another team than the one it was trained with for a policy of one size."""
    if policy.one_size and team.slots != trained.slots:
        raise ValueError(
            f"{policy.name} acts only for the team it was trained with ({_words(trained)}), not {_words(team)}"
        )


def _words(layout: Layout) -> str:
    """Say how many of each role there are, such as `3 agents, 1 landmark`."""
    return ", ".join(f"{n} {role}{'s' * (n != 1)}" for role, n in zip(layout.roles, layout.slots, strict=True))
