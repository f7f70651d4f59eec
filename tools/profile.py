"""Say where the time of a training goes: its iterations traced, and the kernels that took most of it.

    python tools/profile.py spread --agents 4 --seeds 10 --algorithm mappo --iterations 3 --out profile.json

Other words are options of `legoswarm train`. Kernels whose names differ in numbers alone are one row of the table
which tells how often they run in an iteration, and the milliseconds that they take together. Iterations are also timed
untraced, in several runs. LEGOSWARM_FAST takes the plain counterpart of a fast path, as everywhere.

    python tools/profile.py --table results/speed/profile/*.json

prints the table of docs/speed.md instead.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from legoswarm.cli.options import parse
from legoswarm.cli.train import Train
from legoswarm.fast.caches import use_caches
from legoswarm.fast.device_lock import device_lock
from legoswarm.fast.switches import VARIABLE
from legoswarm.files import write_json
from legoswarm.learn.programs import Programs
from legoswarm.learn.train import TrainConfig, TrainState, configure
from legoswarm.provenance import provenance
from legoswarm.studies.bench import peak_megabytes


def kernels(folder: str) -> list[tuple[str, float]]:
    """Return name and milliseconds of every kernel of a trace: the GPU's if there is one."""
    [path] = Path(folder).rglob("*.xplane.pb")
    planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
    found = []
    for plane in [plane for plane in planes if "GPU" in plane.name] or planes:
        for line in plane.lines:
            for event in line.events:
                if line.name.startswith("Stream") if "GPU" in plane.name else "hlo_op" in dict(event.stats):
                    found.append((re.sub(r"[\d.]+", "", event.name), event.duration_ns / 1e6))
    return found


def main() -> None:
    """Compile a training, and profile it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=3, help="that are traced")
    parser.add_argument("--timed", type=int, default=20, help="iterations of each run that is timed")
    parser.add_argument("--runs", type=int, default=3, help="that are timed")
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+", help="files whose figures are printed, instead")
    args, words = parser.parse_known_args()
    if args.table:
        print(speeds(args.table))
        return
    use_caches()
    given = parse(Train, "profile", words)
    config = configure(**{name: value for name, value in given.items() if name not in vars(Train()) or name in NAMES})
    programs = Programs(config, range(args.seeds))
    with device_lock():
        state = programs.first_state()
        programs.compile(state, measuring=False)
    with tempfile.TemporaryDirectory() as folder:
        with device_lock(alone=True):
            walls, memory = timed(config, programs, state, args, folder)
        found = kernels(folder)
    steps, wall = config.batch * args.seeds, sum(walls) / args.runs
    summary = {
        "wall_ms": wall,
        "runs_ms": walls,
        "busy_ms": sum(spent for _, spent in found) / args.iterations,
        "kernels": len(found) / args.iterations,
        "steps": steps,
        "peak_megabytes": memory,
    }
    rows = table(found, args.iterations)
    print(f"{' '.join(words)}, {args.seeds} seeds: an iteration of {steps:,} steps takes {wall:.1f} ms", end=" ")
    spread = ", ".join(f"{1e3 * steps / each:,.0f}" for each in walls)
    print(f"({spread} steps/s); {summary['busy_ms']:.1f} ms are in {summary['kernels']:.0f} kernels; {memory:,.0f} MB")
    for row in rows[: args.rows]:
        print(f"{row['ms']:9.3f} ms {row['count']:7.1f} x  {row['kernel']}")
    if args.out:
        write_json(
            args.out,
            {
                "command": " ".join(sys.argv),
                "switches": os.environ.get(VARIABLE, ""),
                **summary,
                "rows": rows[:200],
                **provenance(),
            },
        )


def timed(
    config: TrainConfig, programs: Programs, state: TrainState, args: argparse.Namespace, folder: str
) -> tuple[list[float], float]:
    """Time some runs, then trace some iterations into a folder; return milliseconds of an iteration, and megabytes."""
    warm = getattr(config.algorithm, "warmup", 0) + getattr(config.algorithm, "patience", 0)
    state, _ = jax.block_until_ready(programs.advance(state, 2 + warm // config.batch))
    walls = []
    for _ in range(args.runs):
        started = time.monotonic()
        state, _ = jax.block_until_ready(programs.advance(state, args.timed))
        walls.append(1e3 * (time.monotonic() - started) / args.timed)
    with jax.profiler.trace(folder):
        jax.block_until_ready(programs.advance(state, args.iterations))
    return walls, peak_megabytes()


def table(found: list[tuple[str, float]], iterations: int) -> list[dict[str, Any]]:
    """Return a row for all kernels of the same name, those that took most first."""
    total: dict[str, list[float]] = collections.defaultdict(list)
    for name, spent in found:
        total[name].append(spent)
    ordered = sorted(total.items(), key=lambda item: -sum(item[1]))
    return [{"kernel": name, "count": len(all_) / iterations, "ms": sum(all_) / iterations} for name, all_ in ordered]


def speeds(files: list[Path]) -> str:
    """Return a table in Markdown: steps a second in the mean of the runs, the slowest and the fastest, and memory."""
    lines = ["| file | steps/s | of single runs | an iteration | memory |", "|---|---|---|---|---|"]
    for path in files:
        found = json.loads(path.read_text())
        runs = sorted(1e3 * found["steps"] / each for each in found["runs_ms"])
        mean, most = 1e3 * found["steps"] / found["wall_ms"], f"{runs[0]:,.0f} to {runs[-1]:,.0f}"
        cells = f"{mean:,.0f}", most, f"{found['wall_ms']:.1f} ms", f"{1e-3 * found['peak_megabytes']:.1f} GB"
        lines.append(f"| `{path.stem}` | {' | '.join(cells)} |")
    return "\n".join(lines)


NAMES = ("task", "policy", "algorithm", "steps")

if __name__ == "__main__":
    main()
