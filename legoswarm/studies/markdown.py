"""The studies' main tables in Markdown, for a README: beside the paper's where it has numbers, and head to head."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.evaluate.statistics import mean_interval
from legoswarm.files import FileError, write_bytes
from legoswarm.studies import paper
from legoswarm.studies.results import Results

BEGIN, END = "<!-- legoswarm report: begin -->", "<!-- legoswarm report: end -->"
FIGURE = "return_2c"
TABLES: dict[str, tuple[str, str, Mapping[str, Mapping[Any, paper.Cell]]]] = {
    "generalization": ("trained with four agents; MAPPO and PIC for each size", "agents", paper.GENERALIZATION),
    "ood": ("trained with starts on the left", "start", paper.OOD),
    "curriculum": ("larger teams", "agents", paper.CURRICULUM),
}


def write_markdown(results: Results, path: Path) -> None:
    """Write the tables into a file: a new one, or between the two comments that mark their place in one."""
    before, begin, rest = (path.read_text() if path.exists() else f"{BEGIN}{END}\n").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise FileError(f"{path} has no place for the tables: put {BEGIN} and {END} there")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, f"{before}{BEGIN}\n{markdown(results)}\n{END}{after}".encode())


def markdown(results: Results) -> str:
    """A table for each study, and what the numbers are; a dash where nothing was run."""
    parts = [part for study in (*TABLES, "head-to-head") for part in results.study(study)]
    seeds = sorted({len(part["seeds"]) for part in parts if part.get("seeds")})
    scales = sorted({part["scale"] for part in parts} - {"full"})
    facts = [
        f"{FIGURE}, mean over seeds; in brackets the paper's",
        f"seeds: {', '.join(map(str, seeds))}" if seeds else "not run yet",
        *(f"scale {scale}: a look, not a result" for scale in scales),
    ]
    return "\n\n".join([*(_table(results, study) for study in TABLES), "; ".join(facts) + ".", _meetings(results)])


def _table(results: Results, study: str) -> str:
    title, column, table = TABLES[study]
    places = list(next(iter(table.values())))
    head = [f"{place} agents" if column == "agents" else str(place) for place in places]
    rows = [[title, *head], ["---"] * (len(places) + 1)]
    rows += [[paper.named(label), *(_cell(results, study, label, column, p) for p in places)] for label in table]
    return _lines(rows)


def _lines(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _meetings(results: Results) -> str:
    """Who meets whom in Tag."""
    methods = ("lego", "mappo", "pic")
    rows = [["a pursuer's return", *(f"evaders: {paper.named(method)}" for method in methods)], ["---"] * 4]
    for one in methods:
        met = [results.values("head-to-head", f"{one} against {other}", "pursuer_return") for other in methods]
        rows.append([f"pursuers: {paper.named(one)}", *(_mean_and_interval(values) for values in met)])
    return _lines(rows)


def _mean_and_interval(values: np.ndarray) -> str:
    """With the 95 % interval of the mean over seeds."""
    if not len(values):
        return "-"
    low, high = mean_interval(values)
    return f"{values.mean():.0f}" + (f" ({low:.0f} to {high:.0f})" if np.isfinite(low) else "")


def _cell(results: Results, study: str, label: str, column: str, place: Any) -> str:
    values = results.values(study, label, FIGURE, **{column: place})
    printed = TABLES[study][2][label].get(place)
    ours = f"{values.mean():.1f}" if len(values) else "-"
    return ours if printed is None else f"{ours} ({printed[0]:.1f})"
