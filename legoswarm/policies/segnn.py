"""SEGNN: steerable message passing for actor and critic (E3AC, Chen and Zhang 2023; Brandstetter et al. 2022)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from legoswarm.layout import Layout
from legoswarm.policies.policy import POLICIES, Graph

TUNED = {"mappo": {"lr": 1.2e-3, "epochs": 5, "minibatches": 4, "entropy": 0.03}}  # of 24 trials: results/sweeps


@POLICIES.register
@dataclasses.dataclass(frozen=True)
class SegnnPolicy(Graph):
    """Irreps of O(3) as published, with Clebsch-Gordan coefficients and harmonics of e3nn-jax (extra: segnn)."""

    name: ClassVar[str] = "segnn"
    label: ClassVar[str] = "SEGNN"
    colour: ClassVar[str] = "#E69F00"
    in_paper: ClassVar[bool] = True
    tuned: ClassVar = TUNED

    def build(self, layout: Layout, role: str, *, key: Any) -> Any:
        """Build actor and critic of spherical weights."""
        from legoswarm.policies.networks.segnn import segnn_policy
        from legoswarm.policies.networks.steerable import spherical_weights

        return segnn_policy(spherical_weights, self, layout, key=key)


@POLICIES.register
@dataclasses.dataclass(frozen=True)
class SegnnPlanarPolicy(Graph):
    """Irreps of O(2): every linear message that the symmetries of the plane allow; it contains `segnn`."""

    name: ClassVar[str] = "segnn-planar"
    label: ClassVar[str] = "SEGNN (planar)"
    colour: ClassVar[str] = "#8C6A00"
    tuned: ClassVar = TUNED

    def build(self, layout: Layout, role: str, *, key: Any) -> Any:
        """Build actor and critic of planar weights."""
        from legoswarm.policies.networks.segnn import segnn_policy
        from legoswarm.policies.networks.steerable import planar_weights

        return segnn_policy(planar_weights, self, layout, key=key)
