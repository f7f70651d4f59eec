"""What is best where: precision, and how the seeds of a run are laid out, on GPUs and on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from legoswarm.fast.switches import switch

Tree = TypeVar("Tree")


def storage(precision: str) -> jnp.dtype:
    """Return the type of arrays that a precision names; `auto` is bfloat16 on GPUs, where memory is the limit."""
    short = precision == "bfloat16" or (precision == "auto" and jax.default_backend() == "gpu")
    return jnp.dtype(jnp.bfloat16 if short else jnp.float32)


def over_seeds(fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `fun` of a tree for trees stacked over seeds, in one program.

    On accelerators all seeds run side by side. On CPUs they run one after the other: XLA's batched matrix products
    are an order of magnitude slower there than the plain ones that already keep the cores busy.
    """
    if switch("seeds", "map" if jax.default_backend() == "cpu" else "vmap") == "map":
        return lambda trees: jax.lax.map(fun, trees)
    return jax.vmap(fun)


def on_cpu(fun: Callable[..., Tree], *args: Any) -> Tree:
    """Compute `fun` on the CPU and put its result where JAX computes by default.

    For what starts a run: GPUs need seconds to load what decomposes a few small matrices.
    """
    home = jax.local_devices()[0]
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to leave the CPU alone
        cpu = home
    with jax.default_device(cpu):
        return jax.device_put(fun(*jax.device_put(args, cpu)), home)
