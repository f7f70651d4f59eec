"""Learning curves of one's own runs: a picture and a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.ticker import EngFormatter

from legoswarm.evaluate.statistics import area_under_curve, mean_interval
from legoswarm.files import FileError, write_bytes
from legoswarm.learn.curves import Curve
from legoswarm.learn.folder import RunFolder
from legoswarm.studies.plots import CLOSE, chart, draw_curve, legend_below, png

AXES = {"steps": "environment steps of each seed", "seconds": "seconds, compilation included"}


def draw_curves(
    runs: Sequence[str | os.PathLike[str]], out: str | Path, metric: str | None = None, axis: str = "steps"
) -> str:
    """Draw a metric of several runs into a PNG file, means over seeds with their 95 % intervals; return a table.

    By default the metric is the first run's primary figure. A run's name in picture and table is that of its folder.
    """
    if axis not in AXES:
        raise ValueError(f"the axis must be {' or '.join(AXES)}, not {axis!r}")
    if Path(out).suffix.lower() != ".png":
        raise ValueError(f"{out} does not end in .png")
    folders = [RunFolder(run) for run in runs]
    name = folders[0].read_config().train.task.primary if metric is None else metric
    found = {str(folder.path): _curve(folder, name) for folder in folders}
    figure, axes = chart(AXES[axis], name)
    for label, curve in found.items():
        draw_curve(axes, getattr(curve, axis), curve.values, label)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    legend_below(figure, axes)
    write_bytes(Path(out), png(figure, **CLOSE))
    return _table(name, found)


def _curve(folder: RunFolder, name: str) -> Curve:
    curves = folder.curves()
    if not curves:
        raise FileError(f"{folder.path} has no metrics yet")
    if name not in curves:
        raise ValueError(f"{folder.path} has no metric {name!r}; it has {', '.join(curves)}")
    return curves[name]


def _table(name: str, found: dict[str, Curve]) -> str:
    """Return a line for each run: how far it is, where its curve ends and how high it is on average."""
    lines = [["run", "seeds", "steps", "seconds", name, "95 % interval", "mean over the run"]]
    for label, curve in found.items():
        last = curve.values[-1]
        low, high = mean_interval(last)
        area = area_under_curve(curve.steps, curve.values).mean()
        span = f"{low:.2f} to {high:.2f}" if np.isfinite(low) else "-"
        lines.append(
            [label, str(len(last)), f"{curve.steps[-1]:,.0f}", f"{curve.seconds[-1]:.0f}", f"{last.mean():.2f}", span,
             f"{area:.2f}"]
        )  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in lines)
