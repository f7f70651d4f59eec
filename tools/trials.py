"""Try values of an algorithm side by side: each lane of one program trains a seed with values of its own.

    python tools/trials.py spread --agents 4 --steps 6e5 --encoder joint --lanes "" gamma=0.9 tau=0.02 --out a.json

Words that are not named here are options of `legoswarm train`. Values of a lane are those that the compiled program
takes as arguments. Trained policies are evaluated at several team sizes, on starts that no table has. With --save they
are kept as a policy file whose seeds are the lanes, for `tools/league.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from legoswarm.cli.options import parse
from legoswarm.cli.train import Train
from legoswarm.configs import traced_fields
from legoswarm.evaluate.policies import resized, rows_of
from legoswarm.fast.caches import use_caches
from legoswarm.files import write_json
from legoswarm.learn.folder import RunConfig, RunFolder
from legoswarm.learn.loop import write_policy
from legoswarm.learn.programs import Programs
from legoswarm.learn.train import configure, with_settings
from legoswarm.provenance import provenance

STARTS = 2_000_003  # neither training's nor the tables'


def main() -> None:
    """Train the lanes, evaluate them and write a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--lanes", nargs="+", required=True, help="values such as lr=1e-3,tau=0.02; '' for the defaults"
    )
    parser.add_argument("--seeds", type=int, default=1, help="seeds of each lane")
    parser.add_argument("--sizes-to-try", type=int, nargs="+", default=[2, 4, 6, 8])
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--curve", type=int, default=6, help="evaluations during training")
    parser.add_argument("--save", type=Path, help="folder for the policies of all lanes")
    parser.add_argument("--out", type=Path, required=True)
    args, words = parser.parse_known_args()
    use_caches()
    given = parse(Train, "trials", words)
    names = ("task", "policy", "algorithm")
    named = {name: given[name] for name in names if name in given}
    config = configure(
        **named, **{name: value for name, value in given.items() if name not in vars(Train()) or name == "steps"}
    )
    lanes = [
        dict(pair.split("=") for pair in lane.split(",") if pair) for lane in args.lanes for _ in range(args.seeds)
    ]
    if unknown := {name for lane in lanes for name in lane} - set(traced_fields(config.algorithm)):
        raise SystemExit(f"{sorted(unknown)[0]} is no argument of the program")
    seeds = [at % args.seeds + 100 for at in range(len(lanes))]  # the tables have 0 to 9
    programs, started = Programs(config, seeds, args.episodes), time.monotonic()
    state = programs.first_state()
    settings = dict(state.settings)
    for name in traced_fields(config.algorithm):
        own = getattr(config.algorithm, name)
        settings[name] = jnp.array([float(lane.get(name, own)) for lane in lanes], jnp.float32)
    state = with_settings(state, settings)
    programs.compile(state)
    compiled, curve, done = time.monotonic() - started, [], 0
    for at in range(args.curve):
        until = config.iterations * (at + 1) // args.curve
        state, _ = programs.advance(state, until - done)
        done = until
        mean = jax.device_get(programs.measure(state, STARTS))[config.task.primary]
        curve.append({"steps": done * config.batch, "seconds": time.monotonic() - started, "figure": mean.tolist()})
        sys.stderr.write(f"{args.out.stem} {curve[-1]['steps']:,} {curve[-1]['seconds']:.0f} s {mean.round(2)}\n")
    actors = config.algorithm.actors(state.learners)
    numbers = tuple(range(len(lanes)))
    if args.save:
        args.save.mkdir(parents=True, exist_ok=True)
        figures = jax.device_get(programs.measure(state, STARTS))
        write_policy(RunFolder(args.save), RunConfig(config, numbers), state, figures)
    sized = hasattr(config.task, "agents")
    rows = [
        row
        for task in (resized(config.task, args.sizes_to_try) if sized else [config.task])
        for row in rows_of(task, actors, numbers, args.episodes, STARTS)
    ]
    kept = [{**row, "lane": args.lanes[row["seed"] // args.seeds]} for row in rows]
    result: dict[str, Any] = {"command": " ".join(sys.argv), "compile_seconds": compiled, "curve": curve, "rows": kept}
    write_json(args.out, {**result, **provenance()})
    for size in args.sizes_to_try if sized else [None]:
        own = [row[config.task.primary] for row in rows if row.get("agents") == size]
        print(args.out.stem, size or "", [round(value, 2) for value in own], flush=True)


if __name__ == "__main__":
    main()
