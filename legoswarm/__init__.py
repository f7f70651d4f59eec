"""legoswarm: E(2)- and permutation-equivariant swarm policies for any team size (LEGO-MAPPO), in JAX.

    policy = legoswarm.load("zoo:spread")
    actions = policy.act(positions, velocities, roles)
    run = legoswarm.train("spread", agents=4, steps=2e6, seeds=10, out="runs/a")
    rows = legoswarm.evaluate(run, agents=[2, 3, 4])

Importing the package is cheap: what needs JAX is imported when first used.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legoswarm.configs import option as option
    from legoswarm.evaluate.several import evaluate as evaluate
    from legoswarm.files import FileError as FileError
    from legoswarm.layout import Layout as Layout
    from legoswarm.learn.algorithms.algorithm import ALGORITHMS as ALGORITHMS
    from legoswarm.learn.folder import RunConfig as RunConfig
    from legoswarm.learn.loop import resume_run as resume_run
    from legoswarm.learn.loop import start_run as start_run
    from legoswarm.learn.run import train as train
    from legoswarm.learn.train import TrainConfig as TrainConfig
    from legoswarm.learn.train import configure as configure
    from legoswarm.learn.train import make_train as make_train
    from legoswarm.own import import_own as import_own
    from legoswarm.policies.encoders.encoder import register_view_encoder as register_view_encoder
    from legoswarm.policies.encoders.role_wise import register_encoder as register_encoder
    from legoswarm.policies.policy import POLICIES as POLICIES
    from legoswarm.policies.saved.act import Swarm as Swarm
    from legoswarm.policies.saved.act import load as load
    from legoswarm.studies.curves import draw_curves as draw_curves
    from legoswarm.tasks.adapters.outside import ParallelEnvTask as ParallelEnvTask
    from legoswarm.tasks.adapters.outside import VectorEnvTask as VectorEnvTask
    from legoswarm.tasks.adapters.outside import Whereabouts as Whereabouts
    from legoswarm.tasks.check import check_env as check_env
    from legoswarm.tasks.check import check_task as check_task
    from legoswarm.tasks.spread import Spread as Spread
    from legoswarm.tasks.tag import Tag as Tag
    from legoswarm.tasks.task import TASKS as TASKS

# On GPUs XLA's Triton rewriter of softmax and normalisation layers can give silently wrong results: with jax
# 0.11.2 on an H200 LEGO's forward pass was off by 70 % (compare jax-ml/jax#40588, #39486). XLA reads this flag when its
# backend starts, so it must be set before JAX is first used.
_PASS, _FLAG = "triton-softmax-rewriter", "--xla_disable_hlo_passes="
_flags = os.environ.get("XLA_FLAGS", "")
if _PASS not in _flags:
    _added = _flags.replace(_FLAG, f"{_FLAG}{_PASS},") if _FLAG in _flags else f"{_flags} {_FLAG}{_PASS}"
    os.environ["XLA_FLAGS"] = _added.strip()


# XLA's log would doubt each program that it finds in a cache, for features that no CPU has (jax-ml/jax#38445).
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@functools.cache
def _homes() -> dict[str, str]:
    """Return which module each public name comes from: the imports above, which only type checkers execute."""
    imports = [node for node in ast.walk(ast.parse(Path(__file__).read_text())) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names if alias.asname and node.module}


def __getattr__(name: str) -> Any:
    if name.startswith("__") or name not in _homes():
        raise AttributeError(f"module 'legoswarm' has no attribute {name!r}")
    return getattr(importlib.import_module(_homes()[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})
