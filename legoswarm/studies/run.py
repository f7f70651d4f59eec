"""Running studies: train what is missing, measure, write one JSON file for each part."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from legoswarm.files import FileError, finite, read_json, write_bytes, write_json
from legoswarm.learn.folder import Busy, RunFolder, read_train, train_json
from legoswarm.learn.loop import resume_run, start_run
from legoswarm.own import imported
from legoswarm.policies.policy import POLICIES
from legoswarm.provenance import provenance
from legoswarm.studies.catalogue import METHODS, STUDIES
from legoswarm.studies.cluster import CPUS, check_engine, on_cluster
from legoswarm.studies.part import SCALES, Part, Scale, Training
from legoswarm.studies.queue import PAUSE, say, side_by_side
from legoswarm.studies.results import part_file


@dataclasses.dataclass(frozen=True)
class Setup:
    """Says where studies are done and how much of them."""

    scale: Scale
    seeds: int
    runs: Path
    out: Path
    methods: tuple[str, ...] = METHODS
    command: str = ""

    def words(self) -> list[str]:
        """Return the options of the command line that make it."""
        places = ["--runs", str(self.runs), "--out", str(self.out)]
        return ["--scale", self.scale.name, "--seeds", str(self.seeds), "--methods", *self.methods, *places]

    def parts(self, study: str) -> list[Part]:
        """Return the parts of a study that the chosen methods allow."""
        parts = {part.name: part for part in STUDIES[study].parts(self.scale)}
        return [part for part in parts.values() if set(part.methods) <= set(self.methods)]

    def done(self, study: str, part: Part) -> bool:
        """Tell whether a part's result is there; one of other settings under the same name is an error."""
        path = part_file(self.out, study, part.name)
        if not path.exists():
            return False
        if _filled(read_json(path).get("content")) != json.loads(json.dumps(part.content(self.scale, self.seeds))):
            raise FileError(f"{path} was made with other settings; choose another --out or take the file away")
        return True


def _filled(content: Any) -> Any:
    """Return what decided a result with the options that came later at their defaults, which change nothing."""
    if isinstance(content, dict) and "policies" in content:
        return {**content, "policies": [_filled(policy) for policy in content["policies"]]}
    if not isinstance(content, dict) or not {"task", "policy", "algorithm", "start"} <= set(content):
        return content
    with contextlib.suppress(ValueError, KeyError):
        content = {**content, **json.loads(json.dumps(train_json(read_train(content))))}
    return {**content, "start": _filled(content["start"])}


def study_setup(
    scale: str,
    *,
    seeds: int | None = None,
    methods: Sequence[str] | None = None,
    runs: str | Path | None = None,
    out: str | Path | None = None,
    command: str = "",
) -> Setup:
    """Return the settings that the command line names; scales other than `full` have a results folder of their own."""
    known = POLICIES.names()  # those of the user's own too: a study of theirs may have them
    if unknown := sorted(set(methods or ()) - set(known)):
        raise ValueError(f"unknown method {unknown[0]!r}; known: {', '.join(known)}")
    if scale not in SCALES:
        raise ValueError(f"unknown scale {scale!r}; known: {', '.join(SCALES)}")
    if seeds is not None and seeds < 1:
        raise ValueError("a study needs at least one seed")
    name = "studies" if scale == "full" else f"studies-{scale}"
    count = SCALES[scale].seeds if seeds is None else seeds
    places = Path(runs or f"runs/{name}"), Path(out or f"results/{name}")
    return Setup(SCALES[scale], count, *places, METHODS if methods is None else tuple(methods), command)


def chosen_parts(names: Sequence[str], setup: Setup) -> list[tuple[str, Part]]:
    """Return what names ask for, each a study, a part of it (STUDY/PART) or `all`: once, in the catalogue's order."""
    wanted: set[tuple[str, str]] = set()
    for name in names:
        study, _, part = name.partition("/")
        if study != "all" and study not in STUDIES:
            raise ValueError(f"unknown study {study!r}; known: {', '.join(STUDIES)}, all")
        there = [(one, each.name) for one in (STUDIES if study == "all" else [study]) for each in setup.parts(one)]
        if part and (study, part) not in there:
            raise ValueError(f"{study} has no part {part!r}; it has: {', '.join(each for _, each in there)}")
        wanted |= {(study, part)} if part else set(there)
    jobs = [(study, part) for study in STUDIES for part in setup.parts(study)]
    return [(study, part) for study, part in jobs if (study, part.name) in wanted]


def list_studies(names: Sequence[str], setup: Setup) -> str:
    """Return a line for each study, and one for each of its parts: done or not."""
    lines = []
    for study, jobs in itertools.groupby(chosen_parts(names, setup), key=lambda job: job[0]):
        lines.append(f"{study}: {STUDIES[study].about}")
        lines += [f"  {'done' if setup.done(study, part) else '    '} {study}/{part.name}" for _, part in jobs]
    return "\n".join(lines)


def run_studies(
    names: Sequence[str],
    setup: Setup,
    *,
    train_only: bool = False,
    jobs: int = 1,
    engine: str = "local",
    cpus: float = CPUS,
    gpus: float | None = None,
) -> None:
    """Do the parts that are not done yet; one that fails is named, and the others go on.

    With `train_only` nothing is measured: a later call, on any machine that has the run folders, does that. With
    several `jobs` each part has a process of its own. With the engine `ray` each part is a task on a cluster, which
    takes so many `cpus` and `gpus`; what it measured comes back to this machine.
    """
    check_engine(engine)
    parts = chosen_parts(names, setup)
    if not parts:
        raise ValueError(f"no part of {', '.join(names)} is left with the methods {', '.join(setup.methods)}")
    waiting = [part for part in parts if not setup.done(*part)]
    say(f"{len(parts)} parts, {len(parts) - len(waiting)} of them done; results in {setup.out}")
    if engine == "ray":
        failed = _elsewhere(waiting, setup, train_only, cpus, gpus)
    elif jobs > 1:
        own = [word for name in imported() for word in ("--import", name)]
        words = [*setup.words(), *(["--train-only"] if train_only else []), *own]
        failed = side_by_side([f"{study}/{part.name}" for study, part in waiting], words, jobs, setup.runs)
    else:
        with _compiling(setup.scale):
            failed = _do_all(waiting, setup, train_parts if train_only else do_part)
    if failed:
        raise ValueError(f"{len(failed)} of {len(waiting)} parts failed: {', '.join(failed)}")
    if train_only:
        say("all trained; measure it with the same command without --train-only")
    else:
        say(f"all done; draw it with: legoswarm report --results {setup.out}")


def _do_all(waiting: Sequence[tuple[str, Part]], setup: Setup, do: Callable[[str, Part, Setup], Any]) -> list[str]:
    """Do parts one after the other; return the names of those that failed."""
    failed = []
    for number, (study, part) in enumerate(waiting, 1):
        say(f"[{number}/{len(waiting)}] {study}/{part.name}")
        started = time.monotonic()
        try:
            do(study, part, setup)
        except (ValueError, RuntimeError, FileError, MemoryError) as error:
            failed.append(f"{study}/{part.name}")
            say(f"{failed[-1]} failed: {' '.join(str(error).split())[:500]}")
        else:
            say(f"{study}/{part.name} took {time.monotonic() - started:.0f} s")
    return failed


@contextlib.contextmanager
def _compiling(scale: Scale) -> Iterator[None]:
    """Compile as a scale wants it meanwhile: fast, or to programs that run fast."""
    optimise = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", scale.compile_fast)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", optimise)


def _elsewhere(
    waiting: Sequence[tuple[str, Part]], setup: Setup, train_only: bool, cpus: float, gpus: float | None
) -> list[str]:
    """Do parts on a cluster and write here what they gave; return the names of those that failed."""
    there = dataclasses.replace(setup, runs=setup.runs.resolve(), out=setup.out.resolve())
    pieces = {f"{study}/{part.name}": (study, part.name, there, train_only) for study, part in waiting}
    failed = []
    for number, (name, result) in enumerate(on_cluster(_part_there, pieces, cpus=cpus, gpus=gpus), 1):
        if isinstance(result, Exception):
            failed.append(name)
            say(f"{name} failed: {' '.join(str(result).split())[:500]}")
            continue
        path = part_file(setup.out, *name.split("/"))
        if result is not None and not path.exists():  # no file system that both machines see
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, result)
        say(f"[{number}/{len(pieces)}] {name} is done")
    return failed


def _part_there(study: str, name: str, setup: Setup, train_only: bool) -> bytes | None:
    """Do one part in a process of a cluster; return its file."""
    [(_, part)] = chosen_parts([f"{study}/{name}"], setup)
    with _compiling(setup.scale):
        if train_only:
            train_parts(study, part, setup)
            return None
        return do_part(study, part, setup).read_bytes()


def do_part(study: str, part: Part, setup: Setup) -> Path:
    """Train or find the part's policies, measure, and write its file as a whole.

    The file holds the command, the date, hardware and versions, the names of the run folders, times and learning curve
    of the training, and the rows of every measurement. Its `content` is all that decides the result: a part whose file
    has another one is refused.
    """
    started = time.monotonic()
    policies = train_parts(study, part, setup)
    result: dict[str, Any] = {
        "study": study,
        "part": part.name,
        "label": part.called,
        "method": part.methods[0],
        "scale": setup.scale.name,
        "command": setup.command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "runs": [Path(policy).name for policy in policies],
    }
    if isinstance(own := part.policies[0], Training):
        result |= learning(RunFolder(policies[0]), own)
    for measure in part.measures:
        for name, value in measure(policies, setup.scale).items():
            if isinstance(value, list):
                result.setdefault(name, []).extend(value)
            else:
                result[name] = value
    result |= {"seconds": round(time.monotonic() - started, 2), **provenance()}
    path = part_file(setup.out, study, part.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, finite({**result, "content": part.content(setup.scale, setup.seeds)}))
    return path


def train_parts(study: str, part: Part, setup: Setup) -> list[str]:
    """Return the part's policies, trained where they were not."""
    del study
    return [policy if isinstance(policy, str) else str(train(policy, setup).path) for policy in part.policies]


def train(training: Training, setup: Setup) -> RunFolder:
    """Return the run folder of a training: finished already, or resumed, or started.

    What it starts from comes first, unless it is finished and needs that no more. Where another process is at it,
    this one waits until it is done, or goes on if the other one was stopped.
    """
    path = setup.runs / training.folder(setup.scale, setup.seeds)
    if training.start is not None and not _finished(training, setup, path):
        train(training.start, setup)
    said = False
    while True:
        try:
            return _train_now(training, setup, path)
        except Busy as busy:
            if not said:
                say(f"{busy}: waiting for it")
            said = True
            time.sleep(PAUSE)


def _train_now(training: Training, setup: Setup, path: Path) -> RunFolder:
    if not (path / "config.json").exists():
        config = training.config(setup.scale, setup.seeds, setup.runs)
        try:
            return start_run(config, path, setup.command, alone=training.alone)
        except FileError as error:
            if isinstance(error, Busy) or not (path / "config.json").exists():
                raise
            raise Busy(f"another process has begun {path}") from None
    return RunFolder(path) if _finished(training, setup, path) else resume_run(path, alone=training.alone)


def _finished(training: Training, setup: Setup, path: Path) -> bool:
    rows = RunFolder(path).read_metrics() if (path / "config.json").exists() else []
    last = training.config(setup.scale, setup.seeds, setup.runs).train.iterations
    return bool(rows) and rows[-1]["iteration"] == last


def learning(folder: RunFolder, training: Training) -> dict[str, Any]:
    """Return a run's seeds, steps, seconds and learning curve; the first row's seconds hold the compilation."""
    config, rows = folder.read_config(), folder.read_metrics()
    figure = training.task.primary
    points = [row for row in rows if "eval" in row]
    rates = [row["steps_per_second"] for row in rows[1:]] or [row["steps_per_second"] for row in rows]
    return {
        "seeds": list(config.seeds),
        "steps": config.train.steps,
        "train_seconds": round(sum(row["seconds"] for row in rows), 2),
        "steps_per_second": sorted(rates)[len(rates) // 2],
        "trained_on": read_json(folder.path / "config.json")["hardware"]["device"],
        "curve": {
            "figure": figure,
            "steps": [row["steps"] for row in points],
            "values": [row["eval"][figure] for row in points],
        },
    }
