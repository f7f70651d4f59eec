"""Commands that evaluate and show: demo, eval, watch, page, study, report."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from legoswarm.cli.made import how_to_open, say_made
from legoswarm.cli.options import REQUIRED, Group, argument, of, random_seed
from legoswarm.own import command as own_command
from legoswarm.studies.cluster import CPUS, ENGINES

NEXT = {
    "watch": "the policy that comes with the package, in your browser",
    "eval zoo:spread --agents 2 4 8": "how good it is, also with teams that it never saw",
    "train spread --agents 4 --out runs/a": "train one like it: minutes on a GPU, hours on a CPU",
    "fly --dry-run": "three simulated drones, of which one fails",
}


@dataclasses.dataclass(frozen=True)
class Demo:
    """Train for about two minutes, evaluate on other team sizes, animate."""

    out: Path = argument(Path("demo"), "folder for the run and the animation")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Show what the package does."""
        from legoswarm.deploy.page import write_page
        from legoswarm.studies.demo import demo

        demo(self.out, command_line)
        page = write_page([self.out], self.out / "swarm.html")
        print(
            f"{page} runs the policy: add agents, drag them, turn the world.\n{how_to_open(page)}\n\nWhat to try next:"
        )
        lines = {own_command(*words.split()): text for words, text in NEXT.items()}
        print("\n".join(f"  {line.ljust(max(map(len, lines)))}  {text}" for line, text in lines.items()))


@dataclasses.dataclass(frozen=True)
class World:
    """Fields of tasks that may differ from training."""

    start: str | None = argument(None, "Spread: uniform, left or right", metavar="SIDE")
    protocol: str | None = argument(None, "paper or mpe2")
    limit: str | None = argument(None, "on actions: none, disc:SIZE or box:SIZE", metavar="LIMIT")
    sensing: float | None = argument(None, "radius of sight (0: none)", metavar="R")
    density: float | None = argument(None, "Spread: agents in a unit of area (0: the usual arena)")
    obstacles: int | None = argument(None, "Navigation: number of obstacles")
    side: float | None = argument(None, "Navigation: side of the arena (0: as large as the team needs)")
    travel: float | None = argument(None, "Navigation: how far away goals are at most (0: anywhere)")
    horizon: int | None = argument(None, "steps of an episode")


def _world(words: Sequence[str]) -> list[Group]:
    return [Group("the world, as in training unless it is said here", World)]


NEAREST = "look only at so many entities of each role (0: at all)"


@dataclasses.dataclass(frozen=True)
class Eval:
    """Evaluate a policy at team sizes, every seed of it; or two policies head to head; or hungarian or planner.

    These two are references for Spread that learn nothing: a central controller, and a slow search for better episodes.
    """

    policy: Sequence[str] = argument(
        REQUIRED, "runs, policy files or zoo:NAME; or a task, for head to head", positional=True, nargs="+"
    )
    agents: Sequence[int] | None = argument(None, "team sizes (default: as trained)")
    teams: Sequence[str] | None = argument(None, "Tag sizes such as 3v2, or 3v2v4 with four obstacles", metavar="PvE")
    pursuers: str | None = argument(None, "head to head: who plays the pursuers", metavar="POLICY")
    evaders: str | None = argument(None, "head to head: who plays the evaders", metavar="POLICY")
    episodes: int | None = argument(None, "episodes (default: 1000, of the planner 64)")
    seed: int | None = argument(None, "only this seed of the run (default: all)")
    episode_seed: int | None = argument(None, "seed of the episodes' starts", flag="--eval-seed", type=random_seed)
    nearest: int | None = argument(None, NEAREST)
    engine: str = argument("legoswarm", "whose physics", choices=("legoswarm", "mpe2"))
    plan_from: str | None = argument(
        None, "planner: whose episodes to improve (default: those of hungarian)", flag="--from", metavar="POLICY"
    )
    json: bool = argument(False, "one JSON object for each team size and seed")

    groups: ClassVar = staticmethod(_world)

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Print a table, or a row for each team size and seed."""
        from legoswarm.evaluate.policies import format_table
        from legoswarm.evaluate.several import each_policy
        from legoswarm.files import finite

        changes = of(World, given)
        opponents = {name[:-1]: given[name] for name in ("pursuers", "evaders") if name in given}
        apart = {*changes, "policy", "pursuers", "evaders", "json"}
        others = {name: given[name] for name in given if name not in apart}
        rows = each_policy(self.policy, **others, opponents=opponents, changes=changes)
        for text in (json.dumps(finite(row)) for row in rows) if self.json else [format_table(list(rows))]:
            print(text, flush=True)


@dataclasses.dataclass(frozen=True)
class Curves:
    """Draw the learning curves of runs, means over seeds with 95 % intervals, and print where they end."""

    runs: Sequence[str] = argument(REQUIRED, "run folders, finished or not", positional=True, nargs="+")
    out: Path = argument(Path("curves.png"), "a .png file")
    metric: str | None = argument(None, "a metric, such as return_2c or agent/entropy (default: the primary figure)")
    axis: str = argument("steps", "what it is drawn against", choices=("steps", "seconds"))

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Draw, and print a table and the file's name."""
        from legoswarm.studies.curves import draw_curves

        print(draw_curves(**vars(self)))
        say_made(self.out)


@dataclasses.dataclass(frozen=True)
class Watch:
    """Animate one episode of a trained policy; without a policy, write and open the live page of zoo:spread."""

    policy: str | None = argument(None, "a run, a policy file or zoo:NAME", positional=True, nargs="?")
    out: Path = argument(Path("watch.gif"), "a .gif, .html, .mp4 or .png file")
    agents: int | None = argument(None, "Spread: team size (default: as trained)")
    teams: str | None = argument(None, "Tag: sizes such as 3v2", metavar="PvE")
    seed: int | None = argument(None, "which seed of the run (default: the best)")
    episode: int = argument(0, "which start", type=random_seed)
    axes: bool = argument(False, "draw each agent's canonical frame")
    arrows: bool = argument(False, "draw actions")
    nearest: int | None = argument(None, NEAREST)

    groups: ClassVar = staticmethod(_world)

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Draw it and print the file's name."""
        if self.policy is None:
            from legoswarm.deploy.page import open_page

            if given:
                raise ValueError("name a policy to animate, such as zoo:spread; alone, watch opens the live page")
            page = Page()
            page.run(command_line, given)
            open_page(page.out)
            return
        from legoswarm.show.watch import watch

        say_made(watch(**{**vars(self), "policy": self.policy}, changes=of(World, given)))


@dataclasses.dataclass(frozen=True)
class Page:
    """Write one HTML file that runs policies of Spread or Tag in a browser: no server, no network."""

    policies: Sequence[str] = argument(
        ("zoo:spread",), "runs, policy files or zoo:NAME; several are shown side by side", positional=True, nargs="*"
    )
    out: Path = argument(Path("swarm.html"), "the page")
    seed: int | None = argument(None, "which seed of the runs (default: the best)")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Write it and print its name."""
        from legoswarm.deploy.page import write_page

        say_made(write_page(self.policies, self.out, self.seed))


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
    engine: str = argument("local", "where parts are done: on this machine, or on a Ray cluster", choices=ENGINES)
    cpus: float = argument(CPUS, "cores of each part, on Ray")
    gpus: float | None = argument(None, "GPUs of each part, on Ray (default: 1 if the cluster has any)")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Do the parts, or list them."""
        from legoswarm.studies.run import list_studies, run_studies, study_setup

        where = {"runs": self.runs, "out": self.out, "command": command_line}
        setup = study_setup(self.scale, seeds=self.seeds, methods=self.methods, **where)
        if self.list:
            print(list_studies(self.names, setup))
        else:
            how = {"engine": self.engine, "cpus": self.cpus, "gpus": self.gpus}
            run_studies(self.names, setup, train_only=self.train_only, jobs=self.jobs, **how)


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

        say_made(write_report(self.results, self.out, self.plots, self.markdown))
