"""Command-line options from the fields of dataclasses, and errors of one sentence."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from legoswarm.configs import field_kinds

REQUIRED: Any = dataclasses.MISSING  # the default of what must be given


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence on stderr, exit code 2."""

    chosen: Sequence[str] = ()  # words that decide which options there are

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and which help has the answer."""
        sys.stderr.write(f"{self.prog}: {one_line(message)} (see {' '.join([self.prog, *self.chosen, '--help'])})\n")
        raise SystemExit(2)


class Group(NamedTuple):
    """Options of a command besides its own: the fields of a class, or of an object that has their defaults."""

    title: str  # such as "policy lego"
    config: Any
    rivals: Sequence[type] = ()  # what could have been chosen instead: the title refuses an option of theirs


def argument(default: Any, help: str, **settings: Any) -> Any:
    """Return a field of a command; settings are argparse's, `positional`, and `flag` if it is not the field's name."""
    return dataclasses.field(default=default, metadata={"help": help, "settings": settings})


def parse(command: Any, prog: str, words: Sequence[str]) -> dict[str, Any]:
    """Return what the words give to a command, by name: to its own fields, and to its `groups(words)` if it has any."""
    plain = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    groups: list[Group] = command.groups(plain) if hasattr(command, "groups") else []
    parser = make_parser(command, prog, plain, groups)
    values, unknown = parser.parse_known_args(words)
    for word, group in itertools.product(unknown, groups):
        name = word.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
        if any(name in field_kinds(rival) for rival in group.rivals):
            parser.error(f"the {group.title} has no option {word}")
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    given = ((name, value) for name, value in vars(values).items() if name not in ("debug", "import"))
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given}


def make_parser(command: Any, prog: str, words: Sequence[str], groups: Sequence[Group]) -> Parser:
    """Return the parser of a command's own fields and of the groups that the words have chosen."""
    names = {group.title.split()[-1] for group in groups}
    places = "".join(
        f" [{f.name.upper()}]" for f in dataclasses.fields(command) if "positional" in f.metadata["settings"]
    )
    usage = f"{prog}{places} [OPTION ...]" if groups else None  # argparse's would fill the screen
    parser = Parser(prog=prog, usage=usage, description=inspect.getdoc(command), allow_abbrev=False)
    pairs = itertools.pairwise([*words, ""])
    parser.chosen = [word for word, after in pairs if word in names or (word.startswith("--") and after in names)]
    _add_options(parser, command)
    parser.add_argument(
        "--import",
        metavar="FILE",
        help="first import this file or module of yours, which registers tasks, policies or algorithms",
    )
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    for group in groups:
        _add_options(parser.add_argument_group(group.title), group.config)
    return parser


def of(config: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given of the fields of a class."""
    return {name: value for name, value in given.items() if name in field_kinds(config)}


def _add_options(parser: Any, config: Any) -> None:
    """Add an option for each field of a class or an object that has help; what is not given leaves no value."""
    kinds = field_kinds(config if isinstance(config, type) else type(config))
    for field in [field for field in dataclasses.fields(config) if "help" in field.metadata]:
        kind, default = kinds[field.name], getattr(config, field.name, REQUIRED)
        own = {"flag": "--" + field.name.replace("_", "-"), **field.metadata.get("settings", {})}
        flag, positional = own.pop("flag"), own.pop("positional", False)
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
        silent = shown in (None, "", REQUIRED) or shown is False
        text = field.metadata["help"] + ("" if silent else f" (default: {shown})")
        settings: dict[str, Any] = {"help": text.replace("%", "%%"), "default": argparse.SUPPRESS}
        if kind.base is bool:
            settings["action"] = "store_true" if default is False else argparse.BooleanOptionalAction
        else:
            reader, metavar = _READERS[kind.base]
            metavar = None if "choices" in own else field.name.upper() if positional else metavar
            settings |= {"type": reader, "nargs": "+" if kind.many else None, "metavar": metavar}
        if not positional:
            settings |= {"dest": field.name, "required": default is REQUIRED}
        parser.add_argument(field.name if positional else flag, **{**settings, **own})


def one_line(message: object) -> str:
    """Return the message without line breaks."""
    return " ".join(str(message).split())


def number(text: str) -> float:
    """Read a number."""
    with contextlib.suppress(ValueError):
        if not math.isnan(value := float(text)):
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number")


def whole(text: str) -> int:
    """Read an integer, also written as 2e6."""
    value = number(text)
    if not value.is_integer():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(value)


def random_seed(text: str) -> int:
    """Read a whole number that JAX's random keys can tell from every other one."""
    value = whole(text)
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"a seed lies between 0 and {2**31 - 1}, not at {text}")
    return value


_READERS = {int: (whole, "N"), float: (number, "X"), str: (str, "NAME"), Path: (Path, "PATH")}
