"""Draw docs/figures/equivariance.gif: one swarm as it is, turned and mirrored, flown by the same policy.

python tools/readme_animation.py
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrow, Polygon
from PIL import Image

from legoswarm.deploy.runtime import load_runtime
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.task import State

OUT = Path(__file__).parent.parent / "docs" / "figures" / "equivariance.gif"
AGENTS, ROUNDS, STEPS, SEED = 6, 3, 6, 5  # in each round landmarks lie elsewhere, for so many steps
BETWEEN, TRAIL, FPS, HOLD = 6, 5, 20, 15  # frames a step; steps of trail; frames a second; frames at the end
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")  # of Okabe and Ito, one for each agent
INK, GREY = "#222222", "#777777"
TURN = math.radians(130)
WORLDS = {
    "a swarm of six, trained as four": np.eye(2),
    "the same world, turned": np.array([[math.cos(TURN), -math.sin(TURN)], [math.sin(TURN), math.cos(TURN)]]),
    "the same world, mirrored": np.diag([-1.0, 1.0]),
}
SIDE, DPI, REACH = 2.95, 100, 1.5  # inches of a panel; units from its centre to its edge


def fly(matrix: np.ndarray) -> np.ndarray:
    """Return the positions (steps, entities, 2) of a run whose start and landmarks are transformed by `matrix`."""
    task, policy, rng = Spread(agents=AGENTS), load_runtime("zoo:spread"), np.random.default_rng(SEED)
    roles = ["agent"] * AGENTS + ["landmark"] * AGENTS
    position, velocity = rng.uniform(-1, 1, (2 * AGENTS, 2)) @ matrix.T, np.zeros((2 * AGENTS, 2))
    path = []
    for step in range(ROUNDS * STEPS + 1):
        if step % STEPS == 0 and step < ROUNDS * STEPS:
            position = np.concatenate([position[:AGENTS], scattered(rng) @ matrix.T])
        path.append(position)
        state = State(position, velocity, np.ones(2 * AGENTS, bool), np.zeros((), np.int32))
        state = task.step(state, policy.act(position, velocity, roles).astype(float))
        position, velocity = state.position, state.velocity
    return np.stack(path)


def scattered(rng: np.random.Generator) -> np.ndarray:
    """Return places for landmarks, far enough from each other to be covered without collisions."""
    while True:
        places = rng.uniform(-0.85, 0.85, (AGENTS, 2))
        gaps = np.linalg.norm(places[:, None] - places, axis=-1)
        if gaps[~np.eye(AGENTS, dtype=bool)].min() > 0.45:
            return places


def smooth(path: np.ndarray) -> np.ndarray:
    """Return the path with frames between its steps: agents move evenly within a step, landmarks do not move."""
    times = np.arange(BETWEEN * (len(path) - 1) + 1) / BETWEEN
    before = np.minimum(times.astype(int), len(path) - 2)
    share = (times - before)[:, None, None]
    places = (1 - share) * path[before] + share * path[before + 1]
    places[:, AGENTS:] = path[before, AGENTS:]
    return places


class Panel:
    """One world: its outline and axes, transformed as it is, landmarks, agents and their trails."""

    def __init__(self, axes: Axes, title: str, matrix: np.ndarray, path: np.ndarray):
        self.path = path
        axes.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal")
        axes.set_axis_off()
        axes.set_title(title, fontsize=11, color=INK, pad=2)
        square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) @ matrix.T
        axes.add_patch(Polygon(square, facecolor="#F7F7F7", edgecolor="#CCCCCC", linewidth=0.8, zorder=0))
        self._compass(axes, matrix)
        agents = [Circle((0, 0), 0.15, facecolor=to_rgba(c, 0.45), edgecolor=c, zorder=3) for c in COLOURS]
        landmarks = [Circle((0, 0), 0.05, facecolor=INK, edgecolor="none", zorder=1) for _ in range(AGENTS)]
        self.bodies = [*agents, *landmarks]
        for body in self.bodies:
            axes.add_patch(body)
        self.length = TRAIL * BETWEEN
        shades = [to_rgba(c, alpha) for alpha in np.linspace(0.8, 0, self.length, endpoint=False) for c in COLOURS]
        self.trails = LineCollection([], colors=shades, linewidths=2, capstyle="butt", zorder=2)
        axes.add_collection(self.trails)

    @staticmethod
    def _compass(axes: Axes, matrix: np.ndarray) -> None:
        """Draw the world's own x and y at its lower left corner."""
        corner = matrix @ (-0.93, -0.93)
        style: Any = {"width": 0.008, "head_width": 0.055, "length_includes_head": True, "color": GREY, "zorder": 1}
        for name, axis in zip("xy", matrix.T, strict=True):
            axes.add_patch(FancyArrow(corner[0], corner[1], 0.26 * axis[0], 0.26 * axis[1], **style))
            x, y = corner + 0.34 * axis
            axes.text(x, y, name, fontsize=8, color=GREY, ha="center", va="center")

    def show(self, frame: int) -> None:
        """Move everybody to a frame."""
        for body, place in zip(self.bodies, self.path[frame], strict=True):
            body.set_center(tuple(place))
        points = self.path[np.maximum(frame - np.arange(self.length + 1), 0), :AGENTS]
        self.trails.set_segments(list(np.stack([points[:-1], points[1:]], axis=2).reshape(-1, 2, 2)))


def main() -> None:
    """Fly the three worlds, compare them, and write the animation."""
    paths = {title: fly(matrix) for title, matrix in WORLDS.items()}
    (_, original), *others = paths.items()
    errors = [np.abs(path @ WORLDS[title] - original).max((1, 2)) for title, path in others]
    once, end = np.max(errors, 0)[1], np.max(errors)
    figure = Figure(figsize=(3 * SIDE, SIDE + 0.5), dpi=DPI)
    canvas = FigureCanvasAgg(figure)
    height = figure.get_figheight()
    panels = []
    for number, (title, path) in enumerate(paths.items()):
        axes = figure.add_axes((number / 3, 0.24 / height, 1 / 3, SIDE / height))
        panels.append(Panel(axes, title, WORLDS[title], smooth(path)))
    found = f"{once:.0e} after one step and {end:.0e} after {len(original) - 1}"
    note = f"turned and mirrored back, the runs differ by at most {found}: rounding that grows"
    figure.text(0.5, 0.14 / height, note, ha="center", va="center", fontsize=9, color=GREY)
    frames = []
    for frame in range(len(panels[0].path)):
        for panel in panels:
            panel.show(frame)
        canvas.draw()
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()))
    sample = Image.fromarray(np.concatenate([np.asarray(frame) for frame in frames[:: 2 * BETWEEN]]))
    palette = sample.quantize(128, dither=Image.Dither.NONE)
    still = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    colours = np.array(palette.getpalette()).reshape(-1, 3)
    colours[still[0].getpixel((0, 0))] = 255  # quantizing leaves the background not quite white
    for frame in still:
        frame.putpalette(colours.ravel().tolist())
    durations = [1000 // FPS] * (len(still) - 1) + [HOLD * 1000 // FPS]
    still[0].save(OUT, save_all=True, append_images=still[1:], duration=durations, loop=0, optimize=False)
    print(f"{OUT}: {len(still)} frames, {OUT.stat().st_size / 1e6:.2f} MB; {note}")


if __name__ == "__main__":
    main()
