"""Flights as a picture, like the paper's figure of its trials, and as an animation; from logs alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle

from legoswarm.deploy.flightlog import Flight
from legoswarm.deploy.safety import BODY, Reason
from legoswarm.files import FileError, beside
from legoswarm.tasks.worlds.protocol import find_protocol

TRAIL = 12  # frames
LEGEND = 0.35  # inches
STAR = {"marker": "*", "markersize": 7}
GUARD = "#CC79A7"  # of Okabe and Ito's colours, one that no role has
LIMITS = Reason.SPEED | Reason.ACCELERATION  # shorten a wish and leave its direction: they do not count as the guard's


def draw_flights(flights: Sequence[Flight], path: Path, titles: Sequence[str]) -> None:
    """Draw a panel for each flight: where drones went during the run, from a hollow marker to a filled one.

    A cross marks where a drone failed, a star where a pursuer caught an evader, and a broad line where the guard led a
    drone elsewhere than its policy wanted. Obstacles are drawn as they stand, with the size that they had in training
    around them.
    """
    from legoswarm.show.draw import INK, add_legend, grid, save

    figure, panels = grid(len(flights), min(len(flights), 3), 3.6, 0.25, LEGEND)
    for axes, flight, title in zip(panels, flights, titles, strict=True):
        _draw_room(axes, flight)
        axes.set_title(title, fontsize=10, color=INK, pad=5)
        _draw_paths(axes, flight)
    add_legend(figure, _keys(flights), 0.5 * LEGEND / figure.get_figheight())
    save(figure, path)


def animate_flight(flight: Flight, path: Path) -> None:
    """Write the run as a GIF, with a frame for each step of the policy; a ring is around whom the guard leads."""
    from legoswarm.show.draw import COLOURS, INK, add_legend, grid

    run = flight.during("run")
    time, places = flight.time[run], flight.position[run][..., :2]
    if not len(time):
        raise FileError("this flight has no run to animate: it ended before")
    figure, (axes,) = grid(1, 1, 5.0, 0.25, LEGEND)
    _draw_room(axes, flight)
    keys = _keys([flight])
    add_legend(figure, [*keys[: len(set(flight.about["roles"])) + 1], keys[-1]], 0.5 * LEGEND / figure.get_figheight())
    words = axes.set_title("", fontsize=10, color=INK, pad=5)
    colours = [COLOURS[role] for role in flight.about["roles"]]
    bodies = [Circle((0, 0), BODY, color=colour, zorder=4) for colour in colours]
    rings = [Circle((0, 0), 1.8 * BODY, fill=False, edgecolor=GUARD, linewidth=3, zorder=4) for _ in colours]
    for body in (*bodies, *rings):
        axes.add_patch(body)
    guarded = _guarded(flight)
    trails = [axes.plot([], [], color=colour, alpha=0.5, linewidth=2, zorder=3)[0] for colour in colours]
    failures = {event["drone"]: event["t"] for event in flight.events if "failure" in event}
    begun, period = float(time[0]), 0.1 * flight.about["chase"]["stretch"]
    frames = np.searchsorted(time, begun + period * np.arange(math.ceil((time[-1] - begun) / period)))
    path.parent.mkdir(parents=True, exist_ok=True)
    with beside(path) as part:
        writer = PillowWriter(fps=10)
        with writer.saving(figure, part, 100):
            for number, at in enumerate(frames):
                for drone, (name, body) in enumerate(zip(flight.about["names"], bodies, strict=True)):
                    body.set_center(places[at, drone])
                    rings[drone].set_center(places[at, drone])
                    rings[drone].set_visible(bool(guarded[frames[max(number - 1, 0)] : at + 1, drone].any()))
                    trail = places[frames[max(number - TRAIL, 0)] : at + 1, drone]
                    trails[drone].set_data(*trail.T)
                    if time[at] >= failures.get(name, math.inf):
                        body.set(facecolor="none", linestyle="--")
                now = [event["words"] for event in flight.events if 0 <= time[at] - event["t"] < 2.5 * period]
                words.set_text(f"step {number}   {now[-1] if now else ''}")
                writer.grab_frame()


def _draw_room(axes: Axes, flight: Flight) -> None:
    """Draw the fence and the obstacles."""
    from legoswarm.show.draw import COLOURS, GREY, style

    about = flight.about
    fence, soft = about["rules"]["fence"], about["chase"]["fence"]
    half = 1.1 * fence  # the numbers stand outside the fence, which is the frame
    style(axes, np.array([[-half, -half], [half, half]]))
    axes.spines[:].set_visible(False)
    for size, look in ((fence, "-"), (soft, ":")):
        box: Any = {"fill": False, "edgecolor": GREY, "linewidth": 0.8, "linestyle": look, "zorder": 1}
        axes.add_patch(Rectangle((-size, -size), 2 * size, 2 * size, **box))
    trained = about["chase"]["scale"] * find_protocol(about["chase"]["protocol"]).obstacle_radius
    for place in about.get("landmarks", []):
        axes.plot(*place, marker="s", markersize=7, color=COLOURS["landmark"], linestyle="", zorder=1)
    for obstacle in about["obstacles"]:
        centre = tuple(obstacle["centre"])
        axes.add_patch(Circle(centre, trained, facecolor=COLOURS["obstacle"], alpha=0.25, linewidth=0, zorder=1))
        axes.add_patch(Circle(centre, obstacle["radius"], color=COLOURS["obstacle"], zorder=2))


def _draw_paths(axes: Axes, flight: Flight) -> None:
    """Draw where drones went, failed and were caught."""
    from legoswarm.show.draw import COLOURS, CROSS

    run = flight.during("run")
    time, places = flight.time[run], flight.position[run][..., :2]
    guarded = _guarded(flight)
    for drone, role in enumerate(flight.about["roles"]):
        colour, path = COLOURS[role], places[:, drone]
        led = np.where(guarded[:, drone, None], path, np.nan)
        axes.plot(*led.T, color=GUARD, linewidth=5, alpha=0.55, solid_capstyle="butt", zorder=2.5)
        axes.plot(*path.T, color=colour, linewidth=1.4, alpha=0.8, zorder=3)
        ends: Any = {"linestyle": "", "marker": "o", "markersize": 6, "markeredgecolor": colour, "zorder": 4}
        axes.plot(*path[0], markerfacecolor="white", markeredgewidth=1.4, **ends)
        axes.plot(*path[-1], markerfacecolor=colour, **ends)
    for event in flight.events:
        if "failure" in event or "capture" in event:
            name, mark = (event["drone"], CROSS) if "failure" in event else (event["capture"][1], STAR)
            at = min(int(np.searchsorted(time, event["t"])), len(time) - 1)
            axes.plot(*places[at, flight.about["names"].index(name)], **{**CROSS, **mark}, zorder=5)


def _guarded(flight: Flight) -> Bool[np.ndarray, "ticks drones"]:
    """Return when, during the run, the guard led each drone elsewhere than its policy wanted."""
    return np.asarray(flight.reasons[flight.during("run")] & ~int(LIMITS)) != 0


def _keys(flights: Sequence[Flight]) -> list[Line2D]:
    from legoswarm.show.draw import COLOURS, CROSS, INK

    roles = [
        role for role in ("agent", "pursuer", "evader") if any(role in flight.about["roles"] for flight in flights)
    ]
    look: Any = {"linestyle": "", "markersize": 6}
    keys = [Line2D([], [], marker="o", color=COLOURS[role], label=role, **look) for role in [*roles, "obstacle"]]
    keys.append(Line2D([], [], marker="o", color=INK, markerfacecolor="white", label="start", **look))
    found = {kind for flight in flights for event in flight.events for kind in event}
    marks = {kind: mark for kind, mark in {"failure": {}, "capture": STAR}.items() if kind in found}
    keys += [Line2D([], [], label=label, **{**CROSS, **mark}) for label, mark in marks.items()]
    return [*keys, Line2D([], [], marker="s", color=GUARD, alpha=0.55, label="led by the guard", **look)]
