"""Commands that evaluate and show: demo, eval, watch, page, study, report."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from legoswarm.cli.made import hint, how_to_open, say_made
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
    """Train a small policy in about two minutes, evaluate it with other team sizes, and draw animations and a page."""

    out: Path = argument(Path("demo"), "folder for the policy, the animations and the page")

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

    start: str | None = argument(None, "Spread: where agents begin: uniform (anywhere), left or right", metavar="SIDE")
    protocol: str | None = argument(None, "rules of the world: paper or mpe2 (those of Farama's package)")
    limit: str | None = argument(
        None, "limit on actions: none, disc:SIZE (length of the vector) or box:SIZE (each component)", metavar="LIMIT"
    )
    sensing: float | None = argument(None, "how far agents see, in units of length (0: everything)", metavar="R")
    density: float | None = argument(
        None, "Spread: agents in a unit of area; the arena grows with the team (0: the usual arena)"
    )
    obstacles: int | None = argument(None, "Navigation: number of obstacles")
    side: float | None = argument(None, "Navigation: length of a side of the arena (0: as large as the team needs)")
    travel: float | None = argument(None, "Navigation: how far away goals are at most (0: anywhere)")
    horizon: int | None = argument(None, "how many steps an episode has")


def _world(words: Sequence[str]) -> list[Group]:
    return [Group("the world, as in training unless it is said here", World)]


NEAREST = "let an agent look only at the N nearest entities of each role (0: at all of them)"


@dataclasses.dataclass(frozen=True)
class Eval:
    """Measure how good policies are: every seed of each, with teams of any size.

    Or let two policies meet head to head: name a task such as tag, and say who plays --pursuers and who --evaders. For
    Spread, hungarian and planner stand for references that learn nothing: a central controller, and a slow search for
    better episodes. docs/train.md explains the columns.
    """

    policy: Sequence[str] = argument(
        REQUIRED,
        "run folders, policy files or zoo:NAME (zoo:spread, zoo:tag, ...); hungarian or planner; or a task",
        positional=True,
        nargs="+",
    )
    agents: Sequence[int] | None = argument(None, "team sizes, one or several (default: as trained)")
    teams: Sequence[str] | None = argument(
        None, "Tag: teams such as 3v2 (pursuers, evaders), or 3v2v4 with four obstacles", metavar="PvE"
    )
    pursuers: str | None = argument(None, "head to head: who plays the pursuers", metavar="POLICY")
    evaders: str | None = argument(None, "head to head: who plays the evaders", metavar="POLICY")
    episodes: int | None = argument(None, "how many episodes are played (default: 1000, of the planner 64)")
    seed: int | None = argument(None, "only this seed of the run (default: all)")
    episode_seed: int | None = argument(
        None,
        "random seed of the episodes' starts: the same one gives the same starts",
        flag="--eval-seed",
        type=random_seed,
    )
    nearest: int | None = argument(None, NEAREST)
    engine: str = argument("legoswarm", "whose physics steps the world", choices=("legoswarm", "mpe2"))
    plan_from: str | None = argument(
        None,
        "planner: whose episodes it begins with and improves (default: hungarian)",
        flag="--from",
        metavar="POLICY",
    )
    json: bool = argument(False, "print a JSON object for each team size and seed, not a table")

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
    """Draw the learning curves of runs: means over seeds with their 95 % intervals. Print where they end."""

    runs: Sequence[str] = argument(REQUIRED, "run folders, finished or not", positional=True, nargs="+")
    out: Path = argument(Path("curves.png"), "file of the picture, a .png")
    metric: str | None = argument(
        None, "what is drawn, such as return_2c or agent/entropy (default: the task's primary figure)"
    )
    axis: str = argument(
        "steps", "what it is drawn against: environment steps or seconds of training", choices=("steps", "seconds")
    )

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Draw, and print a table and the file's name."""
        from legoswarm.studies.curves import draw_curves

        print(draw_curves(**vars(self)))
        say_made(self.out)


@dataclasses.dataclass(frozen=True)
class Watch:
    """Animate one episode of a trained policy; without a policy, write and open the live page of zoo:spread."""

    policy: str | None = argument(
        None, "a run folder, a policy file or zoo:NAME (zoo:spread, zoo:tag, ...)", positional=True, nargs="?"
    )
    out: Path = argument(
        Path("watch.gif"), "file of the animation, a .gif, .html or .mp4; or a .png, a still picture of the paths"
    )
    agents: int | None = argument(None, "Spread: team size (default: as trained)")
    teams: str | None = argument(None, "Tag: team such as 3v2, three pursuers and two evaders", metavar="PvE")
    seed: int | None = argument(None, "which seed of the run (default: the best)")
    episode: int = argument(0, "which start: another number gives another episode", type=random_seed)
    axes: bool = argument(False, "draw the two axes in which each agent describes what it sees")
    arrows: bool = argument(False, "draw the action of each agent as an arrow")
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
    """Write the live page: one HTML file that runs policies of Spread or Tag in a browser, with no server."""

    policies: Sequence[str] = argument(
        ("zoo:spread",),
        "run folders, policy files or zoo:NAME; several are shown side by side",
        positional=True,
        nargs="*",
    )
    out: Path = argument(Path("swarm.html"), "file of the page")
    seed: int | None = argument(None, "which seed of the runs (default: the best)")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Write it and print its name."""
        from legoswarm.deploy.page import write_page

        say_made(write_page(self.policies, self.out, self.seed))


@dataclasses.dataclass(frozen=True)
class Study:
    """Repeat the paper's tables and figures. What is done already is not done again; --list shows what there is."""

    names: Sequence[str] = argument(
        ("all",), "names of studies, or of parts of them as STUDY/PART; --list has all", positional=True, nargs="*"
    )
    seeds: int | None = argument(
        None, "how many random seeds each method has (default: 10, segnn 3; fewer at other scales)"
    )
    scale: str = argument(
        "full", "how much is run: full (as the paper), small, or tiny (a look, minutes on a laptop)", metavar="SCALE"
    )
    methods: Sequence[str] | None = argument(
        None, "run only these methods (default: the paper's six; segnn-planar is one more)"
    )
    runs: Path | None = argument(None, "folder for the trained policies (default: runs/studies)")
    out: Path | None = argument(None, "folder for what is measured (default: results/studies)")
    list: bool = argument(False, "list all parts and which are done, and run nothing")
    train_only: bool = argument(
        False, "train and do not measure; the same command without this measures, also on another machine"
    )
    jobs: int = argument(1, "how many parts are done at a time: while one trains, others compile")
    engine: str = argument(
        "local", "where parts are done: local (this machine) or ray (a Ray cluster)", choices=ENGINES
    )
    cpus: float = argument(CPUS, "on Ray: cores for each part")
    gpus: float | None = argument(None, "on Ray: GPUs for each part (default: 1 if the cluster has any)")

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
    """Draw one page, with tables, plots and claims, from what studies have measured."""

    results: Path = argument(Path("results/studies"), "folder of the studies' results")
    out: Path = argument(Path("report.html"), "file of the page")
    plots: Path | None = argument(None, "write the plots as PNG files into this folder too")
    markdown: Sequence[Path] = argument(
        (), "fill the places for tables in these Markdown files too (docs/studies.md says how)"
    )

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Draw it and print the page's name."""
        from legoswarm.studies.report import write_report

        say_made(write_report(self.results, self.out, self.plots, self.markdown))
        for what, path in [("the plots are in", self.plots), *(("the tables are in", path) for path in self.markdown)]:
            if path is not None:
                hint(f"{what} {path}")
