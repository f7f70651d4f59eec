"""Learning curves: each metric of a run against its steps and its seconds.

A run writes a row into `metrics.jsonl` after each hundredth of its steps. Values are lists with one number for each
seed; `null` stands for what is not finite. `legoswarm curves RUN ... --metric NAME` draws them, and `--log tensorboard`
or `--log wandb` sends them to these tools as they come (extras of the same names). ROLE is a role that acts, such as
`agent`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

METRICS = {
    "iteration": "updates so far",
    "steps": "environment steps of each seed so far",
    "seconds": "how long this row took; in the first one compilation is included",
    "steps_per_second": "environment steps of all seeds in each of these seconds",
    "ROLE/return": "mean reward of an agent in a step, times the horizon: the return under exploration",
    "ROLE/actor_loss": "loss of the actor, the mean over all gradient steps",
    "ROLE/critic_loss": "loss of the critic, the mean over all gradient steps",
    "ROLE/entropy": "entropy of the Gaussian that actions are drawn from",
    "ROLE/deviation": "standard deviation of that Gaussian (MAPPO)",
    "ROLE/kl": "how far the policy went from the one that collected (MAPPO)",
    "ROLE/clip_fraction": "share of samples that were clipped (MAPPO)",
    "ROLE/explained_variance": "share of the variance of returns that the critic explains (MAPPO)",
    "ROLE/actor_gradient": "norm of the actor's gradient before it is limited (MAPPO)",
    "ROLE/critic_gradient": "norm of the critic's gradient before it is limited (MAPPO)",
    "ROLE/gradient": "norm of the gradient of actor, critics and temperature together (MASAC)",
    "ROLE/temperature": "weight of the entropy, which is learned (MASAC)",
    "ROLE/learning_rate": "the learning rate at the beginning of the update",
    "eval": "figures of the task, `frame_flips` and `extent`: means over mean-action episodes; only in some rows",
}


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
