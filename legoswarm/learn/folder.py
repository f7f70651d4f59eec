"""The run folder: configuration, metrics, the newest checkpoint and the policy, each whole at any moment.

- `config.json` holds the command, the options of task, policy and algorithm, versions and hardware.
- `metrics.jsonl` grows by one row after each hundredth of the steps.
- `checkpoint.safetensors` is all that a resumed run needs to go on as if it had never stopped.
- `policy.safetensors` and `policy.json` are the policy at its newest evaluation.
"""

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

from legoswarm.configs import named, plain_fields
from legoswarm.fast.sharding import first_process
from legoswarm.files import FileError, naming, read_arrays, read_json, read_text, write_arrays, write_bytes, write_json
from legoswarm.learn.algorithms.algorithm import ALGORITHMS
from legoswarm.learn.curves import Curve, curves_of
from legoswarm.learn.train import TrainConfig, TrainState, with_settings
from legoswarm.policies.policy import POLICIES
from legoswarm.policies.saved.description import MAX_SEEDS
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
    log: tuple[str, ...] = ()  # where metrics go beside metrics.jsonl; decides nothing
    devices: int = 1  # of each process; decides nothing but rounding

    def __post_init__(self) -> None:
        plain_fields(RunConfig, {name: value for name, value in vars(self).items() if name != "train"})
        if len(self.seeds) > MAX_SEEDS:
            raise ValueError(f"at most {MAX_SEEDS:,} seeds fit into one run")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds) or min(self.seeds) < 0:
            raise ValueError("seeds must be one or more different numbers from 0 on")
        if max(self.seeds) >= 2**31:
            raise ValueError(f"seeds must be less than {2**31}, not {max(self.seeds)}")
        for name in ("evaluations", "eval_episodes", "devices"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


class RunFolder:
    """A run: reads and writes its files. Wherever the path of a run is asked for, it will do itself.

    Of several processes that train one run the first one alone writes.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def curves(self) -> dict[str, Curve]:
        """Return the learning curve of every metric by its name; METRICS of learn/curves.py says what it means."""
        rows = self.read_metrics()
        try:
            return curves_of(rows)
        except (TypeError, ValueError, OverflowError):
            raise FileError(f"{self.path / 'metrics.jsonl'} is damaged: a metric of it is not a number") from None

    def create(self, config: RunConfig, command: str) -> None:
        """Make the folder and write `config.json`; an existing run is never overwritten, one that never began is."""
        if not first_process():
            return
        if self.path.exists() and (not self.path.is_dir() or not self._never_began()):
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
                "log": list(config.log),
                "devices": config.devices,
                **provenance(),
            },
        )

    def _never_began(self) -> bool:
        """Tell whether nothing was trained here: at most a configuration is there, as after a crash while compiling."""
        logs = ("config.json", "tensorboard", "wandb")  # opened before the first row
        rest = [path for path in self.path.iterdir() if path.name not in logs and not path.name.startswith(".")]
        return all(path.name == "metrics.jsonl" and not path.stat().st_size for path in rest)

    def extend(self, steps: int) -> None:
        """Write down that a run has more steps than it was started with."""
        values = read_json(self.path / "config.json")
        extended = [*values.get("extended", []), {"from": values["steps"], "to": steps}]
        if first_process():
            write_json(self.path / "config.json", {**values, "steps": steps, "extended": extended})

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
            rest = values["start"], tuple(values.get("log", ())), int(values.get("devices", 1))
            return RunConfig(train, tuple(values["seeds"]), *counts, *rest)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise FileError(f"{path} is not a usable run configuration: {what}") from None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let this process alone train here meanwhile; another one that tries is refused."""
        if not first_process():
            yield
            return
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
        arrays = named_leaves(with_settings(state, {}))
        if first_process():
            write_arrays(self.path / CHECKPOINT, arrays)

    def has_checkpoint(self) -> bool:
        """Tell whether there is a checkpoint to load."""
        return (self.path / CHECKPOINT).exists()

    def load_checkpoint(self, skeleton: TrainState) -> TrainState | None:
        """Return the newest checkpoint, without settings, which are the configuration's; None before the first one."""
        path = self.path / CHECKPOINT
        bare = with_settings(skeleton, {})
        return rebuild(bare, read_arrays(path), str(path)) if self.has_checkpoint() else None

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Add one line to `metrics.jsonl`."""
        if not first_process():
            return
        path = self.path / "metrics.jsonl"
        with naming(path), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return all complete lines of `metrics.jsonl`; a half-written last line is dropped, other damage refused."""
        path = self.path / "metrics.jsonl"
        rows = []
        lines = read_text(path).split("\n")[:-1] if path.exists() else []  # what follows the last break is half a line
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line))
                if not all(math.isfinite(rows[-1][name]) for name in ("iteration", "steps", "seconds")):
                    raise ValueError
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                raise FileError(f"{path} is damaged in line {number}: mend or remove that line first") from None
        return rows

    def trim_metrics(self, iteration: int) -> None:
        """Drop lines after `iteration`: the resumed run writes them again."""
        if not first_process():
            return
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
