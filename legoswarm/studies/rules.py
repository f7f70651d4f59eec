"""Rules that decide claims from results: comparisons of methods, each with its figures.

Two means over seeds are compared by Welch's test, how soon curves reach a return by Mann and Whitney's, which takes
"never" for the last rank. `claims` corrects all tests of a study for their number. Rules with a number of their own,
which the claim's text then gives, compare means with it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec

import numpy as np
from scipy.stats import rankdata

from legoswarm.evaluate.statistics import mean_interval, rank_test, steps_to, welch
from legoswarm.layout import Layout
from legoswarm.policies.policy import POLICIES, check_team
from legoswarm.studies import paper
from legoswarm.studies.failure import SEVERAL
from legoswarm.studies.results import Results

SIDES = [{"start": side} for side in ("left", "right", "uniform")]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One comparison: what it says of the claim (None: not clear, or not run), the figures, and what was not run.

    With a `chance`, the p of a two-sided test, it says so only if that is small among all tests of its study. `printed`
    is what the paper has.
    """

    agrees: bool | None
    evidence: str
    missing: tuple[str, ...] = ()
    chance: float | None = None
    printed: str = ""


Rule = Callable[[Results], list[Finding]]
Words = ParamSpec("Words")


class NotRun(Exception):
    """Names what a comparison lacks."""


def rule(find: Callable[Concatenate[Results, Words], Iterable[Finding]]) -> Callable[Words, Rule]:
    """Let a function of results and of a claim's words take the words first, and the results when it is asked.

    Where something was not run, the rule finds that alone.
    """

    @functools.wraps(find)
    def made(*words: Words.args, **named: Words.kwargs) -> Rule:
        def ask(results: Results) -> list[Finding]:
            try:
                return list(find(results, *words, **named))
            except NotRun as missing:
                return [Finding(None, "", missing.args)]

        return ask

    return made


def compared(above: np.ndarray, below: np.ndarray, names: tuple[str, str], printed: str = "") -> Finding:
    """Tell whether one mean over seeds is above another."""
    if not len(above) or not len(below):
        missing = tuple(name for name, values in zip(names, (above, below), strict=True) if not len(values))
        return Finding(None, "", missing)
    text, chance = f"{names[0]} {_words(above)} versus {names[1]} {_words(below)}", welch(above, below)
    agrees = None if chance is None else bool(above.mean() > below.mean())
    return Finding(agrees, text, (), chance, printed)


def _words(values: np.ndarray) -> str:
    (low, high), mean = mean_interval(values), values.mean()
    digits = 1 if abs(mean) >= 2 else 3
    spread = f"[{low:.{digits}f}, {high:.{digits}f}]" if len(values) > 1 else "(one seed)"
    return f"{mean:.{digits}f} {spread}"


@rule
def above(
    results: Results,
    study: str,
    one: str,
    others: Sequence[str],
    figure: str = "return_2c",
    where: Sequence[dict[str, Any]] = ({},),
) -> Iterator[Finding]:
    """Find whether `one` is above each of the others, everywhere."""
    of = "" if figure in ("return_2c", "pursuer_return") else f" ({figure})"
    for place in where:
        at = of + "".join(f" at {name} {value}" for name, value in place.items())
        first = results.values(study, one, figure, **place)
        for other in others:
            numbers = [paper.printed(study, label, *place.values()) for label in (one, other)]
            printed = " against ".join(map(str, numbers)) if None not in numbers else ""
            yield compared(first, results.values(study, other, figure, **place), (one + at, other + of), printed)


@rule
def faster(results: Results, study: str, ones: Sequence[str], others: Sequence[str]) -> Iterator[Finding]:
    """Find whether a method's seeds are sooner where the worse of it and another one ends, for each of the others."""
    curves = {label: results.curve(study, label) for label in (*ones, *others)}
    for one in ones:
        for other in others:
            if one != other:
                yield sooner({name: curves[name] for name in (one, other)})


def sooner(curves: dict[str, tuple[np.ndarray, np.ndarray] | None]) -> Finding:
    """Tell whether the first of two learning curves reaches the worse of their final means in fewer steps."""
    if missing := tuple(name for name, curve in curves.items() if curve is None):
        return Finding(None, "", missing)
    known = {name: curve for name, curve in curves.items() if curve is not None}
    goal = min(float(values[-1].mean()) for _, values in known.values())
    first, second = (steps_to(*curve, goal) for curve in known.values())
    texts = [f"{name} after {np.median(steps):.2g}" for name, steps in zip(known, (first, second), strict=True)]
    text = f"to {goal:.1f}: {texts[0]} steps, {texts[1]} (medians)"
    chance = rank_test(first, second)
    return Finding(None if chance is None else ranks_lower(first, second), text, (), chance)


def ranks_lower(first: np.ndarray, second: np.ndarray) -> bool:
    """Tell whether the first numbers are the lower ones by their mean rank, as the test has it: medians may tie."""
    ranks = rankdata([*first, *second])
    return bool(ranks[: len(first)].mean() < ranks[len(first) :].mean())


def peak(results: Results, label: str) -> tuple[float, np.ndarray]:
    """Return where the mean learning curve in Tag is highest, and the seeds' values there."""
    steps, values = _curve(results, label)
    at = values.mean(1).argmax()
    return float(steps[at]), values[at]


def chosen_by_others(results: Results, label: str) -> np.ndarray:
    """Return values of the second half of the seeds: where the first half's mean is highest, at first, and at the end.

    A point that the same seeds chose would be above any other by their luck alone.
    """
    values = _curve(results, label)[1]
    half = values.shape[1] // 2
    at = values[:, : max(half, 1)].mean(1).argmax()
    return values[[at, 0, -1], half:]


def _curve(results: Results, label: str) -> tuple[np.ndarray, np.ndarray]:
    curve = results.curve("tag", label)
    if curve is None or len(curve[0]) < 3:
        raise NotRun(label)
    return curve


def unseen_start(results: Results, label: str) -> Iterator[Finding]:
    """Find, in a shorter run that was evaluated earlier, a return above the peak: then the grid hides where it is."""
    curve, early = results.curve("tag", label), results.curve("tag", f"{label} after 1e6 steps")
    if curve is not None and early is not None and early[0][0] < curve[0][0]:
        before = early[1][0].mean()
        if before > peak(results, label)[1].mean():
            where = f"{early[0][0]:.2g} steps, before the evaluations begin"
            yield Finding(None, f"{label} after 1e6 steps has {before:.1f} at {where}")


@rule
def rises_and_falls(results: Results, label: str, low: float, high: float) -> Iterator[Finding]:
    """Find whether the curve rises to a peak between two numbers of steps and ends below it."""
    (steps, _), (top, first, end) = peak(results, label), chosen_by_others(results, label)
    yield from unseen_start(results, label)
    yield Finding(low <= steps <= high, f"{label} peaks at {steps:.2g} steps")
    if steps == _curve(results, label)[0][0]:
        yield Finding(None, "no rise is seen: it is highest where its evaluations begin")
    else:
        yield compared(top, first, (f"{label} at its peak", "at its first evaluation"))
    yield compared(top, end, (f"{label} at its peak", "at the end"))


@rule
def peaks_compare(results: Results, higher: str, lower: str) -> Iterator[Finding]:
    """Find whether the peak of one curve is above that of another."""
    yield compared(peak(results, higher)[1], peak(results, lower)[1], (f"peak of {higher}", lower))


@rule
def later(results: Results, label: str, than: str) -> Iterator[Finding]:
    """Find whether the curve of one method peaks after that of another."""
    one, other = peak(results, label)[0], peak(results, than)[0]
    agrees = None if one == other else one > other
    yield Finding(agrees, f"{label} peaks at {one:.2g} steps, {than} at {other:.2g}")


@rule
def half_way(results: Results, label: str, others: Sequence[str]) -> Iterator[Finding]:
    """Find whether a method's seeds reach half of its peak in fewer steps than those of others reach half of theirs."""
    yield from unseen_start(results, label)
    reached = {name: _half(results, name) for name in (label, *others)}
    for other in others:
        first, second = reached[label], reached[other]
        times = f"{label} after {np.median(first):.2g} steps, {other} after {np.median(second):.2g} (medians)"
        agrees = ranks_lower(first, second)
        yield Finding(agrees, f"to half of its peak: {times}", (), rank_test(first, second))


def _half(results: Results, label: str) -> np.ndarray:
    return steps_to(*_curve(results, label), peak(results, label)[1].mean() / 2)


@rule
def settles(results: Results, label: str, share: float = 0.1) -> Iterator[Finding]:
    """Find whether the mean curve in Tag changes by less than a share of its peak over the last fifth of the steps."""
    top, curve = peak(results, label)[1].mean(), _curve(results, label)
    steps, means = curve[0] / curve[0][-1], curve[1].mean(1)
    tenths = [means[(steps > low) & (steps <= low + 0.1)] for low in (0.8, 0.9)]
    if not all(map(len, tenths)):
        raise NotRun(f"{label}, evaluated in the last two tenths of its steps")
    ends = [values.mean() for values in tenths]
    text = f"{label} has {ends[0]:.1f} in the ninth tenth and {ends[1]:.1f} in the last, {share:.0%} of its peak is"
    yield Finding(bool(abs(ends[1] - ends[0]) < share * top), f"{text} {share * top:.1f}")


INDEPENDENT = {3: 0.475}  # of pursuers that stand in independent directions: 1 - E|sum of unit vectors| / their number


@rule
def surround(results: Results, label: str, pursuers: int = 3) -> Iterator[Finding]:
    """Find whether pursuers stand more evenly around evaders than in independent directions."""
    beyond = results.values("tag", label, "surround") - INDEPENDENT[pursuers]
    yield compared(beyond, np.zeros(2), (f"{label} (surround, above independent directions)", "zero"))


@rule
def near_zero(results: Results, label: str, than: str, share: float = 0.1) -> Iterator[Finding]:
    """Find whether the pursuers' mean return stays below a share of another method's peak."""
    limit, most = share * peak(results, than)[1].mean(), peak(results, label)[1].mean()
    text = f"{label} is at most {most:.1f}, {share:.0%} of {than}'s peak is {limit:.1f}"
    yield Finding(bool(most < limit), text)


@rule
def closer(results: Results, one: str, near: str, far: str) -> Iterator[Finding]:
    """Find whether what a method gains as pursuers and as evaders is less against `near` than against `far`."""

    def gain(other: str) -> np.ndarray:
        meetings = (f"{one} against {other}", f"{other} against {one}")
        sides = [results.values("head-to-head", meeting, "pursuer_return") for meeting in meetings]
        count = min(map(len, sides))
        return sides[0][:count] - sides[1][:count]

    yield compared(gain(far), gain(near), (f"{one}'s gain against {far}", near))


def seconds(results: Results, method: str, agents: int) -> float | None:
    """Return the wall-clock of a training in the run-time study, without compilation."""
    part = results.parts.get("run-time", {}).get(f"{method}-{agents}")
    return None if part is None else part["steps"] / part["steps_per_second"]


@rule
def ratio(results: Results, agents: int, method: str, to: str, low: float, high: float) -> Iterator[Finding]:
    """Find whether a method's training takes between `low` and `high` times that of another."""
    one, other = seconds(results, method, agents), seconds(results, to, agents)
    if one is None or other is None:
        raise NotRun(f"{method if one is None else to} with {agents} agents")
    text = f"{agents} agents: {method} {one:.1f} s, {to} {other:.1f} s, ratio {one / other:.2f}"
    theirs = [paper.RUN_TIME.get(name.removesuffix("-equal"), {}).get(agents) for name in (method, to)]
    printed = f"ratio {theirs[0] / theirs[1]:.2f}" if theirs[0] and theirs[1] else ""
    yield Finding(low <= one / other <= high, text, (), None, printed)


def losses(results: Results, label: str) -> list[float]:
    """Return how much worse returns are on the right and anywhere than on the left, as shares of the latter."""
    left, *others = (results.values("ood", label, "return_2c", **side) for side in SIDES)
    if not all(map(len, (left, *others))):
        raise NotRun(label)
    return [float((left.mean() - other.mean()) / abs(left.mean())) for other in others]


@rule
def steady(results: Results, label: str, most: float = 0.25) -> Iterator[Finding]:
    """Find whether returns on the right and anywhere are no more than a share worse than on the left."""
    loss = max(losses(results, label))
    yield Finding(loss <= most, f"{label} loses at most {max(loss, 0):.0%}")


@rule
def degrades(results: Results, label: str, least: float = 0.25) -> Iterator[Finding]:
    """Find whether returns on the right and anywhere are both more than a share worse than on the left."""
    right, anywhere = losses(results, label)
    yield Finding(min(right, anywhere) > least, f"{label} loses {right:.0%} on the right, {anywhere:.0%} anywhere")


@rule
def exact(results: Results, tolerance: float = 1e-3) -> Iterator[Finding]:
    """Find whether the actions of nine in ten scenes follow every symmetry to rounding."""
    if not (parts := results.study("equivariance")):
        raise NotRun("lego")
    for name, error in parts[0]["errors"].items():
        yield Finding(error["quantile"] < tolerance, f"{name}: 90 % below {error['quantile']:.1e}")


@rule
def after_failure(
    results: Results, one: str, other: str | None, figure: str = "survivors_captures"
) -> Iterator[Finding]:
    """Find whether a figure after one kind of failure is above that after another (None: above 0), over policies.

    One policy decides nothing: its figures, with errors over episodes, stand as evidence alone.
    """
    rows = {row["failure"]: row for part in results.labelled("agent-failure", "lego") for row in part["rows"]}
    kinds = [rows[kind] for kind in (one, other) if kind in rows and figure in rows[kind]]
    for row in kinds:
        error = 1.96 * row[f"{figure}_se"]
        yield Finding(None, f"one policy, {figure}, {row['failure']}: {row[figure]:.2f} +- {error:.2f} over episodes")
    first = results.values("agent-failure", SEVERAL, figure, failure=one)
    second = results.values("agent-failure", SEVERAL, figure, failure=other) if other else np.zeros(2)
    found = compared(first, second, (f"{SEVERAL} ({figure}, {one})", other or "zero"))
    yield found if len(first) and len(second) else dataclasses.replace(found, missing=("agent-failure/lego-seeds",))


@rule
def refused(results: Results, methods: Sequence[str]) -> Iterator[Finding]:
    """Find whether every policy of a method was evaluated at the size it was trained for alone, and refuses others."""
    for method in methods:
        parts = [part for part in results.study("generalization") if part["label"] == method]
        if not parts:
            raise NotRun(method)
        pairs = [(part["content"]["policies"][0]["task"]["agents"], row) for part in parts for row in part["rows"]]
        if elsewhere := sorted({row["agents"] for trained, row in pairs if row["agents"] != trained}):
            yield Finding(False, f"{method} was evaluated at {elsewhere[0]} agents, another size than it trained for")
            continue
        trained, other = (Layout(("agent", "landmark"), (count, count)) for count in (4, 3))
        try:
            check_team(POLICIES[method], trained, other)
            yield Finding(False, f"{method} acts for another team")
        except ValueError as error:
            yield Finding(True, str(error))


def both(*rules: Rule) -> Rule:
    """Return all findings of several rules."""
    return lambda results: [finding for rule in rules for finding in rule(results)]


@rule
def ahead(
    results: Results, study: str, label: str, figure: str, table: dict[Any, paper.Cell], column: str
) -> Iterator[Finding]:
    """Find whether the mean is above the paper's in every column."""
    for place, (mean, _) in table.items():
        at = f"{column} {place}"
        values = results.values(study, label, figure, **{column: place})
        if len(values):
            yield Finding(
                bool(values.mean() > mean), f"{at}: {values.mean():.1f}, the paper {mean}", (), None, str(mean)
            )
        else:
            yield Finding(None, "", (at,))
