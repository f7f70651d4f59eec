"""Evaluation: episodes, team sizes, head to head. The room can be called: `legoswarm.evaluate(run, agents=[2, 3])`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A module that is called as the function of its name, which Python would hide behind it once it is imported."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from legoswarm.evaluate.several import evaluate

        return evaluate(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
