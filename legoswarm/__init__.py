"""legoswarm: E(2)- and permutation-equivariant swarm policies for any team size (LEGO-MAPPO), in JAX.

    policy = legoswarm.load("zoo:spread")
    actions = policy.act(positions, velocities, roles)

Importing the package is cheap: what needs JAX is imported when first used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legoswarm.files import FileError as FileError
    from legoswarm.learn.algorithms.mappo import MappoConfig as MappoConfig
    from legoswarm.learn.defaults import mappo_config as mappo_config
    from legoswarm.learn.defaults import policy_config as policy_config
    from legoswarm.learn.folder import RunConfig as RunConfig
    from legoswarm.learn.loop import resume_run as resume_run
    from legoswarm.learn.loop import start_run as start_run
    from legoswarm.learn.train import TrainConfig as TrainConfig
    from legoswarm.learn.train import make_train as make_train
    from legoswarm.policies import PolicyConfig as PolicyConfig
    from legoswarm.policies import register_encoder as register_encoder
    from legoswarm.policies import register_policy as register_policy
    from legoswarm.policies.saved.act import Swarm as Swarm
    from legoswarm.policies.saved.act import load as load
    from legoswarm.tasks import Spread as Spread
    from legoswarm.tasks import Tag as Tag
    from legoswarm.tasks import make_task as make_task
    from legoswarm.tasks import register_task as register_task

_HOME = {
    "FileError": "legoswarm.files",
    "MappoConfig": "legoswarm.learn.algorithms.mappo",
    "PolicyConfig": "legoswarm.policies",
    "RunConfig": "legoswarm.learn.folder",
    "Spread": "legoswarm.tasks",
    "Swarm": "legoswarm.policies.saved.act",
    "Tag": "legoswarm.tasks",
    "TrainConfig": "legoswarm.learn.train",
    "load": "legoswarm.policies.saved.act",
    "make_task": "legoswarm.tasks",
    "make_train": "legoswarm.learn.train",
    "mappo_config": "legoswarm.learn.defaults",
    "policy_config": "legoswarm.learn.defaults",
    "register_encoder": "legoswarm.policies",
    "register_policy": "legoswarm.policies",
    "register_task": "legoswarm.tasks",
    "resume_run": "legoswarm.learn.loop",
    "start_run": "legoswarm.learn.loop",
}


# On GPUs XLA's Triton rewriter of softmax and normalisation layers can give silently wrong results: with jax
# 0.11.2 on an H200 LEGO's forward pass was off by 70 % (compare jax-ml/jax#40588, #39486). XLA reads this flag when its
# backend starts, so it must be set before JAX is first used.
_PASS, _FLAG = "triton-softmax-rewriter", "--xla_disable_hlo_passes="
_flags = os.environ.get("XLA_FLAGS", "")
if _PASS not in _flags:
    _added = _flags.replace(_FLAG, f"{_FLAG}{_PASS},") if _FLAG in _flags else f"{_flags} {_FLAG}{_PASS}"
    os.environ["XLA_FLAGS"] = _added.strip()


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'legoswarm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
