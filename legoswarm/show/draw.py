"""Episodes as still pictures, and what pictures share: colours, views and how files are written; without JAX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from matplotlib.ticker import MaxNLocator

from legoswarm.files import beside
from legoswarm.layout import Layout
from legoswarm.tasks.worlds.rectangles import Rectangles

if TYPE_CHECKING:
    from legoswarm.evaluate.episodes import Trajectory
    from legoswarm.tasks.task import Task
else:  # flights are drawn where there is no JAX
    Task = Trajectory = Any

# Okabe and Ito's colours, which colour-blind readers can tell apart; other roles take the spare ones in turn.
COLOURS = {
    "agent": "#0072B2",
    "pursuer": "#D55E00",
    "evader": "#009E73",
    "landmark": "#E69F00",
    "obstacle": "#6E6E6E",
    "centre": "#000000",
    "goal": "#E69F00",
    "hit": "#D55E00",
}
SPARE = ("#CC79A7", "#56B4E9", "#F0E442")
INK, GREY, PALE = "#222222", "#777777", "#E4E4E4"
STILLS = (".png", ".svg", ".pdf")
CROSS: Any = {"linestyle": "", "marker": "x", "markersize": 9, "markeredgewidth": 1.8, "color": INK}
Paths: TypeAlias = Float[np.ndarray, "time entities 2"]  # of one episode, NaN wherever there is nothing to draw
REACH = 1.2  # every view shows at least [-REACH, REACH] on both axes


class Failure(NamedTuple):
    """Names an entity that fails, and the step at which it does."""

    entity: int
    step: int


def draw_paths(
    task: Task,
    paths: Sequence[Paths],
    *,
    titles: Sequence[str] | None = None,
    failures: Sequence[Failure | None] | None = None,
    walls: Rectangles | None = None,
) -> Figure:
    """Draw one panel for each episode: where agents went, from a hollow marker to a filled one.

    All panels have the same scale. A cross marks where the entity of a panel's failure was at its step. `walls` stand
    in every panel.
    """
    if not paths:
        raise ValueError("there is no trajectory to draw")
    for what, given in (("titles", titles), ("failures", failures)):
        if given is not None and len(given) != len(paths):
            raise ValueError(f"{len(paths)} trajectories need as many {what}, not {len(given)}")
    boxes = views(task, paths)
    panel = 4.5 if len(paths) == 1 else 3.0  # inches
    columns = len(paths) if len(paths) <= 4 else min((4, 3), key=lambda columns: -len(paths) % columns)
    legend = 0.3  # inches below all panels
    titled = 0.2 if titles and any(titles) else 0.0  # inches above each panel
    figure, panels = grid(len(paths), columns, panel, titled, legend)
    for number, (axes, positions) in enumerate(zip(panels, paths, strict=True)):
        style(axes, boxes[number])
        if titles:
            size = min(10.0, 120.0 * panel / max(len(titles[number]), 1))  # as wide as the panel at most
            axes.set_title(titles[number], fontsize=size, color=INK, pad=5)
        draw_walls(axes, walls)
        _draw_panel(axes, task, positions, fineness(task, boxes[number], panel))
        if failures and (failure := failures[number]) and failure.step < len(positions):
            axes.plot(*positions[failure.step, failure.entity], **CROSS, zorder=4)
    keys = [*role_keys(task.layout, paths), _key("start", INK, "white"), _key("end", INK)]
    if failures and any(failures):
        keys.append(Line2D([], [], label="failure", **CROSS))
    add_legend(figure, keys, 0.5 * legend / figure.get_figheight())
    return figure


def grid(count: int, columns: int, side: float, title: float, legend: float) -> tuple[Figure, list[Axes]]:
    """Return square panels in rows from the top, with room above each for a title and below for a legend; inches."""
    rows = math.ceil(count / columns)
    height = rows * (side + title) + legend
    figure = Figure(figsize=(columns * side, height))
    FigureCanvasAgg(figure)
    panels = []
    for number in range(count):
        row, column = divmod(number, columns)
        bottom = legend + (rows - 1 - row) * (side + title)
        place = (column + 0.03) / columns, (bottom + 0.09) / height, 0.94 / columns, 0.94 * side / height
        panels.append(figure.add_axes(place))
    return figure, panels


def save(figure: Figure, path: Path) -> None:
    """Write a picture as a whole; the suffix of `path` chooses PNG, SVG or PDF."""
    if path.suffix.lower() not in STILLS:
        raise ValueError(f"a still picture is written as one of {', '.join(STILLS)}, not {path.suffix!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with beside(path) as part:
        figure.savefig(part, dpi=150)


def walls_of(trajectory: Trajectory) -> Rectangles | None:
    """Return the rectangles of an episode's world, if it has any."""
    walls = getattr(trajectory.states, "obstacles", None)
    return None if walls is None else Rectangles(*(np.asarray(part)[0] for part in walls))


def draw_walls(axes: Axes, walls: Rectangles | None) -> None:
    """Draw rectangles that stand still."""
    for centre, half, angle in zip(*walls, strict=True) if walls else ():
        turned: Any = {"angle": math.degrees(angle), "rotation_point": "center"}
        look: Any = {"facecolor": COLOURS["obstacle"], "edgecolor": "none", "alpha": 0.6, "zorder": 0.5}
        axes.add_patch(Rectangle(centre - half, *(2 * half), **turned, **look))


def fineness(task: Task, box: Float[np.ndarray, "2 2"], inches: float) -> float:
    """Return by how much thinner lines are than usual, so that many agents in a panel do not blot it: 1 for a few."""
    wide = 72 * inches * 2 * float(np.mean(task.radii[: task.layout.agents])) / float(box[1, 0] - box[0, 0])
    return min(1.0, wide / 12)  # points


def _draw_panel(axes: Axes, task: Task, positions: Paths, fine: float) -> None:
    layout = task.layout
    for entity, (role, radius) in enumerate(zip(entity_roles(layout), task.radii, strict=True)):
        drawn = positions[:, entity][~np.isnan(positions[:, entity, 0])]
        if not len(drawn):
            continue
        colour = colours(layout)[role]
        if entity >= layout.agents:
            if not layout.each(role) or not np.isnan(positions[-1, entity, 0]):
                axes.add_patch(Circle(drawn[-1], radius, facecolor=colour, edgecolor="none", zorder=1))
            continue
        axes.plot(*drawn.T, color=colour, linewidth=1.4 * fine, alpha=0.8, solid_joinstyle="round", zorder=2)
        ends = {"linestyle": "", "marker": "o", "markersize": 6 * fine, "markeredgecolor": colour, "zorder": 3}
        ends["markeredgewidth"] = 1.4 * fine
        axes.plot(*drawn[0], markerfacecolor="white", **ends)
        axes.plot(*drawn[-1], markerfacecolor=colour, **ends)


def visible_path(task: Task, trajectory: Trajectory) -> Paths:
    """Return positions until the episode ended, NaN wherever there is nothing to draw."""
    states, entities = trajectory.states, task.layout.entities
    position, exists, alive = (np.asarray(each) for each in (states.position, states.exists, trajectory.alive))
    if position.ndim != 3 or position.shape[1] != entities:
        raise ValueError(f"a picture needs one trajectory of shape (time, {entities}, 2), not {position.shape}")
    drawn = exists[..., None] & np.isfinite(position).all(-1, keepdims=True)
    return np.where(drawn, position, np.nan)[alive]


def view(task: Task, paths: Sequence[Paths]) -> Float[np.ndarray, "2 2"]:
    """Return the lower and upper corner of a square that shows all of the paths."""
    radii = np.asarray(task.radii)[:, None]
    low = np.fmin(-REACH, np.fmin.reduce([np.fmin.reduce(p - radii, axis=(0, 1)) for p in paths]))
    high = np.fmax(REACH, np.fmax.reduce([np.fmax.reduce(p + radii, axis=(0, 1)) for p in paths]))
    centre, half = (low + high) / 2, 0.52 * (high - low).max()
    return np.stack([centre - half, centre + half])


def views(task: Task, paths: Sequence[Paths]) -> list[Float[np.ndarray, "2 2"]]:
    """Return a view for each panel of a figure: the same for all, but for those where somebody went far away."""
    own = [view(task, [path]) for path in paths]
    sides = np.array([box[1, 0] - box[0, 0] for box in own])
    usual = sides <= 1.5 * np.median(sides)
    shared = view(task, [path for path, fits in zip(paths, usual, strict=True) if fits])
    return [shared if fits else box for box, fits in zip(own, usual, strict=True)]


def style(axes: Axes, box: Float[np.ndarray, "2 2"]) -> None:
    """Give a panel equal aspect, a fixed view, and a pale grid with small numbers inside it."""
    axes.set(xlim=box[:, 0], ylim=box[:, 1], aspect="equal", axisbelow=True)
    axes.grid(color=PALE, linewidth=0.7)
    axes.tick_params(length=0, labelsize=6, labelcolor="#AAAAAA")
    axes.tick_params(axis="x", pad=-9)
    axes.tick_params(axis="y", pad=-4)
    for label in axes.get_yticklabels():
        label.set_horizontalalignment("left")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], prune="both"))
    for spine in axes.spines.values():
        spine.set(color="#BBBBBB", linewidth=0.8)


def entity_roles(layout: Layout) -> tuple[str, ...]:
    """Return the role of each entity."""
    pairs = zip(layout.roles, layout.slots, strict=True)
    return tuple(role for role, slots in pairs for _ in range(slots))


def colours(layout: Layout) -> dict[str, str]:
    """Return a colour for each role, the same in every picture."""
    others = [role for role in layout.roles if role not in COLOURS]
    return COLOURS | {role: SPARE[number % len(SPARE)] for number, role in enumerate(others)}


def role_keys(layout: Layout, paths: Sequence[Paths]) -> list[Line2D]:
    """Return legend entries of the roles that are in the picture."""
    blocks = {role: layout.block(role) for role in layout.roles}
    present = [role for role, block in blocks.items() if any(np.isfinite(p[:, block]).any() for p in paths)]
    return [_key(role, colours(layout)[role]) for role in present]


def _key(label: str, edge: str, face: str | None = None) -> Line2D:
    return Line2D([], [], ls="", marker="o", ms=6, label=label, color=edge, markerfacecolor=face or edge)


def add_legend(figure: Figure, keys: Sequence[Line2D], height: float, size: float = 8) -> None:
    """Add one row of entries, centred at a height given as a share of the figure's, no wider than the figure."""
    look: Any = {"frameon": False, "labelcolor": INK, "handlelength": 1.6, "handletextpad": 0.4, "columnspacing": 1.2}
    place: Any = {"loc": "center", "bbox_to_anchor": (0.5, height)}
    legend = figure.legend(handles=keys, ncols=len(keys), fontsize=size, **place, **look)
    width = legend.get_window_extent().width / figure.bbox.width
    if width > 1:
        legend.remove()
        add_legend(figure, keys, height, 0.98 * size / width)
