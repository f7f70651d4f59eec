"""The command line: a thin shell, each command calls one public function."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from legoswarm.cli.options import Parser, add_options, chosen, number, one_line, seed, whole


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
    bench = commands.add_parser("bench", help="measure speed: training, compilation, worlds, acting")
    if argv[:1] == ["bench"]:
        _bench_options(bench)
    _eval_options(commands.add_parser("eval", help="evaluate a policy, or two of them head to head"))
    _watch_options(commands.add_parser("watch", help="animate a trained policy"))
    _study_options(commands.add_parser("study", help="repeat the paper's tables and figures, part by part"))
    _report_options(commands.add_parser("report", help="draw one page from what studies measured"))
    flying = commands.add_parser("fly", help="fly pursuit and evasion on drones, real or simulated")
    if argv[:1] == ["fly"]:
        _fly_options(flying)
    _export_options(commands.add_parser("export", help="write a policy that runs without JAX: NumPy and ONNX"))
    return parser


def _demo_options(parser: Parser) -> None:
    parser.add_argument("--out", default="demo", help="folder for the run and the animation (default: demo)")
    parser.set_defaults(run=_demo)


def _demo(args: argparse.Namespace) -> None:
    from legoswarm.studies.demo import demo

    demo(Path(args.out), args.command_line)


def _train_options(parser: Parser, argv: Sequence[str]) -> None:
    from legoswarm.learn.algorithms.mappo import MappoConfig
    from legoswarm.learn.defaults import defaults_in_words
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
    add_options(parser, MappoConfig, "optimiser", defaults_in_words())
    parser.set_defaults(run=_train)


def _train(args: argparse.Namespace) -> None:
    from legoswarm.learn.algorithms.mappo import MappoConfig
    from legoswarm.learn.defaults import mappo_config, policy_config
    from legoswarm.learn.folder import RunConfig
    from legoswarm.learn.loop import CHECKPOINT_SECONDS, resume_run, start_run
    from legoswarm.learn.train import TrainConfig
    from legoswarm.policies import PolicyConfig
    from legoswarm.policies.saved.description import MAX_SEEDS, check_slots
    from legoswarm.policies.saved.file import load_policy
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
        given = chosen(PolicyConfig, args)
        if args.warm_start:
            policy = dataclasses.replace(load_policy(args.warm_start).config, **given)
        else:
            policy = policy_config(**given)
        mappo = mappo_config(policy.policy, **chosen(MappoConfig, args))
        train = TrainConfig(task, policy, mappo, 2_000_000 if args.steps is None else args.steps)
        first, count = args.seed or 0, 1 if args.seeds is None else args.seeds
        if count > MAX_SEEDS:
            raise ValueError(f"at most {MAX_SEEDS:,} seeds fit into one run")
        given = {"evaluations": args.evaluations, "eval_episodes": args.eval_episodes, "start": args.warm_start}
        given = {name: value for name, value in given.items() if value is not None}
        config = RunConfig(train, tuple(range(first, first + count)), **given)
        out = args.out or _free_folder(Path("runs"), f"{task.name}-{policy.policy}")
        folder = start_run(config, out, args.command_line, checkpoint_seconds=pause)
    file = load_policy(folder.path)
    if set(file.notes.get("diverged", ())) == set(file.seeds):
        raise ValueError(f"every seed has diverged; their last good state is in {folder.path}")
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
        "--nearest", type=whole, metavar="N", help="look only at so many entities of each role (0: at all)"
    )
    parser.add_argument(
        "--engine",
        choices=("legoswarm", "mpe2"),
        default="legoswarm",
        help="whose physics (default: legoswarm)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each team size and seed")
    parser.set_defaults(run=_eval)


def _eval(args: argparse.Namespace) -> None:
    from legoswarm.evaluate.policies import evaluate_policy, format_table

    rows = evaluate_policy(
        args.policy,
        agents=args.agents,
        teams=args.teams,
        opponents={role: name for role, name in (("pursuer", args.pursuers), ("evader", args.evaders)) if name},
        nearest=args.nearest,
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


def _study_options(parser: Parser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="studies, or parts of them as STUDY/PART (default: all; see --list)"
    )
    parser.add_argument("--seeds", type=whole, metavar="N", help="seeds (default: 10, segnn 3; fewer at other scales)")
    parser.add_argument("--scale", default="full", metavar="SCALE", help="full, small or tiny (default: full)")
    parser.add_argument(
        "--methods", nargs="+", metavar="NAME", help="only these (default: the paper's six; more: segnn-planar)"
    )
    parser.add_argument("--runs", metavar="DIR", help="folder of run folders (default: runs/studies)")
    parser.add_argument("--out", metavar="DIR", help="folder of results (default: results/studies)")
    parser.add_argument("--list", action="store_true", help="say what there is and what is done; run nothing")
    parser.add_argument("--train-only", action="store_true", help="measure nothing: a later call does, on any machine")
    parser.add_argument(
        "--jobs",
        type=whole,
        default=1,
        metavar="N",
        help="so many parts at a time: while one trains, others compile (default: 1)",
    )  # fmt: skip
    parser.set_defaults(run=_study)


def _study(args: argparse.Namespace) -> None:
    from legoswarm.studies.run import list_studies, make_workshop, run_studies

    shop = make_workshop(
        args.scale, seeds=args.seeds, methods=args.methods, runs=args.runs, out=args.out, command=args.command_line
    )
    names = args.names or ["all"]
    if args.list:
        print(list_studies(names, shop))
    else:
        run_studies(names, shop, train_only=args.train_only, jobs=args.jobs)


def _report_options(parser: Parser) -> None:
    parser.add_argument("--results", default="results/studies", metavar="DIR", help="default: results/studies")
    parser.add_argument("--out", default="report.html", metavar="FILE", help="the page (default: report.html)")
    parser.add_argument("--figures", metavar="DIR", help="write the figures there too, as PNG files")
    parser.add_argument(
        "--markdown",
        nargs="+",
        default=[],
        metavar="FILE",
        help="fill the places for tables in these Markdown files too",
    )
    parser.set_defaults(run=_report)


def _report(args: argparse.Namespace) -> None:
    from legoswarm.studies.report import write_report

    pictures = Path(args.figures) if args.figures else None
    print(write_report(Path(args.results), Path(args.out), pictures, [Path(name) for name in args.markdown]))


def _bench_options(parser: Parser) -> None:
    from legoswarm.learn.algorithms.mappo import MappoConfig
    from legoswarm.policies import policy_names

    parser.add_argument(
        "--policies", nargs="+", default=["lego"], metavar="NAME", help=f"{', '.join(policy_names())} (default: lego)"
    )
    parser.add_argument("--agents", type=whole, nargs="+", default=[3], metavar="N", help="team sizes (default: 3)")
    parser.add_argument("--seeds", type=whole, nargs="+", default=[1], metavar="N", help="seeds at once (default: 1)")
    parser.add_argument("--steps", type=whole, default=32_000, metavar="N", help="steps for each seed (default: 32000)")
    parser.add_argument("--width", type=whole, metavar="N", help="features of every layer (default: each policy's)")
    parser.add_argument("--depth", type=whole, default=2, metavar="N", help="layers of each encoder (default: 2)")
    parser.add_argument("--critic", metavar="NAME", help="full, local or pairs (default: each policy's)")
    parser.add_argument("--until", type=number, metavar="X", help="instead: seconds until the mean return is X")
    parser.add_argument("--worlds", type=whole, metavar="N", help="instead: N worlds alone, random actions")
    parser.add_argument("--forward", type=whole, metavar="N", help="instead: one decision of everybody in N worlds")
    parser.add_argument("--acting", metavar="POLICY", help="instead: one agent of this policy among --entities")
    parser.add_argument("--entities", type=whole, default=1000, metavar="N", help="for --acting (default: 1000)")
    parser.add_argument(
        "--nearest", type=whole, default=0, metavar="N", help="look only at so many of each role, the nearest"
    )
    parser.add_argument(
        "--compile-apart", action=argparse.BooleanOptionalAction, default=True,
        help="compile one program after the other and say how long each took (default)",
    )  # fmt: skip
    parser.add_argument("--device", choices=("cpu", "gpu"), help="where (default: what JAX prefers)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", metavar="FILE", help="write JSON into this file, row by row")
    add_options(parser, MappoConfig, "optimiser")
    parser.set_defaults(run=_bench)


def _bench(args: argparse.Namespace) -> None:
    import jax

    from legoswarm.files import write_json
    from legoswarm.learn.algorithms.mappo import MappoConfig
    from legoswarm.policies import PolicyConfig
    from legoswarm.studies.bench import bench, format_bench

    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if args.device and jax.default_backend() != args.device:
        raise ValueError(f"JAX does not find a {args.device.upper()} here")

    def keep(report: dict[str, object]) -> None:
        if args.out:
            write_json(Path(args.out), report)

    report = bench(
        policies=args.policies, agents=args.agents, seeds=args.seeds, steps=args.steps,
        architecture=chosen(PolicyConfig, args), mappo=chosen(MappoConfig, args), compile_apart=args.compile_apart,
        until=args.until, worlds=args.worlds, forward=args.forward, acting=args.acting, entities=args.entities,
        nearest=args.nearest, command=args.command_line, keep=keep,
    )  # fmt: skip
    print(json.dumps(report, indent=1) if args.json else format_bench(report), flush=True)


def _export_options(parser: Parser) -> None:
    parser.add_argument("policy", metavar="POLICY", help="a run, a policy file or zoo:NAME")
    parser.add_argument("--out", required=True, metavar="DIR", help="a new folder for the files")
    parser.add_argument("--seed", type=whole, metavar="N", help="which seed of the run (default: the best)")
    parser.add_argument(
        "--onnx", action=argparse.BooleanOptionalAction, default=True, help="ONNX files too (default; extra: onnx)"
    )
    parser.set_defaults(run=_export)


def _export(args: argparse.Namespace) -> None:
    from legoswarm.deploy.export import export_policy

    for path in export_policy(args.policy, args.out, args.seed, args.onnx):
        print(path)


def _fly_options(parser: Parser) -> None:
    from legoswarm.deploy.plan import Plan
    from legoswarm.deploy.safety import Rules

    parser.description = (
        "Two pursuers, an evader and two obstacles, as in the paper: 100 steps, and a pursuer fails at step 30. "
        "Name a crazyflies.yaml to fly real drones (its robots in order: pursuers, then the evader), or fly simulated "
        "ones: --sitl or --dry-run."
    )
    parser.add_argument("crazyflies", nargs="?", metavar="CRAZYFLIES.YAML", help="the drones, in Crazyswarm2's format")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--sitl", action="store_true", help="simulated drones behind the real cflib, in real time")
    how.add_argument("--dry-run", action="store_true", help="simulated drones in this process, without waiting")
    how.add_argument("--replay", nargs="+", metavar="LOG", help="draw picture and animations of logs again")
    how.add_argument("--statistics", action="store_true", help="many dry runs against the plain task, as JSON")
    parser.add_argument("--policy", default="zoo:tag-2v1", metavar="POLICY", help="who flies (default: zoo:tag-2v1)")
    parser.add_argument("--out", metavar="DIR", help="folder of logs and pictures, or the statistics' .json file")
    parser.add_argument("--trials", type=whole, metavar="N", help="flights of simulated drones (default: 3)")
    parser.add_argument(
        "--plant", choices=("point", "crazyflow"), default="point", help="their bodies (default: point)"
    )
    parser.add_argument("--radio", type=number, metavar="X", help="--sitl over cflib's radio driver, with this loss")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of starts and noise (default: 0)")
    parser.add_argument("--episodes", type=whole, default=400, metavar="N", help="of the statistics (default: 400)")
    parser.add_argument("--jobs", type=whole, default=1, metavar="N", help="processes of the statistics (default: 1)")
    parser.add_argument("--pursuers", type=whole, default=2, metavar="N", help="how many pursuers (default: 2)")
    parser.add_argument("--evaders", type=whole, default=1, metavar="N", help="how many evaders (default: 1)")
    parser.add_argument(
        "--obstacles", nargs="*", type=number, metavar="X", help="x y of each, m (default: 0.75 0.3 -0.75 -0.3)"
    )
    parser.add_argument("--obstacle-radius", type=number, metavar="X", help="their physical radius, m (default: 0.05)")
    parser.add_argument("--scale", type=number, metavar="X", help="metres for each unit of the task (default: 1.5)")
    parser.add_argument("--stretch", type=number, metavar="X", help="seconds for each second of the task (default: 5)")
    add_options(parser, Plan, "mission")
    add_options(parser, Rules, "safety rules")
    parser.set_defaults(run=_fly)


def _fly(args: argparse.Namespace) -> None:
    from legoswarm.deploy.fleet import Simulation
    from legoswarm.deploy.fly import OBSTACLES, draw, fly, statistics
    from legoswarm.deploy.plan import Plan
    from legoswarm.deploy.safety import Rules
    from legoswarm.deploy.setting import Setting

    modes = [bool(args.crazyflies), args.sitl, args.dry_run, bool(args.replay), args.statistics]
    if sum(modes) != 1:
        raise ValueError("name a crazyflies.yaml, or choose one of --sitl, --dry-run, --replay and --statistics")
    if args.replay:
        logs = [Path(name) for name in args.replay]
        if not draw(logs, Path(args.out) if args.out else logs[0].parent):
            raise ValueError("there is nothing to draw: none of these flights got as far as the run")
        return
    given = {name: getattr(args, name) for name in ("obstacle_radius", "scale", "stretch")}
    setting = Setting(
        roles=("pursuer",) * args.pursuers + ("evader",) * args.evaders,
        rules=Rules(**chosen(Rules, args)),
        plan=Plan(**chosen(Plan, args)),
        **{name: value for name, value in given.items() if value is not None},
    )
    if args.statistics:
        statistics(
            args.policy, setting, args.out or "statistics.json", plant=args.plant, episodes=args.episodes,
            seed=args.seed, jobs=args.jobs, command=args.command_line,
        )  # fmt: skip
        return
    places = args.obstacles
    if places is not None and len(places) % 2:
        raise ValueError("--obstacles takes two numbers for each obstacle, x and y")
    if args.crazyflies and args.trials not in (None, 1):
        raise ValueError("real drones fly one trial at a time: put them back to their places and fly again")
    fly(
        args.policy, setting, args.out or _free_folder(Path("flights"), "flight"), crazyflies=args.crazyflies,
        simulation=Simulation(args.plant, args.dry_run, args.radio),
        trials=1 if args.crazyflies else 3 if args.trials is None else args.trials, seed=args.seed,
        obstacles=OBSTACLES if places is None else list(zip(places[::2], places[1::2], strict=True)),
        command=args.command_line,
    )  # fmt: skip


def _free_folder(parent: Path, stem: str) -> Path:
    """parent/stem, or with the first free number behind it."""
    number = 0
    while (path := parent / (stem if not number else f"{stem}-{number}")).exists():
        number += 1
    return path


def _use_compilation_cache() -> None:
    """Keep compiled programs between runs, in the user's cache folder unless the environment says otherwise."""
    with contextlib.suppress(RuntimeError):  # a user without a home
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "legoswarm"
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(home / "jax"))
        os.environ.setdefault("LEGOSWARM_PROGRAMS", str(home / "programs"))
    # XLA's log would doubt each program it finds there, for features that no CPU has (jax-ml/jax#38445).
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"legoswarm {version('legoswarm')}"
    except PackageNotFoundError:
        return "legoswarm from source"
