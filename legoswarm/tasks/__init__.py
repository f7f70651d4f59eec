"""Tasks: particle worlds in pure JAX.

The modules `particles`, `chase` and `protocol` take NumPy arrays too and import no JAX; so that they can be used
without it, what this package offers is imported when first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legoswarm.limits import Limit as Limit
    from legoswarm.tasks.spread import Spread as Spread
    from legoswarm.tasks.tag import Tag as Tag
    from legoswarm.tasks.task import State as State
    from legoswarm.tasks.task import Task as Task
    from legoswarm.tasks.task import make_task as make_task
    from legoswarm.tasks.task import register_task as register_task
    from legoswarm.tasks.task import task_class as task_class
    from legoswarm.tasks.task import task_names as task_names

_HOME = {
    "Limit": "legoswarm.limits",
    "Spread": "legoswarm.tasks.spread",
    "State": "legoswarm.tasks.task",
    "Tag": "legoswarm.tasks.tag",
    "Task": "legoswarm.tasks.task",
    "make_task": "legoswarm.tasks.task",
    "register_task": "legoswarm.tasks.task",
    "task_class": "legoswarm.tasks.task",
    "task_names": "legoswarm.tasks.task",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'legoswarm.tasks' has no attribute {name!r}")
    for task in ("spread", "tag"):  # importing a task registers it
        importlib.import_module(f"legoswarm.tasks.{task}")
    return getattr(importlib.import_module(_HOME[name]), name)
