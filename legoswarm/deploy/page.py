"""A page that runs policies: one HTML file with their weights, the world and the network in JavaScript.

The parts of the page lie in legoswarm/show/page; network.js follows deploy/actor.py. docs/page.md says what it shows.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
import sys
import webbrowser
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.deploy.actor import Affine, NumpyActors, NumpyAttention
from legoswarm.deploy.runtime import Runtime, load_runtime
from legoswarm.files import write_bytes
from legoswarm.frames.rules import AMID, CLOSE
from legoswarm.policies.saved.description import Description
from legoswarm.show.draw import colours

SCRIPTS = ("frame", "network", "world", "team", "view", "app", "controls")
SHOWN = (
    "axis",
    "rest",
    "slow",
    "tie",
    "leash",
    "leash_gain",
    "squash",
    "encoder",
    "depth",
    "heads",
    "pooling",
    "nearest",
)


def write_page(names: Sequence[str | Path], out: str | Path, seed: int | None = None) -> Path:
    """Write a page that runs one seed of each policy, by default the best, and needs nothing else."""
    policies = [_policy(str(name), load_runtime(name, seed)) for name in names]
    parts = resources.files("legoswarm.show") / "page"
    scripts = "\n".join(
        f'<script id="{name}.js">\n{(parts / f"{name}.js").read_text("utf-8")}</script>' for name in SCRIPTS
    )
    page = (parts / "page.html").read_text("utf-8")
    for place, text in (
        ("/* style */", (parts / "page.css").read_text("utf-8")),
        ("<!-- scripts -->", scripts),
        ("/* data */", json.dumps(policies, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")),
    ):
        page = page.replace(place, text)
    write_bytes(Path(out), page.encode())
    return Path(out)


def open_page(path: Path) -> bool:
    """Open a page in the browser of whoever sits at this machine; tell whether there is a screen for that."""
    screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return screen and webbrowser.open(path.resolve().as_uri())


def _policy(name: str, runtime: Runtime) -> dict[str, Any]:
    """Return what the page knows about a policy."""
    about, weights = runtime.description, _Weights()
    actors = [_actor(weights, runtime.actors, own) for own in range(about.layout.controlled)]
    palette = colours(about.layout)
    return {
        "name": name,
        "roles": list(about.layout.roles),
        "slots": list(about.layout.slots),
        "controlled": about.layout.controlled,
        "trained": about.layout.agents,
        "colours": [palette[role] for role in about.layout.roles],
        "limit": {"kind": about.limit.kind, "size": _finite(about.limit.size)},
        "sensing": _finite(about.sensing),
        "close": CLOSE,
        "amid": AMID,
        **{field: getattr(about.config, field) for field in SHOWN},
        "task": _task(about),
        "actors": actors,
        "weights": base64.b64encode(np.concatenate(weights.arrays).tobytes()).decode(),
    }


def _task(about: Description) -> dict[str, Any]:
    """Return the constants of a task's world, role by role."""
    from legoswarm.tasks.spread import Spread
    from legoswarm.tasks.tag import Tag
    from legoswarm.tasks.task import TASKS
    from legoswarm.tasks.worlds import particles
    from legoswarm.tasks.worlds.protocol import find_protocol

    task = TASKS.read(about.task, "the policy's task")
    if isinstance(task, Spread):
        task = dataclasses.replace(task, agents=1, landmarks=1, sizes=())
    elif isinstance(task, Tag):
        task = dataclasses.replace(task, pursuers=1, evaders=1, obstacles=1)
    else:
        raise ValueError(f"a page has the worlds of spread and tag, not that of {about.task['name']}")
    if task.layout.private:
        raise ValueError("on a page nobody remembers anything: it cannot show a policy that was trained with --memory")
    bodies, protocol, roles = task.bodies, find_protocol(task.protocol), task.layout.roles  # one entity of each role
    reach = {"landmark": protocol.landmark_reach, "obstacle": protocol.obstacle_reach, "centre": 0.0}
    return {
        "name": task.name,
        "dt": particles.DT,
        "damping": particles.DAMPING,
        "contact_force": particles.CONTACT_FORCE,
        "contact_margin": particles.CONTACT_MARGIN,
        "velocity_first": protocol.velocity_first,
        "occlusion": isinstance(task, Tag) and task.occlusion,
        "radius": list(task.radii),
        "reach": [reach.get(role, 1.0) for role in roles],
        "solid": [at < bodies.solid for at in range(len(roles))],
        "acceleration": [bodies.acceleration[at] if at < bodies.movable else None for at in range(len(roles))],
        "max_speed": [_finite(bodies.max_speed[at]) if at < bodies.movable else None for at in range(len(roles))],
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


class _Weights:
    """Arrays one after another, and where each of them begins."""

    def __init__(self):
        self.arrays: list[np.ndarray] = []
        self.length = 0

    def add(self, array: np.ndarray) -> tuple[int, int]:
        """Append an array; return where it begins and how many numbers it has."""
        start = self.length
        self.arrays.append(np.ascontiguousarray(array, "<f4").ravel())
        self.length += array.size
        return start, array.size

    def affine(self, weight: np.ndarray, bias: np.ndarray | None = None) -> dict[str, Any]:
        """Append an affine map as network.js has it: a row of weights for each output."""
        kept = {} if bias is None else {"bias": self.add(bias)}
        return {"inputs": weight.shape[0], "weight": self.add(weight.T), **kept}


def _actor(weights: _Weights, actors: NumpyActors, own: int) -> dict[str, Any]:
    """Return the maps of the actor of one controlled role."""

    def part(map: Affine) -> dict[str, Any]:
        return weights.affine(map.weight[own].reshape(-1, map.weight.shape[-1]), map.bias[own].ravel())

    def layer(layer: NumpyAttention | Affine, at: int) -> dict[str, Any]:
        if isinstance(layer, Affine):
            return {"map": weights.affine(layer.weight[own, at, 0], layer.bias[own, at].ravel())}
        width = layer.qkv.shape[-2]
        qkv = np.moveaxis(layer.qkv[own, at, 0], 0, 1).reshape(width, 3 * width)
        sigma = layer.sigma.weight[own, at, 0].reshape(width, width)
        return {"qkv": weights.affine(qkv), "sigma": weights.affine(sigma, layer.sigma.bias[own, at].ravel())}

    embed = actors.embed
    return {
        "myself": part(actors.myself),
        "embed": [
            weights.affine(embed.weight[own, at, 0], embed.bias[own, at].ravel()) for at in range(embed.weight.shape[1])
        ],
        "layers": [[layer(each, at) for at in range(_encoders(each))] for each in actors.layers],
        "fuse": part(actors.fuse),
        "last": part(actors.last),
        "head": part(actors.head),
    }


def _encoders(layer: NumpyAttention | Affine) -> int:
    """Count the encoders that have this layer: one for each role, or one for all."""
    return (layer.weight if isinstance(layer, Affine) else layer.qkv).shape[1]
