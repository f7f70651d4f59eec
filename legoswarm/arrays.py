"""Array types shared by the package, free of JAX imports."""

from __future__ import annotations

from typing import Any, TypeAlias

AnyArray: TypeAlias = Any  # a NumPy or a JAX array


def namespace(array: AnyArray) -> Any:
    """Return the module whose functions work on `array`: numpy, or jax.numpy (array API standard)."""
    return array.__array_namespace__()
