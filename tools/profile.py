"""Say where the time of a training goes: its iterations traced, and the kernels that took most of it.

    python tools/profile.py spread --agents 4 --seeds 10 --algorithm mappo --iterations 3 --out profile.json

Words that are not named here are options of `legoswarm train`. Kernels of the same name but for its numbers, and of the
same place in the program, are one row: their number in an iteration, and the milliseconds that they take together.
"""

from __future__ import annotations

import argparse
import collections
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
from legoswarm.files import write_json
from legoswarm.learn.programs import Programs
from legoswarm.learn.train import TrainConfig, TrainState, configure
from legoswarm.provenance import provenance

PLACE = 90  # letters of a place in the program that are shown


def kernels(folder: str) -> list[tuple[str, str, float]]:
    """Return name, place in the program and milliseconds of every kernel of a trace: the GPU's if there is one."""
    [path] = Path(folder).rglob("*.xplane.pb")
    planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
    found = []
    for plane in [plane for plane in planes if "GPU" in plane.name] or planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if line.name.startswith("Stream") if "GPU" in plane.name else "hlo_op" in stats:
                    name = re.sub(r"[\d.]+", "", event.name)
                    found.append((name, str(stats.get("tf_op") or stats.get("name") or ""), event.duration_ns / 1e6))
    return found


def place(text: str) -> str:
    """Return the end of a place in the program, without what all of them have."""
    words = re.sub(r"(jit|vmap|while|body|closed_call|checkpoint|cond)\(?[^/]*\)?/", "", text)
    return words[-PLACE:]


def main() -> None:
    """Compile a training, and profile it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    args, words = parser.parse_known_args()
    use_caches()
    given = parse(Train, "profile", words)
    config = configure(**{name: value for name, value in given.items() if name not in vars(Train()) or name in NAMES})
    programs = Programs(config, range(args.seeds))
    with device_lock():
        state = programs.first_state()
        programs.compile(state, measuring=False)
    with device_lock(alone=True):
        report(config, programs, state, args, words)


def report(
    config: TrainConfig, programs: Programs, state: TrainState, args: argparse.Namespace, words: list[str]
) -> None:
    """Trace some iterations and print the table."""
    warm = getattr(config.algorithm, "warmup", 0) + getattr(config.algorithm, "patience", 0)
    state, _ = jax.block_until_ready(programs.advance(state, 2 + warm // config.batch))
    started = time.monotonic()
    state, _ = jax.block_until_ready(programs.advance(state, args.iterations))
    wall = 1e3 * (time.monotonic() - started) / args.iterations
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(programs.advance(state, args.iterations))
        found = kernels(folder)
    total: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for name, where, spent in found:
        total[name, place(where)].append(spent)
    busy = sum(spent for _, _, spent in found) / args.iterations
    rows: list[dict[str, Any]] = [
        {"kernel": name, "place": where, "count": len(all_) / args.iterations, "ms": sum(all_) / args.iterations}
        for (name, where), all_ in sorted(total.items(), key=lambda item: -sum(item[1]))
    ]
    steps = config.batch * args.seeds
    summary = {"wall_ms": wall, "busy_ms": busy, "kernels": len(found) / args.iterations, "steps": steps}
    print(f"{' '.join(words)}, {args.seeds} seeds: an iteration of {steps:,} steps takes {wall:.1f} ms", end=" ")
    print(f"({1e3 * steps / wall:,.0f} steps/s), {busy:.1f} of them in {summary['kernels']:.0f} kernels")
    for row in rows[: args.rows]:
        print(f"{row['ms']:9.3f} ms {row['count']:7.1f} x  {row['kernel'][:44]:44}  {row['place']}")
    if args.out:
        write_json(args.out, {"command": " ".join(sys.argv), **summary, "rows": rows[:200], **provenance()})


NAMES = ("task", "policy", "algorithm", "steps")

if __name__ == "__main__":
    main()
