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

from legoswarm.configs import named
from legoswarm.fast.device_lock import device_lock
from legoswarm.files import FileError, finite
from legoswarm.learn.folder import RunConfig, RunFolder
from legoswarm.learn.programs import Programs
from legoswarm.learn.progress import Progress
from legoswarm.learn.train import CAUSES, TrainState
from legoswarm.policies.networks.roles import Policies
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
        _Run(config, folder, programs, checkpoint_seconds).go(quiet=quiet, alone=alone)
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
        _Run(config, folder, programs, checkpoint_seconds).go(quiet=quiet, alone=alone)
    return folder


def _warm_start(config: RunConfig) -> Policies:
    """Return the policies of another run, one for each seed in turn: its best seed first, diverged ones left out."""
    assert config.start is not None
    file = load_policy(config.start)
    if file.config != config.train.policy:
        theirs, ours = named(file.config), named(config.train.policy)
        differ = ", ".join(
            f"{name} {theirs.get(name, 'none')} (here {value})"
            for name, value in ours.items()
            if theirs.get(name) != value
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


class _Run:
    """A run under way: chunk by chunk, each with a row of metrics, now and then an evaluation and a checkpoint."""

    def __init__(self, config: RunConfig, folder: RunFolder, programs: Programs, checkpoint_seconds: float):
        self.config, self.folder, self.programs = config, folder, programs
        self.checkpoint_seconds, self.saved = checkpoint_seconds, time.monotonic()
        checkpoint = folder.load_checkpoint(programs.skeleton)
        self.resumed = checkpoint is not None
        self.state = programs.first_state() if checkpoint is None else checkpoint
        self.done = int(np.asarray(self.state.iteration).max())  # diverged seeds stay behind
        self.healthy = np.asarray(self.state.healthy)
        if self.healthy.any():
            folder.trim_metrics(self.done)

    def go(self, *, quiet: bool, alone: bool) -> None:
        """Train to the end; an interrupt leaves the newest state, and its policy, behind."""
        boundaries, evaluations = self._schedule()
        with (
            Progress(self.config.train, self.config.seeds, self.done, quiet=quiet) as progress,
            contextlib.ExitStack() as while_training,
            _interrupts() as stop_if_interrupted,
        ):
            if self.resumed:
                progress.say(f"resumed {self.folder.path} at step {self._steps(self.done):,}")
            try:
                started, preparing = time.monotonic(), 0.0
                if ahead := [b for b in boundaries if b > self.done and self.healthy.any()]:
                    self.programs.compile(self.state)
                    preparing = time.monotonic() - started
                    while_training.enter_context(device_lock(alone=alone))
                for boundary in ahead:
                    stop_if_interrupted()
                    if not self.healthy.any():
                        break
                    after, row = self._advance(boundary, preparing)
                    preparing = 0.0
                    self._report_divergence(after, progress)
                    if boundary in evaluations or not self.healthy.any():
                        row["eval"] = self._publish(after, boundary)
                    self._keep(after, boundary, row)
                    progress.update(row)
                stop_if_interrupted()
                if not self.healthy.any():
                    progress.say("every seed has diverged: training stops here")
            except KeyboardInterrupt:
                self.folder.save_checkpoint(self.state)
                self._publish(self.state, self.done)
                words = f"interrupted at step {self._steps(self.done):,}"
                progress.say(f"{words}; go on with: legoswarm train --resume {self.folder.path}")
                raise

    def _schedule(self) -> tuple[list[int], set[int]]:
        """Return the iterations after which chunks end, and those of them after which the policy is evaluated."""
        iterations = self.config.train.iterations
        chunk = max(iterations // CHUNKS, 1)
        boundaries = sorted({*range(chunk, iterations, chunk), iterations})
        points = min(self.config.evaluations, len(boundaries))
        return boundaries, {boundaries[len(boundaries) * (point + 1) // points - 1] for point in range(points)}

    def _steps(self, iterations: int) -> int:
        return iterations * self.config.train.batch

    def _advance(self, boundary: int, preparing: float) -> tuple[TrainState, dict[str, Any]]:
        """Train up to a boundary; return the state and its row of metrics."""
        started = time.monotonic()
        after, metrics = jax.block_until_ready(self.programs.advance(self.state, boundary - self.done))
        seconds = preparing + time.monotonic() - started
        steps = self._steps(boundary - self.done) * len(self.config.seeds)
        row = {"iteration": boundary, "steps": self._steps(boundary), "seconds": round(seconds, 4)}
        return after, {**row, "steps_per_second": round(steps / seconds, 1), **finite(jax.device_get(metrics), 6)}

    def _publish(self, state: TrainState, done: int) -> dict[str, Any]:
        """Evaluate a state and write its policy file."""
        figures = jax.device_get(self.programs.measure(state, done))
        write_policy(self.folder, self.config, state, figures)
        return finite(figures, 6)

    def _keep(self, after: TrainState, boundary: int, row: dict[str, Any]) -> None:
        """Write a row of metrics and, if it is time, a checkpoint.

        A resumed run drops rows beyond its checkpoint but cannot write those before it: rows come first.
        """
        self.folder.append_metrics(row)
        self.state, self.done = after, boundary
        if "eval" in row or time.monotonic() - self.saved >= self.checkpoint_seconds:
            self.folder.save_checkpoint(after)
            self.saved = time.monotonic()

    def _report_divergence(self, after: TrainState, progress: Progress) -> None:
        healthy, cause = np.asarray(after.healthy), np.asarray(after.cause)
        for at in np.flatnonzero(self.healthy & ~healthy):
            why = CAUSES[cause[at]].format(runaway=self.config.train.runaway)
            where = f"seed {self.config.seeds[at]} diverged after step {self._steps(int(after.iteration[at])):,}"
            progress.say(f"{where}: {why}; its last good state is kept")
        self.healthy = healthy


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], None]]:
    """Leave Ctrl-C as usual, and give a function that raises it again, should a callback of JAX have swallowed it."""
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
    train, task = config.train, config.train.task
    score = np.where(np.asarray(state.healthy), np.nan_to_num(figures[task.primary], nan=-np.inf), -np.inf)
    save_policy(
        folder.path,
        PolicyFile(
            policies=train.algorithm.policies(state.learners),
            config=train.policy,
            layout=task.layout,
            limit=task.action_limit,
            task=named(task),
            seeds=config.seeds,
            figures=finite(figures, 6),
            best=int(np.argmax(score)),
            notes={
                "algorithm": named(train.algorithm),
                "steps": [int(i) * train.batch for i in np.asarray(state.iteration)],
                "diverged": [s for s, ok in zip(config.seeds, np.asarray(state.healthy), strict=True) if not ok],
                **provenance(),
            },
        ),
    )
