"""Strict mode for every test: shapes and dtypes are checked, nothing is promoted silently.

This file is imported before any test module, so the import hook sees all of `legoswarm`.
"""

import compileall
import gc
import importlib
import importlib.metadata
import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # mpe2 loads pygame
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA says at length how it uses its own cache
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"legoswarm-jax-cache-{os.getuid()}")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1.0")
os.environ.setdefault("LEGOSWARM_PROGRAMS", "")  # tests change the package under way, which keys do not see

# Nearly every program here runs once and for less time than XLA takes to optimise it: most of the tests' time was that.
# The older kernels, where XLA still has them, take half the time of the newer ones to make; and a program that is made
# in several parts takes longer where other tests need the cores.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
if importlib.metadata.version("jaxlib").startswith(("0.9.", "0.10.")):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1")

import hypothesis
import jax
import jaxtyping
import pytest
from jaxtyping import install_import_hook

# Tests start many processes: each would compile the package's sources again where bytecode is not to be written.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
compileall.compile_dir(Path(__file__).resolve().parents[1] / "legoswarm", quiet=2)

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background, and what they start, ignore it
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# The hook has another place for compiled files, also of what a hooked module is the first to import: without these,
# some 600 modules would be compiled from their sources.
for name in ("beartype.door", "matplotlib.figure", "optax", "rich.progress", "scipy.stats"):
    importlib.import_module(name)
install_import_hook("legoswarm", "beartype.beartype")

# Deadlines measure compilation, and a CI run must say the same thing twice.
hypothesis.settings.register_profile("legoswarm", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("legoswarm")


# Tracing makes very many small objects: the garbage collector's default settings cost it a quarter of its time.
gc.set_threshold(100_000, 50, 50)


def pytest_collection_modifyitems(items):
    """Begin with what takes longest: in the end no worker is left alone with it, and it mostly waits for others."""
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)


def pytest_sessionfinish():
    """Find unraisable errors of what is still there in one pass; pytest's five then have little to go through."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish():
    """Keep the garbage collector from going through all that was imported, again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def optimised():
    """Programs as users have them: for those that run for longer than they compile."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def unchecked():
    """Types are not checked here and later in a module: it takes four fifths of a flight. test_types.py does it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def quickly_compiled():
    """Programs that compile fast and run slowly: all of them, unless a test says otherwise."""
