"""Progress of long work: return, steps per second and time left."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from legoswarm.learn.train import TrainConfig


class Progress:
    """A progress bar on a terminal, a line for each evaluation elsewhere; both on stderr."""

    def __init__(self, config: TrainConfig, seeds: tuple[int, ...], done: int, *, quiet: bool = False):
        self.config = config
        self.console = Console(file=sys.stderr, quiet=quiet)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.bar = Bar(*columns, console=self.console, disable=quiet or not self.console.is_terminal)
        self.task = self.bar.add_task("compiling", total=config.iterations, completed=done)
        self.seeds = seeds

    def __enter__(self) -> Progress:
        self.bar.start()
        if not self.console.is_terminal:
            self.say(f"training {len(self.seeds)} seed(s) for {self.config.steps:,} steps each; compiling first")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def update(self, row: dict[str, Any]) -> None:
        """Show a row of metrics."""
        returns = {name.split("/")[0]: _mean(values) for name, values in row.items() if name.endswith("/return")}
        text = "  ".join(f"{role} {value:.1f}" for role, value in returns.items())
        speed = f"{row['steps_per_second']:,.0f} steps/s"
        self.bar.update(self.task, completed=row["iteration"], description=f"return {text}  {speed}")
        if "eval" in row:
            figures = row["eval"]
            primary = self.config.task.primary
            self.say(f"step {row['steps']:>10,}  {primary} {_mean(figures[primary]):8.1f}  {speed}")


def _mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")
