"""The command line: a thin shell, each command calls one public function."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from legoswarm.options import Parser, add_options, chosen, number, one_line, seed, whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; errors of the user's are one sentence and exit code 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    _use_compilation_cache()  # JAX looks at it when it is imported
    parser = _parser(argv)
    args = parser.parse_args(argv)
    args.command_line = shlex.join(["legoswarm", *argv])
    from legoswarm.files import FileError

    try:
        args.run(args)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, FileError) as error:
        return _refuse(args.command, error)
    except OSError as error:
        return _refuse(args.command, f"{error.filename or 'a file'}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):  # XLA's word for it
            raise
        return _refuse(args.command, "there is not enough memory for this")
    except KeyboardInterrupt:
        sys.stderr.write(f"legoswarm {args.command}: interrupted\n")
        return 130
    return 0


def _refuse(command: str, why: object) -> int:
    sys.stderr.write(f"legoswarm {command}: {one_line(why)}\n")
    return 2


def _parser(argv: Sequence[str]) -> Parser:
    parser = Parser(prog="legoswarm", description="Equivariant swarm policies for any team size (LEGO-MAPPO).")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _demo_options(
        commands.add_parser("demo", help="train for about two minutes, evaluate on other team sizes, animate")
    )
    train = commands.add_parser("train", help="train policies")
    if argv[:1] == ["train"]:  # its options are those of the configurations, which need JAX
        _train_options(train, argv)
    _eval_options(commands.add_parser("eval", help="evaluate a policy, or two of them head to head"))
    _watch_options(commands.add_parser("watch", help="animate a trained policy"))
    return parser


def _demo_options(parser: Parser) -> None:
    parser.add_argument("--out", default="demo", help="folder for the run and the animation (default: demo)")
    parser.set_defaults(run=_demo)


def _demo(args: argparse.Namespace) -> None:
    from legoswarm.demo import demo

    demo(Path(args.out), args.command_line)


def _train_options(parser: Parser, argv: Sequence[str]) -> None:
    from legoswarm.learn.mappo import MappoConfig
    from legoswarm.policies import PolicyConfig
    from legoswarm.tasks import task_class, task_names

    name = next((word for word in argv[1:] if word in task_names()), None)
    parser.add_argument(
        "task",
        nargs="?",
        metavar="TASK",
        help=f"{', '.join(task_names())}; its options show in: train TASK --help",
    )
    parser.add_argument("--resume", metavar="RUN", help="go on with this run; nothing else may be given")
    parser.add_argument(
        "--from", dest="warm_start", metavar="POLICY", help="warm-start from a run, a policy file or zoo:NAME"
    )
    parser.add_argument("--out", metavar="RUN", help="folder of the run")
    parser.add_argument("--steps", type=whole, metavar="N", help="environment steps for each seed (default: 2e6)")
    parser.add_argument(
        "--seeds", type=whole, metavar="N", help="how many seeds, side by side in one program (default: 1)"
    )
    parser.add_argument("--seed", type=seed, metavar="N", help="the first seed (default: 0)")
    parser.add_argument("--evaluations", type=whole, metavar="N", help="evaluations during training (default: 10)")
    parser.add_argument("--eval-episodes", type=whole, metavar="N", help="episodes of each (default: 100)")
    parser.add_argument(
        "--checkpoint-seconds", type=number, metavar="X", help="seconds between checkpoints (default: 20)"
    )
    if name:
        add_options(parser, task_class(name), f"task {name}")
    add_options(parser, PolicyConfig, "policy")
    add_options(parser, MappoConfig, "optimiser")
    parser.set_defaults(run=_train)


def _train(args: argparse.Namespace) -> None:
    from legoswarm.learn.folder import RunConfig
    from legoswarm.learn.loop import CHECKPOINT_SECONDS, resume_run, start_run
    from legoswarm.learn.mappo import MappoConfig
    from legoswarm.learn.train import TrainConfig
    from legoswarm.policies import PolicyConfig
    from legoswarm.policies.file import MAX_SEEDS, check_slots, load_policy
    from legoswarm.tasks import make_task, task_class

    pause = CHECKPOINT_SECONDS if args.checkpoint_seconds is None else args.checkpoint_seconds
    if args.resume:
        idle = {"resume", "command", "run", "command_line", "checkpoint_seconds"}
        if given := [name for name, value in vars(args).items() if value is not None and name not in idle]:
            words = {"task": args.task, "warm_start": "--from"}
            word = words.get(given[0], "--" + given[0].replace("_", "-"))
            raise ValueError(f"--resume takes the run's own configuration: leave {word} out")
        folder = resume_run(args.resume, checkpoint_seconds=pause)
    else:
        if not args.task:
            raise ValueError("name a task to train on, or a run to --resume")
        task = make_task(args.task, **chosen(task_class(args.task), args))
        check_slots(task.layout.slots)
        policy = PolicyConfig()
        if args.warm_start:
            policy = load_policy(args.warm_start).config
        policy = dataclasses.replace(policy, **chosen(PolicyConfig, args))
        mappo = MappoConfig(**chosen(MappoConfig, args))
        train = TrainConfig(task, policy, mappo, 2_000_000 if args.steps is None else args.steps)
        first, count = args.seed or 0, 1 if args.seeds is None else args.seeds
        if count > MAX_SEEDS:
            raise ValueError(f"at most {MAX_SEEDS:,} seeds fit into one run")
        given = {"evaluations": args.evaluations, "eval_episodes": args.eval_episodes, "start": args.warm_start}
        given = {name: value for name, value in given.items() if value is not None}
        config = RunConfig(train, tuple(range(first, first + count)), **given)
        out = args.out or _free_folder(Path("runs"), f"{task.name}-{policy.policy}")
        folder = start_run(config, out, args.command_line, checkpoint_seconds=pause)
    sys.stderr.write(f"the policy is in {folder.path}; try: legoswarm eval {folder.path}\n")


def _eval_options(parser: Parser) -> None:
    parser.add_argument(
        "policy", metavar="POLICY", help="a run, a policy file or zoo:NAME; or a task, for head to head"
    )
    parser.add_argument("--agents", type=whole, nargs="+", metavar="N", help="team sizes (default: as trained)")
    parser.add_argument("--teams", nargs="+", metavar="PvE", help="Tag sizes such as 3v2, or 3v2v4 with four obstacles")
    parser.add_argument("--pursuers", metavar="POLICY", help="head to head: who plays the pursuers")
    parser.add_argument("--evaders", metavar="POLICY", help="head to head: who plays the evaders")
    parser.add_argument("--episodes", type=whole, default=1000, metavar="N", help="episodes (default: 1000)")
    parser.add_argument("--seed", type=whole, metavar="N", help="only this seed of the run (default: all)")
    parser.add_argument("--eval-seed", type=seed, metavar="N", help="seed of the episodes' starts")
    parser.add_argument("--start", metavar="SIDE", help="Spread: uniform, left or right")
    parser.add_argument("--limit", metavar="LIMIT", help="another action limit than in training")
    parser.add_argument(
        "--engine",
        choices=("legoswarm", "mpe2"),
        default="legoswarm",
        help="whose physics (default: legoswarm)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each team size and seed")
    parser.set_defaults(run=_eval)


def _eval(args: argparse.Namespace) -> None:
    from legoswarm.evaluate.compare import evaluate_policy, format_table

    rows = evaluate_policy(
        args.policy,
        agents=args.agents,
        teams=args.teams,
        opponents={role: name for role, name in (("pursuer", args.pursuers), ("evader", args.evaders)) if name},
        episodes=args.episodes,
        seed=args.seed,
        episode_seed=args.eval_seed,
        changes={name: value for name in ("start", "limit") if (value := getattr(args, name)) is not None},
        engine=args.engine,
    )
    if args.json:
        for row in rows:
            print(json.dumps({name: _finite(value) for name, value in row.items()}), flush=True)
    else:
        print(format_table(list(rows)), flush=True)


def _finite(value: object) -> object:
    """The value; JSON has no word for a number that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _watch_options(parser: Parser) -> None:
    parser.add_argument("policy", metavar="POLICY", help="a run, a policy file or zoo:NAME")
    parser.add_argument(
        "--out", default="watch.gif", metavar="FILE", help=".gif, .html, .mp4 or .png (default: watch.gif)"
    )
    parser.add_argument("--agents", type=whole, metavar="N", help="Spread: team size (default: as trained)")
    parser.add_argument("--teams", metavar="PvE", help="Tag: sizes such as 3v2")
    parser.add_argument("--seed", type=whole, metavar="N", help="which seed of the run (default: the best)")
    parser.add_argument("--episode", type=seed, default=0, metavar="N", help="which start (default: 0)")
    parser.add_argument("--axes", action="store_true", help="draw each agent's canonical frame")
    parser.add_argument("--arrows", action="store_true", help="draw actions")
    parser.set_defaults(run=_watch)


def _watch(args: argparse.Namespace) -> None:
    from legoswarm.show.watch import watch

    path = watch(
        args.policy, args.out, agents=args.agents, teams=args.teams, seed=args.seed, episode=args.episode,
        axes=args.axes, arrows=args.arrows,
    )  # fmt: skip
    print(path)


def _free_folder(parent: Path, stem: str) -> Path:
    """parent/stem, or with the first free number behind it."""
    number = 0
    while (path := parent / (stem if not number else f"{stem}-{number}")).exists():
        number += 1
    return path


def _use_compilation_cache() -> None:
    """Keep compiled programs between runs, in the user's cache folder unless JAX is told otherwise."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(home / "legoswarm" / "jax")
    # XLA's log would doubt each program it finds there, for features that no CPU has (jax-ml/jax#38445).
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"legoswarm {version('legoswarm')}"
    except PackageNotFoundError:
        return "legoswarm from source"


if __name__ == "__main__":
    raise SystemExit(main())
