"""Commands that train: train, and bench, which measures how fast it is."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from legoswarm.cli.options import REQUIRED, Group, argument, random_seed
from legoswarm.configs import Registry, field_kinds
from legoswarm.fast.sharding import first_process, join
from legoswarm.files import write_json
from legoswarm.learn.algorithms.algorithm import ALGORITHMS
from legoswarm.learn.folder import RunConfig
from legoswarm.learn.loop import CHECKPOINT_SECONDS, resume_run
from legoswarm.learn.run import starting_policy, train
from legoswarm.learn.train import TrainConfig, own_algorithm, suited, tuned_algorithm
from legoswarm.own import command
from legoswarm.policies.policy import POLICIES
from legoswarm.policies.saved.file import load_policy
from legoswarm.studies.cluster import CPUS, ENGINES
from legoswarm.tasks.task import TASKS

RESUMED = ("checkpoint_seconds", "steps", "devices")  # what a resumed run may have otherwise than before
JOINED = ("coordinator", "processes", "process")


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a policy on a task with an algorithm; the options of those that are named stand below."""

    task: str | None = argument(None, ", ".join(TASKS.names()), positional=True, nargs="?")
    policy: str = argument("lego", ", ".join(POLICIES.names()))
    algorithm: str | None = argument(None, f"{', '.join(ALGORITHMS.names())} (default: what the critic is for)")
    recipe: str | None = argument(None, "options of a whole training; lego has published, the method of the paper")
    resume: str | None = argument(
        None, "go on with this run, as it was configured; with --steps, also a finished one, for longer", metavar="RUN"
    )
    warm: str | None = argument(None, "begin with that of a run, a file or zoo:NAME", flag="--from", metavar="POLICY")
    out: Path | None = argument(None, "folder of the run (default: runs/TASK-POLICY)")
    seeds: int = argument(1, "how many seeds, side by side in one program")
    seed: int = argument(0, "the first seed", type=random_seed)
    evaluations: int = argument(RunConfig.evaluations, "evaluations during training")
    eval_episodes: int = argument(RunConfig.eval_episodes, "episodes of each")
    log: Sequence[str] = argument((), "metrics to tensorboard or wandb too, while it trains", metavar="NAME")
    checkpoint_seconds: float = argument(CHECKPOINT_SECONDS, "seconds between checkpoints")
    devices: int = argument(1, "devices (of each process) that share the seeds, then the worlds of each seed")
    coordinator: str | None = argument(
        None, "several processes train one run: HOST:PORT of process 0, or auto in a cluster's job", metavar="WHERE"
    )
    processes: int | None = argument(None, "how many processes")
    process: int | None = argument(None, "which one of them this is, from 0 on")

    @staticmethod
    def groups(words: Sequence[str]) -> list[Group]:
        """Return the options of the training and of the task, the policy and the algorithm that the words name."""
        tasks = words[:1] if words and words[0][:1] != "-" else [word for word in words if word in TASKS.names()][:1]
        return [Group("training", TrainConfig), *(_group(TASKS, TASKS[name]) for name in tasks), *_learner(words)]

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Train, or go on with a run, and say where the policy is."""
        if self.resume:
            if others := [name for name in given if name not in ("resume", *RESUMED, *JOINED)]:
                word = {"task": self.task, "warm": "--from"}.get(others[0], "--" + others[0].replace("_", "-"))
                raise ValueError(
                    f"--resume takes the run's own configuration: leave {word} out (see legoswarm train --help)"
                )
            join(self.coordinator, self.processes, self.process)
            folder = resume_run(self.resume, **{name: given[name] for name in RESUMED if name in given})
        elif self.task:
            folder = train(**given, command=command_line)
        else:
            raise ValueError("name a task to train on, or a run to --resume")
        if not first_process():
            return
        file = load_policy(folder.path)
        if set(file.notes.get("diverged", ())) == set(file.seeds):
            raise ValueError(f"every seed has diverged; their last good state is in {folder.path}")
        sys.stderr.write(f"the policy is in {folder.path}; try: {command('eval', folder.path)}\n")


def _learner(words: Sequence[str]) -> list[Group]:
    """Return the options of the policy, the first one, and of the algorithm that the words name."""
    after = dict(itertools.pairwise(words))
    policy = starting_policy(after.get("--policy", after.get("--policies")), after.get("--from"))
    kind = POLICIES[policy] if isinstance(policy, str) else policy
    chosen = kind.recipes.get(after.get("--recipe", ""), {})
    critic = after.get("--critic", chosen.get("critic"))
    algorithm = after.get("--algorithm", chosen.get("algorithm")) or own_algorithm(kind, critic)
    if isinstance(policy, str):
        own = {name: value for name, value in chosen.items() if name in field_kinds(kind)}
        policy = POLICIES.make(policy, **{**suited(policy, algorithm), **own})
    return [_group(POLICIES, policy), _group(ALGORITHMS, tuned_algorithm(algorithm, policy))]


def _group(registry: Registry[Any], config: Any) -> Group:
    return Group(f"{registry.kind} {config.name}", config, [registry[name] for name in registry.names()])


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Search for the options that give the best primary figure, with Optuna; the same command goes on with a sweep."""

    task: str = argument(REQUIRED, ", ".join(TASKS.names()), positional=True)
    space: Sequence[str] = argument(REQUIRED, "NAME=LOW:HIGH, NAME=log:LOW:HIGH, NAME=A,B,C, or a .json file of them")
    out: Path = argument(REQUIRED, "folder of the sweep")
    trials: int = argument(24, "how many")
    sampler: str = argument("tpe", "how options are chosen", choices=("tpe", "random", "grid"))
    prune: bool = argument(True, "stop trials that are worse than half of the others")
    jobs: int = argument(1, "processes side by side, or tasks on Ray")
    engine: str = argument("local", "where they are: this machine, or a Ray cluster that shares --out", choices=ENGINES)
    cpus: float = argument(CPUS, "cores of each, on Ray")
    gpus: float | None = argument(None, "GPUs of each, on Ray (default: 1 if the cluster has any)")
    policy: str = argument("lego", ", ".join(POLICIES.names()))
    algorithm: str | None = argument(None, f"{', '.join(ALGORITHMS.names())} (default: what the critic is for)")
    recipe: str | None = argument(None, "options of a whole training, which the trials change")
    seeds: int = argument(3, "seeds of each trial")
    evaluations: int = argument(RunConfig.evaluations, "evaluations during training, after which trials are compared")
    eval_episodes: int = argument(RunConfig.eval_episodes, "episodes of each")

    groups = staticmethod(Train.groups)

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Run trials, and print the best one."""
        from legoswarm.studies.sweep import sweep

        words = [*shlex.split(command_line)[1:], "--jobs", "1"]  # the last one counts: others start nobody
        best = sweep(
            **{**given, "seeds": self.seeds, "out": self.out},
            command=command_line,
            again=[sys.executable, "-m", "legoswarm.cli", *words],
        )
        print(json.dumps(best))


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measure how fast policies train, or something else; below are options of the first policy and the algorithm."""

    policies: Sequence[str] = argument(("lego",), ", ".join(POLICIES.names()))
    algorithm: str | None = argument(None, f"{', '.join(ALGORITHMS.names())} (default: what the critic is for)")
    agents: Sequence[int] = argument((3,), "team sizes")
    seeds: Sequence[int] = argument((1,), "seeds at once")
    devices: Sequence[int] = argument((1,), "devices that share them")
    steps: int = argument(32_000, "steps for each seed")
    until: float | None = argument(None, "instead: seconds until the mean return is X")
    worlds: int | None = argument(None, "instead: N worlds alone, random actions")
    forward: int | None = argument(None, "instead: one decision of everybody in N worlds")
    acting: str | None = argument(None, "instead: one agent of this policy among --entities", metavar="POLICY")
    entities: int = argument(1000, "for --acting")
    device: str | None = argument(None, "where (default: what JAX prefers)", choices=("cpu", "gpu"))
    json: bool = argument(False, "print JSON")
    out: Path | None = argument(None, "write JSON into this file, row by row")

    groups = staticmethod(_learner)

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Measure, and print a table or JSON."""
        from legoswarm.studies.bench import bench, format_bench

        if self.device == "cpu":
            jax.config.update("jax_platforms", "cpu")
        if self.device and jax.default_backend() != self.device:
            raise ValueError(f"JAX does not find a {self.device.upper()} here")
        settings = {name: value for name, value in vars(self).items() if name not in ("device", "json", "out")}
        options = {name: value for name, value in given.items() if name not in vars(self)}
        report = bench(
            **settings,
            options=options,
            nearest=options.get("nearest", 0),  # of --acting too
            command=command_line,
            keep=lambda report: write_json(self.out, report) if self.out else None,
        )
        print(json.dumps(report, indent=1) if self.json else format_bench(report), flush=True)
