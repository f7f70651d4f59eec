"""The site's reference, made from the code: commands and options by their parsers, Python and files by docstrings."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import legoswarm
from legoswarm.cli import COMMANDS
from legoswarm.cli.options import make_parser
from legoswarm.cli.train import Train
from legoswarm.learn.algorithms.algorithm import ALGORITHMS
from legoswarm.learn.curves import METRICS
from legoswarm.policies.policy import POLICIES
from legoswarm.tasks.task import TASKS

# What those need who extend the package, beside the names of `legoswarm` itself.
BEYOND = """deploy.runtime.load_runtime tasks.task.Task tasks.task.State scene.Scene scene.View scene.Entities
frames.canonical.make_frame frames.canonical.canonicalize frames.canonical.Frame policies.policy.Policy
policies.networks.roles.RolePolicy policies.networks.decision.Decision learn.algorithms.algorithm.Algorithm
learn.folder.RunFolder learn.curves.Curve evaluate.policies.evaluate_policy"""
OF_TRAINING = ("training", "policy", "algorithm")  # groups of options that the page on training has
# What describes a kind of file, and the class whose fields it has.
FILES = {
    "A run": ("learn.folder", "learn.folder.RunConfig"),
    "A policy": ("policies.saved.file", "policies.saved.description.Description"),
    "The result of a part of a study": ("studies.run.do_part", ""),
    "A sweep": ("studies.sweep.sweep", ""),
    "The log of a flight": ("deploy.flightlog", ""),
}


def commands() -> str:
    """Return every command with its options; those that trainings have too stand on a page of their own."""
    text = (
        "# Commands\n\nThis page is made from the command line's own parser, as `legoswarm COMMAND --help` is. Every"
        " command also has `--import FILE`, for a file or module that registers tasks, policies or algorithms, and"
        " `--debug`, which shows where an error comes from.\n"
    )
    for name, (module, _) in COMMANDS.items():
        command = getattr(importlib.import_module(f"legoswarm.cli.{module}"), name.capitalize())
        groups = command.groups([]) if hasattr(command, "groups") else []
        elsewhere = [group.title.split()[0] for group in groups if group.title.split()[0] in OF_TRAINING]
        groups = [group for group in groups if group.title.split()[0] not in OF_TRAINING]
        more = f"It takes the options of a {', '.join(elsewhere)} too: see [options of training](options.md)."
        text += f"\n## legoswarm {name}\n\n{_doc(command)}\n\n{more if elsewhere else ''}\n\n"
        positional, optional, *tables = make_parser(command, f"legoswarm {name}", [], groups)._action_groups
        text += _options([*positional._group_actions, *optional._group_actions])
        for table in tables:
            text += f"\n### {table.title.capitalize()}\n\n{_options(table._group_actions)}"
    return text


def options() -> str:
    """Return the options that a task, a policy or an algorithm brings to `legoswarm train`."""
    text = (
        "# Options of training\n\nA task, a policy and an algorithm each bring options to `legoswarm train`. They are"
        " fields of dataclasses, from which this page is made, so the same words are arguments of `legoswarm.train`"
        " and stand in `config.json`. Defaults are those that a training has in which nothing else is named.\n"
    )
    tasks, policies, algorithms = TASKS.names(), POLICIES.names(), ALGORITHMS.names()
    wanted = [*([n] for n in tasks), *(["--policy", n] for n in policies), *(["--algorithm", n] for n in algorithms)]
    known = {f"{kind.kind} {name}": kind[name] for kind in (TASKS, POLICIES, ALGORITHMS) for name in kind.names()}
    found: dict[str, Any] = {}
    for words in wanted:
        for group in make_parser(Train, "", words, Train.groups(words))._action_groups[2:]:
            found.setdefault(group.title, group._group_actions)
    for title in ["training", *known]:
        about = _doc(known[title]) if title in known else "These options every training has."
        text += f"\n## {title.capitalize()}\n\n{about}\n\n{_options(found[title])}"
    return text


def python() -> str:
    """Return the public names of the package with their signatures and docstrings."""
    text = "# Python\n\nThis page is made from docstrings. The types of arrays name their axes.\n"
    homes = {f"legoswarm.{name}": f"{home}.{name}" for name, home in legoswarm._homes().items()}
    more = {f"legoswarm.{path}": f"legoswarm.{path}" for path in BEYOND.split()}
    for title, names in (("Names of the package", homes), ("Names that extensions use", more)):
        text += f"\n## {title}\n"
        for name in sorted(names, key=str.lower):
            text += f"\n### {name.rpartition('.')[2]}\n\n`{name}`\n\n{_describe(_find(names[name]))}\n"
    return text


def files() -> str:
    """Return what the package's files hold."""
    text = "# Files\n\nThis page is made from the docstrings of what writes these files.\n"
    for title, (writer, fields) in FILES.items():
        text += f"\n## {title}\n\n{_doc(_find(f'legoswarm.{writer}'))}\n\n" + (
            _fields(_find(f"legoswarm.{fields}")) if fields else ""
        )
    return text


def metrics() -> str:
    """Return what the rows of metrics.jsonl and the columns of `legoswarm eval` mean."""
    rows = _table(("field", "what it is"), ((f"`{name}`", text) for name, text in METRICS.items()))
    text = f"# Metrics\n\n{_doc(importlib.import_module('legoswarm.learn.curves'))}\n\n{rows}\n## Figures of tasks\n\n"
    text += "An evaluation measures figures of its task. Seeds are ranked by the primary one: higher is better.\n"
    for name in TASKS.names():
        figures = _doc(TASKS[name].figures).replace("Return ", "Its figures are ", 1)
        text += f"\n### {name}\n\nThe primary figure is `{TASKS[name].primary}`. {figures}\n"
    return text


PAGES: dict[str, Callable[[], str]] = {page.__name__: page for page in (commands, options, python, files, metrics)}


def _find(path: str) -> Any:
    """Return the module, or what in a module, a name stands for."""
    module, _, name = path.rpartition(".")
    home = importlib.import_module(module)
    return getattr(home, name) if hasattr(home, name) else importlib.import_module(path)


def _doc(thing: Any) -> str:
    """Return a docstring as Markdown: a `<` is no tag, and a list stands apart."""
    return re.sub(r"(?m)^((?!- | ).+)\n- ", r"\1\n\n- ", (inspect.getdoc(thing) or "").replace("<", "&lt;"))


def _options(actions: Iterable[argparse.Action]) -> str:
    def rows() -> Iterator[tuple[str, str]]:
        for action in (each for each in actions if each.dest not in ("help", "import", "debug")):
            value = action.metavar or ("" if action.nargs == 0 else " or ".join(map(str, action.choices or ())))
            words = [f"{flag} {value}".strip() for flag in action.option_strings] or [action.dest.upper()]
            yield ", ".join(f"`{word}`" for word in words), (action.help or "").replace("%%", "%")

    return _table(("option", "what it is"), rows())


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _describe(thing: Any) -> str:
    """Return a signature and docstring; of a class also its fields and public methods."""
    if not callable(thing):
        return f"{_doc(thing)}\n\nThe package registers {', '.join(f'`{name}`' for name in thing.names())}."
    if not inspect.isclass(thing):
        head = inspect.getsource(thing).split('"""')[0].rstrip()
        return f"```python\n{head}\n```\n\n{_doc(thing)}"
    text = f"{_doc(thing)}\n\n{_fields(thing)}\n"
    for name, each in vars(thing).items():
        if not name.startswith("_") and (inspect.isfunction(each) or isinstance(each, property)):
            taken = [] if isinstance(each, property) else list(inspect.signature(each).parameters)[1:]
            call = name if isinstance(each, property) else f"{name}({', '.join(taken)})"
            text += f"- `{call}`: {' '.join(_doc(each).split())}\n"
    return text


def _fields(thing: Any) -> str:
    """Return the fields of a class as its source has them, comments included."""
    head = inspect.getsource(thing).split('"""', 2)[2]
    lines = re.split(r"\n    (?:@|def )", head)[0].rstrip().splitlines()
    body = inspect.cleandoc("\n".join(line for line in lines if not line.startswith(("@", "class "))))
    return f"```python\n{body}\n```\n" if body else ""
