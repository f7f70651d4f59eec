"""MAPPO-GNN: LEGO's encoders and pooling on the raw observation, the graph-only ablation of the paper."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

from legoswarm.layout import Layout
from legoswarm.policies.policy import POLICIES, Attentive


@POLICIES.register
@dataclasses.dataclass(frozen=True)
class MappoGnnPolicy(Attentive):
    """LEGO without the frame: it sees the agent's position and velocity in the world."""

    name: ClassVar[str] = "mappo-gnn"
    label: ClassVar[str] = "MAPPO-GNN"
    colour: ClassVar[str] = "#CC79A7"
    in_paper: ClassVar[bool] = True
    tuned: ClassVar = {"mappo": {"lr": 6e-4, "epochs": 5, "minibatches": 4, "entropy": 0.03}}  # results/sweeps

    def build(self, layout: Layout, role: str, *, key: Any) -> Any:
        """Build actor and critic with separate encoders."""
        from legoswarm.policies.encoders.encoder import make_view_encoder
        from legoswarm.policies.networks.encoded import encoded_policy

        return encoded_policy(self, layout, functools.partial(make_view_encoder, absolute=True), key=key)
