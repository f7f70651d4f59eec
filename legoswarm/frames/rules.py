"""The choices that define a canonical frame, free of JAX: the NumPy runtime follows the same rules."""

from __future__ import annotations

AXES = ("velocity", "position", "none")
RESTS = ("equivariant", "global")
TINY = 1e-4  # shorter vectors than this have no direction


def check_frame(axis: str, rest: str) -> None:
    """Refuse choices that contradict each other."""
    if rest == "global" and axis != "velocity":
        raise ValueError("rest 'global' belongs to the velocity axis")
