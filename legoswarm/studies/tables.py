"""The studies' tables as data: which methods stand in rows, where their figures lie, and what the paper has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from legoswarm.studies import paper
from legoswarm.studies.results import Results

FIGURE = "return_2c"
JOINT = " (critics of joint actions)"
PAIRS, OWN, PAPERS, PUBLISHED = " (pair critic)", " (own critic)", " (paper's critic)", " (as published)"
EACH, SCRATCH, FOUR, LATER = ", trained for each size", ", from scratch", ", trained with four", ", curriculum"
ANY = ", trained with two to eight"
MASAC = "LEGO-MASAC, joint encoder" + JOINT


ABOUT = {
    FIGURE: "Return, closer to zero is better. The best of each column is in bold.",
    "pursuer_return": "A pursuer's return.",
    "covered": "Share of landmarks that have an agent within 0.1 after 50 steps.",
    "touches": "How often an agent touches another in 50 steps.",
    "cover_time": "The first step at which nine of ten landmarks have an agent within 0.1; 50 if that is never.",
    "safe": "Share of agents that touch nobody and nothing in 256 steps.",
    "success": "Share of agents that touch nobody and nothing in 256 steps, and reach their goals.",
}
TITLES = {  # of labels that only their author understands
    "lego, trained with 4": "LEGO-MAPPO as it is, four agents in training",
    "lego, float32 throughout": "every layer computed with 32 bits",
    "lego, rest global": "the world's frame for agents at rest",
    "lego, paper's critic, trained with 4": "the paper's critic",
    "lego, paper's critic, rest global, no leash": "as published: that critic and frame, no leash",
    "lego, 2 to 8 agents mixed": "two to eight agents in training",
    "lego, protocol mpe2": "trained by the rules of mpe2",
    "without": "no failure",
    "kept": "the failed pursuer stays where it stopped",
    "removed": "the failed pursuer is removed",
}
WITH_FOUR = {"spread-4": "generalization", "published-4": "beyond"}  # studies in which four agents train
DIGITS = {FIGURE: 1, "pursuer_return": 0, "cover_time": 1, "safe": 4, "success": 4}


class Row(NamedTuple):
    """Names a method and the critic it has, and holds the paper's numbers, if there are any, column by column.

    A `{}` in the study or in the label stands for the column.
    """

    name: str
    study: str
    label: str
    printed: Mapping[Any, paper.Cell] = {}

    def place(self, column: Any) -> tuple[str, str]:
        """Return the study and the label of a column."""
        study = self.study.format(column)
        return WITH_FOUR.get(study, study), self.label.format(column)


class Table(NamedTuple):
    """Says which methods stand in rows; columns are the values of a field of the results, if there is one."""

    title: str
    columns: Sequence[Any]
    rows: Sequence[Row]
    field: str = "agents"
    head: str = "{} agents"
    figure: str = FIGURE
    intervals: bool = False
    spoken: str = "at {} agents"  # columns in a sentence
    beside: str = "the paper's mean"  # what stands in brackets

    @property
    def heads(self) -> list[str]:
        """Return the names of the columns."""
        return [self.head.format(paper.named(str(column))) for column in self.columns]

    def values(self, results: Results, row: Row) -> list[np.ndarray]:
        """Return a row's figures, one value for each seed, column by column."""
        return [self.at(results, row, column) for column in self.columns]

    def at(self, results: Results, row: Row, column: Any) -> np.ndarray:
        """Return the figures of a row in one column."""
        field = {self.field: column} if self.field else {}
        return results.values(*row.place(column), self.figure, **field)

    def row(self, name: str) -> Row:
        """Return the row of a name."""
        return next(row for row in self.rows if row.name == name)


def titled(label: str) -> str:
    """Return what a label stands for in figures and statistics."""
    return TITLES.get(label) or paper.named(label)


def _rows(study: str, labels: Mapping[str, str], printed: Mapping[str, Mapping[Any, paper.Cell]] = {}) -> list[Row]:
    """Return a row for each label, with what its method's name is followed by."""
    names = {label: re.sub("(-scl|-curr|,.*| against.*)$", "", label) for label in labels}
    return [Row(paper.named(names[x]) + what, study, x, printed.get(x, {})) for x, what in labels.items()]


BASELINES = ("segnn", "mappo-gnn", "mappo-local", "pic", "mappo")
TABLES = {
    "generalization": Table("trained with four agents, unless it says otherwise", (2, 3, 4, 5, 6), [
        Row(MASAC, "algorithms", "lego with masac, joint encoder, trained with 4"),
        *_rows("generalization", {"lego": PAIRS}),
        *_rows("beyond", {"lego, paper's critic, trained with 4": PAPERS}),
        Row("LEGO-MAPPO" + PUBLISHED, "beyond", "lego, paper's critic, rest global, no leash",
            paper.GENERALIZATION["lego"]),
        *_rows("generalization", {"segnn": OWN, "pic": OWN + EACH, "mappo": OWN + EACH}, paper.GENERALIZATION),
    ]),
    "trained": Table("trained and evaluated with as many agents", (3, 4, 6), [
        *_rows("spread-{}", {"lego": PAIRS}),
        *_rows("beyond", {"lego, paper's critic, trained with {}": PAPERS}),
        Row("LEGO-MAPPO" + PUBLISHED, "published-{}", "lego, paper's critic, rest global, no leash"),
        *_rows("spread-{}", dict.fromkeys(BASELINES, OWN)),
        *_rows("beyond", {f"{method}, critic of pairs": PAIRS for method in BASELINES if method != "pic"}),
    ], intervals=True),
    "algorithms": Table("trained and evaluated with as many agents", (3,), [
        *_rows("spread-{}", {"lego": PAIRS}),
        *_rows("algorithms", {"lego with masac": JOINT}),
        *_rows("spread-{}", {"mappo": OWN}),
        *_rows("algorithms", {"mappo with masac": JOINT}),
    ], intervals=True),
    "algorithms-sizes": Table("one policy for every size", (2, 3, 4, 5, 6, 7, 8, 16, 32), [
        Row(MASAC + ANY, "algorithms", "lego with masac, joint encoder, 2 to 8 agents mixed"),
        Row(MASAC + FOUR, "algorithms", "lego with masac, joint encoder, trained with 4"),
        *_rows("beyond", {"lego, trained with 4": PAIRS + FOUR}),
    ], head="{}"),
    "ood": Table("trained with agents starting on the left", ("left", "right", "uniform"),
        _rows("ood", {"lego": PAIRS, "segnn": OWN, "mappo-local": OWN, "mappo": OWN}, paper.OOD), "start", "{}",
        spoken="for starts {}"),
    "ood-landmarks": Table("trained with agents and landmarks on the left", ("left", "right", "uniform"),
        _rows("ood", {f"{m}, landmarks too": PAIRS if m == "lego" else OWN for m in ("lego", "mappo-local", "mappo")}),
        "start", "{}", spoken="for starts {}"),
    "curriculum": Table("larger teams", (6, 7, 8), [
        *_rows("curriculum", {"lego": PAIRS + SCRATCH, "lego-scl": PAIRS + FOUR, "lego-curr": PAIRS + LATER},
               paper.CURRICULUM),
        *_rows("beyond", {"lego, 2 to 8 agents mixed": PAIRS + ANY}),
        *_rows("curriculum", {"segnn-scl": OWN + FOUR, "segnn-curr": OWN + LATER, "mappo": OWN + SCRATCH},
               paper.CURRICULUM),
    ]),
    "sizes": Table("one policy for every size", (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32), _rows("beyond", {
        "lego, 2 to 8 agents mixed": PAIRS + ", trained with two to eight, 5e6 steps",
        "lego, trained with 4": PAIRS + ", trained with four, 2e6 steps"}), head="{}"),
    **{f"swarm-{figure}": Table("agents in an arena that grows with them", (8, 64, 256, 1024), [
        Row("LEGO-MASAC, trained with four to twelve, sees within 1.2", "swarm", "lego at constant density"),
        Row("`zoo:spread`, trained with four that see everything, sees within 1.2", "swarm",
            "zoo:spread, not trained for it"),
        Row("Hungarian controller, sees everything", "swarm", "hungarian, sees everything"),
    ], head="{}", figure=figure) for figure in ("covered", "cover_time", "touches")},
    **{f"navigation-{figure}": Table("trained with eight agents", (8, 32, 128, 512, 1024), [
        *(Row(f"LEGO-MASAC, {arena}", "navigation", f"lego, {arena.split()[-1]}", paper.NAVIGATION[figure][arena])
          for arena in ("free", "with obstacles", "dense")),
        *(Row(name, "navigation", "", shares) for name, shares in paper.NAVIGATION[figure].items() if "," in name),
    ], head="{}", figure=figure,
        beside="what GCBF+ had with its published weights, and what two controllers had in its code")
      for figure in ("success", "safe")},
    "tag": Table("three pursuers of a method against two evaders of the same", (3,), [
        *_rows("tag", {"lego": PAIRS, "lego after 1e6 steps": PAIRS} | dict.fromkeys(BASELINES, OWN))],
        "pursuers", "return", "pursuer_return", intervals=True, spoken=""),
    "head-to-head": Table("pursuers in rows, evaders in columns", ("lego", "mappo", "pic"), [
        *_rows("head-to-head", {"lego against {}": PAIRS, "lego after 1e6 steps against {}": PAIRS,
                                "lego, paper's critic, against {}": PAPERS,
                                "mappo against {}": OWN, "pic against {}": OWN})],
        "", "{}", "pursuer_return", intervals=True, spoken="against {} evaders"),
}  # fmt: skip
