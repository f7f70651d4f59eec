"""The studies' tables in Markdown, for the README and docs/results.md: made from the results alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from legoswarm.evaluate.statistics import mean_interval
from legoswarm.files import FileError, write_bytes
from legoswarm.studies import paper
from legoswarm.studies.claims import CLAIMS, FAILS, HOLDS, OPEN, judge
from legoswarm.studies.results import Results
from legoswarm.studies.rules import seconds

FIGURE = "return_2c"
MARK = "<!-- legoswarm report: {} -->"
BEGIN, END = MARK.format("begin"), MARK.format("end")  # the place of README's table; others say: begin NAME
PLACE = re.compile(MARK.format("begin ?([a-z-]*)") + ".*?" + END, re.DOTALL)
JOINT = " (critics of joint actions)"
PAIRS, OWN, PAPERS, PUBLISHED = " (pair critic)", " (own critic)", " (paper's critic)", " (as published)"
EACH, SCRATCH, FOUR, LATER = ", trained for each size", ", from scratch", ", trained with four", ", curriculum"


ABOUT = {
    FIGURE: "Return, closer to zero is better. The best of each column is in bold.",
    "pursuer_return": "A pursuer's return.",
    "covered": "Share of landmarks that have an agent within 0.1 after 50 steps.",
    "touches": "How often an agent touches another in 50 steps.",
    "safe": "Share of agents that touch nobody and nothing in 256 steps.",
    "success": "Share of agents that do so and reach their goals.",
}
DIGITS = {FIGURE: 1, "pursuer_return": 0}


class Row(NamedTuple):
    """Names a method and the critic it has, and holds the paper's numbers, if there are any, column by column.

    A `{}` in the study or in the label stands for the column.
    """

    name: str
    study: str
    label: str
    printed: Mapping[Any, paper.Cell] = {}
    where: Mapping[str, Any] = {}  # other fields of the results


class Table(NamedTuple):
    """Says which methods stand in rows; columns are the values of a field of the results, if there is one."""

    title: str
    columns: Sequence[Any]
    rows: Sequence[Row]
    field: str = "agents"
    head: str = "{} agents"
    figure: str = FIGURE
    intervals: bool = False

    @property
    def heads(self) -> list[str]:
        """Return the names of the columns."""
        return [self.head.format(paper.named(str(column))) for column in self.columns]

    def values(self, results: Results, row: Row) -> list[np.ndarray]:
        """Return a row's figures, one value for each seed, column by column."""
        places = [(column, {self.field: column} if self.field else {}) for column in self.columns]
        names = [(row.study.format(column), row.label.format(column)) for column, _ in places]
        return [
            results.values(*name, self.figure, **at, **row.where) for name, (_, at) in zip(names, places, strict=True)
        ]


def _rows(study: str, labels: Mapping[str, str], printed: Mapping[str, Mapping[Any, paper.Cell]] = {}) -> list[Row]:
    """Return a row for each label, with what its method's name is followed by."""
    names = {label: re.sub("(-scl|-curr|,.*| against.*)$", "", label) for label in labels}
    return [Row(paper.named(names[x]) + what, study, x, printed.get(x, {})) for x, what in labels.items()]


BASELINES = ("segnn", "mappo-gnn", "mappo-local", "pic", "mappo")
TABLES = {
    "generalization": Table("trained with four agents", (2, 3, 4, 5, 6), [
        Row("LEGO-MASAC, joint encoder" + JOINT, "algorithms", "lego with masac, joint encoder, trained with 4"),
        *_rows("generalization", {"lego": PAIRS}),
        *_rows("beyond", {"lego, paper's critic, trained with 4": PAPERS}),
        Row("LEGO-MAPPO" + PUBLISHED, "beyond", "lego, paper's critic, rest global, no leash",
            paper.GENERALIZATION["lego"]),
        *_rows("generalization", {"segnn": OWN, "pic": OWN + EACH, "mappo": OWN + EACH}, paper.GENERALIZATION),
    ]),
    "trained": Table("trained and evaluated with as many agents", (3, 6), [
        *_rows("spread-{}", {"lego": PAIRS}),
        *_rows("beyond", {"lego, paper's critic, trained with {}": PAPERS}),
        *_rows("spread-{}", dict.fromkeys(BASELINES, OWN)),
        *_rows("beyond", {f"{method}, critic of pairs": PAIRS for method in BASELINES if method != "pic"}),
    ], intervals=True),
    "algorithms": Table("trained and evaluated with as many agents", (3,), [
        *_rows("spread-{}", {"lego": PAIRS}),
        *_rows("algorithms", {"lego with masac": JOINT}),
        *_rows("spread-{}", {"mappo": OWN}),
        *_rows("algorithms", {"mappo with masac": JOINT}),
    ], intervals=True),
    "algorithms-sizes": Table("trained with four agents", (2, 3, 4, 5, 6, 7, 8), [
        *_rows("algorithms", {"lego with masac, joint encoder, trained with 4": JOINT + ", joint encoder"}),
        *_rows("beyond", {"lego, trained with 4": PAIRS}),
    ], head="{}"),
    "ood": Table("trained with agents starting on the left", ("left", "right", "uniform"),
        _rows("ood", {"lego": PAIRS, "segnn": OWN, "mappo-local": OWN, "mappo": OWN}, paper.OOD), "start", "{}"),
    "ood-landmarks": Table("trained with agents and landmarks on the left", ("left", "right", "uniform"),
        _rows("ood", {f"{m}, landmarks too": PAIRS if m == "lego" else OWN for m in ("lego", "mappo-local", "mappo")}),
        "start", "{}"),
    "curriculum": Table("larger teams", (6, 7, 8), [
        *_rows("curriculum", {"lego": PAIRS + SCRATCH, "lego-scl": PAIRS + FOUR, "lego-curr": PAIRS + LATER},
               paper.CURRICULUM),
        *_rows("beyond", {"lego, 2 to 8 agents mixed": PAIRS + ", trained with two to eight"}),
        *_rows("curriculum", {"segnn-scl": OWN + FOUR, "segnn-curr": OWN + LATER, "mappo": OWN + SCRATCH},
               paper.CURRICULUM),
    ]),
    "sizes": Table("one policy for every size", (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32), _rows("beyond", {
        "lego, 2 to 8 agents mixed": PAIRS + ", trained with two to eight, 5e6 steps",
        "lego, trained with 4": PAIRS + ", trained with four, 2e6 steps"}), head="{}"),
    **{f"swarm-{figure}": Table("trained with four to sixteen agents", (8, 64, 256, 1024), [
        Row("LEGO-MASAC, sees within 1.2", "swarm", "lego at constant density"),
        Row("Hungarian controller, sees everything", "swarm", "hungarian, sees everything"),
    ], head="{}", figure=figure) for figure in ("covered", "touches")},
    **{f"navigation-{figure}": Table("trained with eight agents", (8, 32, 128, 512, 1024), [
        Row(f"LEGO-MASAC, {arena}", "navigation", "lego", where={"arena": arena})
        for arena in ("free", "with obstacles", "dense")
    ], head="{}", figure=figure) for figure in ("safe", "success")},
    "tag": Table("three pursuers of a method against two evaders of the same", (3,), [
        *_rows("tag", {"lego": PAIRS, "lego after 1e6 steps": PAIRS} | dict.fromkeys(BASELINES, OWN))],
        "pursuers", "return", "pursuer_return", intervals=True),
    "head-to-head": Table("pursuers in rows, evaders in columns", ("lego", "mappo", "pic"), [
        *_rows("head-to-head", {"lego against {}": PAIRS, "lego after 1e6 steps against {}": PAIRS,
                                "lego, paper's critic, against {}": PAPERS,
                                "mappo against {}": OWN, "pic against {}": OWN})],
        "", "{}", "pursuer_return", intervals=True),
}  # fmt: skip


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
        begin = MARK.format(f"begin {place[1]}".rstrip())
        return f"{begin}\n{MADE[place[1] or 'generalization'](results)}\n{END}"

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
        facts.append("Brackets hold the paper's mean.")
    parts = [results.labelled(row.study.format(c), row.label.format(c)) for row in table.rows for c in table.columns]
    smaller = {part["scale"] for group in parts for part in group} - {"full"}
    return " ".join([*facts, *(f"This is scale {scale}: a look, not a result." for scale in sorted(smaller))])


def _bracket(table: Table, row: Row, values: np.ndarray, column: Any) -> str:
    """Return what stands beside a mean: the paper's, or the 95 % interval over seeds."""
    if column in row.printed:
        return f" ({row.printed[column][0]:.1f})"
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
    """Return the paper's claims and what the results say of each."""
    found = [(claim, verdict) for claim, (verdict, _) in zip(CLAIMS, judge(CLAIMS, results), strict=True)]
    holds, fails, undecided = (sum(one == verdict for _, one in found) for verdict in (HOLDS, FAILS, OPEN))
    rows = [[claim.text, f"**{verdict}**" if verdict == FAILS else verdict, claim.study] for claim, verdict in found]
    facts = f"Of {len(found)} claims {holds} hold, {fails} do not hold and {undecided} are not decided."
    return f"{facts}\n\n{_lines([['claim of the paper', 'here', 'study'], *rows])}"


MADE: dict[str, Callable[[Results], str]] = {
    **{name: partial(methods, table=table) for name, table in TABLES.items()},
    "run-time": times,
    "claims": claims,
}
