"""SEGNN: steerable message passing for actor and critic (E3AC, Chen and Zhang 2023; Brandstetter et al. 2022)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from legoswarm.layout import Layout
from legoswarm.policies.policy import POLICIES, Graph


@POLICIES.register
@dataclasses.dataclass(frozen=True)
class SegnnPolicy(Graph):
    """Irreps of O(3) as published, with Clebsch-Gordan coefficients and harmonics of e3nn-jax (extra: segnn)."""

    name: ClassVar[str] = "segnn"
    label: ClassVar[str] = "SEGNN"
    colour: ClassVar[str] = "#E69F00"
    in_paper: ClassVar[bool] = True
    tuned: ClassVar = {"mappo": {"lr": 1.2e-3, "epochs": 5, "minibatches": 4, "entropy": 0.03}}  # results/sweeps

    weights: ClassVar[str] = "spherical_weights"  # of steerable.py: which maps messages go through

    def build(self, layout: Layout, role: str, *, key: Any) -> Any:
        """Build actor and critic, the same for every role and team size."""
        from legoswarm.policies.networks import segnn, steerable

        return segnn.segnn_policy(getattr(steerable, self.weights), self, layout, key=key)


@POLICIES.register
@dataclasses.dataclass(frozen=True)
class SegnnPlanarPolicy(SegnnPolicy):
    """Irreps of O(2): every linear message that the symmetries of the plane allow; it contains `segnn`."""

    name: ClassVar[str] = "segnn-planar"
    label: ClassVar[str] = "SEGNN (planar)"
    colour: ClassVar[str] = "#8C6A00"
    in_paper: ClassVar[bool] = False
    weights: ClassVar[str] = "planar_weights"
