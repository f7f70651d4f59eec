"""The run folder: configuration, metrics, the newest checkpoint and the policy, each whole at any moment."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from legoswarm.configs import named
from legoswarm.files import FileError, read_arrays, read_json, write_arrays, write_bytes, write_json
from legoswarm.learn.algorithms.algorithm import ALGORITHMS
from legoswarm.learn.train import TrainConfig, TrainState
from legoswarm.policies.policy import POLICIES
from legoswarm.policies.saved.trees import named_leaves, rebuild
from legoswarm.provenance import provenance
from legoswarm.tasks.task import TASKS

CHECKPOINT = "checkpoint.safetensors"


class Busy(FileError):
    """Says that another process is at work in a folder."""


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
                **train_json(config.train),
                "seeds": list(config.seeds),
                "evaluations": config.evaluations,
                "eval_episodes": config.eval_episodes,
                "start": config.start,
                **provenance(),
            },
        )

    def read_config(self) -> RunConfig:
        """Return the configuration that the run was started with."""
        path = self.path / "config.json"
        if not self.path.is_dir():
            raise FileError(f"{self.path} is not a run folder")
        values = read_json(path)
        if "mappo" in values:
            raise FileError(f"{path} was written by version 0.1; convert it: python tools/convert.py {self.path}")
        try:
            train = read_train(values)
            counts = int(values["evaluations"]), int(values["eval_episodes"])
            return RunConfig(train, tuple(values["seeds"]), *counts, values["start"])
        except (KeyError, TypeError, ValueError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise FileError(f"{path} is not a usable run configuration: {what}") from None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let this process alone train here meanwhile; another one that tries is refused."""
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
        """Tell whether there is a checkpoint to load."""
        return (self.path / CHECKPOINT).exists()

    def load_checkpoint(self, skeleton: TrainState) -> TrainState | None:
        """Return the newest checkpoint, or None before the first one."""
        path = self.path / CHECKPOINT
        return rebuild(skeleton, read_arrays(path), str(path)) if self.has_checkpoint() else None

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Add one line to `metrics.jsonl`."""
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return all complete lines of `metrics.jsonl`; a half-written last line is dropped."""
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


def train_json(train: TrainConfig) -> dict[str, Any]:
    """Return a training's configuration as it stands in `config.json`."""
    parts = {"task": train.task, "policy": train.policy, "algorithm": train.algorithm}
    return {**{name: named(part) for name, part in parts.items()}, "steps": train.steps, "runaway": train.runaway}


def read_train(values: dict[str, Any]) -> TrainConfig:
    """Read a training's configuration from such an object."""
    return TrainConfig(
        TASKS.read(values["task"], "task"),
        POLICIES.read(values["policy"], "policy"),
        ALGORITHMS.read(values["algorithm"], "algorithm"),
        int(values["steps"]),
        float(values["runaway"]),
    )
