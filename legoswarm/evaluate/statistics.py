"""Statistics over seeds, and of learning curves: small functions of NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats
from scipy.special import stdtrit

RESAMPLES = 2000


def deviation(values: Float[np.ndarray, " seeds"]) -> float:
    """Return the standard deviation with n - 1 in the denominator; 0 for one value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def mean_interval(values: Float[np.ndarray, " seeds"], level: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the mean; one value says nothing: -inf to inf."""
    n = len(values)
    if n < 2:
        return -math.inf, math.inf
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * deviation(values) / math.sqrt(n)
    centre = float(np.mean(values))
    return centre - half, centre + half


def welch(one: Float[np.ndarray, " seeds"], other: Float[np.ndarray, " others"]) -> float | None:
    """Return the two-sided p of Welch's test of two means; None where a single value says nothing."""
    if min(len(one), len(other)) < 2:
        return None
    if deviation(one) == deviation(other) == 0:
        return float(np.mean(one) == np.mean(other))
    test: Any = stats.ttest_ind(one, other, equal_var=False)
    return float(test.pvalue)


def rank_test(one: Float[np.ndarray, " seeds"], other: Float[np.ndarray, " others"]) -> float | None:
    """Return the two-sided p of Mann and Whitney's test; infinite values are the largest. None for single values."""
    if min(len(one), len(other)) < 2:
        return None
    ranks = stats.rankdata(np.concatenate([one, other]))
    if len(set(ranks)) == 1:
        return 1.0
    test: Any = stats.mannwhitneyu(ranks[: len(one)], ranks[len(one) :])
    return float(test.pvalue)


def holm(chances: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """Return p values corrected for their number by Holm's method."""
    order = np.argsort(chances)
    steps = (len(chances) - np.arange(len(chances))) * chances[order]
    corrected = np.empty(len(chances))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def interquartile_mean(values: Float[np.ndarray, "*batch seeds"]) -> Any:
    """Return the mean of the middle half along the last axis; values at its edges count in part."""
    ordered = np.sort(values, -1)
    n = ordered.shape[-1]
    left, right = np.arange(n) / n, np.arange(1, n + 1) / n
    weight = np.clip(np.minimum(right, 0.75) - np.maximum(left, 0.25), 0, None)
    mean = (ordered * weight).sum(-1) / weight.sum()
    return float(mean) if mean.ndim == 0 else mean


def iqm_interval(values: Float[np.ndarray, " seeds"], level: float = 0.95) -> tuple[float, float]:
    """Return a percentile bootstrap of the interquartile mean: seeds drawn with replacement, always in the same way.

    One value says nothing: -inf to inf.
    """
    if len(values) < 2:
        return -math.inf, math.inf
    picks = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(interquartile_mean(values[picks]), [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def area_under_curve(
    steps: Float[np.ndarray, " points"], values: Float[np.ndarray, "points seeds"]
) -> Float[np.ndarray, " seeds"]:
    """Return the mean height of a curve over its steps: the trapezoid rule, divided by the length."""
    if len(steps) < 2:
        return values[0]
    return np.trapezoid(values, steps, axis=0) / (steps[-1] - steps[0])


def steps_to(
    steps: Float[np.ndarray, " points"], values: Float[np.ndarray, "points seeds"], threshold: float
) -> Float[np.ndarray, " seeds"]:
    """Return the first step at which each seed's curve is at or above the threshold; inf for never."""
    reached = values >= threshold
    return np.where(reached.any(0), np.asarray(steps, float)[reached.argmax(0)], math.inf)
