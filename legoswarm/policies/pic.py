"""PIC: MAPPO's actor and a permutation-invariant graph critic (Liu et al. 2020), one value for a team."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

from legoswarm.configs import option, with_default
from legoswarm.layout import Layout
from legoswarm.policies.mappo import MLP_TUNED
from legoswarm.policies.policy import POLICIES, Policy


@POLICIES.register
@dataclasses.dataclass(frozen=True)
class PicPolicy(Policy):
    """MAPPO's actor beside PIC's critic; every role has a critic of its own rewards."""

    name: ClassVar[str] = "pic"
    label: ClassVar[str] = "PIC"
    colour: ClassVar[str] = "#009E73"
    in_paper: ClassVar[bool] = True
    one_size: ClassVar[bool] = True
    tuned: ClassVar = MLP_TUNED

    width: int = with_default(Policy, "width", 128)
    critic: str = option("full", "full: PIC is its critic; none: the algorithm has its own", among=("full", "none"))

    def build(self, layout: Layout, role: str, *, key: Any) -> Any:
        """Build MAPPO's actor and the graph critic."""
        from legoswarm.policies.networks.encoded import encoded_policy
        from legoswarm.policies.networks.mlp import SlotEncoder
        from legoswarm.policies.networks.pic import PicCritic

        encoder = functools.partial(SlotEncoder, absolute=True)
        return encoded_policy(self, layout, encoder, functools.partial(PicCritic, self, layout), key=key)
