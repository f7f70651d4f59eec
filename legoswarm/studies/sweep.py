"""Sweeps of hyper-parameters on Optuna: trials are runs, resumable, pruned, in several processes."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import itertools
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.configs import field_kinds
from legoswarm.files import FileError, read_json, write_json
from legoswarm.learn.folder import Busy, RunConfig, RunFolder
from legoswarm.learn.loop import resume_run
from legoswarm.learn.run import train
from legoswarm.learn.train import configure
from legoswarm.own import command as own_command
from legoswarm.provenance import provenance
from legoswarm.studies.cluster import CPUS, check_engine, on_cluster
from legoswarm.studies.queue import say

SAMPLERS = ("tpe", "random", "grid")
BEGINNING = datetime.timedelta(seconds=5)  # in which a trial may have no mark yet


def read_space(words: Sequence[str]) -> dict[str, Any]:
    """Return what is searched: NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A,B,C, or a JSON file of such values."""
    space: dict[str, Any] = {}
    for word in words:
        if word.endswith(".json"):
            space |= {name: _range(name, values) for name, values in read_json(Path(word)).items()}
        else:
            name, found, values = word.partition("=")
            if not found:
                raise ValueError(f"{word!r} is neither a .json file nor NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A,B,C")
            space[name.replace("-", "_")] = _range(name, values)
    if not space:
        raise ValueError("a sweep needs a space to search, such as --space lr=log:1e-4:1e-2 epochs=3,5,10")
    return space


def _range(name: str, values: Any) -> Any:
    """Return a list of choices, or a range: its ends, and whether it is logarithmic."""
    if isinstance(values, list):
        return values
    text = str(values)
    ends = text.removeprefix("log:").split(":")
    if len(ends) == 1:
        return [_value(part) for part in text.split(",")]
    low, high, *more = map(_value, ends)
    numbers = isinstance(low, int | float) and isinstance(high, int | float) and not more
    if not numbers or not low < high or (text.startswith("log:") and low <= 0):
        raise ValueError(f"the range of {name} must be LOW:HIGH or log:LOW:HIGH with numbers in order, not {text!r}")
    return (low, high, text.startswith("log:"))


def _value(text: str) -> Any:
    """Read true, false, a number or a word."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def sweep(
    task: str,
    space: Sequence[str],
    *,
    out: str | Path,
    trials: int = 24,
    sampler: str = "tpe",
    prune: bool = True,
    jobs: int = 1,
    engine: str = "local",
    cpus: float = CPUS,
    gpus: float | None = None,
    command: str = "",
    again: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """Search for the options that give the best primary figure at the end of training; return the best trial.

    Trials are runs in `out`, listed in `out`/sweep.json; `options` are those of `train`. The same call goes on with a
    sweep that was stopped, also from several processes or machines that share the folder at once: `jobs` starts more of
    them with the command line `again`, or with the engine `ray` as tasks on a cluster, each with so many `cpus` and
    `gpus`.
    """
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise ValueError("sweeps need Optuna: pip install 'legoswarm[sweep]'") from None
    if sampler not in SAMPLERS:
        raise ValueError(f"the sampler must be {', '.join(SAMPLERS[:-1])} or {SAMPLERS[-1]}, not {sampler!r}")
    if trials < 1 or jobs < 1:
        raise ValueError("a sweep needs at least one trial and one job")
    check_engine(engine)
    ranges, folder = read_space(space), Path(out)
    if sampler == "grid" and not all(isinstance(each, list) for each in ranges.values()):
        raise ValueError("a grid needs choices for every option, such as lr=3e-4,1e-3")
    _check_options(task, ranges, options)
    folder.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampling = optuna.samplers.TPESampler() if sampler == "tpe" else optuna.samplers.RandomSampler()
    backend = JournalFileBackend(str(folder / "journal.log"))
    pruner = optuna.pruners.MedianPruner() if prune else optuna.pruners.NopPruner()
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(backend), study_name="sweep", direction="maximize",
        load_if_exists=True, sampler=sampling, pruner=pruner,
    )  # fmt: skip
    content = {"task": task, "space": {name: list(each) for name, each in ranges.items()}, "options": options}
    grid = [dict(zip(ranges, each, strict=True)) for each in itertools.product(*ranges.values())]
    if _check_same(study, content) and sampler == "grid":
        for point in grid:
            study.enqueue_trial(point)
    trials = min(trials, len(grid)) if sampler == "grid" else trials
    _again_if_lost(study, folder)
    if engine == "ray":
        call = {"out": folder.resolve(), "sampler": sampler, "prune": prune, "trials": trials, "command": command}
        words = [str(Path(word).resolve()) if word.endswith(".json") else word for word in space]
        tasks = {f"worker {number}": (task, words, {**options, **call}) for number in range(1, jobs + 1)}
        for name, result in on_cluster(_worker, tasks, cpus=cpus, gpus=gpus):
            if isinstance(result, Exception):
                raise ValueError(f"{name} of the sweep failed: {result}")
    others = [subprocess.Popen([*again]) for _ in range(jobs - 1)] if again and engine == "local" else []
    states = tuple(getattr(optuna.trial.TrialState, name) for name in ("COMPLETE", "PRUNED", "RUNNING"))
    done = optuna.study.MaxTrialsCallback(trials, states=states)

    def keep(study: Any, trial: Any) -> None:
        del trial
        _write(study, folder, command)

    try:
        if sum(trial.state in states for trial in study.trials) < trials:  # those of other processes count too
            study.optimize(lambda trial: _run(trial, task, ranges, folder, options), callbacks=[done, keep])
    except BaseException:
        for process in others:
            process.terminate()  # they save what they have
        raise
    finally:
        for process in others:
            process.wait()
    _write(study, folder, command)
    if not any(trial.value is not None for trial in study.trials):
        raise ValueError("no trial came to its end: none of the options that were tried can be trained")
    best = study.best_trial
    return {"params": best.params, "value": best.value, "run": best.user_attrs["run"]}


def _check_options(task: str, ranges: dict[str, Any], options: dict[str, Any]) -> None:
    """Refuse options that nobody has before a folder is made; values are left to the trials."""
    of_run = {field.name for field in dataclasses.fields(RunConfig)} | {"policy", "algorithm", "recipe"}
    words = {name: value for name, value in options.items() if name in ("policy", "algorithm", "recipe")}
    config = configure(task, **words)
    known = of_run.union(*(field_kinds(type(part)) for part in (config, config.task, config.policy, config.algorithm)))
    if unknown := sorted(set(ranges) - known):
        raise ValueError(f"there is no option {unknown[0]} to search: neither the task, the policy nor the algorithm")


def _worker(task: str, space: Sequence[str], call: dict[str, Any]) -> None:
    """Take part in a sweep as a process of a cluster."""
    sweep(task, space, **call)


def _run(trial: Any, task: str, ranges: dict[str, Any], folder: Path, options: dict[str, Any]) -> float:
    """Train with a trial's options, or go on with what was trained of them; return the figure at the end."""
    with _marked(folder, trial.number):
        return _train(trial, task, ranges, folder, options)


def _train(trial: Any, task: str, ranges: dict[str, Any], folder: Path, options: dict[str, Any]) -> float:
    import optuna

    chosen = {name: _suggest(trial, name, each) for name, each in ranges.items()}
    digest = hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]
    path = folder / f"trial-{digest}"
    trial.set_user_attr("run", str(path))

    def report(row: dict[str, Any]) -> None:
        if "eval" in row:
            trial.report(_mean(row["eval"][primary]), row["steps"])
            if trial.should_prune():
                raise optuna.TrialPruned

    primary = _primary(task)
    how = {"quiet": True, "on_row": report}
    try:
        if (path / "config.json").exists():
            run = resume_run(path, **how)
        else:
            run = train(task, out=path, command=own_command("sweep", task), **{**options, **chosen}, **how)
    except Busy as busy:
        raise optuna.TrialPruned(str(busy)) from None
    except ValueError as error:  # options that do not go together: other trials have others
        say(f"trial {trial.number}: {chosen} cannot be trained: {error}")
        raise optuna.TrialPruned(str(error)) from None
    values = [row["eval"][primary] for row in run.read_metrics() if "eval" in row][-1]
    trial.set_user_attr("values", values)
    say(f"trial {trial.number}: {chosen} {primary} {_mean(values):.2f}")
    return _mean(values)


def _suggest(trial: Any, name: str, values: Any) -> Any:
    if isinstance(values, list):
        return trial.suggest_categorical(name, values)
    low, high, log = values
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=log)
    return trial.suggest_float(name, low, high, log=log)


def _primary(task: str) -> str:
    from legoswarm.tasks.task import TASKS

    return TASKS[task].primary


def _mean(values: list[float | None]) -> float:
    """Return the mean over seeds; a seed whose figure is not finite counts as very bad."""
    return float(np.mean([-1e9 if value is None else value for value in values]))


def _check_same(study: Any, content: dict[str, Any]) -> bool:
    """Refuse to mix trials of another sweep into this one; tell whether it is new."""
    now = json.loads(json.dumps(content))
    before = study.user_attrs.get("content")
    if before is None:
        study.set_user_attr("content", now)
    elif before != now:
        raise FileError("this folder holds another sweep; choose another --out or repeat its options")
    return before is None


def _again_if_lost(study: Any, folder: Path) -> None:
    """Queue trials again that failed, or whose process has gone: nobody holds their mark."""
    from optuna.trial import TrialState

    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        if datetime.datetime.now() - trial.datetime_start > BEGINNING:
            with contextlib.suppress(Busy), _marked(folder, trial.number):
                study.tell(trial.number, state=TrialState.FAIL)
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING, TrialState.WAITING)
    there = [trial.params or trial.system_attrs.get("fixed_params") for trial in study.get_trials(states=states)]
    for trial in study.get_trials(states=(TrialState.FAIL,)):
        if trial.params and trial.params not in there:
            there.append(trial.params)
            study.enqueue_trial(trial.params)


@contextlib.contextmanager
def _marked(folder: Path, number: int) -> Iterator[None]:
    """Hold the mark of a trial, which says that its process is alive; Busy if another one does."""
    mark = folder / f".trial-{number}"
    mark.mkdir(exist_ok=True)
    with RunFolder(mark).held():
        yield


def _write(study: Any, folder: Path, command: str) -> None:
    """Write what all trials gave, the best first.

    Trials with the same options are one run: two processes that begin at once may both ask for the last of a grid.
    """
    ended = [trial for trial in study.trials if trial.value is not None or trial.state.name == "PRUNED"]
    by_value = sorted(ended, key=lambda trial: -np.inf if trial.value is None else trial.value)
    trials = {trial.user_attrs.get("run"): trial for trial in by_value}.values()  # of the same run the best one
    rows = [
        {
            "params": trial.params,
            "value": trial.value,
            "values": trial.user_attrs.get("values"),
            "state": trial.state.name.lower(),
            "run": trial.user_attrs.get("run"),
        }
        for trial in sorted(trials, key=lambda trial: -np.inf if trial.value is None else trial.value, reverse=True)
    ]
    write_json(
        folder / "sweep.json", {"command": command, **study.user_attrs["content"], "trials": rows, **provenance()}
    )
