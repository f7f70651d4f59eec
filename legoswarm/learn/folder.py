"""The run folder: configuration, metrics, the newest checkpoint and the policy, each whole at any moment."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.configs import from_json, to_json
from legoswarm.files import FileError, read_arrays, read_json, write_arrays, write_bytes, write_json
from legoswarm.learn.algorithms.mappo import MappoConfig
from legoswarm.learn.train import TrainConfig, TrainState
from legoswarm.policies import PolicyConfig
from legoswarm.policies.saved.trees import named_leaves, rebuild
from legoswarm.provenance import provenance
from legoswarm.tasks import task_class

CHECKPOINT = "checkpoint.safetensors"


class Busy(FileError):
    """Another process is at it."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """A training run: what decides its result, and what it was started from."""

    train: TrainConfig
    seeds: tuple[int, ...] = (0,)
    evaluations: int = 10
    eval_episodes: int = 100
    start: str | None = None  # a policy to warm-start from

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds) or min(self.seeds) < 0:
            raise ValueError("seeds must be one or more different numbers from 0 on")
        if max(self.seeds) >= 2**31:
            raise ValueError(f"seeds must be less than {2**31}, not {max(self.seeds)}")
        if self.evaluations < 1 or self.eval_episodes < 1:
            raise ValueError("evaluations and eval_episodes must be at least 1")


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def create(self, config: RunConfig, command: str) -> None:
        """Make the folder and write `config.json`; an existing run is never overwritten."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise FileError(f"{self.path} exists and is not an empty folder; choose another --out or use --resume")
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(
            self.path / "config.json",
            {
                "command": command,
                "task": {"name": config.train.task.name, **to_json(config.train.task)},
                "policy": to_json(config.train.policy),
                "mappo": to_json(config.train.mappo),
                "steps": config.train.steps,
                "seeds": list(config.seeds),
                "evaluations": config.evaluations,
                "eval_episodes": config.eval_episodes,
                "start": config.start,
                **provenance(),
            },
        )

    def read_config(self) -> RunConfig:
        """The configuration the run was started with."""
        path = self.path / "config.json"
        if not self.path.is_dir():
            raise FileError(f"{self.path} is not a run folder")
        values = read_json(path)
        try:
            fields = dict(values["task"])
            cls: Any = task_class(fields.pop("name"))
            train = TrainConfig(
                from_json(cls, fields, "task"),
                from_json(PolicyConfig, values["policy"], "policy"),
                from_json(MappoConfig, values["mappo"], "mappo"),
                int(values["steps"]),
            )
            counts = int(values["evaluations"]), int(values["eval_episodes"])
            return RunConfig(train, tuple(values["seeds"]), *counts, values["start"])
        except (KeyError, TypeError, ValueError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise FileError(f"{path} is not a usable run configuration: {what}") from None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """This process alone trains here meanwhile; another one that tries is refused."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            raise Busy(f"another process is training in {self.path}") from None
        except OSError:
            pass  # a file system without locks
        try:
            yield
        finally:
            os.close(folder)

    def save_checkpoint(self, state: TrainState) -> None:
        """Replace the newest checkpoint."""
        write_arrays(self.path / CHECKPOINT, named_leaves(state))

    def has_checkpoint(self) -> bool:
        """Whether there is one to load."""
        return (self.path / CHECKPOINT).exists()

    def load_checkpoint(self, skeleton: TrainState) -> TrainState | None:
        """The newest checkpoint, or None before the first one."""
        path = self.path / CHECKPOINT
        return rebuild(skeleton, read_arrays(path), str(path)) if self.has_checkpoint() else None

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Add one line to `metrics.jsonl`."""
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines of `metrics.jsonl`; a half-written last line is dropped."""
        path = self.path / "metrics.jsonl"
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return rows

    def trim_metrics(self, iteration: int) -> None:
        """Drop lines after `iteration`: the resumed run writes them again."""
        rows = [row for row in self.read_metrics() if row["iteration"] <= iteration]
        write_bytes(self.path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())


def jsonable(values: dict[str, Any]) -> dict[str, Any]:
    """Arrays as lists of numbers; what is not finite as None."""

    def number(x: float) -> float | None:
        return round(x, 6) if math.isfinite(x) else None

    return {name: [number(x) for x in np.asarray(value, float).reshape(-1).tolist()] for name, value in values.items()}
