"""Evaluating one policy or several, from Python as from the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from legoswarm.evaluate import policies as room
from legoswarm.fast.caches import use_caches


def evaluate(policies: str | os.PathLike[str] | Sequence[Any], **how: Any) -> list[dict[str, Any]]:
    """Return the rows of one policy or of several, each a run, a policy file or `zoo:NAME`.

    `how` are the arguments of `evaluate_policy`. Rows of several policies name their `policy` first.
    """
    use_caches()
    return list(each_policy([policies] if isinstance(policies, str | os.PathLike) else policies, **how))


def each_policy(policies: Sequence[str | os.PathLike[str]], **how: Any) -> Iterator[dict[str, Any]]:
    """Give the rows of one policy after the other."""
    for policy in policies:
        about = {"policy": os.fspath(policy)} if len(policies) > 1 else {}
        yield from ({**about, **row} for row in room.evaluate_policy(policy, **how))
