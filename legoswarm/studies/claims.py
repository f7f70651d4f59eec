"""The claims of the paper's text, each with a rule that decides it from the results.

A comparison is decided when the 95 % intervals of two means over seeds are disjoint. A claim holds if all its
comparisons say so, and does not hold if one of them says the opposite; else it is not decided.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from legoswarm.evaluate.statistics import area_under_curve, mean_interval
from legoswarm.policies.policy import check_team
from legoswarm.scene import Layout
from legoswarm.studies import paper
from legoswarm.studies.results import Results

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
BASELINES = ("mappo", "mappo-local", "mappo-gnn", "pic", "segnn")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One comparison: what it says of the claim (None: not clear, or not run), and the figures."""

    agrees: bool | None
    evidence: str


Rule = Callable[[Results], Sequence[Finding]]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of the paper and how it is decided."""

    study: str
    text: str
    rule: Rule


def decide(claim: Claim, results: Results) -> tuple[str, str]:
    """The verdict and its evidence; studies at a smaller scale than `full` decide nothing."""
    findings = claim.rule(results)
    agree = [finding.agrees for finding in findings]
    evidence = "; ".join(finding.evidence for finding in findings)
    if smaller := sorted({part["scale"] for part in results.study(claim.study)} - {"full"}):
        return OPEN, f"scale {', '.join(smaller)}: too little to decide; {evidence}"
    return FAILS if False in agree else HOLDS if agree and all(agree) else OPEN, evidence


def compared(above: np.ndarray, below: np.ndarray, names: tuple[str, str]) -> Finding:
    """Whether one mean over seeds is above another."""
    if not len(above) or not len(below):
        missing = " and ".join(name for name, values in zip(names, (above, below), strict=True) if not len(values))
        return Finding(None, f"{missing}: not run yet")
    (low, high), (low_below, high_below) = mean_interval(above), mean_interval(below)
    text = f"{names[0]} {_words(above)} against {names[1]} {_words(below)}"
    return Finding(True if low > high_below else False if high < low_below else None, text)


def _words(values: np.ndarray) -> str:
    low, high = mean_interval(values)
    return f"{values.mean():.1f} [{low:.1f}, {high:.1f}]" if len(values) > 1 else f"{values.mean():.1f} (one seed)"


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
            return [Finding(None, f"{label}: not run yet")]
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
            return [Finding(None, f"{label if one is None else than}: not run yet")]
        return [Finding(one[0] > other[0], f"{label} peaks at {one[0]:.2g} steps, {than} at {other[0]:.2g}")]

    return rule


def near_zero(labels: Sequence[str], than: str, share: float = 0.1) -> Rule:
    """The pursuers' return ends below a share of another method's peak."""

    def rule(results: Results) -> list[Finding]:
        top = peak(results, than)
        findings = []
        for label in labels:
            end = results.values("tag", label, "pursuer_return")
            limit = None if top is None else share * top[1].mean()
            known = limit is not None and len(end)
            agrees = bool(end.mean() < limit) if known else None
            text = f"{label} {end.mean():.1f}, {share:.0%} of {than}'s peak is {limit:.1f}" if known else ""
            findings.append(Finding(agrees, text or f"{label}: not run yet"))
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
                findings.append(Finding(None, f"{method} or {to}, {agents} agents: not run yet"))
                continue
            text = f"{agents} agents: {method} {one:.0f} s, {to} {other:.0f} s, ratio {one / other:.2f}"
            findings.append(Finding(low <= one / other <= high, text))
        return findings

    return rule


def steady(labels: Sequence[str], most: float = 0.25) -> Rule:
    """Returns on the right and anywhere are no more than a share worse than on the left."""

    def rule(results: Results) -> list[Finding]:
        findings = []
        for label in labels:
            left, *others = (results.values("ood", label, "return_2c", **side) for side in SIDES)
            if not all(map(len, (left, *others))):
                findings.append(Finding(None, f"{label}: not run yet"))
                continue
            loss = max(float((left.mean() - other.mean()) / abs(left.mean())) for other in others)
            findings.append(Finding(loss <= most, f"{label} loses at most {max(loss, 0):.0%}"))
        return findings

    return rule


def exact(tolerance: float = 1e-2) -> Rule:
    """The actions of nine in ten scenes follow every symmetry to rounding."""

    def rule(results: Results) -> list[Finding]:
        errors = [part["errors"] for part in results.study("equivariance")]
        table = errors[0] if errors else {}
        return [
            Finding(e["quantile"] < tolerance, f"{name}: 90 % below {e['quantile']:.1e}") for name, e in table.items()
        ] or [Finding(None, "not run yet")]

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
            return [Finding(None, "not run yet")]
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
                check_team(method, Layout(("agent", "landmark"), (4, 4)), Layout(("agent", "landmark"), (3, 3)))
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
            values = results.values(study, label, figure, **{column: place})
            text = f"{column} {place}: {values.mean():.1f}, the paper {mean}" if len(values) else "not run yet"
            findings.append(Finding(bool(values.mean() > mean) if len(values) else None, text))
        return findings

    return rule


AT = {n: {"agents": n} for n in range(2, 9)}
LARGE = [AT[n] for n in (6, 7, 8)]
SIDES = [{"start": side} for side in ("left", "right", "uniform")]
LEARNED = ("mappo", "mappo-local", "mappo-gnn", "pic")

CLAIMS = (
    Claim("equivariance", "The policy is equivariant to E(2) and to permutations within a role.", exact()),
    Claim("spread-3", "Three agents: LEGO-MAPPO and SEGNN converge most rapidly.",
          faster("spread-3", ("lego", "segnn"), LEARNED)),
    Claim("spread-3", "Three agents: LEGO-MAPPO achieves the highest final reward.",
          above("spread-3", "lego", BASELINES)),
    Claim("spread-3", "MAPPO-local improves over vanilla MAPPO.", above("spread-3", "mappo-local", ("mappo",))),
    Claim("spread-3", "MAPPO-GNN performs poorly: graphs alone do not give what canonicalization gives.",
          above("spread-3", "mappo-local", ("mappo-gnn",))),
    Claim("spread-6", "Six agents: LEGO-MAPPO converges faster than all baselines.",
          faster("spread-6", ("lego",), BASELINES)),
    Claim("spread-6", "Six agents: LEGO-MAPPO reaches higher reward than all baselines.",
          above("spread-6", "lego", BASELINES)),
    Claim("spread-6", "Six agents: PIC is the strongest competitor.",
          above("spread-6", "pic", ("mappo", "mappo-local", "mappo-gnn", "segnn"))),
    Claim("spread-6", "Neither canonicalization nor graphs alone match the two together.",
          both(*(above(study, "lego", ("mappo-local", "mappo-gnn")) for study in ("spread-3", "spread-6")))),
    Claim("tag", "LEGO-MAPPO's reward in Tag peaks near 1e6 interactions and then decreases.",
          rises_and_falls("lego", 0.5e6, 2e6)),
    Claim("tag", "SEGNN follows a similar trend but reaches lower rewards.",
          both(rises_and_falls("segnn", 0.0, 4e6), peaks_compare("lego", "segnn"))),
    Claim("tag", "PIC improves more gradually.", later("pic", "lego")),
    Claim("tag", "The remaining baselines stay near zero.", near_zero(("mappo", "mappo-local", "mappo-gnn"), "lego")),
    Claim("tag", "At 1e6 interactions LEGO's pursuers form a barrier; by 5e6 the evaders use the obstacles.", pictures),
    Claim("tag", "MAPPO shows no comparable coordination after 5e6 interactions.", pictures),
    Claim("head-to-head", "LEGO-MAPPO pursuers attain higher reward against MAPPO evaders than MAPPO's own.",
          above("head-to-head", "lego against mappo", ("mappo against mappo",), "pursuer_return")),
    Claim("head-to-head", "MAPPO pursuers receive lower reward against LEGO-MAPPO evaders than against MAPPO's.",
          above("head-to-head", "mappo against mappo", ("mappo against lego",), "pursuer_return")),
    Claim("head-to-head", "Matches with PIC are closer than those with MAPPO.", closer("lego", "pic", "mappo")),
    Claim("head-to-head", "MAPPO evaders move together; LEGO-MAPPO evaders separate.", pictures),
    Claim("run-time", "LEGO-MAPPO needs moderately more time than MAPPO (here: 1 to 2 times).",
          ratio("lego", "mappo", 1.0, 2.0)),
    Claim("run-time", "LEGO-MAPPO's time is on the scale of PIC's (here: at most twice).",
          ratio("lego", "pic", 0.0, 2.0)),
    Claim("run-time", "SEGNN is substantially more expensive (here: at least ten times).",
          ratio("segnn", "lego", 10.0, float("inf"))),
    Claim("generalization", "At 3, 5 and 6 agents the four-agent LEGO outperforms MAPPO and PIC trained for them.",
          above("generalization", "lego", ("mappo", "pic"), where=[AT[n] for n in (3, 5, 6)])),
    Claim("generalization", "At 2 agents MAPPO and PIC trained for it are ahead (the table).",
          both(*(above("generalization", m, ("lego",), where=[AT[2]]) for m in ("mappo", "pic")))),
    Claim("generalization", "MAPPO and PIC cannot be evaluated at another team size.", refused(("mappo", "pic"))),
    Claim("generalization", "The four-agent SEGNN degrades: below MAPPO trained for the size, at 2, 3, 5 and 6 agents.",
          above("generalization", "mappo", ("segnn",), where=[AT[n] for n in (2, 3, 5, 6)])),
    Claim("curriculum", "The curriculum gives the highest reward at 6, 7 and 8 agents.",
          above("curriculum", "lego-curr", ("lego-scl", "lego", "mappo", "segnn-scl"), where=LARGE)),
    Claim("curriculum", "The four-agent policy as it is outperforms training from scratch.",
          above("curriculum", "lego-scl", ("lego",), where=LARGE)),
    Claim("curriculum", "The curriculum improves SEGNN at six agents.",
          above("curriculum", "segnn-curr", ("segnn-scl",), where=[AT[6]])),
    Claim("ood", "LEGO-MAPPO, MAPPO-local and SEGNN do similarly on all starts (here: a loss of at most 25 %).",
          steady(("lego", "mappo-local", "segnn"))),
    Claim("ood", "MAPPO degrades substantially on the right and anywhere (here: more than 25 %).",
          lambda results: [dataclasses.replace(f, agrees=None if f.agrees is None else not f.agrees)
                           for f in steady(("mappo",))(results)]),
    Claim("ood", "LEGO-MAPPO achieves the highest reward for each start.",
          above("ood", "lego", ("mappo-local", "mappo", "segnn"), where=SIDES)),
    Claim("agent-failure", "The remaining pursuer goes on after the failure.", after_failure("kept", None)),
    Claim("agent-failure", "The stationary pursuer still constrains the evader: more captures than if it were removed.",
          after_failure("kept", "removed")),
)  # fmt: skip

GOALS = (
    Claim("generalization", "LEGO is ahead of the paper's LEGO at every team size (return_2c).",
          ahead("generalization", "lego", "return_2c", paper.GENERALIZATION["lego"], "agents")),
    Claim("ood", "LEGO is ahead of the paper's LEGO for every start (return_2c).",
          ahead("ood", "lego", "return_2c", paper.OOD["lego"], "start")),
    Claim("curriculum", "LEGO with a curriculum is ahead of the paper's (return_1c).",
          ahead("curriculum", "lego-curr", "return_1c", paper.CURRICULUM["lego-curr"], "agents")),
)  # fmt: skip
