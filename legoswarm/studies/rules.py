"""Rules that decide claims from results: comparisons of methods, each with its figures.

A comparison is decided when the 95 % intervals of two means over seeds are disjoint. Rules with a number of their own,
which the claim's text then gives, compare means with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from legoswarm.evaluate.statistics import area_under_curve, mean_interval
from legoswarm.policies.policy import POLICIES, check_team
from legoswarm.scene import Layout
from legoswarm.studies import paper
from legoswarm.studies.results import Results

SIDES = [{"start": side} for side in ("left", "right", "uniform")]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One comparison: what it says of the claim (None: not clear, or not run), the figures, and what was not run."""

    agrees: bool | None
    evidence: str
    missing: tuple[str, ...] = ()


def not_run(*names: str) -> Finding:
    """What a comparison says that lacks a side."""
    return Finding(None, "", names)


Rule = Callable[[Results], Sequence[Finding]]


def compared(above: np.ndarray, below: np.ndarray, names: tuple[str, str]) -> Finding:
    """Whether one mean over seeds is above another."""
    if not len(above) or not len(below):
        return not_run(*(name for name, values in zip(names, (above, below), strict=True) if not len(values)))
    (low, high), (low_below, high_below) = mean_interval(above), mean_interval(below)
    text = f"{names[0]} {_words(above)} against {names[1]} {_words(below)}"
    return Finding(True if low > high_below else False if high < low_below else None, text)


def _words(values: np.ndarray) -> str:
    (low, high), mean = mean_interval(values), values.mean()
    digits = 1 if abs(mean) >= 2 else 3
    spread = f"[{low:.{digits}f}, {high:.{digits}f}]" if len(values) > 1 else "(one seed)"
    return f"{mean:.{digits}f} {spread}"


def above(
    study: str, one: str, others: Sequence[str], figure: str = "return_2c", where: Sequence[dict[str, Any]] = ({},)
) -> Rule:
    """`one` is above each of the others, everywhere."""

    def rule(results: Results) -> list[Finding]:
        findings = []
        for place in where:
            at = "".join(f" at {name} {value}" for name, value in place.items())
            first = results.values(study, one, figure, **place)
            for other in others:
                second = results.values(study, other, figure, **place)
                findings.append(compared(first, second, (one + at, other)))
        return findings

    return rule


def faster(study: str, ones: Sequence[str], others: Sequence[str]) -> Rule:
    """The mean height of the learning curve is above that of each of the others."""

    def heights(results: Results, label: str) -> np.ndarray:
        curve = results.curve(study, label)
        return np.zeros(0) if curve is None else area_under_curve(*curve)

    def rule(results: Results) -> list[Finding]:
        pairs = [(one, other) for one in ones for other in others if one != other]
        return [compared(heights(results, a), heights(results, b), (f"curve of {a}", b)) for a, b in pairs]

    return rule


def peak(results: Results, label: str) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Where the mean learning curve in Tag is highest, the seeds' values there, and those at the end."""
    curve = results.curve("tag", label)
    if curve is None or len(curve[0]) < 3:
        return None
    steps, values = curve
    at = int(values.mean(1).argmax())
    return float(steps[at]), values[at], values[-1]


def rises_and_falls(label: str, low: float, high: float) -> Rule:
    """The curve has its peak between two numbers of steps and ends below it."""

    def rule(results: Results) -> list[Finding]:
        found = peak(results, label)
        if found is None:
            return [not_run(label)]
        steps, top, end = found
        place = Finding(low <= steps <= high, f"{label} peaks at {steps:.2g} steps")
        return [place, compared(top, end, (f"{label} at its peak", "at the end"))]

    return rule


def peaks_compare(higher: str, lower: str) -> Rule:
    """The peak of one curve is above that of another."""

    def rule(results: Results) -> list[Finding]:
        tops = [found[1] if (found := peak(results, label)) else np.zeros(0) for label in (higher, lower)]
        return [compared(tops[0], tops[1], (f"peak of {higher}", lower))]

    return rule


def later(label: str, than: str) -> Rule:
    """The curve of one method peaks after that of another."""

    def rule(results: Results) -> list[Finding]:
        one, other = peak(results, label), peak(results, than)
        if one is None or other is None:
            return [not_run(label if one is None else than)]
        agrees = None if one[0] == other[0] else one[0] > other[0]
        return [Finding(agrees, f"{label} peaks at {one[0]:.2g} steps, {than} at {other[0]:.2g}")]

    return rule


def near_zero(labels: Sequence[str], than: str, share: float = 0.1) -> Rule:
    """The pursuers' mean return stays below a share of another method's peak."""

    def rule(results: Results) -> list[Finding]:
        top, findings = peak(results, than), []
        for label in labels:
            own = peak(results, label)
            if top is None or own is None:
                findings.append(not_run(than if top is None else label))
                continue
            most, limit = own[1].mean(), share * top[1].mean()
            text = f"{label} is at most {most:.1f}, {share:.0%} of {than}'s peak is {limit:.1f}"
            findings.append(Finding(bool(most < limit), text))
        return findings

    return rule


def closer(one: str, near: str, far: str) -> Rule:
    """What a method gains as pursuers and as evaders is less against `near` than against `far`."""

    def gain(results: Results, other: str) -> np.ndarray:
        sides = [results.values("head-to-head", f"{a} against {b}", "pursuer_return") for a, b in _both(one, other)]
        count = min(map(len, sides))
        return sides[0][:count] - sides[1][:count]

    def rule(results: Results) -> list[Finding]:
        return [compared(gain(results, far), gain(results, near), (f"{one}'s gain against {far}", near))]

    return rule


def _both(one: str, other: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (one, other), (other, one)


def seconds(results: Results, method: str, agents: int) -> float | None:
    """The wall-clock of a training in the run-time study, without compilation."""
    part = results.parts.get("run-time", {}).get(f"{method}-{agents}")
    return None if part is None else part["steps"] / part["steps_per_second"]


def ratio(method: str, to: str, low: float, high: float) -> Rule:
    """A method's training takes between `low` and `high` times that of another."""

    def rule(results: Results) -> list[Finding]:
        findings = []
        for agents in (3, 6):
            one, other = seconds(results, method, agents), seconds(results, to, agents)
            if one is None or other is None:
                findings.append(not_run(f"{method if one is None else to} with {agents} agents"))
                continue
            text = f"{agents} agents: {method} {one:.0f} s, {to} {other:.0f} s, ratio {one / other:.2f}"
            findings.append(Finding(low <= one / other <= high, text))
        return findings

    return rule


def losses(results: Results, label: str) -> list[float] | None:
    """How much worse returns are on the right and anywhere than on the left, as shares of the latter."""
    left, *others = (results.values("ood", label, "return_2c", **side) for side in SIDES)
    if not all(map(len, (left, *others))):
        return None
    return [float((left.mean() - other.mean()) / abs(left.mean())) for other in others]


def steady(labels: Sequence[str], most: float = 0.25) -> Rule:
    """Returns on the right and anywhere are no more than a share worse than on the left."""

    def rule(results: Results) -> list[Finding]:
        found = [(label, losses(results, label)) for label in labels]
        return [
            not_run(label) if loss is None else Finding(max(loss) <= most, f"{label} loses at most {max(*loss, 0):.0%}")
            for label, loss in found
        ]

    return rule


def degrades(label: str, least: float = 0.25) -> Rule:
    """Returns on the right and anywhere are both more than a share worse than on the left."""

    def rule(results: Results) -> list[Finding]:
        loss = losses(results, label)
        if loss is None:
            return [not_run(label)]
        return [Finding(min(loss) > least, f"{label} loses {loss[0]:.0%} on the right, {loss[1]:.0%} anywhere")]

    return rule


def exact(tolerance: float = 1e-3) -> Rule:
    """The actions of nine in ten scenes follow every symmetry to rounding."""

    def rule(results: Results) -> list[Finding]:
        errors = [part["errors"] for part in results.study("equivariance")]
        table = errors[0] if errors else {}
        return [
            Finding(e["quantile"] < tolerance, f"{name}: 90 % below {e['quantile']:.1e}") for name, e in table.items()
        ] or [not_run("lego")]

    return rule


def after_failure(one: str, other: str | None) -> Rule:
    """Captures of the pursuer that is left, with one kind of failure, are above those with another (None: above 0)."""

    def around(results: Results, kind: str) -> tuple[float, float] | None:
        rows = [row for part in results.study("agent-failure") for row in part["rows"] if row["failure"] == kind]
        return (rows[0]["survivors_captures"], 1.96 * rows[0]["survivors_captures_se"]) if rows else None

    def rule(results: Results) -> list[Finding]:
        first = around(results, one)
        second = (0.0, 0.0) if other is None else around(results, other)
        if first is None or second is None:
            return [not_run("lego")]
        gap, half = first[0] - second[0], first[1] + second[1]
        text = f"{one} {first[0]:.2f} +- {first[1]:.2f}, {other or 'none'} {second[0]:.2f} +- {second[1]:.2f}"
        return [Finding(gap > 0 if abs(gap) > half else None, f"captures after the failure: {text}")]

    return rule


def refused(methods: Sequence[str]) -> Rule:
    """The policies refuse another team size."""

    def rule(results: Results) -> list[Finding]:
        findings = []
        for method in methods:
            try:
                check_team(
                    POLICIES[method], Layout(("agent", "landmark"), (4, 4)), Layout(("agent", "landmark"), (3, 3))
                )
                findings.append(Finding(False, f"{method} acts for another team"))
            except ValueError as error:
                findings.append(Finding(True, str(error)))
        return findings

    return rule


def pictures(results: Results) -> list[Finding]:
    """A matter of looking at trajectories."""
    return [Finding(None, "no figure decides it: see the trajectories")]


def both(*rules: Rule) -> Rule:
    """All of several rules."""
    return lambda results: [finding for rule in rules for finding in rule(results)]


def ahead(study: str, label: str, figure: str, table: dict[Any, paper.Cell], column: str) -> Rule:
    """The mean is above the paper's in every column."""

    def rule(results: Results) -> list[Finding]:
        findings = []
        for place, (mean, _) in table.items():
            at = f"{column} {place}"
            values = results.values(study, label, figure, **{column: place})
            if len(values):
                findings.append(Finding(bool(values.mean() > mean), f"{at}: {values.mean():.1f}, the paper {mean}"))
            else:
                findings.append(not_run(at))
        return findings

    return rule
