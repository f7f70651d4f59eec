"""Worlds in processes of their own, which share memory with the one that learns.

Worlds are divided into lanes. A process steps one lane while its others wait for actions or are looked at, so that
neither side waits for the other as long as there are two lanes for each process.
"""

from __future__ import annotations

import collections
import contextlib
import math
import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Literal

import numpy as np

from legoswarm.tasks.adapters.outside import OutsideTask

Command = Literal["reset", "step", "play"]  # play: worlds that end stay as they are
_COMMANDS: tuple[Command, ...] = ("reset", "step", "play")
Arrays = dict[str, np.ndarray]
# Of a process with worlds: it leaves the accelerator alone, and does not fight with its neighbours for cores.
_SURROUNDINGS = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class OutsideError(ValueError):
    """Says that an environment failed in its process; its cause holds the traceback."""


class Lane:
    """Some worlds: arrays (seeds, worlds, ...) in memory that their process shares."""

    def __init__(self, memory: Any, spec: dict[str, tuple[str, tuple[int, ...]]]):
        self.arrays: Arrays = {}
        start = 0
        for name, (dtype, shape) in spec.items():
            size = np.dtype(dtype).itemsize * math.prod(shape)
            self.arrays[name] = np.frombuffer(memory, dtype, math.prod(shape), start).reshape(shape)
            start += -(-size // 8) * 8

    @staticmethod
    def size(spec: dict[str, tuple[str, tuple[int, ...]]]) -> int:
        """Count the bytes that it needs."""
        return sum(-(-np.dtype(dtype).itemsize * math.prod(shape) // 8) * 8 for dtype, shape in spec.values())


def lane_spec(task: OutsideTask, seeds: int, worlds: int, measures: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the arrays of a lane: scenes now, scenes that the last step led to before any reset, and its outcome."""
    layout, batch = task.layout, (seeds, worlds)
    vectors = (*batch, layout.entities, layout.dimension)
    scene = {
        "position": ("f4", vectors),
        "velocity": ("f4", vectors),
        "exists": ("?", (*batch, layout.entities)),
        "visible": ("?", (*batch, layout.agents, layout.entities)),
    }
    return {
        **scene,
        **{f"next_{name}": kind for name, kind in scene.items()},
        "action": ("f4", (*batch, layout.agents, layout.dimension)),
        "reward": ("f4", (*batch, layout.agents)),
        "terminated": ("?", batch),
        "truncated": ("?", batch),
        "measures": ("f4", (*batch, measures)),
        "seed": ("i8", batch),
        "time": ("i4", batch),
    }


class WorldPool:
    """Processes with worlds, one set of them for each seed of a run."""

    def __init__(self, task: OutsideTask, seeds: int, worlds: int, measures: tuple[str, ...]):
        self.task, self.measures = task, measures
        count = _lanes(worlds, 2 * task.workers)
        self.width = worlds // count  # worlds of a lane, for each seed
        spec = lane_spec(task, seeds, self.width, len(measures))
        spawn = multiprocessing.get_context("spawn")
        memory = [spawn.RawArray("b", Lane.size(spec)) for _ in range(count)]
        self.lanes = [Lane(each, spec).arrays for each in memory]
        self._workers: list[tuple[Any, Connection]] = []
        self._busy = [False] * count
        self._posted: list[collections.deque[int]] = []  # lanes whose answers each process owes, in their order
        with _environment(_SURROUNDINGS):
            processes = min(task.workers, count)
            for number in range(processes):
                here, there = spawn.Pipe()
                mine = memory[number::processes]
                process = spawn.Process(target=_work, args=(task, there, mine, spec, measures), daemon=True)
                process.start()
                there.close()
                self._workers.append((process, here))
                self._posted.append(collections.deque())

    def post(self, lane: int, command: Command) -> None:
        """Let a lane's process do something with it; `wait` says when it is done."""
        self.wait(lane)  # for what somebody posted who was interrupted
        _, pipe = self._workers[lane % len(self._workers)]
        self._busy[lane] = True
        self._posted[lane % len(self._workers)].append(lane)
        with contextlib.suppress(ConnectionError):  # `wait` says why
            pipe.send_bytes(bytes([_COMMANDS.index(command), lane // len(self._workers)]))

    def wait(self, lane: int) -> Arrays:
        """Wait until a lane's process has done what was posted, if anything, and return the lane's arrays."""
        number = lane % len(self._workers)
        process, pipe = self._workers[number]
        while self._busy[lane]:
            try:
                said = pipe.recv_bytes()
            except (EOFError, ConnectionError):  # the latter where it died with a command still unread
                process.join(5)
                raise OutsideError(
                    f"a process with worlds of {self.task.name} ended with the code {process.exitcode}"
                ) from None
            if said:
                trace = said.decode()
                last = trace.strip().splitlines()[-1]
                raise OutsideError(f"a world of {self.task.name} failed: {last}") from RuntimeError(trace)
            self._busy[self._posted[number].popleft()] = False
        return self.lanes[lane]

    def close(self) -> None:
        """End the processes."""
        for _, pipe in self._workers:
            pipe.close()
        for process, _ in self._workers:
            process.join(5)
            if process.is_alive():
                process.terminate()
        self._workers = []


def _lanes(worlds: int, most: int) -> int:
    """Return how many lanes of equal size worlds are divided into, at most so many."""
    return max(count for count in range(1, min(worlds, most) + 1) if worlds % count == 0)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Have these environment variables meanwhile, which processes inherit that are started now."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(
    task: OutsideTask, pipe: Connection, memory: list[Any], spec: dict[str, Any], measures: tuple[str, ...]
) -> None:
    """Step worlds as the other process asks, until it closes the pipe; an empty answer says that all went well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other process's matter
    try:
        lanes = [_Worlds(task, Lane(each, spec).arrays, measures) for each in memory]
        while True:
            number, lane = pipe.recv_bytes()
            getattr(lanes[lane], _COMMANDS[number])()
            pipe.send_bytes(b"")
    except (EOFError, ConnectionError):
        return
    except BaseException:
        with contextlib.suppress(OSError):
            pipe.send_bytes(traceback.format_exc().encode())


class _Worlds:
    """The worlds of a lane in their own process."""

    def __init__(self, task: OutsideTask, arrays: Arrays, measures: tuple[str, ...]):
        self.task, self.names = task, measures
        self.arrays = {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
        self.count = len(self.arrays["time"])
        self.worlds: Any = task.worlds(self.count)  # pyright: ignore[reportAttributeAccessIssue]
        self.everything = np.ones(self.count, bool)

    def reset(self) -> None:
        """Start every world anew from its seed; what time it is there was written before."""
        self.worlds.reset(self.everything, self.arrays["seed"])
        self.arrays["terminated"][:] = self.arrays["truncated"][:] = False
        self._write("", self.everything)

    def step(self) -> None:
        """Take a step everywhere; worlds that end are reset."""
        over = self._step(self.everything)
        for name in ("position", "velocity", "exists", "visible"):
            self.arrays[name][:] = self.arrays[f"next_{name}"]
        if over.any():
            self.worlds.reset(over)
            self.arrays["time"][over] = 0
            self._write("", over)

    def play(self) -> None:
        """Take a step where the episode goes on."""
        arrays = self.arrays
        alive = ~(arrays["terminated"] | arrays["truncated"])
        arrays["measures"][:] = 0.0
        over = np.array([arrays["terminated"], arrays["truncated"]])
        there = arrays["exists"][:, : self.task.layout.agents].copy()
        self._step(alive)
        mean = (arrays["reward"] * there).sum(1) / np.maximum(there.sum(1), 1)
        for at, values in self.worlds.measure(alive):
            arrays["measures"][at] = [mean[at], *(values[name] for name in self.names[1:])]
        for now, before in zip((arrays["terminated"], arrays["truncated"]), over, strict=True):
            now[:] = np.where(alive, now, before)
        for name in ("position", "velocity", "exists", "visible"):
            arrays[name][alive] = arrays[f"next_{name}"][alive]

    def _step(self, which: np.ndarray) -> np.ndarray:
        """Take a step in some worlds and write its outcome; return which of them have ended."""
        arrays = self.arrays
        reward, terminated, truncated = self.worlds.step(self.task.action_limit(arrays["action"]), which)
        arrays["time"] += 1
        arrays["reward"][:], arrays["terminated"][:] = reward, terminated
        arrays["truncated"][:] = (truncated | (arrays["time"] >= self.task.horizon)) & ~terminated
        self._write("next_", which)
        return which & (arrays["terminated"] | arrays["truncated"])

    def _write(self, prefix: str, which: np.ndarray) -> None:
        """Write where everything is in some worlds."""
        arrays = self.arrays
        for at, seen in self.worlds.look(which):
            arrays[f"{prefix}position"][at], arrays[f"{prefix}velocity"][at] = seen.position, seen.velocity
            arrays[f"{prefix}exists"][at] = True if seen.exists is None else seen.exists
            arrays[f"{prefix}visible"][at] = True if seen.visible is None else seen.visible
