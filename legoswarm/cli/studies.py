"""Commands that run and draw studies: demo, study, report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from legoswarm.cli.options import argument


@dataclasses.dataclass(frozen=True)
class Demo:
    """Train for about two minutes, evaluate on other team sizes, animate."""

    out: Path = argument(Path("demo"), "folder for the run and the animation")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Show what the package does."""
        from legoswarm.studies.demo import demo

        demo(self.out, command_line)


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
        from legoswarm.studies.run import list_studies, make_workshop, run_studies

        where = {"runs": self.runs, "out": self.out, "command": command_line}
        shop = make_workshop(self.scale, seeds=self.seeds, methods=self.methods, **where)
        if self.list:
            print(list_studies(self.names, shop))
        else:
            run_studies(self.names, shop, train_only=self.train_only, jobs=self.jobs)


@dataclasses.dataclass(frozen=True)
class Report:
    """Draw one page from what studies measured."""

    results: Path = argument(Path("results/studies"), "folder of results")
    out: Path = argument(Path("report.html"), "the page")
    figures: Path | None = argument(None, "folder for the figures as PNG files, too")
    markdown: Sequence[Path] = argument((), "fill the places for tables in these Markdown files too")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Draw it and print the page's name."""
        from legoswarm.studies.report import write_report

        print(write_report(self.results, self.out, self.figures, self.markdown))
