"""Commands that train: train, and bench, which measures how fast it is."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from legoswarm.cli.options import Group, argument, free_folder, random_seed
from legoswarm.configs import Registry
from legoswarm.files import write_json
from legoswarm.learn.algorithms.algorithm import ALGORITHMS
from legoswarm.learn.folder import RunConfig
from legoswarm.learn.loop import CHECKPOINT_SECONDS, resume_run, start_run
from legoswarm.learn.train import TrainConfig, configure, tuned_algorithm
from legoswarm.policies.policy import POLICIES, Policy
from legoswarm.policies.saved.description import MAX_SEEDS, find_policy, read_description
from legoswarm.policies.saved.file import load_policy
from legoswarm.tasks.task import TASKS


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a policy on a task with an algorithm; the options of those that are named stand below."""

    task: str | None = argument(None, ", ".join(TASKS.names()), positional=True, nargs="?")
    policy: str = argument("lego", ", ".join(POLICIES.names()))
    algorithm: str = argument("mappo", ", ".join(ALGORITHMS.names()))
    resume: str | None = argument(None, "go on with this run; nothing else may be given", metavar="RUN")
    warm: str | None = argument(None, "begin with that of a run, a file or zoo:NAME", flag="--from", metavar="POLICY")
    out: Path | None = argument(None, "folder of the run (default: runs/TASK-POLICY)")
    seeds: int = argument(1, "how many seeds, side by side in one program")
    seed: int = argument(0, "the first seed", type=random_seed)
    evaluations: int = argument(RunConfig.evaluations, "evaluations during training")
    eval_episodes: int = argument(RunConfig.eval_episodes, "episodes of each")
    checkpoint_seconds: float = argument(CHECKPOINT_SECONDS, "seconds between checkpoints")

    @staticmethod
    def groups(words: Sequence[str]) -> list[Group]:
        """Return the options of the training and of the task, the policy and the algorithm that the words name."""
        tasks = words[:1] if words and words[0][:1] != "-" else [word for word in words if word in TASKS.names()][:1]
        return [Group("training", TrainConfig), *(_group(TASKS, TASKS[name]) for name in tasks), *_learner(words)]

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Train, or go on with a run, and say where the policy is."""
        if self.resume:
            if others := [name for name in given if name not in ("resume", "checkpoint_seconds")]:
                word = {"task": self.task, "warm": "--from"}.get(others[0], "--" + others[0].replace("_", "-"))
                raise ValueError(f"--resume takes the run's own configuration: leave {word} out")
            folder = resume_run(self.resume, checkpoint_seconds=self.checkpoint_seconds)
        elif self.task:
            policy = _policy(given.get("policy"), self.warm, self.algorithm)
            options = {name: value for name, value in given.items() if name not in vars(self)}
            train = configure(self.task, policy, self.algorithm, **options)
            if self.seeds > MAX_SEEDS:
                raise ValueError(f"at most {MAX_SEEDS:,} seeds fit into one run")
            seeds = tuple(range(self.seed, self.seed + self.seeds))
            config = RunConfig(train, seeds, self.evaluations, self.eval_episodes, self.warm)
            out = self.out or free_folder(Path("runs"), f"{self.task}-{policy.name}")
            folder = start_run(config, out, command_line, checkpoint_seconds=self.checkpoint_seconds)
        else:
            raise ValueError("name a task to train on, or a run to --resume")
        file = load_policy(folder.path)
        if set(file.notes.get("diverged", ())) == set(file.seeds):
            raise ValueError(f"every seed has diverged; their last good state is in {folder.path}")
        sys.stderr.write(f"the policy is in {folder.path}; try: legoswarm eval {folder.path}\n")


def _learner(words: Sequence[str]) -> list[Group]:
    """Return the options of the policy, the first one, and of the algorithm that the words name."""
    after = dict(itertools.pairwise(words))
    algorithm = after.get("--algorithm", Train.algorithm)
    policy = _policy(after.get("--policy", after.get("--policies")), after.get("--from"), algorithm)
    return [_group(POLICIES, policy), _group(ALGORITHMS, tuned_algorithm(algorithm, policy))]


def _group(registry: Registry[Any], config: Any) -> Group:
    return Group(f"{registry.kind} {config.name}", config, [registry[name] for name in registry.names()])


def _policy(name: str | None, start: str | None, algorithm: str) -> Policy:
    """Return the policy to start from, unless another one is named; else the named one as the algorithm needs it."""
    if start and (policy := read_description(find_policy(start)[1]).config) and name in (None, policy.name):
        return policy
    return POLICIES.make(name or Train.policy, **ALGORITHMS[algorithm].needs)


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measure how fast policies train, or something else; below are options of the first policy and the algorithm."""

    policies: Sequence[str] = argument(("lego",), ", ".join(POLICIES.names()))
    algorithm: str = argument("mappo", ", ".join(ALGORITHMS.names()))
    agents: Sequence[int] = argument((3,), "team sizes")
    seeds: Sequence[int] = argument((1,), "seeds at once")
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
