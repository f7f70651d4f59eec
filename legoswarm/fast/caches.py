"""Where compiled and traced programs are kept between processes, the same for Python and the command line."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

FOLDER = "LEGOSWARM_PROGRAMS"  # the environment variable that names the folder; without it nothing is kept
COMPILED = "JAX_COMPILATION_CACHE_DIR"


def use_caches() -> None:
    """Keep programs in the user's cache folder, unless the environment or JAX's own settings say otherwise."""
    with contextlib.suppress(RuntimeError):  # a user without a home
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "legoswarm"
        os.environ.setdefault(COMPILED, str(home / "jax"))
        os.environ.setdefault(FOLDER, str(home / "programs"))
    jax = sys.modules.get("jax")
    if jax is not None and jax.config.jax_compilation_cache_dir is None and os.environ.get(COMPILED):
        from jax.experimental.compilation_cache import compilation_cache

        jax.config.update("jax_compilation_cache_dir", os.environ[COMPILED])
        compilation_cache.reset_cache()  # JAX decides once, at its first program, whether it has a cache
