"""Episodes as animations in a web page: small drawings that one script moves, all of a group in step."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from legoswarm.show.draw import INK, Failure, Paths, colours, entity_roles, role_keys, views
from legoswarm.tasks.task import Task

STYLE = """
.player { margin: 0.6rem 0; } .player[hidden] { display: none; }
.player > div { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(12rem, 45%), 1fr)); gap: 0.6rem; }
.player > div > div { max-width: 22rem; }
.player span { display: block; text-align: center; font-size: 0.8rem; }
.player svg { width: 100%; aspect-ratio: 1; border: 1px solid #bbb; box-sizing: border-box; display: block; }
.player figcaption { display: flex; align-items: center; gap: 0.6rem; margin: 0 0 0.4rem; }
.player button { min-width: 4.5rem; } .player input { flex: 1; max-width: 20rem; }
.roles { font-size: 0.8rem; margin: 0.4rem 0; }
.roles i { display: inline-block; width: 0.8em; height: 0.8em; border-radius: 50%; }
.trail { fill: none; stroke-width: 0.6%; stroke-opacity: 0.55; stroke-linejoin: round; }
.body { fill-opacity: 0.4; stroke-width: 0.7%; } .cross { fill: none; stroke-width: 1%; }
"""

# A film holds, for each moving entity, its place at each step: x, y, or null where it is not there.
SCRIPT = """
"use strict";
for (const player of document.querySelectorAll(".player")) {
  const films = JSON.parse(player.querySelector("script").textContent);
  const scenes = [...player.querySelectorAll("svg")];
  const [button, slider, label] = ["button", "input", "output"].map(name => player.querySelector(name));
  const last = Number(slider.max);
  const auto = player.dataset.auto !== undefined;  // plays by itself, again and again
  let timer = null, rest = 0;
  const show = () => {
    const step = Number(slider.value);
    label.textContent = `step ${step} of ${last}`;
    scenes.forEach((scene, at) => {
      const [bodies, trails] = [".body", ".trail"].map(name => scene.querySelectorAll(name));
      films[at].forEach((path, entity) => {
        const place = path[Math.min(step, path.length - 1)];
        bodies[entity].style.display = place ? "" : "none";
        if (place) bodies[entity].setAttribute("transform", `translate(${place})`);
        trails[entity].setAttribute("points", path.slice(Math.max(step - 20, 0), step + 1).filter(Boolean).join(" "));
      });
      for (const cross of scene.querySelectorAll(".cross"))
        cross.style.display = step < Number(cross.dataset.step) ? "none" : "";
    });
  };
  const pause = () => { clearInterval(timer); timer = null; button.textContent = "play"; };
  const advance = () => {
    const again = auto && Number(slider.value) === last;
    rest = again ? rest + 1 : 0;
    if (again && rest < 15) return;
    slider.value = again ? 0 : Number(slider.value) + 1;
    show();
    if (Number(slider.value) === last && !auto) pause();
  };
  button.onclick = () => {
    if (timer !== null) return pause();
    if (Number(slider.value) === last) slider.value = 0;
    timer = setInterval(advance, 100);
    button.textContent = "pause";
    show();
  };
  slider.oninput = show;
  player.hidden = false;
  show();
  if (auto && !matchMedia("(prefers-reduced-motion: reduce)").matches) button.click();
}
document.documentElement.dataset.players = document.querySelectorAll(".player").length;
"""


def player(
    task: Task,
    paths: Sequence[Paths],
    titles: Sequence[str],
    failures: Sequence[Failure | None],
    auto: bool = False,
) -> str:
    """Return a group of episodes as HTML, hidden until the page runs `SCRIPT`; one that is `auto` plays by itself.

    A step takes the 0.1 s that it takes in the task. A cross marks a failure from its step on. A legend names colours.
    """
    legend = [
        f'<i style="background: {key.get_color()}"></i> {key.get_label()}' for key in role_keys(task.layout, paths)
    ]
    legend += ["cross: failure"] * any(failures) + ["line: the last two seconds"]
    panels = [
        f'<div><svg viewBox="{_corner_and_sides(box)}" role="img" aria-label="{html.escape(title or "an episode")}">'
        f"{_shapes(task, path, failure)}</svg><span>{html.escape(title)}</span></div>"
        for box, path, title, failure in zip(views(task, paths), paths, titles, failures, strict=True)
    ]
    films = json.dumps([_film(path[:, : task.layout.agents]) for path in paths], separators=(",", ":"))
    last = max(map(len, paths)) - 1
    controls = (
        '<button type="button">play</button>'
        f'<input type="range" min="0" max="{last}" value="{last}" aria-label="step"><output></output>'
    )
    return (
        f'<figure class="player"{" data-auto" * auto} hidden><figcaption>{controls}</figcaption>\n'
        f"<div>{''.join(panels)}</div>\n"
        f'<p class="roles">{", ".join(legend)}</p>\n'
        f'<script type="application/json">{films}</script></figure>'
    )


def _corner_and_sides(box: Float[np.ndarray, "2 2"]) -> str:
    (left, _), (right, top) = box
    return " ".join(f"{number:.3f}" for number in (left, -top, right - left, right - left))


def _shapes(task: Task, path: Paths, failure: Failure | None) -> str:
    """Draw what stands still where it is, trails and bodies of agents for the script to place, and the cross."""
    layout, palette = task.layout, colours(task.layout)
    still, trails, bodies = [], [], []
    for entity, (role, radius) in enumerate(zip(entity_roles(layout), task.radii, strict=True)):
        colour = palette[role]
        if entity < layout.agents:
            trails.append(f'<polyline class="trail" stroke="{colour}"/>')
            bodies.append(f'<circle class="body" r="{radius:g}" fill="{colour}" stroke="{colour}"/>')
        elif (place := _place(path[-1, entity])) is not None:
            still.append(f'<circle cx="{place[0]}" cy="{place[1]}" r="{radius:g}" fill="{colour}"/>')
    cross = ""
    if failure is not None and (place := _place(path[min(failure.step, len(path) - 1), failure.entity])) is not None:
        arm = 1.2 * max(task.radii[: layout.agents])
        lines = f"M{-arm:g} {-arm:g}L{arm:g} {arm:g}M{-arm:g} {arm:g}L{arm:g} {-arm:g}"
        where = f'transform="translate({place[0]},{place[1]})" data-step="{failure.step}"'
        cross = f'<path class="cross" stroke="{INK}" {where} d="{lines}"/>'
    return "".join([*still, *trails, *bodies, cross])


def _film(path: Float[np.ndarray, "time agents 2"]) -> list[list[list[float] | None]]:
    return [[_place(place) for place in path[:, agent]] for agent in range(path.shape[1])]


def _place(place: Float[np.ndarray, "2"]) -> list[float] | None:
    """Return x and y as a drawing has them, with y downwards; None where nothing is."""
    if not np.isfinite(place).all():
        return None
    x, y = np.round(place * (1, -1), 3) + 0.0
    return [float(x), float(y)]
