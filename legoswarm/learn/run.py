"""Training from Python as from the command line: the same words, defaults, checks and caches."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from legoswarm.configs import plain_fields
from legoswarm.fast.caches import use_caches
from legoswarm.fast.sharding import join
from legoswarm.learn.folder import RunConfig, RunFolder
from legoswarm.learn.loop import CHECKPOINT_SECONDS, start_run
from legoswarm.learn.train import TrainConfig, configure
from legoswarm.own import free_folder
from legoswarm.policies.policy import Policy
from legoswarm.policies.saved.description import MAX_SEEDS, find_policy, read_description
from legoswarm.tasks.task import Task

PATIENCE = 20_000  # transitions, at most, in which fresh critics get to know a trained policy


def train(
    task: str | Task,
    policy: str | Policy | None = None,
    algorithm: str | None = None,
    recipe: str | None = None,
    *,
    seeds: int | Sequence[Any] = 1,
    seed: int = 0,
    out: str | Path | None = None,
    warm: str | os.PathLike[str] | None = None,
    evaluations: int = RunConfig.evaluations,
    eval_episodes: int = RunConfig.eval_episodes,
    checkpoint_seconds: int | float = CHECKPOINT_SECONDS,
    devices: int = 1,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    log: Sequence[str] = (),
    on_row: Callable[[dict[str, Any]], None] | None = None,
    quiet: bool = False,
    command: str = "",
    **options: Any,
) -> RunFolder:
    """Train a policy on a task and return the run; `legoswarm train` calls this, so the same words mean the same run.

    `options` are `steps`, `runaway` and the fields of the task, the policy and the algorithm. `seeds` is how many there
    are from `seed` on, or which ones. `warm` names a policy to begin with, `out` the folder of the run (by default
    runs/TASK-POLICY, with a number if there is one), `log` where metrics go as well: `tensorboard`, `wandb`.

    On several `devices` seeds are divided among them, then the worlds of each seed. Several processes train one run if
    each calls this with the same words, the `coordinator` (HOST:PORT of process 0), how many `processes` there are and
    which `process` it is, or with the coordinator `auto` in a cluster's job; process 0 writes the files.

    `on_row` is called with every row of metrics once it is written; if it raises an exception, training stops with a
    checkpoint. What cannot be trained is refused with a `ValueError` before there is a folder.
    """
    use_caches()
    join(coordinator, processes, process)
    start = None if warm is None else os.fspath(warm)
    begin = starting_policy(policy, start)
    if recipe and start:
        raise ValueError("a recipe is for a policy that begins anew, not for one that starts from another")
    train = configure(task, begin, algorithm, recipe, **options)
    if start and "patience" not in options:
        train = patient(train)
    if isinstance(seeds, int) and seeds > MAX_SEEDS:
        raise ValueError(f"at most {MAX_SEEDS:,} seeds fit into one run")
    which = range(seed, seed + seeds) if isinstance(seeds, int) else seeds
    own = {"seeds": which, "evaluations": evaluations, "eval_episodes": eval_episodes, "start": start}
    config = RunConfig(train, **plain_fields(RunConfig, {**own, "log": log, "devices": devices}))
    folder = free_folder(Path("runs"), f"{train.task.name}-{train.policy.name}") if out is None else out
    return start_run(config, folder, command, quiet=quiet, checkpoint_seconds=checkpoint_seconds, on_row=on_row)


def patient(config: TrainConfig) -> TrainConfig:
    """Let fresh critics, where an algorithm has them, learn for a while before they change a trained policy."""
    algorithm = config.algorithm
    if not hasattr(algorithm, "patience"):
        return config
    patience = max(0, min(config.steps // 10, algorithm.capacity - algorithm.warmup, PATIENCE))
    return dataclasses.replace(config, algorithm=dataclasses.replace(algorithm, patience=patience))


def starting_policy(policy: str | Policy | None, start: str | None) -> str | Policy:
    """Return the policy to start from, unless another one is named; else that name, LEGO's if there is none."""
    if isinstance(policy, Policy):
        return policy
    if start and (known := read_description(find_policy(start)[1]).config) and policy in (None, known.name):
        return known
    return policy or "lego"
