"""Metrics to other tools while a run goes on, through their own libraries: TensorBoard and Weights & Biases."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from legoswarm.files import read_json
from legoswarm.learn.folder import RunFolder

LIBRARIES = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # by the name of a log, which is that of the extra
Write = Callable[[dict[str, Any]], None]


def check_logs(names: Sequence[str]) -> None:
    """Refuse a log that is unknown, or whose library is not installed."""
    for name in names:
        if name not in LIBRARIES:
            raise ValueError(f"unknown log {name!r}; known: {', '.join(LIBRARIES)}")
        try:
            importlib.import_module(LIBRARIES[name])
        except ImportError:
            raise ValueError(f"the log {name} needs {LIBRARIES[name]}: pip install 'legoswarm[{name}]'") from None


@contextlib.contextmanager
def open_logs(names: Sequence[str], folder: RunFolder, steps: int) -> Iterator[Write]:
    """Give a function that writes a row of metrics to each log; a run resumed at `steps` continues its curves."""
    with contextlib.ExitStack() as opened:
        writers = [opened.enter_context(_OPEN[name](folder, steps)) for name in names]

        def write(row: dict[str, Any]) -> None:
            for writer in writers:
                writer(row)

        yield write


def scalars(row: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a row by name: means over seeds, and with several seeds each of them as NAME/seed-AT."""
    found = {}
    numbers = {name: value for name, value in row.items() if name not in ("iteration", "steps", "eval")}
    for name, value in {**numbers, **{f"eval/{name}": value for name, value in row.get("eval", {}).items()}}.items():
        values = [each for each in (value if isinstance(value, list) else [value]) if each is not None]
        if values:
            found[name] = sum(values) / len(values)
        if isinstance(value, list) and len(value) > 1:
            found |= {f"{name}/seed-{at}": each for at, each in enumerate(value) if each is not None}
    return found


@contextlib.contextmanager
def _tensorboard(folder: RunFolder, steps: int) -> Iterator[Write]:
    """Write event files into the run's folder `tensorboard`; what was written after `steps` is dropped from curves."""
    library: Any = importlib.import_module(LIBRARIES["tensorboard"])
    where, own = (
        str(folder.path / "tensorboard"),
        f".{time.time_ns()}",
    )  # names tell seconds alone
    writer = library.SummaryWriter(where, purge_step=steps + 1 if steps else None, filename_suffix=own)

    def write(row: dict[str, Any]) -> None:
        for name, value in scalars(row).items():
            writer.add_scalar(name, value, row["steps"])
        writer.flush()

    try:
        yield write
    finally:
        writer.close()


@contextlib.contextmanager
def _wandb(folder: RunFolder, steps: int) -> Iterator[Write]:
    """Log to a run of Weights & Biases whose identity is the folder's, so that a resumed run goes on there."""
    del steps  # rows that were logged already are ignored there
    library: Any = importlib.import_module(LIBRARIES["wandb"])
    config = read_json(folder.path / "config.json")
    about = f"{folder.path.resolve()} {config['revision']} {config['seeds']}"
    run = library.init(
        project="legoswarm",
        name=folder.path.name,
        id=hashlib.sha256(about.encode()).hexdigest()[:16],
        resume="allow",
        config=config,
        dir=str(folder.path),
    )
    try:
        yield lambda row: run.log(scalars(row), step=row["steps"])
    finally:
        run.finish()


_OPEN = {"tensorboard": _tensorboard, "wandb": _wandb}
