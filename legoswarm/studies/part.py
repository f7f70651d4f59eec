"""What studies are made of: scales, trainings, and parts that are measured on them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from legoswarm.evaluate.policies import size_fields
from legoswarm.learn.folder import RunConfig, train_json
from legoswarm.learn.train import configure
from legoswarm.policies.policy import POLICIES
from legoswarm.tasks.task import Task

FEW_SEEDS = {"segnn": 3}  # the paper's own number: it costs that much
PAPERS = {"lego": {"encoder": "attention"}}  # the paper's choice where ours is another one


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much of a study is done: `full` as in the paper, smaller ones for a quick look."""

    name: str
    seeds: int
    episodes: int
    evaluations: int  # points of a learning curve
    share: float = 1.0  # of the paper's steps, at least two iterations
    only: int | None = None  # the one team size of Spread, instead of all
    compile_fast: bool = False  # programs run for less time than it takes to optimise them
    policy: dict[str, Any] = dataclasses.field(default_factory=dict)  # options, where a policy has them
    algorithms: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # options of each

    def sizes(self, *sizes: int) -> tuple[int, ...]:
        """Return the team sizes of Spread at this scale."""
        return sizes if self.only is None else (self.only,)

    def beside(self, algorithm: str, **values: Any) -> tuple[tuple[str, Any], ...]:
        """Return those values of an algorithm that this scale leaves to a study."""
        return tuple((name, value) for name, value in values.items() if name not in self.algorithms.get(algorithm, {}))

    def size(self, agents: int) -> int:
        """Return one team size at this scale."""
        return self.sizes(agents)[0]


SCALES = {
    "full": Scale("full", seeds=10, episodes=1000, evaluations=50),
    "small": Scale(
        "small", 3, 200, 20, share=0.1, policy={"width": 32, "depth": 1},
        algorithms={"mappo": {"envs": 64}, "masac": {"envs": 64, "updates": 2, "critic_width": 32}},
    ),
    "tiny": Scale(
        "tiny", 1, 4, 2, share=0.0, only=3, compile_fast=True, policy={"width": 12, "depth": 1, "heads": 2},
        algorithms={
            "mappo": {"envs": 4, "epochs": 1, "minibatches": 1},
            "masac": {"envs": 4, "updates": 1, "samples": 4, "capacity": 8, "warmup": 4, "critic_width": 8},
        },
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Training:
    """A training run that parts ask for; equal ones are one run, whichever study asks."""

    task: Task
    method: str
    steps: int
    start: Training | None = None  # warm-start from this one
    seeds: int | None = None  # another number than the study's
    options: tuple[tuple[str, Any], ...] = ()  # of the policy, where they differ from the defaults
    alone: bool = False  # nothing else trains on the machine meanwhile: what is timed
    algorithm: str = "mappo"

    def config(self, scale: Scale, seeds: int, runs: Path) -> RunConfig:
        """Return the run's configuration."""
        known = {field.name for field in dataclasses.fields(POLICIES[self.method])}
        smaller = {name: value for name, value in scale.policy.items() if name in known}
        chosen = {**smaller, **PAPERS.get(self.method, {}), **scale.algorithms.get(self.algorithm, {})}
        options = {**chosen, **dict(self.options)}
        train = configure(self.task, self.method, self.algorithm, **options)
        steps = max(int(self.steps * scale.share), 2 * train.batch)
        train = dataclasses.replace(train, steps=steps)
        return RunConfig(
            train,
            tuple(range(self.seeds or min(seeds, FEW_SEEDS.get(self.method, seeds)))),
            evaluations=scale.evaluations,
            eval_episodes=min(scale.episodes, 100),
            start=str(runs / self.start.folder(scale, seeds)) if self.start else None,
        )

    def folder(self, scale: Scale, seeds: int) -> str:
        """Return the run folder's name: readable, and different for whatever is trained differently."""
        content = self.content(scale, seeds)
        size = "v".join(str(count) for count in size_fields(self.task).values())
        method = self.method if self.algorithm == "mappo" else f"{self.method}-{self.algorithm}"
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return f"{self.task.name}-{size}-{method}-{content['steps']}-{digest[:8]}"

    def content(self, scale: Scale, seeds: int) -> dict[str, Any]:
        """Return all that decides the result, as JSON."""
        config = self.config(scale, seeds, Path())
        return {
            **train_json(config.train),
            "seeds": list(config.seeds),
            "evaluations": [config.evaluations, config.eval_episodes],
            "start": self.start.content(scale, seeds) if self.start else None,
            **({"alone": True} if self.alone else {}),
        }


Measure = Callable[[Sequence[str], Scale], dict[str, Any]]  # of policies, in the order of the part's


@dataclasses.dataclass(frozen=True)
class Part:
    """The unit of resuming: some policies, trained or ready (`zoo:NAME`), and what is measured on them."""

    name: str
    policies: tuple[Training | str, ...]
    measures: tuple[Measure, ...] = ()
    label: str | None = None  # what tables and curves call it; by default the method

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the methods it needs, the one it is about first; what ships in the zoo is LEGO."""
        return tuple("lego" if isinstance(policy, str) else policy.method for policy in self.policies)

    @property
    def called(self) -> str:
        """Return its name in tables and curves."""
        return self.label or self.methods[0]

    def content(self, scale: Scale, seeds: int) -> dict[str, Any]:
        """Return all that decides what it gives, but for the code that measures."""
        trained = [p if isinstance(p, str) else p.content(scale, seeds) for p in self.policies]
        return {"policies": trained, "episodes": scale.episodes}
