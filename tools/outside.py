"""Compare training inside the real mpe2 with mpe2 alone and with the JAX world; docs/own-environment.md has the tables.

python tools/outside.py speed
python tools/outside.py
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).parent.parent / "results" / "outside"
TABLES = ("returns", "speeds")  # of docs/own-environment.md
ROUNDS, STEPS, ITERATIONS = 2, 5000, 4  # steps of each process alone, iterations of a training
QUIET = 0.5  # load of a machine with nothing else to do
Rate = tuple[float, float]  # steps a second, and microseconds of processor time for a step


def alone(processes: int, *, bare: bool = False) -> Rate:
    """Step mpe2's Spread in so many processes with random actions made beforehand; `bare`: without its wrappers."""
    spawn = multiprocessing.get_context("spawn")
    ready, rates = spawn.Barrier(processes), spawn.Queue()
    each = [spawn.Process(target=_step, args=(ready, rates, number, bare)) for number in range(processes)]
    for process in each:
        process.start()
    found = [rates.get() for _ in each]
    for process in each:
        process.join()
    return sum(rate for rate, _ in found), statistics.mean(cost for _, cost in found)


def _step(ready: Any, rates: Any, seed: int, bare: bool) -> None:
    from mpe2 import simple_spread_v3
    from pettingzoo.utils.conversions import aec_to_parallel

    settings: Any = {"N": 3, "max_cycles": 25, "continuous_actions": True}
    raw = simple_spread_v3.raw_env
    env = aec_to_parallel(raw(**settings)) if bare else simple_spread_v3.parallel_env(**settings)
    drawn = np.random.default_rng(seed).uniform(0, 1, (500, 3, 5)).astype(np.float32)
    moves = [dict(zip(env.possible_agents, row, strict=True)) for row in drawn]
    env.reset(seed=seed)
    ready.wait()
    started, spent = time.monotonic(), time.process_time()
    for step in range(STEPS):
        env.step(moves[step % len(moves)])
        if not env.agents:
            env.reset()
    rates.put((STEPS / (time.monotonic() - started), (time.process_time() - spent) / STEPS * 1e6))


class Training:
    """A training with two processes of worlds, compiled and warm."""

    def __init__(self, *, overlap: bool):
        from legoswarm.learn.outside import OutsidePrograms
        from legoswarm.learn.train import configure

        self.config = configure("mpe2-spread", "mappo", "mappo", agents=3, workers=2, overlap=overlap, steps=2e6)
        self.programs = OutsidePrograms(self.config, (0,))
        self.state = self.programs.first_state()
        self.programs.compile(self.state)
        self.state, _ = self.programs.advance(self.state, 2)

    def __call__(self) -> Rate:
        """Train for some iterations."""
        import jax

        jax.block_until_ready(self.state)
        started, spent = time.monotonic(), self._spent()
        self.state, _ = jax.block_until_ready(self.programs.advance(self.state, ITERATIONS))
        steps = ITERATIONS * self.config.batch
        return steps / (time.monotonic() - started), (self._spent() - spent) / steps * 1e6

    def _spent(self) -> float:
        """Return the processor time of all processes, in seconds."""
        pool: Any = self.programs._pool
        pids = [process.pid for process, _ in pool._workers]
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        ticks = sum(int(each[11]) + int(each[12]) for each in fields)
        return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def trained(*, overlap: bool) -> Rate:
    """Train with nothing else alive, and return the median of some measurements."""
    training = Training(overlap=overlap)
    try:
        rate, cost = np.median([training() for _ in range(3)], axis=0).tolist()
        return rate, cost
    finally:
        training.programs.close()


def speed() -> None:
    """Measure in rounds, each kind once in each of them, and write medians with what they depend on."""
    from legoswarm.provenance import provenance

    load = os.getloadavg()[0]
    kinds: dict[str, Callable[[], Rate]] = {
        "mpe2 alone, 1 process": lambda: alone(1),
        "mpe2 alone, 2 processes": lambda: alone(2),
        "mpe2 alone without its wrappers, 2 processes": lambda: alone(2, bare=True),
        "training MAPPO's MLP, 2 processes of worlds": lambda: trained(overlap=True),
        "the same, learning and collecting in turn": lambda: trained(overlap=False),
    }
    rounds = [{name: measure() for name, measure in kinds.items()} for _ in range(ROUNDS)]
    medians = {name: np.median([each[name] for each in rounds], axis=0).tolist() for name in kinds}
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "rows": [{"what": name, "steps_per_second": r, "cpu_microseconds": c} for name, (r, c) in medians.items()],
        "rounds": rounds,
        **provenance("mpe2", "pettingzoo"),
    }
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "speed.json").write_text(json.dumps(report, indent=2) + "\n")


def returns() -> str:
    """Return the table of returns after training in both kinds of worlds, all evaluated inside mpe2."""
    lines = ["| trained in | steps | first evaluation | at the end, each seed | mean |", f"|{'---|' * 5}"]
    for name, label in (("mpe2-spread", "mpe2 itself (`mpe2-spread`)"), ("spread", "JAX (`spread --protocol mpe2`)")):
        metrics, rows = (
            [json.loads(line) for line in (OUT / name / file).read_text().splitlines()]
            for file in ("metrics.jsonl", "eval.jsonl")
        )
        first = next(row["eval"]["return_2c"] for row in metrics if "eval" in row)
        last = [row["return_2c"] for row in rows]
        seeds = ", ".join(f"{value:.1f}" for value in last)
        lines.append(f"| {label} | {metrics[-1]['steps']:,} | {np.mean(first):.1f} | {seeds} | {np.mean(last):.1f} |")
    return "\n".join(lines)


def speeds() -> str:
    """Return the table of speeds; steps a second only if the machine had nothing else to do."""
    report = json.loads((OUT / "speed.json").read_text())
    rows, quiet = report["rows"], report["load_before"] < QUIET
    least = min(row["cpu_microseconds"] for row in rows[:2])
    head = ["", "CPU time of a step", "speed on busy cores", *["steps a second", "of 2 processes alone"] * quiet]
    lines = ["".join(f"| {word} " for word in head) + "|", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = [row["what"], f"{row['cpu_microseconds']:.0f} µs"]
        cells.append(f"{least / row['cpu_microseconds']:.0%}")
        if quiet:
            rate = row["steps_per_second"]
            cells += [f"{rate:,.0f}", f"{rate / rows[1]['steps_per_second']:.0%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["speed"]:
        speed()
    else:
        print(returns(), speeds(), sep="\n\n")
