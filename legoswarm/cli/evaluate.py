"""Commands that evaluate and show: demo, eval, watch, study, report."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from legoswarm.cli.options import REQUIRED, argument, random_seed


@dataclasses.dataclass(frozen=True)
class Demo:
    """Train for about two minutes, evaluate on other team sizes, animate."""

    out: Path = argument(Path("demo"), "folder for the run and the animation")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Show what the package does."""
        from legoswarm.studies.demo import demo

        demo(self.out, command_line)


@dataclasses.dataclass(frozen=True)
class Eval:
    """Evaluate a policy at team sizes, every seed of it; or two policies head to head."""

    policy: str = argument(REQUIRED, "a run, a policy file or zoo:NAME; or a task, for head to head", positional=True)
    agents: Sequence[int] | None = argument(None, "team sizes (default: as trained)")
    teams: Sequence[str] | None = argument(None, "Tag sizes such as 3v2, or 3v2v4 with four obstacles", metavar="PvE")
    pursuers: str | None = argument(None, "head to head: who plays the pursuers", metavar="POLICY")
    evaders: str | None = argument(None, "head to head: who plays the evaders", metavar="POLICY")
    episodes: int = argument(1000, "episodes")
    seed: int | None = argument(None, "only this seed of the run (default: all)")
    episode_seed: int | None = argument(None, "seed of the episodes' starts", flag="--eval-seed", type=random_seed)
    start: str | None = argument(None, "Spread: uniform, left or right", metavar="SIDE")
    limit: str | None = argument(None, "another action limit than in training", metavar="LIMIT")
    nearest: int | None = argument(None, "look only at so many entities of each role (0: at all)")
    engine: str = argument("legoswarm", "whose physics", choices=("legoswarm", "mpe2"))
    json: bool = argument(False, "one JSON object for each team size and seed")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Print a table, or a row for each team size and seed."""
        from legoswarm.evaluate.policies import evaluate_policy, format_table
        from legoswarm.files import finite

        changes = {name: given[name] for name in ("start", "limit") if name in given}
        opponents = {name[:-1]: given[name] for name in ("pursuers", "evaders") if name in given}
        others = {name: given[name] for name in given if name not in ("start", "limit", "pursuers", "evaders", "json")}
        rows = evaluate_policy(**others, opponents=opponents, changes=changes)
        for text in (json.dumps(finite(row)) for row in rows) if self.json else [format_table(list(rows))]:
            print(text, flush=True)


@dataclasses.dataclass(frozen=True)
class Watch:
    """Animate one episode of a trained policy."""

    policy: str = argument(REQUIRED, "a run, a policy file or zoo:NAME", positional=True)
    out: Path = argument(Path("watch.gif"), "a .gif, .html, .mp4 or .png file")
    agents: int | None = argument(None, "Spread: team size (default: as trained)")
    teams: str | None = argument(None, "Tag: sizes such as 3v2", metavar="PvE")
    seed: int | None = argument(None, "which seed of the run (default: the best)")
    episode: int = argument(0, "which start", type=random_seed)
    axes: bool = argument(False, "draw each agent's canonical frame")
    arrows: bool = argument(False, "draw actions")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Draw it and print the file's name."""
        from legoswarm.show.watch import watch

        print(watch(**vars(self)))


@dataclasses.dataclass(frozen=True)
class Study:
    """Repeat the paper's tables and figures, part by part; what is done is not done again."""

    names: Sequence[str] = argument(("all",), "studies, or parts of them: STUDY/PART", positional=True, nargs="*")
    seeds: int | None = argument(None, "seeds (default: 10, segnn 3; fewer at other scales)")
    scale: str = argument("full", "full, small or tiny", metavar="SCALE")
    methods: Sequence[str] | None = argument(None, "only these (default: the paper's six; more: segnn-planar)")
    runs: Path | None = argument(None, "folder of run folders (default: runs/studies)")
    out: Path | None = argument(None, "folder of results (default: results/studies)")
    list: bool = argument(False, "say what there is and what is done; run nothing")
    train_only: bool = argument(False, "measure nothing: a later call does, on any machine")
    jobs: int = argument(1, "so many parts at a time: while one trains, others compile")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Do the parts, or list them."""
        from legoswarm.studies.run import list_studies, run_studies, study_setup

        where = {"runs": self.runs, "out": self.out, "command": command_line}
        setup = study_setup(self.scale, seeds=self.seeds, methods=self.methods, **where)
        if self.list:
            print(list_studies(self.names, setup))
        else:
            run_studies(self.names, setup, train_only=self.train_only, jobs=self.jobs)


@dataclasses.dataclass(frozen=True)
class Report:
    """Draw one page from what studies measured."""

    results: Path = argument(Path("results/studies"), "folder of results")
    out: Path = argument(Path("report.html"), "the page")
    plots: Path | None = argument(None, "folder for the plots as PNG files, too")
    markdown: Sequence[Path] = argument((), "fill the places for tables in these Markdown files too")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Draw it and print the page's name."""
        from legoswarm.studies.report import write_report

        print(write_report(self.results, self.out, self.plots, self.markdown))
