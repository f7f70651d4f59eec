"""MAPPO's MLPs on raw observations, with a fixed place for everyone: they fit one team size only."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

from legoswarm.configs import with_default
from legoswarm.layout import Layout
from legoswarm.policies.policy import POLICIES, Policy

MLP_TUNED = {"mappo": {"lr": 1.2e-3, "epochs": 5, "minibatches": 4, "entropy": 0.03}}  # of 24 trials: results/sweeps


@POLICIES.register
@dataclasses.dataclass(frozen=True)
class MappoPolicy(Policy):
    """An MLP on the agent's own observation, and one on those of the whole team for the critic."""

    name: ClassVar[str] = "mappo"
    label: ClassVar[str] = "MAPPO"
    colour: ClassVar[str] = "#0072B2"
    in_paper: ClassVar[bool] = True
    one_size: ClassVar[bool] = True
    tuned: ClassVar = MLP_TUNED

    width: int = with_default(Policy, "width", 128)

    def build(self, layout: Layout, role: str, *, key: Any) -> Any:
        """Build the two MLPs."""
        from legoswarm.policies.networks.encoded import encoded_policy
        from legoswarm.policies.networks.mlp import SlotEncoder, TeamCritic

        encoder = functools.partial(SlotEncoder, absolute=True)
        return encoded_policy(self, layout, encoder, functools.partial(TeamCritic, self, layout, role), key=key)
