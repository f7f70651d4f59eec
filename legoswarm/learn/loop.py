"""The training loop around the pure program: seeds side by side, progress, metrics, checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from legoswarm.configs import named, plain_fields
from legoswarm.fast.device_lock import device_lock
from legoswarm.fast.sharding import agreed, first_of_all, first_process, on_host
from legoswarm.files import FileError, finite
from legoswarm.learn.folder import RunConfig, RunFolder
from legoswarm.learn.loggers import check_logs, open_logs
from legoswarm.learn.outside import OutsidePrograms
from legoswarm.learn.programs import Programs
from legoswarm.learn.progress import Progress
from legoswarm.learn.train import CAUSES, TrainConfig, TrainState, outside
from legoswarm.own import command as own_command
from legoswarm.policies.networks.roles import Policies
from legoswarm.policies.saved.file import PolicyFile, load_policy, save_policy
from legoswarm.policies.saved.trees import take
from legoswarm.provenance import provenance
from legoswarm.tasks.check import check_task
from legoswarm.tasks.task import TASKS, Task

OnRow = Callable[[dict[str, Any]], None]
CHUNKS = 100  # how often a run reports; a chunk is one call of the compiled program
CHECKPOINT_SECONDS = 20.0
REST = 20  # how many times as long as writing a checkpoint takes none is written


def start_run(
    config: RunConfig,
    out: str | Path,
    command: str = "",
    *,
    quiet: bool = False,
    checkpoint_seconds: int | float = CHECKPOINT_SECONDS,
    alone: bool = False,
    on_row: OnRow | None = None,
) -> RunFolder:
    """Train from the beginning (or from another run's policy) into the folder `out`.

    What is timed trains `alone`: it waits, compiled, until no other run trains on this machine. `on_row` is called with
    every row of metrics once it is written.
    """
    _check_seconds(checkpoint_seconds)
    warm = _warm_start(config) if config.start else None
    check_logs(config.log)
    programs = make_programs(config, warm)  # refuses before a folder is made
    folder = RunFolder(out)
    with contextlib.ExitStack() as held:
        with first_of_all():
            if first_process() and not folder.path.exists():
                folder.path.mkdir(parents=True)
            if folder.path.is_dir():
                held.enter_context(folder.held())
            folder.create(config, command)
        _Run(config, folder, programs, checkpoint_seconds, on_row).go(quiet=quiet, alone=alone)
    return folder


def resume_run(
    out: str | os.PathLike[str],
    *,
    quiet: bool = False,
    checkpoint_seconds: int | float = CHECKPOINT_SECONDS,
    alone: bool = False,
    on_row: OnRow | None = None,
    steps: int | float | None = None,
    devices: int | None = None,
) -> RunFolder:
    """Go on from the newest checkpoint; the result equals that of an uninterrupted run.

    With `steps` a run, also a finished one, has more of them than before. A learning rate that falls to zero does so
    over all of them: it goes on as if the run had been that long from the beginning. `devices` may be another number
    of them than the run has had.
    """
    _check_seconds(checkpoint_seconds)
    folder = RunFolder(out)
    config = folder.read_config()
    if devices is not None:
        config = dataclasses.replace(config, **plain_fields(RunConfig, {"devices": devices}))
    check_logs(config.log)
    agreed()  # now that all have read it, it may be changed
    with contextlib.ExitStack() as held:
        with first_of_all():
            held.enter_context(folder.held())
        longer = None if steps is None else plain_fields(TrainConfig, {"steps": steps})["steps"]
        if longer is not None and longer <= config.train.steps:
            had = f"{folder.path} has {config.train.steps:,} steps already"
            raise ValueError(f"{had}: more are needed, not {longer:,}")
        if longer is not None:
            config = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=longer))
        warm = _warm_start(config) if config.start and not folder.has_checkpoint() else None
        programs = make_programs(config, warm)
        if longer is not None:
            folder.extend(longer)  # not before: what is refused changes nothing
        _Run(config, folder, programs, checkpoint_seconds, on_row).go(quiet=quiet, alone=alone)
    return folder


def make_programs(config: RunConfig, warm: Policies | None = None) -> Programs | OutsidePrograms:
    """Return what a run executes; what cannot be trained is refused, a task of the user's own by `check_task`."""
    task = config.train.task
    if not TASKS.own(task.name):
        _check_once(task)
    settings = config.train, config.seeds, config.eval_episodes, warm
    if not outside(task):
        return Programs(*settings, config.devices)
    if config.devices > 1 or jax.process_count() > 1:
        raise ValueError(f"the worlds of {task.name} live outside JAX: it trains on one device of one machine")
    return OutsidePrograms(*settings)


@functools.lru_cache(maxsize=64)
def _check_once(task: Task) -> None:
    """Refuse a task that is not whole; one that has passed is not looked at again."""
    check_task(task)


def _check_seconds(seconds: int | float) -> None:
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ValueError(f"checkpoint_seconds must be a finite number from 0 on, not {seconds!r}")


def _warm_start(config: RunConfig) -> Policies:
    """Return the policies of another run, one for each seed in turn: its best seed first, diverged ones left out."""
    assert config.start is not None
    nearest = getattr(config.train.policy, "nearest", None)  # how many it looks at is no matter of weights
    file = load_policy(config.start)
    if hasattr(file.config, "nearest"):
        file = load_policy(config.start, nearest)
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
    return take(file.policies, index)


def evaluation_points(iterations: int, evaluations: int) -> set[int]:
    """Return the iterations after which a policy is evaluated: as many as were asked for, denser at the beginning.

    The first of them comes early, and the last one after the last iteration; between them their squares are even.
    """
    points = min(evaluations, iterations)
    return {max(point, round(iterations * (point / points) ** 2)) for point in range(1, points + 1)}


class _Run:
    """A run under way: chunk by chunk, each with a row of metrics, now and then an evaluation and a checkpoint."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        programs: Programs | OutsidePrograms,
        checkpoint_seconds: float,
        on_row: OnRow | None = None,
    ):
        self.config, self.folder, self.programs, self.on_row = config, folder, programs, on_row
        self.checkpoint_seconds, self.saved, self.saving = checkpoint_seconds, time.monotonic(), 0.0
        checkpoint = folder.load_checkpoint(programs.skeleton)
        self.resumed = checkpoint is not None
        self.state = programs.first_state() if checkpoint is None else programs.with_settings(checkpoint)
        self.done = int(on_host(self.state.iteration).max())  # diverged seeds stay behind
        self.healthy = on_host(self.state.healthy)
        if self.healthy.any():
            folder.trim_metrics(self.done)

    def go(self, *, quiet: bool, alone: bool) -> None:
        """Train to the end; an interrupt leaves the newest state, and its policy, behind."""
        boundaries, evaluations = self._schedule()
        with (
            Progress(self.config.train, self.config.seeds, self.done, quiet=quiet or not first_process()) as progress,
            contextlib.ExitStack() as while_training,
            _interrupts() as stop_if_interrupted,
        ):
            if self.resumed:
                progress.say(f"resumed {self.folder.path} at step {self._steps(self.done):,}")
            try:
                started, preparing = time.monotonic(), 0.0
                if ahead := [b for b in boundaries if b > self.done and self.healthy.any()]:
                    while_training.callback(self.programs.close)
                    self.programs.compile(self.state)
                    preparing = time.monotonic() - started
                    while_training.enter_context(device_lock(alone=alone))
                    names = self.config.log if first_process() else ()
                    logs = open_logs(names, self.folder, self._steps(self.done))
                    self.write_logs = while_training.enter_context(logs)
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
                    self._tell(row)
                stop_if_interrupted()
                if not self.healthy.any():
                    progress.say("every seed has diverged: training stops here")
                agreed()  # all files are written
            except KeyboardInterrupt:
                if jax.process_count() == 1:  # others may be at another step: then the newest checkpoint stays
                    self.folder.save_checkpoint(self.state)
                    self._publish(self.state, self.done)
                words = f"interrupted at step {self._steps(self.done):,}"
                progress.say(f"{words}; go on with: {own_command('train', '--resume', self.folder.path)}")
                raise

    def _schedule(self) -> tuple[list[int], set[int]]:
        """Return the iterations after which chunks end, and those of them after which the policy is evaluated."""
        iterations = self.config.train.iterations
        chunk = max(iterations // CHUNKS, 1)
        evaluations = evaluation_points(iterations, self.config.evaluations)
        return sorted({*range(chunk, iterations, chunk), *evaluations}), evaluations

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

        A resumed run drops rows beyond its checkpoint but cannot write those before it: rows come first. Large replays
        take long to write, but never more than a small share of the time, unless one is wanted after every row.
        """
        self.folder.append_metrics(row)
        self.state, self.done = after, boundary
        passed, last = time.monotonic() - self.saved, boundary == self.config.train.iterations or not self.healthy.any()
        due = "eval" in row or passed >= self.checkpoint_seconds
        rested = passed >= REST * self.saving or not self.checkpoint_seconds
        if agreed(last or (due and rested)):
            started = time.monotonic()
            self.folder.save_checkpoint(after)
            self.saved = time.monotonic()
            self.saving = self.saved - started

    def _tell(self, row: dict[str, Any]) -> None:
        """Call who wants to know of every row; what it raises stops the run, which can be resumed from here."""
        try:
            self.write_logs(row)
            if self.on_row is not None:
                self.on_row(row)
        except Exception:
            if jax.process_count() == 1:
                self.folder.save_checkpoint(self.state)
            raise

    def _report_divergence(self, after: TrainState, progress: Progress) -> None:
        healthy, cause, iteration = map(on_host, (after.healthy, after.cause, after.iteration))
        for at in np.flatnonzero(self.healthy & ~healthy):
            why = CAUSES[cause[at]].format(runaway=self.config.train.runaway)
            where = f"seed {self.config.seeds[at]} diverged after step {self._steps(int(iteration[at])):,}"
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
    policies, healthy, iteration = jax.tree.map(
        on_host, (train.algorithm.policies(state.learners), state.healthy, state.iteration)
    )
    if not first_process():
        return
    score = np.where(healthy, np.nan_to_num(figures[task.primary], nan=-np.inf), -np.inf)
    save_policy(
        folder.path,
        PolicyFile(
            policies=policies,
            config=train.policy,
            layout=task.layout,
            limit=task.action_limit,
            task=named(task),
            seeds=config.seeds,
            figures=finite(figures, 6),
            best=int(np.argmax(score)),
            notes={
                "algorithm": named(train.algorithm),
                "steps": [int(i) * train.batch for i in iteration],
                "diverged": [s for s, ok in zip(config.seeds, healthy, strict=True) if not ok],
                **provenance(),
            },
        ),
    )
