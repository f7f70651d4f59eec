"""The studies' tables in Markdown, for the README and docs/results.md: made from the results alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.evaluate.statistics import mean_interval
from legoswarm.files import FileError, write_bytes
from legoswarm.studies import paper
from legoswarm.studies.claims import CLAIMS, FAILS, HOLDS, OPEN, chance_words, find, judge
from legoswarm.studies.results import Results
from legoswarm.studies.rules import Finding, seconds
from legoswarm.studies.sentences import findings, paragraphs, scoreboard
from legoswarm.studies.tables import ABOUT, BASELINES, DIGITS, FIGURE, TABLES, Row, Table

MARK = "<!-- legoswarm report: {} -->"
BEGIN, END = MARK.format("begin"), MARK.format("end")  # the place of README's table; others say: begin NAME
PLACE = re.compile(MARK.format(r"begin ?(\S*)") + ".*?" + END, re.DOTALL)


def write_markdown(results: Results, path: Path) -> None:
    """Fill every place of a file that is marked for a table; a new file gets all of them."""
    text = (
        path.read_text() if path.exists() else "\n\n".join(MARK.format(f"begin {name}") + END for name in MADE) + "\n"
    )
    names = {found[1] for found in PLACE.finditer(text)}
    if not names:
        raise FileError(f"{path} has no place for the tables: put {BEGIN} and {END} there")
    if unknown := sorted(names - {"", *MADE}):
        raise FileError(f"{path} has a place for {unknown[0]!r}; the tables are {', '.join(MADE)}")

    def filled(place: re.Match[str]) -> str:
        made = MADE[place[1]] if place[1] else ALONE["generalization"]
        begin = MARK.format(f"begin {place[1]}".rstrip())
        return f"{begin}\n{made(results)}\n{END}"

    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, PLACE.sub(filled, text).encode())


def methods(results: Results, table: Table) -> str:
    """Return a table of methods and what its numbers are; a dash where nothing was run."""
    spread, digits = table.figure == FIGURE, DIGITS.get(table.figure, 3)
    found = [table.values(results, row) for row in table.rows]
    means = [[f"{values.mean():.{digits}f}" if len(values) else "-" for values in row] for row in found]
    best = [max((text for text in column if text != "-"), key=float, default="") for column in zip(*means, strict=True)]
    lines = [[table.title, "seeds", *table.heads]]
    for row, values, texts in zip(table.rows, found, means, strict=True):
        shown = [f"**{text}**" if spread and text == top else text for text, top in zip(texts, best, strict=True)]
        cells = zip(shown, values, table.columns, strict=True)
        seeds = max(map(len, values))
        lines.append([row.name, str(seeds or "-"), *(x + _bracket(table, row, v, c) for x, v, c in cells)])
    return f"{_facts(results, table)}\n\n{_lines(lines)}"


def _facts(results: Results, table: Table) -> str:
    """Return what the numbers are, in sentences."""
    facts = [ABOUT[table.figure]]
    if table.intervals:
        facts.append("Brackets hold the 95 % interval.")
    elif any(row.printed for row in table.rows):
        facts.append(f"Brackets hold {table.beside}.")
    parts = [results.labelled(*row.place(column)) for row in table.rows for column in table.columns]
    smaller = {part["scale"] for group in parts for part in group} - {"full"}
    return " ".join([*facts, *(f"This is scale {scale}: a look, not a result." for scale in sorted(smaller))])


def _bracket(table: Table, row: Row, values: np.ndarray, column: Any) -> str:
    """Return what stands beside a mean: the paper's, or the 95 % interval over seeds."""
    if column in row.printed:
        return f" ({row.printed[column][0]:.{1 if table.figure == FIGURE else 3}f})"
    if not table.intervals or len(values) < 2:
        return ""
    low, high = (f"{end:.{DIGITS.get(table.figure, 3)}f}" for end in mean_interval(values))
    return f" ({low} to {high})"


def _lines(rows: Sequence[Sequence[str]]) -> str:
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *others))


def times(results: Results) -> str:
    """Return the seconds that training of one seed takes without compilation, beside the paper's."""
    rows = [["2e6 steps of one seed, seconds", "3 agents", "6 agents"]]
    for method in ("lego", *BASELINES):
        found = [(seconds(results, method, n), paper.RUN_TIME.get(method, {}).get(n)) for n in (3, 6)]
        texts = [("-" if ours is None else f"{ours:.1f}") + (f" ({p:,.0f})" if p else "") for ours, p in found]
        rows.append([paper.named(method), *texts])
    return f"Brackets hold the paper's seconds, on an NVIDIA A6000.\n\n{_lines(rows)}"


def claims(results: Results) -> str:
    """Return the paper's claims, what the paper has, what is found here, by which test, and the verdict."""
    rows = [["", "claim", "paper", "here", "test", "verdict"]]
    judged = zip(CLAIMS, find(CLAIMS, results), judge(CLAIMS, results), strict=True)
    for number, (claim, found, (verdict, _)) in enumerate(judged, 1):
        one = deciding(found, verdict)
        test = chance_words(one.chance) or ("our margin" if one.agrees is not None else "none")
        of = f", of {len(found)}" if len(found) > 1 else ""
        here = paper.named(one.evidence) or f"not run yet: {', '.join(one.missing)}"
        mark = f"**{verdict}**" if verdict == FAILS else verdict
        rows.append([str(number), claim.text, one.printed or "in words", here, test + of, mark])
    return f"{scoreboard(results)}\n\n{_lines(rows)}"


def deciding(findings: Sequence[Finding], verdict: str) -> Finding:
    """Return the finding on which a verdict rests: the clearest one against a claim, else the least certain one."""
    said = {FAILS: False, HOLDS: True, OPEN: None}[verdict]
    those = [one for one in findings if one.agrees is said] or list(findings)
    return (min if verdict == FAILS else max)(those, key=lambda one: -1.0 if one.chance is None else one.chance)


def tests(results: Results) -> str:
    """Return every comparison that decides a claim, by the claim's number."""
    rows = [["claim", "study", "comparison", "p"]]
    for number, (claim, found) in enumerate(zip(CLAIMS, find(CLAIMS, results), strict=True), 1):
        for one in found:
            text = one.evidence or f"not run yet: {', '.join(one.missing)}"
            rows.append(
                [str(number), claim.study, text, chance_words(one.chance).removeprefix("p ").removeprefix("= ")]
            )
    return _lines(rows)


def readings(results: Results) -> str:
    """Return what the policies of four agents have by other readings of the return, and without a limit on actions."""
    table = TABLES["generalization"]
    rows = [["trained and evaluated with four agents", "-N D - 2 C", "-N D - C", "-D - C", "-N D - 2 C, no limit"]]
    for row in table.rows:
        place = row.place(4)
        distance, collisions = (results.values(*place, figure, agents=4) for figure in ("distance", "collisions"))
        free = results.values(*place, FIGURE, agents=4, limit="none")
        found = [table.at(results, row, 4), results.values(*place, "return_1c", agents=4), -distance - collisions, free]
        rows.append([row.name, *(f"{values.mean():.1f}" if len(values) else "-" for values in found)])
    return f"Return, closer to zero is better. D and C are defined above.\n\n{_lines(rows)}"


def _said(results: Results, name: str, make: Callable[[Results], str]) -> str:
    """Return a table with what is said of it."""
    return "\n\n".join([make(results), *paragraphs(results, name)])


ALONE: dict[str, Callable[[Results], str]] = {
    **{name: partial(methods, table=table) for name, table in TABLES.items()},
    "run-time": times,
    "readings": readings,
    "claims": claims,
    "tests": tests,
}
MADE: dict[str, Callable[[Results], str]] = {
    **{name: partial(_said, name=name, make=make) for name, make in ALONE.items()},
    "findings": findings,
}
