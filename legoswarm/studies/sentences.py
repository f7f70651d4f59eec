"""Sentences about the studies' tables: every figure in them, and who is ahead of whom, follows from the results.

"Ahead" and "behind" are decided by Welch's test at 1 %, for each pair of cells alone, so that the same two cells are
spoken of alike everywhere; else two means are "not clearly apart". What was not run is not spoken of.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from legoswarm.evaluate.statistics import deviation, welch
from legoswarm.studies import paper
from legoswarm.studies.claims import CLAIMS, FAILS, HOLDS, OPEN, judge
from legoswarm.studies.results import Results
from legoswarm.studies.rules import NotRun, losses, seconds
from legoswarm.studies.tables import (
    ANY,
    EACH,
    FIGURE,
    FOUR,
    JOINT,
    LATER,
    MASAC,
    OWN,
    PAIRS,
    PAPERS,
    PUBLISHED,
    SCRATCH,
    TABLES,
)

LEGO = "LEGO-MAPPO"
EARLY = " after 1e6 steps" + PAIRS
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
STRICT = 0.01  # a sentence names many comparisons and corrects for none
STANDINGS = ("ahead of", "not clearly apart from", "behind")


def listed(words: Iterable[Any]) -> str:
    """Return "a, b and c"."""
    *most, last = map(str, words)
    return f"{', '.join(most)} and {last}" if most else last


def stands(one: np.ndarray, other: np.ndarray) -> str | None:
    """Say how one mean over seeds stands to another; None where one of them has fewer than two."""
    chance = welch(one, other)
    if chance is None or chance >= STRICT:
        return None if chance is None else "not clearly apart from"
    return "ahead of" if one.mean() > other.mean() else "behind"


def standing(results: Results, name: str, one: str, other: str) -> dict[Any, str]:
    """Say for each column of a table how one row stands to another."""
    table = TABLES[name]
    rows = table.values(results, table.row(one)), table.values(results, table.row(other))
    found = {column: stands(*cells) for column, *cells in zip(table.columns, *rows, strict=True)}
    return {column: word for column, word in found.items() if word}


def against(results: Results, name: str, one: str, *others: str) -> str:
    """Say where in a table one row is ahead of others and where it is not; others alike share a sentence."""
    groups: dict[tuple[tuple[Any, str], ...], list[str]] = {}
    for other in others:
        groups.setdefault(tuple(standing(results, name, one, other).items()), []).append(other)
    said = []
    for found, rows in groups.items():
        parts, called = [], _called(rows)
        for word in dict.fromkeys(word for _, word in found):
            columns = listed(paper.named(str(column)) for column, own in found if own == word)
            parts.append(f"{word} {called} {TABLES[name].spoken.format(columns)}".strip())
            called = "it" if len(rows) == 1 else "them"
        said += [f"{one}{',' * (',' in one)} is {listed(parts)}."] if parts else []
    return " ".join(said)


def _called(rows: Sequence[str]) -> str:
    """Return rows in a sentence; what all of them have after a comma is said once."""
    heads, tails = zip(*(row.partition(",")[::2] for row in rows), strict=True)
    if not any(tails):
        return listed(rows)
    return f"{listed(heads)},{tails[0]}," if len(set(tails)) == 1 else f"{listed(rows)},"


def among(results: Results, name: str, column: Any, one: str, *others: str) -> str:
    """Say, for one column of a table, which rows another row is ahead of, not clearly apart from, and behind."""
    found = {other: standing(results, name, one, other).get(column) for other in others}
    words = [word for word in STANDINGS if word in found.values()]
    parts = [f"{word} {listed(other for other in others if found[other] == word)}" for word in words]
    place = TABLES[name].spoken.format(paper.named(str(column)))
    return f"{one} is {listed(parts)} {place}." if parts else ""


def mean(results: Results, name: str, row: str, column: Any) -> str:
    """Return a cell of a table, and raise `NotRun` where it is empty."""
    values = TABLES[name].at(results, TABLES[name].row(row), column)
    if not len(values):
        raise NotRun(row)
    return f"{values.mean():.1f}"


def failed_seed(results: Results) -> str:
    """Name the worst seed of LEGO as published if it is five deviations of the others below their mean."""
    table = TABLES["generalization"]
    row = table.row(LEGO + PUBLISHED)
    values = table.at(results, row, 4)
    if len(values) < 3:
        return ""
    worst, rest = int(values.argmin()), np.delete(values, values.argmin())
    seed = results.labelled(*row.place(4))[0]["seeds"][worst]
    figures = (
        f"{values[worst]:.1f} with four agents, where the other {NUMBERS[len(rest)]} have {rest.mean():.1f} on average"
    )
    if values[worst] < rest.mean() - 5 * deviation(rest):
        return f"One seed of LEGO as published failed: seed {seed} has {figures}. The table's mean counts it."
    return f"No seed of LEGO as published failed: the worst, seed {seed}, has {figures}."


def lost(results: Results, labels: Mapping[str, str]) -> str:
    """Say what share of the return methods lose on the right and everywhere, against the left."""

    def share(loss: float) -> str:
        return f"{'loses' if round(loss, 2) >= 0 else 'gains'} {abs(loss):.0%}".replace("%", " %")

    parts = [
        f"{name} {share(right)} on the right and {share(anywhere)} everywhere"
        for label, name in labels.items()
        for right, anywhere in [losses(results, label)]
    ]
    return f"Against starts on the left {'; '.join(parts)}."


def evaders(results: Results) -> str:
    """Say whose evaders MAPPO's pursuers earn more against, and how far apart evaders keep."""
    table, said = TABLES["head-to-head"], []
    row = table.row("MAPPO" + OWN)
    chases = [table.at(results, row, column) for column in ("lego", "mappo")]
    more = {"ahead of": "more", "not clearly apart from": "about as much", "behind": "less"}
    if word := stands(*chases):
        said.append(f"MAPPO's pursuers earn {more[word]} against LEGO's evaders {_than(word)} against their own.")
    apart = {"ahead of": "farther apart", "not clearly apart from": "about as far apart", "behind": "closer together"}
    for pursuers in ("lego", "mappo"):
        gaps = [results.values("head-to-head", f"{pursuers} against {m}", "evader_gap") for m in ("lego", "mappo")]
        if word := stands(*gaps):
            said.append(
                f"Chased by {paper.named(pursuers)}'s pursuers, LEGO's evaders keep {apart[word]} {_than(word)}"
                f" MAPPO's: they are {gaps[0].mean():.2f} from each other on average, and MAPPO's {gaps[1].mean():.2f}."
            )
    return " ".join(said)


def _than(word: str) -> str:
    return "as" if word == "not clearly apart from" else "than"


def ratios(results: Results) -> str:
    """Say how much longer one method takes than another, and how many epochs and how wide networks each has."""
    said = []
    for one, other in (("lego", "mappo"), ("lego", "pic"), ("segnn", "lego")):
        times = [(seconds(results, one, n), seconds(results, other, n)) for n in (3, 6)]
        shares = [f"{a / b:.1f}" for a, b in times if a and b]
        if len(shares) == 2:
            names = f"{paper.named(one)} takes {shares[0]} times as long as {paper.named(other)}"
            said.append(f"{names} with three agents and {shares[1]} times with six.")
    work = []
    for method in ("lego", "segnn", "mappo", "pic"):
        for part in results.labelled("run-time", method)[:1]:
            content = part["content"]["policies"][0]
            work.append((paper.named(method), content["algorithm"]["epochs"], content["policy"]["width"]))
    if len({epochs for _, epochs, _ in work}) > 1:
        each = listed(f"{name} {epochs} and {width}" for name, epochs, width in work)
        said.append(f"These are not ratios of equal work. Epochs over each batch and widths are: {each}.")
    return " ".join(said)


def scoreboard(results: Results) -> str:
    """Count the claims that hold, that do not, and that are not decided."""
    verdicts = [verdict for verdict, _ in judge(CLAIMS, results)]
    holds, fails, undecided = map(verdicts.count, (HOLDS, FAILS, OPEN))
    return f"Of {len(CLAIMS)} claims of the paper {holds} hold here, {fails} do not and {undecided} are not decided."


def pair_critics(results: Results) -> str:
    """Say which baselines gain by the pair critic."""
    methods = ("SEGNN", "MAPPO-GNN", "MAPPO-local", "MAPPO")
    return " ".join(against(results, "trained", method + PAIRS, method + OWN) for method in methods)


Paragraphs = Callable[[Results], Sequence[str]]
STARTS = {"lego": "LEGO", "segnn": "SEGNN", "mappo-local": "MAPPO-local", "mappo": "MAPPO"}
SIDES_TOO = {f"{label}, landmarks too": name for label, name in STARTS.items() if label != "segnn"}
SAID: dict[str, Paragraphs] = {  # below the table of the name
    "generalization": lambda results: [
        against(results, "generalization", LEGO + PAIRS, "MAPPO" + OWN + EACH, "PIC" + OWN + EACH),
        failed_seed(results),
        against(results, "generalization", "SEGNN" + OWN, LEGO + PAIRS, LEGO + PAPERS, LEGO + PUBLISHED),
    ],
    "trained": lambda results: [
        against(results, "trained", "SEGNN" + OWN, LEGO + PAIRS, LEGO + PAPERS, LEGO + PUBLISHED),
        pair_critics(results) + " PIC is defined by its critic and has no other.",
        against(results, "trained", "MAPPO-GNN" + OWN, "MAPPO-local" + OWN),
        among(results, "trained", 6, "PIC" + OWN, *(m + OWN for m in ("SEGNN", "MAPPO-GNN", "MAPPO-local", "MAPPO"))),
    ],
    "algorithms": lambda results: [
        among(results, "algorithms", 3, "LEGO-MASAC" + JOINT, LEGO + PAIRS, "MAPPO-MASAC" + JOINT),
        among(results, "algorithms", 3, "MAPPO-MASAC" + JOINT, LEGO + PAIRS, "MAPPO" + OWN),
    ],
    "algorithms-sizes": lambda results: [
        against(results, "algorithms-sizes", MASAC + ANY, MASAC + FOUR),
        against(results, "algorithms-sizes", MASAC + FOUR, LEGO + PAIRS + FOUR),
    ],
    "curriculum": lambda results: [
        against(results, "curriculum", LEGO + PAIRS + LATER, LEGO + PAIRS + SCRATCH, LEGO + PAIRS + FOUR),
        against(results, "curriculum", LEGO + PAIRS + ANY, LEGO + PAIRS + LATER),
        against(results, "curriculum", "SEGNN" + OWN + LATER, LEGO + PAIRS + LATER),
    ],
    "ood": lambda results: [lost(results, STARTS)],
    "ood-landmarks": lambda results: [lost(results, SIDES_TOO)],
    "head-to-head": lambda results: [
        among(results, "head-to-head", "mappo", "MAPPO" + OWN, *(LEGO + x for x in (PAIRS, PAPERS, EARLY))),
        evaders(results),
    ],
    "run-time": lambda results: [ratios(results)],
}  # fmt: skip


def paragraphs(results: Results, name: str) -> list[str]:
    """Return what is said below a table; nothing where it was not run."""
    try:
        return [text.strip() for text in SAID[name](results) if text.strip()] if name in SAID else []
    except NotRun:
        return []


def findings(results: Results) -> str:
    """Return README's five findings, a line each; one whose studies were not run is left out."""

    def sizes() -> str:
        found = [results.values("references", x, FIGURE, agents=n) for x in ("spread", "hungarian") for n in (2, 8)]
        if not all(map(len, found)):
            raise NotRun("references")
        zoo, zoo_eight, central, central_eight = (f"{values.mean():.1f}" for values in found)
        return (
            f"`zoo:spread` trained with four agents and steers two to eight with returns of {zoo} to {zoo_eight}; a"
            f" central Hungarian controller, which sees everything and was tuned, has {central} to {central_eight}."
        )

    def critics() -> str:
        said = against(results, "trained", "SEGNN" + OWN, LEGO + PAPERS)
        three, four = ([mean(results, "trained", row, n) for row in ("SEGNN" + OWN, LEGO + PAPERS)] for n in (3, 4))
        both = f"{three[0]} against {three[1]} with three, {four[0]} against {four[1]} with four"
        return f"Trained for the team that it flies with, {said[:-1]}: {both}."

    def algorithms() -> str:
        rows = (LEGO + PAIRS, "LEGO-MASAC" + JOINT, "MAPPO" + OWN, "MAPPO-MASAC" + JOINT)
        lego, better, mlp, other = (mean(results, "algorithms", row, 3) for row in rows)
        return (
            f"With MASAC instead of MAPPO, trained with three agents, LEGO goes from {lego} to {better} and MAPPO's MLP"
            f" from {mlp} to {other}."
        )

    lines = []
    for find in (sizes, lambda: SAID["generalization"](results)[0], critics, algorithms, lambda: scoreboard(results)):
        with contextlib.suppress(NotRun):
            lines += [f"- {text}" for text in [find()] if text]
    return "\n".join(lines)
