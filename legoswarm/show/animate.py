"""An episode as an animation: artists are drawn once and moved from frame to frame."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, HTMLWriter, PillowWriter
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

from legoswarm.evaluate.episodes import Trajectory
from legoswarm.files import beside
from legoswarm.show import draw
from legoswarm.show.draw import GREY, INK, STILLS, Paths
from legoswarm.tasks.task import Task

MOVIES = (".gif", ".html", ".mp4")
DPI = 100
WIDTH = 5.0  # inches
ACTION = "#A3005A"
DASHED = (0, (2, 1.2))
Update = Callable[[int], object]  # moves artists to a step


def animate(
    task: Task,
    trajectory: Trajectory,
    path: str | Path,
    *,
    title: str = "",
    axes: bool = False,
    arrows: bool = False,
    fps: int = 10,
    trail: int = 15,
) -> None:
    """Write one episode as a GIF, a self-contained HTML page, an MP4 (with ffmpeg) or a still picture.

    The suffix of `path` chooses. `axes` adds each agent's canonical frame (x solid, y dashed), `arrows` its
    action in the world, and `trail` says how many past steps are shown.
    """
    path = Path(path)
    positions = draw.visible_path(task, trajectory)
    if path.suffix.lower() in STILLS:
        return draw.save(draw.draw_paths(task, [positions], titles=[title], walls=draw.walls_of(trajectory)), path)
    if fps < 1 or trail < 0:
        raise ValueError(f"fps must be at least 1 and the trail at least 0, not {fps} and {trail}")
    writer = _writer(path.suffix, fps)
    trajectory = jax.device_get(trajectory)
    numbers = _running_figures(task, trajectory)
    figure, panel = _stage(task, positions, draw.walls_of(trajectory), title, list(numbers), axes, arrows)
    updates = [_trails(panel, task, positions, trail), _bodies(panel, task, positions), _texts(figure, numbers)]
    if axes:
        updates.append(_frames(panel, task, trajectory, positions))
    if arrows:
        updates.append(_actions(panel, task, trajectory, positions))
    path.parent.mkdir(parents=True, exist_ok=True)
    with beside(path) as part:
        with writer.saving(figure, part, dpi(task)):
            for step in range(len(positions)):
                for update in updates:
                    update(step)
                writer.grab_frame()
        if path.suffix.lower() == ".html":
            part.write_text(_without_icon_font(part.read_text()))
    return None


def dpi(task: Task) -> int:
    """Return the pixels of an inch: twice as many for a swarm, so that its members can be told apart."""
    return DPI if task.layout.agents < 100 else 2 * DPI


def _writer(suffix: str, fps: int) -> AbstractMovieWriter:
    match suffix.lower():
        case ".gif":
            return PillowWriter(fps=fps)
        case ".html":
            return HTMLWriter(fps=fps, embed_frames=True, embed_limit=math.inf)
        case ".mp4" if FFMpegWriter.isAvailable():
            return FFMpegWriter(fps=fps, codec="h264")
        case ".mp4":
            raise ValueError("an .mp4 animation needs ffmpeg, which is not installed; .gif and .html do not")
        case _:
            known = ", ".join((*MOVIES, *STILLS))
            raise ValueError(f"an animation is written as one of {known}, not {suffix!r}")


class _Backdrop(Artist):
    """Holds pixels that were drawn before."""

    def __init__(self, figure: Figure):
        super().__init__()
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        self._pixels = canvas.copy_from_bbox(figure.bbox)
        self.set_zorder(-1)

    def draw(self, renderer: Any) -> None:
        """Put them down."""
        renderer.restore_region(self._pixels)


def _stage(
    task: Task,
    positions: Paths,
    walls: draw.Rectangles | None,
    title: str,
    columns: list[str],
    axes: bool,
    arrows: bool,
) -> tuple[Figure, Axes]:
    """Place title, legend, panel and named columns for numbers, from top to bottom.

    What stands still is drawn here, once: it is the backdrop of the figure and the panel that are returned.
    """
    margin, top, bottom = 0.12, 0.62 if title else 0.34, 0.5  # inches
    side = WIDTH - 2 * margin
    height = top + side + bottom
    still, moving = (Figure(figsize=(WIDTH, height), dpi=dpi(task)) for _ in range(2))
    place = (margin / WIDTH, bottom / height, side / WIDTH, side / height)
    box = draw.view(task, [positions])
    backdrop = still.add_axes(place)
    draw.style(backdrop, box)
    draw.draw_walls(backdrop, walls)
    centred: Any = {"ha": "center", "va": "center"}
    still.text(0.5, 1 - 0.2 / height, title, **centred, fontsize=12, color=INK)
    for number, name in enumerate(columns):
        x = (number + 0.5) / len(columns)
        still.text(x, 0.15 / height, name.replace("_", " "), **centred, fontsize=7.5, color=GREY)
        moving.text(x, 0.33 / height, "", **centred, fontsize=10, color=INK)
    keys = draw.role_keys(task.layout, [positions])
    if axes:
        keys.append(Line2D([], [], color=INK, label="frame x"))
        keys.append(Line2D([], [], color=INK, linestyle=DASHED, label="frame y"))
    if arrows:
        keys.append(Line2D([], [], color=ACTION, linewidth=2, label="action"))
    draw.add_legend(still, keys, 1 - (top - 0.17) / height)
    FigureCanvasAgg(moving)
    moving.add_artist(_Backdrop(still))
    panel = moving.add_axes(place, xlim=box[:, 0], ylim=box[:, 1])
    panel.set_axis_off()
    return moving, panel


def _bodies(panel: Axes, task: Task, positions: Paths) -> Update:
    """Draw circles; smaller ones lie above larger ones, and agents are translucent."""
    palette, agents = draw.colours(task.layout), task.layout.agents
    circles: list[Circle] = []
    fine = _fineness(panel, task)
    for entity, (role, radius) in enumerate(zip(draw.entity_roles(task.layout), task.radii, strict=True)):
        alpha, line = (0.35, 1.5 * fine) if entity < agents else (1.0, 0.0)
        look: Any = {"facecolor": to_rgba(palette[role], alpha), "edgecolor": palette[role], "linewidth": line}
        circles.append(Circle((0, 0), radius, zorder=4 - radius / max(task.radii), **look))
        panel.add_patch(circles[-1])

    def update(step: int) -> None:
        for circle, position in zip(circles, positions[step], strict=True):
            circle.set_visible(bool(np.isfinite(position).all()))
            circle.set_center(position)

    return update


def _fineness(panel: Axes, task: Task) -> float:
    return draw.fineness(task, np.array([panel.get_xlim(), panel.get_ylim()]).T, WIDTH)


def _trails(panel: Axes, task: Task, positions: Paths, trail: int) -> Update:
    """Draw the last `trail` steps of each agent, fading with age."""
    agents, palette = task.layout.agents, draw.colours(task.layout)
    fade = np.linspace(0.7, 0.0, trail, endpoint=False)
    roles = draw.entity_roles(task.layout)[:agents]
    shades = [to_rgba(palette[role], alpha) for alpha in fade for role in roles]
    lines = LineCollection([], colors=shades, linewidths=2 * _fineness(panel, task), capstyle="butt", zorder=2)
    panel.add_collection(lines)

    def update(step: int) -> None:
        points = positions[np.maximum(step - np.arange(trail + 1), 0), :agents]
        lines.set_segments(list(np.stack([points[:-1], points[1:]], axis=2).reshape(-1, 2, 2)))

    return update


def _frames(panel: Axes, task: Task, trajectory: Trajectory, positions: Paths) -> Update:
    """Draw each agent's R = [x y]: the first axis solid, the second dashed."""
    roles, agents = task.layout.controlled_roles, task.layout.agents
    rotation = np.concatenate([trajectory.decisions[role].frame.rotation for role in roles], axis=1)
    length = np.asarray(task.radii)[:agents, None] + 0.02 * np.diff(panel.get_xlim())
    axes = [LineCollection([], colors=INK, linewidths=1.5, linestyles=look, zorder=5) for look in ("solid", DASHED)]
    for lines in axes:
        panel.add_collection(lines)

    def update(step: int) -> None:
        origin = positions[step, :agents]
        for column, lines in enumerate(axes):
            tip = origin + length * rotation[step, :, :, column]
            lines.set_segments(list(np.stack([origin, tip], axis=1)))

    return update


def _actions(panel: Axes, task: Task, trajectory: Trajectory, positions: Paths) -> Update:
    """Draw arrows as long as the action, up to a length that one action in twenty reaches."""
    agents = task.layout.agents
    there = np.isfinite(positions[:, :agents, 0])
    action = np.asarray(trajectory.actions, float)[: len(positions)]
    size = np.linalg.norm(action, axis=-1, keepdims=True)
    usual = max(float(np.quantile(size[there], 0.95)), 1e-9) if there.any() else 1.0
    longest = 0.1 * float(np.diff(panel.get_xlim())[0])
    vectors = longest * action / np.maximum(size, usual)
    vectors[~there] = 0
    look: Any = {"angles": "uv", "scale_units": "xy", "scale": 1, "units": "width", "width": 0.006, "zorder": 6}
    arrows = panel.quiver(*positions[0, :agents].T, *vectors[0].T, color=ACTION, **look)

    def update(step: int) -> None:
        arrows.set_offsets(positions[step, :agents])
        arrows.set_UVC(*vectors[step].T)

    return update


def _running_figures(task: Task, trajectory: Trajectory) -> dict[str, Float[np.ndarray, " time"]]:
    """Return the step and, before each step, the task's figures so far: the primary one and up to three others."""
    time = np.arange(len(trajectory.alive))
    measures = trajectory.measures.items()
    history = [
        task.figures({name: values[:step] if step else 0 * values[:1] for name, values in measures}) for step in time
    ]
    names = sorted(history[0], key=lambda name: name != task.primary)[:4]
    series = {name: np.array([float(figures[name]) for figures in history]) for name in names}
    return {"step": time.astype(float), **series}


def _texts(figure: Figure, numbers: dict[str, Float[np.ndarray, " time"]]) -> Update:
    """Write one number in each column, without digits after the point where all are whole."""
    digits = [0 if (values == np.round(values)).all() else 1 for values in numbers.values()]
    columns = list(zip(figure.texts, numbers.values(), digits, strict=True))

    def update(step: int) -> None:
        for text, values, digits in columns:
            text.set_text(f"{values[step] + 0.0:.{digits}f}".replace("-", "\N{MINUS SIGN}"))

    return update


def _without_icon_font(page: str) -> str:
    """Return the page with characters on its buttons, where Matplotlib's icons would be fetched from the web."""
    icons = {"minus": "-", "plus": "+", "fast-backward": "|&laquo;", "step-backward": "&lsaquo;"}
    icons |= {"play fa-flip-horizontal": "&#9664;", "pause": "||", "play": "&#9654;"}
    icons |= {"step-forward": "&rsaquo;", "fast-forward": "&raquo;|"}
    page = re.sub(r'<link rel="stylesheet"\s+href="https?:[^>]*>', "", page)
    return re.sub(r'<i class="fa fa-([^"]*)"></i>', lambda found: icons.get(found[1], found[1]), page)
