"""The choices that define a canonical frame, free of JAX: the NumPy runtime follows the same rules."""

from __future__ import annotations

AXES = ("velocity", "position", "none")
RESTS = ("equivariant", "global")
CLOSE = 0.05  # what lies much nearer than this has no direction
AMID = 0.1  # share of the distances seen within which the centroid is so near that it gives no good direction


def check_frame(axis: str, rest: str) -> None:
    """Refuse choices that contradict each other."""
    if rest == "global" and axis != "velocity":
        raise ValueError("rest 'global' belongs to the velocity axis")
