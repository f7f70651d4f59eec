"""Learning curves: each metric of a run against its steps and its seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclasses.dataclass(frozen=True)
class Curve:
    """One metric of a run, in the order of its rows: where each value was taken, and one value for each seed."""

    steps: Float[np.ndarray, " points"]  # of each seed
    seconds: Float[np.ndarray, " points"]  # since training began, compilation included
    values: Float[np.ndarray, "points seeds"]  # not a number where the metric was not finite


def curves_of(rows: Sequence[dict[str, Any]]) -> dict[str, Curve]:
    """Return the curves of a run's rows of metrics by name: figures of evaluations, and what training measured."""
    seconds = np.cumsum([row["seconds"] for row in rows])
    points: dict[str, list[tuple[Any, ...]]] = {}
    for row, at in zip(rows, seconds, strict=True):
        metrics = {name: value for name, value in row.items() if name not in ("iteration", "steps", "seconds", "eval")}
        for name, value in {**row.get("eval", {}), **metrics}.items():
            points.setdefault(name, []).append((row["steps"], at, value if isinstance(value, list) else [value]))
    return {name: _curve(each) for name, each in points.items()}


def _curve(points: Sequence[tuple[Any, ...]]) -> Curve:
    steps, seconds, values = zip(*points, strict=True)
    return Curve(np.array(steps, float), np.array(seconds, float), np.array(values, float))
