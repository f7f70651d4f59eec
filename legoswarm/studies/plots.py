"""The report's plots, as PNG bytes."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import EngFormatter

from legoswarm.evaluate.episodes import Trajectory
from legoswarm.evaluate.statistics import mean_interval
from legoswarm.policies.policy import POLICIES
from legoswarm.show.draw import COLOURS, GREY, INK, PALE, Failure, draw_trajectories, style
from legoswarm.show.player import player
from legoswarm.studies import paper
from legoswarm.studies.results import Results
from legoswarm.tasks.task import TASKS, State, Task

FIGURE_NAMES = {"return_2c": "return (2 for a collision)", "pursuer_return": "a pursuer's return"}


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    FigureCanvasAgg(figure)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130, bbox_inches="tight")
    return file.getvalue()


def curves(results: Results, study: str) -> bytes | None:
    """Learning curves: means over seeds with their 95 % intervals."""
    known = POLICIES.names()
    parts = [part for part in results.study(study) if part["label"] in known and part.get("curve")]
    if not parts:
        return None
    figure = Figure(figsize=(6.4, 3.8))
    axes = figure.add_subplot()
    low, high = np.inf, -np.inf
    for part in sorted(parts, key=lambda part: part["label"]):
        steps, values = results.curve(study, part["label"]) or (np.zeros(0), np.zeros((0, 1)))
        if not values.size:
            continue
        bands = np.array([mean_interval(point) for point in values])
        colour, mean = POLICIES[part["label"]].colour, values.mean(1)
        if values.shape[1] > 1:
            axes.fill_between(steps, bands[:, 0], bands[:, 1], color=colour, alpha=0.18, linewidth=0)
        seeds = f"{values.shape[1]} seed{'s' * (values.shape[1] > 1)}"
        axes.plot(steps, mean, color=colour, linewidth=1.6, marker="." if len(steps) < 10 else None,
                  label=f"{POLICIES[part['label']].label} ({seeds})")  # fmt: skip
        low, high = min(low, mean.min()), max(high, mean.max())
    axes.set_ylim(low - 0.08 * (high - low + 1e-9), high + 0.08 * (high - low + 1e-9))
    figure_name = str(parts[0]["curve"]["figure"])
    _plain(axes, "environment steps of each seed", FIGURE_NAMES.get(figure_name, figure_name))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.legend(frameon=False, fontsize=8)
    return png(figure)


def bars(entries: Sequence[tuple[str, np.ndarray]], what: str) -> bytes | None:
    """One bar for each entry: the mean over seeds, its 95 % interval and the seeds as dots."""
    entries = [(name, values) for name, values in entries if len(values)]
    if not entries:
        return None
    figure = Figure(figsize=(6.4, 0.5 + 0.34 * len(entries)))
    axes = figure.add_subplot()
    for row, (name, values) in enumerate(entries):
        kinds = {POLICIES[each].label: POLICIES[each].colour for each in POLICIES.names()}
        colour = kinds.get(name.split()[0].rstrip(","), GREY)
        axes.barh(row, values.mean(), color=colour, alpha=0.75, height=0.62)
        axes.plot(values, np.full(len(values), row), ".", color=INK, markersize=3, alpha=0.6)
        if len(values) > 1:
            axes.plot(mean_interval(values), (row, row), color=INK, linewidth=1.6)
    axes.set_yticks(range(len(entries)), [name for name, _ in entries], fontsize=8)
    axes.invert_yaxis()
    _plain(axes, what, "")
    return png(figure)


def sizes(results: Results, study: str, figure_name: str = "return_2c") -> bytes | None:
    """A figure against the team size, a line for each part that has several."""
    lines = []
    for part in results.study(study):
        counts = sorted({row["agents"] for row in part.get("rows", ()) if not row.get("engine")})
        values = [results.values(study, part["label"], figure_name, agents=count) for count in counts]
        if counts and all(len(value) for value in values):
            means = [-value.mean() / count**2 for value, count in zip(values, counts, strict=True)]
            lines.append((paper.named(part["label"]), counts, means))
    if not lines:
        return None
    figure = Figure(figsize=(6.4, 3.8))
    axes = figure.add_subplot()
    least = min(2, max(len(counts) for _, counts, _ in lines))  # a single size is no line
    for name, counts, means in lines:
        if len(counts) >= least:
            axes.plot(counts, means, marker="o", markersize=4, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)  # one that fails is far off
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    _plain(axes, "agents", "-return / agents squared (lower is better)")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return png(figure)


def trajectories(records: Sequence[dict[str, Any]]) -> bytes:
    """A panel for each recorded trajectory."""
    task, failures = _task(records), [_failure(record) for record in records]
    shown = [_trajectory(record, task) for record in records]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trajectories.png"
        draw_trajectories(task, shown, path, titles=[record["title"] for record in records], failures=failures)
        return path.read_bytes()


def animations(records: Sequence[dict[str, Any]]) -> str:
    """The same trajectories as HTML that moves."""
    paths = [np.array(record["positions"], float) for record in records]
    titles, failures = [record["title"] for record in records], [_failure(record) for record in records]
    return player(_task(records), paths, titles, failures)


def _task(records: Sequence[dict[str, Any]]) -> Task:
    return TASKS.read(records[0]["task"], "a trajectory's task")


def _failure(record: dict[str, Any]) -> Failure | None:
    return Failure(**record["failed"]) if "failed" in record else None


def _trajectory(record: dict[str, Any], task: Task) -> Trajectory:
    """What a picture needs of a trajectory."""
    position = np.array(record["positions"], np.float32)
    time = len(position)
    exists = np.isfinite(position).all(-1)
    states = jax.vmap(State)(position, np.zeros_like(position), exists, np.arange(time))
    actions = jnp.zeros((time, task.layout.agents, 2))
    return Trajectory(states, {}, actions, jnp.ones(time, bool), {})


def scenes(part: dict[str, Any]) -> bytes:
    """The paper's first figure: a scene, the same swapped, rotated and reflected, with the actions as arrows."""
    shown = part["scenes"]
    figure = Figure(figsize=(3.0 * len(shown), 3.3))
    places = np.array([scene["positions"] for scene in shown])
    reach = max(1.2, 1.1 * float(np.abs(places).max()))
    actions = np.array([scene["actions"] for scene in shown])
    scale = 0.45 / max(float(np.linalg.norm(actions, axis=-1).max()), 1e-9)
    for number, scene in enumerate(shown):
        axes = figure.add_subplot(1, len(shown), number + 1)
        style(axes, np.array([[-reach, -reach], [reach, reach]]))
        axes.set_title(scene["title"], fontsize=9, color=INK)
        counts: dict[str, int] = {}
        for entity, (role, place) in enumerate(zip(part["roles"], scene["positions"], strict=True)):
            counts[role] = counts.get(role, 0) + 1
            axes.add_patch(Circle(tuple(place), part["radii"][entity], color=COLOURS.get(role, GREY), zorder=2))
            if entity < len(scene["actions"]):
                tip = np.array(place) + scale * np.array(scene["actions"][entity])
                axes.annotate("", tuple(tip), place, arrowprops={"arrowstyle": "->", "color": INK, "lw": 1.2}, zorder=3)
                axes.annotate(str(counts[role]), place, fontsize=7, color="white", ha="center", va="center", zorder=4)
    return png(figure)


def _plain(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.grid(color=PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, colors=GREY)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
