"""Defaults that depend on the policy, as the command line takes them where the user says nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from legoswarm.learn.algorithms.mappo import MappoConfig
from legoswarm.policies import PolicyConfig

# The best of 24 trials each at N = 3: results/sweeps. LEGO with 5 epochs is no better than with 3, and slower. Its
# values were found with the critic `full` and hold with that of pairs, better at every size: results/studies/beyond.
DEFAULTS: dict[str, dict[str, Any]] = {
    "lego": {"width": 64, "critic": "pairs", "lr": 1.2e-3, "epochs": 3, "minibatches": 4, "entropy": 0.03},
    "mappo": {"width": 128, "lr": 1.2e-3, "epochs": 5, "minibatches": 4, "entropy": 0.03},
    "mappo-gnn": {"width": 64, "lr": 6e-4, "epochs": 5, "minibatches": 4, "entropy": 0.03},
    "mappo-local": {"width": 128, "lr": 1.2e-3, "epochs": 5, "minibatches": 4, "entropy": 0.03},
    "pic": {"width": 128, "lr": 1.2e-3, "epochs": 5, "minibatches": 4, "entropy": 0.03},
    "segnn": {"width": 64, "lr": 1.2e-3, "epochs": 5, "minibatches": 4, "entropy": 0.03},
    "segnn-planar": {"width": 64, "lr": 1.2e-3, "epochs": 5, "minibatches": 4, "entropy": 0.03},  # as segnn
}


def mappo_config(policy: str, **chosen: Any) -> MappoConfig:
    """The optimiser's configuration for a policy: what was chosen, else the policy's defaults, else anybody's."""
    return MappoConfig(**{**_row(policy, MappoConfig), **chosen})


def policy_config(policy: str = "lego", **chosen: Any) -> PolicyConfig:
    """The policy's own configuration, likewise."""
    return PolicyConfig(policy=policy, **{**_row(policy, PolicyConfig), **chosen})


def defaults_in_words() -> str:
    """The table in one paragraph, for help texts."""

    def words(value: Any) -> str:
        return value if isinstance(value, str) else f"{value:g}"

    rows = [f"{name} {', '.join(f'{k} {words(v)}' for k, v in row.items())}" for name, row in DEFAULTS.items()]
    return f"defaults that depend on the policy: {'; '.join(rows)}"


def _row(policy: str, cls: type) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: value for name, value in DEFAULTS.get(policy, {}).items() if name in names}
