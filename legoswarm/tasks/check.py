"""Checks of tasks from outside the package: what is wrong is said with the method and the shape that it should give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from legoswarm.layout import Layout
from legoswarm.limits import Limit
from legoswarm.scene import Scene
from legoswarm.tasks.adapters.outside import OutsideTask
from legoswarm.tasks.task import State, Task, cost_of


def check_task(task: Task) -> None:
    """Refuse a task that training or evaluation would stumble over, with a sentence that names the faulty method."""
    layout = _check_outline(task)
    if isinstance(task, OutsideTask):
        check_env(task)
        return
    entities, agents, dim = layout.entities, layout.agents, layout.dimension
    key = jax.random.key(0)
    state = _call(task, "reset", lambda: jax.jit(task.reset)(key))
    _check_state(task, "reset", state, layout)
    action = jnp.zeros((agents, dim))
    after = _call(task, "step", lambda: jax.jit(task.step)(state, action))
    _check_state(task, "step", after, layout)
    if int(after.time) != int(state.time) + 1:
        raise ValueError(f"{task.name}.step must count `time` up by 1, not from {state.time} to {after.time}")
    _check_array(task, "reward", _call(task, "reward", lambda: jax.jit(task.reward)(after)), (agents,), "f")
    if hasattr(task, "cost"):
        _check_array(
            task, "cost", _call(task, "cost", lambda: jax.jit(lambda s: cost_of(task, s))(after)), (agents,), "f"
        )
    _check_array(task, "terminated", _call(task, "terminated", lambda: jax.jit(task.terminated)(after)), (), "b")
    scene = _call(task, "scene", lambda: jax.jit(task.scene)(after))
    if not isinstance(scene, Scene) or scene.layout != layout:
        raise ValueError(f"{task.name}.scene must give a Scene of the task's layout, not {type(scene).__name__}")
    for name, shape, kind in (
        ("position", (entities, dim), "f"), ("velocity", (entities, dim), "f"), ("exists", (entities,), "b"),
        ("visible", (agents, entities), "b"),
    ):  # fmt: skip
        if name != "visible" or scene.visible is not None:
            _check_array(task, f"scene: {name}", getattr(scene, name), shape, kind)
    measures = _call(task, "measure", lambda: jax.jit(task.measure)(after))
    _check_numbers(task, "measure", measures)
    over = {name: jnp.tile(jnp.asarray(value)[None], task.horizon) for name, value in measures.items()}
    _check_figures(task, _call(task, "figures", lambda: jax.jit(task.figures)(over)))


def check_env(task: OutsideTask) -> tuple[str, ...]:
    """Refuse an adapter of an environment that does not fit it, as `check_task` does; return what is measured.

    It makes one world in this process, resets it, looks at it, takes a step with actions of zero and measures.
    """
    layout = _check_outline(task)
    everything, action = np.ones(1, bool), np.zeros((1, layout.agents, layout.dimension), np.float32)
    worlds: Any = _call(task, "make", lambda: task.worlds(1))  # pyright: ignore[reportAttributeAccessIssue]
    _call(task, "make().reset", lambda: worlds.reset(everything, np.zeros(1, np.int64)))
    if (env := getattr(worlds, "envs", [None])[0]) is not None and len(env.possible_agents) != layout.agents:
        found = f"{len(env.possible_agents)} possible agents, and the layout has {layout.agents}"
        raise ValueError(f"{task.name}.make: the environment has {found}")
    _check_sight(task, _call(task, "look", lambda: worlds.look(everything)), layout)
    reward, *_ = _call(task, "action, or its environment's step,", lambda: worlds.step(action, everything))
    _check_array(task, "make().step: the rewards", reward, (1, layout.agents), "f")
    _check_sight(task, _call(task, "look", lambda: worlds.look(everything)), layout)
    [(_, measures)] = _call(task, "measure", lambda: worlds.measure(everything))
    _check_numbers(task, "measure", measures)
    names = ("return", *(name for name in measures if name != "return"))
    _check_figures(task, _call(task, "figures", lambda: task.figures({name: np.zeros(1) for name in names})))
    return names


def _check_outline(task: Any) -> Layout:
    """Check what a task says of itself, and return its layout."""
    layout = _call(task, "layout", lambda: task.layout)
    for name, value, kind in (("layout", layout, Layout), ("action_limit", task.action_limit, Limit)):
        if not isinstance(value, kind):
            raise ValueError(f"{task.name}.{name} must be a {kind.__name__}, not {type(value).__name__}")
    if not isinstance(task.horizon, int) or task.horizon < 1:
        raise ValueError(f"{task.name}.horizon must be a whole number of steps, not {task.horizon!r}")
    if len(task.radii) != layout.entities:
        raise ValueError(f"{task.name}.radii must have one number for each of {layout.entities} entities")
    hash(task)
    return layout


def _call(task: Any, method: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ValueError as error:
        raise ValueError(f"{task.name}.{method} failed: {error}") from error
    except Exception as error:
        text = str(error).strip().splitlines()[:1]
        raise ValueError(f"{task.name}.{method} failed: {type(error).__name__}: {' '.join(text)}") from error


def _check_state(task: Any, method: str, state: Any, layout: Layout) -> None:
    if not isinstance(state, State):
        raise ValueError(f"{task.name}.{method} must give a State, not {type(state).__name__}")
    vectors = (layout.entities, layout.dimension)
    for name, shape, kind in (
        ("position", vectors, "f"), ("velocity", vectors, "f"), ("exists", vectors[:1], "b"), ("time", (), "i"),
    ):  # fmt: skip
        _check_array(task, f"{method}: {name}", getattr(state, name), shape, kind)


_KINDS = {"f": "numbers", "b": "true or false", "i": "a whole number"}


def _check_array(task: Any, where: str, value: Any, shape: tuple[int, ...], kind: str) -> None:
    """Refuse an array of another shape or kind, or one that is not finite."""
    array = np.asarray(value)
    if array.shape != shape or array.dtype.kind not in (kind, "V"):
        found = f"{array.dtype}{list(array.shape)}"
        raise ValueError(f"{task.name}.{where} must be {_KINDS[kind]} of shape {list(shape)}, not {found}")
    if kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{task.name}.{where} has values that are not finite")


def _check_numbers(task: Any, method: str, values: Any) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{task.name}.{method} must give numbers by name, not {type(values).__name__}")
    for name, value in values.items():
        if np.shape(value) != ():
            raise ValueError(f"{task.name}.{method}: {name!r} must be one number, not of shape {list(np.shape(value))}")


def _check_figures(task: Any, figures: Any) -> None:
    _check_numbers(task, "figures", figures)
    if task.primary not in figures:
        raise ValueError(f"{task.name}.figures must have {task.primary!r}, the task's primary figure")


def _check_sight(task: Any, rows: Any, layout: Layout) -> None:
    [(_, seen)] = rows
    vectors = (layout.entities, layout.dimension)
    for name, shape, kind in (
        ("position", vectors, "f"), ("velocity", vectors, "f"), ("exists", vectors[:1], "b"),
        ("visible", (layout.agents, layout.entities), "b"),
    ):  # fmt: skip
        if (value := getattr(seen, name)) is not None:
            _check_array(task, f"look: {name}", value, shape, kind)
