"""MAPPO-local: MAPPO's MLPs in LEGO's canonical frame, the frame-only ablation of the paper."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from legoswarm.configs import with_default
from legoswarm.layout import Layout
from legoswarm.policies.mappo import MLP_TUNED
from legoswarm.policies.policy import POLICIES, Framed, Policy


@POLICIES.register
@dataclasses.dataclass(frozen=True)
class MappoLocalPolicy(Framed):
    """The same MLPs in the agent's frame; the critic on the full state in that frame."""

    name: ClassVar[str] = "mappo-local"
    label: ClassVar[str] = "MAPPO-local"
    colour: ClassVar[str] = "#56B4E9"
    in_paper: ClassVar[bool] = True
    one_size: ClassVar[bool] = True
    tuned: ClassVar = MLP_TUNED

    width: int = with_default(Policy, "width", 128)

    def build(self, layout: Layout, role: str, *, key: Any) -> Any:
        """Build the two MLPs."""
        from legoswarm.policies.networks.encoded import encoded_policy
        from legoswarm.policies.networks.mlp import SlotEncoder

        return encoded_policy(self, layout, SlotEncoder, key=key)
