"""The paper's numbers, mean and standard deviation of the episode reward, or seconds; and others' in Navigation."""

from __future__ import annotations

import re
from typing import Any

from legoswarm.policies.policy import POLICIES

Cell = tuple[float, float]

GENERALIZATION: dict[str, dict[int, Cell]] = {
    "lego": {2: (-10.6, 2.9), 3: (-23.8, 7.4), 4: (-44.0, 19.9), 5: (-79.8, 18.5), 6: (-114.6, 17.0)},
    "pic": {2: (-9.8, 1.7), 3: (-42.7, 10.1), 4: (-130.8, 15.6), 5: (-191.4, 12.8), 6: (-297.3, 18.5)},
    "segnn": {2: (-47.9, 14.5), 3: (-148.2, 44.3), 4: (-84.3, 39.2), 5: (-282.9, 202.7), 6: (-859.2, 220.7)},
    "mappo": {2: (-9.2, 4.1), 3: (-43.4, 12.1), 4: (-135.0, 35.4), 5: (-216.3, 43.1), 6: (-378.0, 67.9)},
}

CURRICULUM: dict[str, dict[int, Cell]] = {
    "mappo": {6: (-381.2, 71.3), 7: (-430.7, 81.2), 8: (-508.3, 54.2)},
    "segnn-scl": {6: (-833.1, 203.7), 7: (-1184.4, 102.7), 8: (-1899.6, 402.8)},
    "segnn-curr": {6: (-186.1, 40.4)},
    "lego": {6: (-196.5, 39.5), 7: (-265.5, 31.7), 8: (-360.3, 81.6)},
    "lego-scl": {6: (-113.4, 16.3), 7: (-170.8, 29.4), 8: (-239.7, 30.1)},
    "lego-curr": {6: (-99.6, 9.2), 7: (-145.2, 20.4), 8: (-150.7, 16.5)},
}

OOD: dict[str, dict[str, Cell]] = {
    "lego": {"left": (-21.4, 6.1), "right": (-20.2, 5.3), "uniform": (-22.03, 6.7)},
    "mappo-local": {"left": (-39.3, 17.6), "right": (-40.3, 11.4), "uniform": (-42.1, 21.4)},
    "segnn": {"left": (-45.3, 12.9), "right": (-49.2, 15.7), "uniform": (-44.7, 10.9)},
    "mappo": {"left": (-50.7, 12.1), "right": (-72.7, 20.0), "uniform": (-70.9, 18.4)},
}

RUN_TIME: dict[str, dict[int, float]] = {  # seconds; Intel Xeon Gold 5220R and NVIDIA A6000
    "mappo": {3: 277.9, 6: 814.2},
    "pic": {3: 300.5, 6: 1257.3},
    "segnn": {3: 18.2 * 3600, 6: 20.2 * 3600},
    "lego": {3: 377.6, 6: 997.8},
}

# GCBF+ with its published weights, its nominal controller and a decentralised CBF-QP, in their own code, within 256
# steps: shares of agents in GCBF+'s first 20, 10, 5 and 2 (with obstacles 1) test episodes with 8, 32, 128 and 512.
# No paper's: measured apart from this package, whose own episodes are other ones, and easier (docs/swarm.md).
NAVIGATION: dict[str, dict[str, dict[int, Cell]]] = {
    "success": {
        "free": {8: (0.988, 0.009), 32: (0.969, 0.010), 128: (0.977, 0.007), 512: (0.978, 0.0)},
        "with obstacles": {8: (0.931, 0.033), 32: (0.944, 0.010), 128: (0.941, 0.011), 512: (0.949, 0.0)},
        "dense": {32: (0.756, 0.0), 128: (0.827, 0.0)},
        "nominal controller, free": {8: (0.750, 0.040), 32: (0.753, 0.035)},
        "nominal controller, with obstacles": {8: (0.563, 0.045), 32: (0.544, 0.028)},
        "nominal controller, dense": {32: (0.347, 0.0), 128: (0.383, 0.0)},
        "decentralised CBF-QP, free": {8: (0.994, 0.006), 32: (0.950, 0.021)},
        "decentralised CBF-QP, with obstacles": {8: (0.881, 0.023), 32: (0.819, 0.030)},
        "decentralised CBF-QP, dense": {32: (0.781, 0.0)},
    },
    "safe": {
        "free": {8: (1.0, 0.0), 32: (1.0, 0.0), 128: (1.0, 0.0), 512: (1.0, 0.0)},
        "with obstacles": {8: (1.0, 0.0), 32: (1.0, 0.0), 128: (1.0, 0.0), 512: (1.0, 0.0)},
        "dense": {32: (1.0, 0.0), 128: (0.994, 0.0)},
        "nominal controller, free": {8: (0.750, 0.040), 32: (0.753, 0.035)},
        "nominal controller, with obstacles": {8: (0.563, 0.045), 32: (0.544, 0.028)},
        "nominal controller, dense": {32: (0.347, 0.0), 128: (0.383, 0.0)},
        "decentralised CBF-QP, free": {8: (1.0, 0.0), 32: (1.0, 0.0)},
        "decentralised CBF-QP, with obstacles": {8: (0.988, 0.0), 32: (1.0, 0.0)},
        "decentralised CBF-QP, dense": {32: (1.0, 0.0)},
    },
}


def printed(study: str, label: str, place: object = None) -> float | None:
    """Return the paper's mean of a label at a place, where it has one."""
    tables: dict[str, dict[str, Any]] = {"generalization": GENERALIZATION, "curriculum": CURRICULUM, "ood": OOD}
    cell = tables.get(study, {}).get(label, {}).get(place)
    return None if cell is None else cell[0]


# Sample efficiency: steps until the paper's MAPPO at three agents (2e6 steps), its LEGO from scratch at six (5e6).
THRESHOLDS = {"spread-3": -43.4, "spread-6": -196.5, "algorithms": -43.4}


def named(label: str) -> str:
    """Return a label with the methods' names as the paper writes them; `lego with masac` is LEGO-MASAC."""
    names = {name: POLICIES[name].label for name in POLICIES.names()}

    def name(word: re.Match[str]) -> str:
        method, dash, kind = word[0].rpartition("-")
        return names.get(word[0]) or names.get(method, method) + dash + kind

    words = re.sub(r"[a-z-]+", name, label)
    return re.sub("(-MAPPO)? with (masac|ippo)", lambda found: f"-{found[2].upper()}", words)
