"""Evaluating one policy or several, from Python as from the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from legoswarm.evaluate import policies as room
from legoswarm.evaluate.references import REFERENCES
from legoswarm.fast.caches import use_caches
from legoswarm.policies.saved.file import load_policy
from legoswarm.tasks.task import TASKS


def evaluate(policies: str | os.PathLike[str] | Sequence[Any], **how: Any) -> list[dict[str, Any]]:
    """Return the rows of one policy or of several, each a run, a policy file or `zoo:NAME`.

    `how` are the arguments of `evaluate_policy`. Rows of several policies name their `policy` first.
    """
    use_caches()
    return list(each_policy([policies] if isinstance(policies, str | os.PathLike) else policies, **how))


def each_policy(policies: Sequence[str | os.PathLike[str]], **how: Any) -> Iterator[dict[str, Any]]:
    """Give the rows of one policy after the other; all are of one task, so that their figures are the same."""
    tasks = {load_policy(policy).task["name"]: policy for policy in policies if _is_trained(policy)}
    if len(tasks) > 1:
        (one, first), (other, second), *_ = tasks.items()
        raise ValueError(f"{first} was trained on {one} and {second} on {other}: evaluate them one by one")
    for policy in policies:
        about = {"policy": os.fspath(policy)} if len(policies) > 1 else {}
        yield from ({**about, **row} for row in room.evaluate_policy(policy, **how))


def _is_trained(policy: str | os.PathLike[str]) -> bool:
    """Tell a policy from a reference, and from a task that two policies meet in."""
    return os.fspath(policy) not in (*REFERENCES, *TASKS.names())
