"""One switch for everything that exists only for speed: the environment variable LEGOSWARM_FAST.

`LEGOSWARM_FAST=kernels=plain,programs=off` takes the plain counterpart of two fast paths; a path that is not named
takes its default. docs/speed.md says what each of them gains.
"""

from __future__ import annotations

import os

VARIABLE = "LEGOSWARM_FAST"
PATHS = {
    "kernels": ("plain", "fused", "interpret"),  # interpret: slowly, on a CPU, for tests
    "blocks": ("off", "on"),  # attention among many, some queries at a time
    "products": ("plain", "flat"),  # rows of many axes times a matrix, on CPUs
    "seeds": ("map", "vmap"),  # of a run: one after the other, or side by side
    "programs": ("off", "on"),  # traced programs are kept between runs
}


def switch(path: str, default: str) -> str:
    """Return which way of a path to take: the default, unless LEGOSWARM_FAST says otherwise."""
    words = [word.partition("=") for word in os.environ.get(VARIABLE, "").split(",") if word]
    chosen = {name: value for name, _, value in words}
    for name, value in chosen.items():
        if value not in PATHS.get(name, ()):
            known = "; ".join(f"{name}={'|'.join(values)}" for name, values in PATHS.items())
            raise ValueError(f"{VARIABLE} cannot be {name}={value}; it knows {known}")
    return chosen.get(path, default)
