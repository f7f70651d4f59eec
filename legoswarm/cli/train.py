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

from legoswarm.cli.made import hint, how_to_open
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
POLICY_HELP = f"kind of network: {', '.join(POLICIES.names())}"
ALGORITHM_HELP = f"how it learns: {', '.join(ALGORITHMS.names())} (default: masac; mappo where the policy has a critic)"


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a policy on a task.

    The options of the training come first. Those of the policy and the algorithm follow, and those of the task once it
    is named, as in: legoswarm train spread --help
    """

    task: str | None = argument(None, f"what to learn: {', '.join(TASKS.names())}", positional=True, nargs="?")
    policy: str = argument("lego", POLICY_HELP)
    algorithm: str | None = argument(None, ALGORITHM_HELP)
    recipe: str | None = argument(None, "a set of options with a name; lego has published, the method as in the paper")
    resume: str | None = argument(
        None, "go on with this run as it was configured; with more --steps also a finished run goes on", metavar="RUN"
    )
    warm: str | None = argument(
        None,
        "begin with the weights of this policy: a run folder, a policy file or zoo:NAME",
        flag="--from",
        metavar="POLICY",
    )
    out: Path | None = argument(None, "folder for policy, metrics and checkpoints (default: runs/TASK-POLICY)")
    seeds: int = argument(1, "how many policies to train side by side, each with a random seed of its own")
    seed: int = argument(0, "the first of these random seeds", type=random_seed)
    evaluations: int = argument(RunConfig.evaluations, "how often the policy is evaluated during training")
    eval_episodes: int = argument(RunConfig.eval_episodes, "how many episodes each evaluation has")
    log: Sequence[str] = argument((), "also write metrics to tensorboard or wandb while it trains", metavar="NAME")
    checkpoint_seconds: float = argument(CHECKPOINT_SECONDS, "seconds between checkpoints")
    devices: int = argument(1, "how many devices (of each process) share the seeds, and then the worlds of each seed")
    coordinator: str | None = argument(
        None, "for one run on several machines: HOST:PORT of process 0, or auto in a cluster's job", metavar="WHERE"
    )
    processes: int | None = argument(None, "for one run on several machines: how many processes there are")
    process: int | None = argument(None, "for one run on several machines: which process this is, from 0 on")

    @staticmethod
    def groups(words: Sequence[str]) -> list[Group]:
        """Return the options of the training and of the task, the policy and the algorithm that the words name."""
        tasks = words[:1] if words and words[0][:1] != "-" else [word for word in words if word in TASKS.names()][:1]
        worlds = [TASKS.make(name) for name in tasks]
        groups = [_group(TASKS, type(world)) for world in worlds]
        return [Group("training", TrainConfig), *groups, *_learner(words, *worlds)]

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


def _learner(words: Sequence[str], task: Any = None) -> list[Group]:
    """Return the options of the policy, the first one, and of the algorithm that the words name, as a task has them."""
    after = dict(itertools.pairwise(words))
    policy = starting_policy(after.get("--policy", after.get("--policies")), after.get("--from"))
    kind = POLICIES[policy] if isinstance(policy, str) else policy
    chosen = kind.recipes.get(after.get("--recipe", ""), {})
    critic = after.get("--critic", chosen.get("critic"))
    algorithm = after.get("--algorithm", chosen.get("algorithm")) or own_algorithm(kind, critic)
    if isinstance(policy, str):
        own = {name: value for name, value in chosen.items() if name in field_kinds(kind)}
        policy = POLICIES.make(policy, **{**suited(policy, algorithm, task), **own})
    return [_group(POLICIES, policy), _group(ALGORITHMS, tuned_algorithm(algorithm, policy, task))]


def _group(registry: Registry[Any], config: Any) -> Group:
    return Group(f"{registry.kind} {config.name}", config, [registry[name] for name in registry.names()])


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Search for the options with which training works best: those with the highest primary figure of the task.

    The trials are chosen by Optuna. The same command goes on with a sweep that was interrupted.
    """

    task: str = argument(REQUIRED, f"what to learn: {', '.join(TASKS.names())}", positional=True)
    space: Sequence[str] = argument(
        REQUIRED, "which options vary and how: NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A,B,C; or a .json file of them"
    )
    out: Path = argument(REQUIRED, "folder for the trials and their list, sweep.json")
    trials: int = argument(24, "how many combinations of options are tried")
    sampler: str = argument("tpe", "how options are chosen", choices=("tpe", "random", "grid"))
    prune: bool = argument(True, "stop a trial early where it is worse than half of the others were")
    jobs: int = argument(1, "how many trials run side by side, as processes or as tasks on Ray")
    engine: str = argument(
        "local",
        "where trials run: local (this machine) or ray (a Ray cluster whose machines share --out)",
        choices=ENGINES,
    )
    cpus: float = argument(CPUS, "on Ray: cores for each trial")
    gpus: float | None = argument(None, "on Ray: GPUs for each trial (default: 1 if the cluster has any)")
    policy: str = argument("lego", POLICY_HELP)
    algorithm: str | None = argument(None, ALGORITHM_HELP)
    recipe: str | None = argument(None, "a set of options with a name, which the trials then change")
    seeds: int = argument(3, "random seeds of each trial, the mean of which counts")
    evaluations: int = argument(
        RunConfig.evaluations, "how often each trial is evaluated, and compared with the others"
    )
    eval_episodes: int = argument(RunConfig.eval_episodes, "how many episodes each evaluation has")

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
        print(json.dumps(best), flush=True)
        hint(f"{self.out / 'sweep.json'} lists all trials. {how_to_open(self.out / 'sweep.json')}")


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measure how fast policies train on this machine, or with one of the options that say `instead`, something else.

    The options of the first policy and of the algorithm stand below.
    """

    policies: Sequence[str] = argument(("lego",), POLICY_HELP)
    algorithm: str | None = argument(None, ALGORITHM_HELP)
    agents: Sequence[int] = argument((3,), "team sizes, each of which is measured")
    seeds: Sequence[int] = argument((1,), "how many policies train side by side, each number is measured")
    devices: Sequence[int] = argument((1,), "how many devices share the seeds, each number is measured")
    steps: int = argument(32_000, "environment steps for each seed")
    until: float | None = argument(None, "instead, measure the seconds until the mean return is X")
    worlds: int | None = argument(None, "instead, measure N worlds with random actions, without any policy")
    forward: int | None = argument(None, "instead, measure one decision of all agents in N worlds")
    acting: str | None = argument(
        None, "instead, measure one agent of this policy that sees --entities", metavar="POLICY"
    )
    entities: int = argument(1000, "how many entities the agent of --acting sees")
    device: str | None = argument(None, "where it runs (default: what JAX prefers)", choices=("cpu", "gpu"))
    json: bool = argument(False, "print JSON, not a table")
    out: Path | None = argument(None, "also write JSON into this file, row by row")

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
        if self.out:
            hint(how_to_open(self.out))
