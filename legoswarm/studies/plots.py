"""The report's plots, as PNG bytes."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import EngFormatter

from legoswarm.evaluate.statistics import mean_interval
from legoswarm.policies.policy import POLICIES
from legoswarm.show.draw import COLOURS, GREY, INK, PALE, Failure, draw_paths, grid, style
from legoswarm.show.player import player
from legoswarm.studies import paper
from legoswarm.studies.failure import KINDS, SEVERAL
from legoswarm.studies.results import Results
from legoswarm.studies.tables import TITLES, titled
from legoswarm.tasks.task import TASKS

RETURN, PURSUERS = "return (2 for a collision)", "a pursuer's return"
DASHES: Any = ("-", (0, (4, 3)), (0, (1.2, 2.6)), "-", "-", "-")  # lines that coincide stand first
SHOWN = 40  # steps of an episode in a still picture
MEETINGS = tuple(f"{one} against {other}" for one in ("lego", "mappo") for other in ("lego", "mappo"))
CLOSE: Any = {"dpi": 180, "bbox_inches": "tight"}
WIDTH = 4.6  # inches: letters of 9 points can still be read on a phone
Curves = dict[str, tuple[np.ndarray, np.ndarray]]  # steps and values (points, seeds) by label


def png(figure: Figure, **how: Any) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", **how)
    return file.getvalue()


def learning(results: Results, study: str) -> Curves:
    """Return the learning curves of methods; with other algorithms than MAPPO, those with MAPPO stand beside them.

    A label with a comma has another team size or other options and is no curve beside these.
    """
    methods = POLICIES.names()
    places = [(part["label"], study) for part in results.study(study)]
    places += [(label.split(" with ")[0], "spread-3") for label, _ in places if study == "algorithms"]
    fitting = {label: at for label, at in sorted(places) if label.split(" with ")[0] in methods and "," not in label}
    return {label: curve for label, at in fitting.items() if (curve := results.curve(at, label))}


def curves(results: Results, study: str) -> bytes | None:
    """Draw learning curves, dashed with other algorithms than MAPPO: means over seeds with their 95 % intervals."""
    if not (found := learning(results, study)):
        return None
    figure, axes = chart("environment steps of each seed", PURSUERS if study == "tag" else RETURN)
    for label, (steps, values) in found.items():
        draw_curve(axes, steps, values, titled(label), _colour(label), "--" if " with " in label else "-")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    legend_below(figure, axes)
    return png(figure, **CLOSE)


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend under the panel, where it covers nothing and takes no width."""
    labels = axes.get_legend_handles_labels()[1]
    columns = max(1, min(3, len(labels), 56 // max(map(len, labels))))  # no wider than the panel
    figure.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.03), ncols=columns)


def draw_curve(
    axes: Axes, x: np.ndarray, values: np.ndarray, name: str, colour: str | None = None, line: Any = "-"
) -> None:
    """Draw the mean over seeds of values (points, seeds) with its 95 % interval."""
    seeds = values.shape[1]
    label = f"{name} ({seeds} seed{'s' * (seeds > 1)})"
    marker = "." if len(x) < 10 else None
    [drawn] = axes.plot(x, values.mean(1), linestyle=line, color=colour, linewidth=1.6, marker=marker, label=label)
    if seeds > 1:
        bands = np.array([mean_interval(point) for point in values])
        axes.fill_between(x, bands[:, 0], bands[:, 1], color=drawn.get_color(), alpha=0.18, linewidth=0)


def meetings(results: Results, study: str) -> bytes | None:
    """Draw the pursuers' return for each pair of methods that meet."""
    labels = [part["label"] for part in results.study(study)]
    return bars({label: results.values(study, label, "pursuer_return") for label in labels}, PURSUERS)


def failures(results: Results, study: str) -> bytes | None:
    """Draw the captures after each kind of failure, of several policies if they were measured."""
    label = SEVERAL if results.labelled(study, SEVERAL) else "lego"
    entries = {kind: results.values(study, label, "captures_after", failure=kind) for kind in KINDS}
    errors = {kind: results.values(study, label, "captures_after_se", failure=kind) for kind in KINDS}
    return bars(entries, "pairs that touch, summed over the steps after step 30", errors)


def bars(entries: dict[str, np.ndarray], what: str, errors: dict[str, np.ndarray] | None = None) -> bytes | None:
    """Draw one bar for each label: the mean over seeds, its 95 % interval and the seeds as dots.

    A single seed has the interval over episodes that follows from its standard error, if that is in `errors`.
    """
    entries = {label: values for label, values in entries.items() if len(values)}
    if not entries:
        return None
    figure, axes = chart(what, "", height=0.5 + 0.44 * len(entries))
    for row, (label, values) in enumerate(entries.items()):
        axes.text(0, row - 0.25, f" {titled(label)}", fontsize=8.5, color=INK)
        axes.barh(row, values.mean(), color=_colour(label), alpha=0.75, height=0.4)
        axes.plot(values, np.full(len(values), row + 0.1), ".", color=INK, markersize=4, alpha=0.6, clip_on=False)
        error = 1.96 * errors[label] if errors else np.array([])
        ends = mean_interval(values) if len(values) > 1 else (*(values - error), *(values + error))
        axes.plot(ends, [row - 0.08] * len(ends), color=INK, linewidth=1.6)
    axes.set_yticks([])
    axes.set_ylim(len(entries) - 0.7, -0.7)
    return png(figure, **CLOSE)


def sizes(results: Results, study: str) -> bytes | None:
    """Draw the return against the team size, a line for each part that has several."""
    lines, order = [], list(TITLES)
    for part in sorted(results.study(study), key=lambda part: [*order, part["label"]].index(part["label"])):
        counts = sorted({row["agents"] for row in part.get("rows", ()) if not row.get("engine")})
        values = [results.values(study, part["label"], "return_2c", agents=count) for count in counts]
        if counts and all(len(value) for value in values):
            seeds = min(map(len, values))
            scaled = [-value[:seeds] / count**2 for value, count in zip(values, counts, strict=True)]
            lines.append((titled(part["label"]), np.array(counts), np.array(scaled)))
    if not lines:
        return None
    figure, axes = chart("agents", "-return / agents squared (lower is better)")
    least = min(2, max(len(counts) for _, counts, _ in lines))  # a single size is no line
    for number, (name, counts, values) in enumerate(lines):
        if len(counts) >= least:  # gaps let lines below be seen
            draw_curve(axes, counts, values, name, line=DASHES[number % len(DASHES)])
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(bottom=0)
    legend_below(figure, axes)
    return png(figure, **CLOSE)


def trajectories(results: Results, study: str, auto: bool = False) -> tuple[bytes, str] | None:
    """Draw how recorded episodes begin, a panel each; return whole ones as HTML that moves, too.

    Of the meetings of methods those of LEGO and MAPPO are shown. What is `auto` plays by itself.
    """
    parts = [part for part in results.study(study) if part["label"] in MEETINGS or study != "head-to-head"]
    found = [(part, record) for part in parts for record in part.get("trajectories", ())]
    if not found:
        return None
    task = TASKS.read(found[0][1]["task"], "a trajectory's task")
    paths = [np.array(record["positions"], float) for _, record in found]
    titles = [f"{paper.named(part['label'])} {record['title']}".strip() for part, record in found]
    failed = [Failure(**record["failed"]) if "failed" in record else None for _, record in found]
    still = draw_paths(task, [path[:SHOWN] for path in paths], titles=titles, failures=failed)
    return png(still, dpi=150), player(task, paths, titles, failed, auto)


def scenes(results: Results, study: str) -> bytes:
    """Draw the paper's first figure: a scene, the same swapped, rotated and reflected, with the actions as arrows."""
    part = results.study(study)[0]
    shown = part["scenes"]
    places = np.array([scene["positions"] for scene in shown])
    reach = max(1.2, 1.1 * float(np.abs(places).max()))
    actions = np.array([scene["actions"] for scene in shown])
    scale = 0.45 / max(float(np.linalg.norm(actions, axis=-1).max()), 1e-9)
    figure, panels = grid(len(shown), 2, WIDTH / 2, title=0.25, legend=0.0)
    for axes, scene in zip(panels, shown, strict=True):
        style(axes, np.array([[-reach, -reach], [reach, reach]]))
        axes.tick_params(labelbottom=False, labelleft=False)
        axes.set_title(scene["title"], fontsize=9, color=INK)
        counts: dict[str, int] = {}
        for entity, (role, place) in enumerate(zip(part["roles"], scene["positions"], strict=True)):
            counts[role] = counts.get(role, 0) + 1
            axes.add_patch(Circle(tuple(place), part["radii"][entity], color=COLOURS.get(role, GREY), zorder=2))
            if entity < len(scene["actions"]):
                tip = np.array(place) + scale * np.array(scene["actions"][entity])
                axes.annotate("", tuple(tip), place, arrowprops={"arrowstyle": "->", "color": INK, "lw": 1.2}, zorder=3)
                axes.annotate(str(counts[role]), place, fontsize=7, color="white", ha="center", va="center", zorder=4)
    return png(figure, **CLOSE)


def chart(x: str, y: str, height: float = 3.1) -> tuple[Figure, Axes]:
    """Return a figure with one plain panel whose axes are named."""
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_subplot()
    plain(axes, x, y)
    return figure, axes


def plain(axes: Axes, x: str, y: str) -> None:
    """Give a panel of any figure the look that all charts have, and name its axes."""
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.grid(color=PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_prop_cycle(color=[POLICIES[name].colour for name in POLICIES.names() if POLICIES[name].in_paper])
    axes.tick_params(labelsize=9, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)


def _colour(label: str) -> str:
    """Return the colour of the method that a label begins with."""
    method = re.split("[ ,]", label)[0]
    return POLICIES[method].colour if method in POLICIES.names() else GREY
