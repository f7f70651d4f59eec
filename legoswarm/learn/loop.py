"""The training loop around the pure program: seeds side by side, progress, metrics, checkpoints."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from legoswarm.configs import to_json
from legoswarm.files import FileError
from legoswarm.learn.folder import RunConfig, RunFolder, jsonable
from legoswarm.learn.machine import device_lock
from legoswarm.learn.programs import Programs
from legoswarm.learn.progress import Progress
from legoswarm.learn.train import CAUSES, TrainState
from legoswarm.policies import Policies
from legoswarm.policies.saved.file import PolicyFile, load_policy, save_policy
from legoswarm.provenance import provenance

CHUNKS = 100  # how often a run reports; a chunk is one call of the compiled program
CHECKPOINT_SECONDS = 20.0


def start_run(
    config: RunConfig,
    out: str | Path,
    command: str = "",
    *,
    quiet: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    alone: bool = False,
) -> RunFolder:
    """Train from the beginning (or from another run's policy) into the folder `out`.

    What is timed trains `alone`: it waits, compiled, until no other run trains on this machine.
    """
    warm = _warm_start(config) if config.start else None
    programs = Programs(config.train, config.seeds, config.eval_episodes, warm)  # refuses before a folder is made
    folder = RunFolder(out)
    folder.create(config, command)
    with folder.held():
        _run(config, folder, programs, quiet=quiet, checkpoint_seconds=checkpoint_seconds, alone=alone)
    return folder


def resume_run(
    out: str | Path, *, quiet: bool = False, checkpoint_seconds: float = CHECKPOINT_SECONDS, alone: bool = False
) -> RunFolder:
    """Go on from the newest checkpoint; the result equals that of an uninterrupted run."""
    folder = RunFolder(out)
    config = folder.read_config()
    with folder.held():
        warm = _warm_start(config) if config.start and not folder.has_checkpoint() else None
        programs = Programs(config.train, config.seeds, config.eval_episodes, warm)
        _run(config, folder, programs, quiet=quiet, checkpoint_seconds=checkpoint_seconds, alone=alone)
    return folder


def _warm_start(config: RunConfig) -> Policies:
    """The policies of another run, one for each seed in turn: its best seed first, diverged ones left out."""
    assert config.start is not None
    file = load_policy(config.start)
    if file.config != config.train.policy:
        theirs, ours = to_json(file.config), to_json(config.train.policy)
        differ = ", ".join(
            f"{name} {theirs[name]} (here {value})" for name, value in ours.items() if theirs[name] != value
        )
        raise FileError(f"{config.start} has another architecture than this run: {differ}")
    if file.layout.roles != config.train.task.layout.roles:
        raise FileError(f"{config.start} knows the roles {file.layout.roles}, the task has others")
    file.check_team(config.train.task.layout)
    lost = set(file.notes.get("diverged", ()))
    healthy = [at for at, seed in enumerate(file.seeds) if seed not in lost and at != file.best]
    order = np.array([file.best, *healthy])
    index = order[np.arange(len(config.seeds)) % len(order)]
    return jax.tree.map(lambda leaf: leaf[index], file.policies)


def _run(
    config: RunConfig, folder: RunFolder, programs: Programs, *, quiet: bool, checkpoint_seconds: float, alone: bool
) -> None:
    train = config.train
    checkpoint = folder.load_checkpoint(programs.skeleton)
    state = programs.first_state() if checkpoint is None else checkpoint
    done = _iteration(state)
    healthy = np.asarray(state.healthy)
    if healthy.any():
        folder.trim_metrics(done)
    chunk = max(train.iterations // CHUNKS, 1)
    boundaries = sorted({*range(chunk, train.iterations, chunk), train.iterations})
    points = min(config.evaluations, len(boundaries))
    evaluations = {boundaries[len(boundaries) * (point + 1) // points - 1] for point in range(points)}
    saved = time.monotonic()

    def publish(state: TrainState, done: int) -> dict[str, Any]:
        """Evaluate a state and write its policy file."""
        figures = jax.device_get(programs.measure(state, done))
        write_policy(folder, config, state, figures)
        return jsonable(figures)

    with (
        Progress(train, config.seeds, done, quiet=quiet) as progress,
        contextlib.ExitStack() as while_training,
        _interrupts() as stop_if_interrupted,
    ):
        if checkpoint is not None:
            progress.say(f"resumed {folder.path} at step {done * train.mappo.batch:,}")
        try:
            started, preparing = time.monotonic(), 0.0
            if ahead := [b for b in boundaries if b > done and healthy.any()]:
                programs.compile(state)
                preparing = time.monotonic() - started
                while_training.enter_context(device_lock(alone=alone))
            for boundary in ahead:
                stop_if_interrupted()
                if not healthy.any():
                    break
                started = time.monotonic()
                after, metrics = jax.block_until_ready(programs.advance(state, boundary - done))
                seconds, preparing = preparing + time.monotonic() - started, 0.0
                steps = (boundary - done) * train.mappo.batch
                row = {
                    "iteration": boundary,
                    "steps": boundary * train.mappo.batch,
                    "seconds": round(seconds, 4),
                    "steps_per_second": round(steps * len(config.seeds) / seconds, 1),
                    **jsonable(metrics),
                }
                healthy = _report_divergence(after, healthy, config, progress)
                if boundary in evaluations or not healthy.any():
                    row["eval"] = publish(after, boundary)
                # A resumed run drops rows beyond its checkpoint but cannot write those before it: rows come first.
                folder.append_metrics(row)
                state, done = after, boundary
                if "eval" in row or time.monotonic() - saved >= checkpoint_seconds:
                    folder.save_checkpoint(state)
                    saved = time.monotonic()
                progress.update(row)
            stop_if_interrupted()
            if not healthy.any():
                progress.say("every seed has diverged: training stops here")
        except KeyboardInterrupt:
            folder.save_checkpoint(state)
            publish(state, done)
            progress.say(f"interrupted at step {done * train.mappo.batch:,}; go on with --resume {folder.path}")
            raise


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], None]]:
    """Ctrl-C as usual, and a function that raises it again, should a callback of JAX have swallowed it."""
    handler, mine = signal.getsignal(signal.SIGINT), threading.current_thread() is threading.main_thread()
    pressed = threading.Event()

    def press(*_: object) -> None:
        pressed.set()
        raise KeyboardInterrupt

    def stop_if_interrupted() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    try:
        if mine and handler is signal.default_int_handler:  # no other program's handler is touched
            signal.signal(signal.SIGINT, press)
        yield stop_if_interrupted
    finally:
        if mine and signal.getsignal(signal.SIGINT) is press:
            signal.signal(signal.SIGINT, handler)


def write_policy(folder: RunFolder, config: RunConfig, state: TrainState, figures: dict[str, np.ndarray]) -> None:
    """Write the policy file of a run."""
    task = config.train.task
    score = np.where(np.asarray(state.healthy), np.nan_to_num(figures[task.primary], nan=-np.inf), -np.inf)
    save_policy(
        folder.path,
        PolicyFile(
            policies={role: learner.policy for role, learner in state.learners.items()},
            config=config.train.policy,
            layout=task.layout,
            limit=task.action_limit,
            task={"name": task.name, **to_json(task)},
            seeds=config.seeds,
            figures=jsonable(figures),
            best=int(np.argmax(score)),
            notes={
                "steps": [int(i) * config.train.mappo.batch for i in np.asarray(state.iteration)],
                "diverged": [s for s, ok in zip(config.seeds, np.asarray(state.healthy), strict=True) if not ok],
                **provenance(),
            },
        ),
    )


def _iteration(state: TrainState) -> int:
    """How far the run is; diverged seeds stay behind."""
    return int(np.asarray(state.iteration).max())


def _report_divergence(state: TrainState, before: np.ndarray, config: RunConfig, progress: Progress) -> np.ndarray:
    healthy, cause = np.asarray(state.healthy), np.asarray(state.cause)
    for at in np.flatnonzero(before & ~healthy):
        steps = int(state.iteration[at]) * config.train.mappo.batch
        progress.say(
            f"seed {config.seeds[at]} diverged after step {steps:,}: {CAUSES[cause[at]]}; its last good state is kept"
        )
    return healthy
