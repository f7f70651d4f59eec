"""The optimiser's defaults for each policy, as the command line takes them where the user says nothing."""

from __future__ import annotations

from typing import Any

from legoswarm.learn.mappo import MappoConfig

# The best of twelve trials each, three seeds at N = 3, 1e6 steps: results/sweeps.
DEFAULTS: dict[str, dict[str, Any]] = {
    "lego": {"lr": 6e-4, "epochs": 5, "minibatches": 4, "entropy": 0.01},
    "mappo": {"lr": 1.2e-3, "epochs": 5, "minibatches": 4, "entropy": 0.01},
    "mappo-gnn": {"lr": 6e-4, "epochs": 5, "minibatches": 4, "entropy": 0.01},
    "mappo-local": {"lr": 6e-4, "epochs": 10, "minibatches": 4, "entropy": 0.01},
    "pic": {"lr": 1.2e-3, "epochs": 5, "minibatches": 4, "entropy": 0.01},
    "segnn": {"lr": 6e-4, "epochs": 5, "minibatches": 4, "entropy": 0.01},  # not swept yet: as lego
    "segnn-planar": {"lr": 6e-4, "epochs": 5, "minibatches": 4, "entropy": 0.01},  # not swept yet: as lego
}


def mappo_config(policy: str, **chosen: Any) -> MappoConfig:
    """The optimiser's configuration for a policy: what was chosen, else the policy's defaults, else anybody's."""
    return MappoConfig(**{**DEFAULTS.get(policy, {}), **chosen})


def defaults_in_words() -> str:
    """The table in one paragraph, for help texts."""
    rows = [f"{name} {', '.join(f'{k} {v:g}' for k, v in row.items())}" for name, row in DEFAULTS.items()]
    return f"defaults that depend on the policy: {'; '.join(rows)}"
