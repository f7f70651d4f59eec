"""Command-line options from configuration dataclasses, and errors of one sentence."""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from typing import Any, NoReturn

from legoswarm.configs import field_kinds


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence on stderr, exit code 2; options are written out."""

    def __init__(self, **settings: Any):
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is."""
        sys.stderr.write(f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")
        raise SystemExit(2)


def one_line(message: object) -> str:
    """The message without line breaks."""
    return " ".join(str(message).split())


def whole(text: str) -> int:
    """An integer, also written as 2e6."""
    value = number(text)
    if not value.is_integer():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(value)


def seed(text: str) -> int:
    """A whole number that JAX's random keys can tell from every other one."""
    value = whole(text)
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"a seed lies between 0 and {2**31 - 1}, not at {text}")
    return value


def number(text: str) -> float:
    """A number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


_READERS = {int: whole, float: number, str: str}


def add_options(parser: argparse.ArgumentParser, cls: Any, title: str, description: str | None = None) -> None:
    """One option for each field of a configuration class; defaults stay with the class."""
    group = parser.add_argument_group(title, description)
    kinds = field_kinds(cls)
    for field in dataclasses.fields(cls):
        kind = kinds[field.name]
        settings: dict[str, Any] = {"dest": field.name, "default": None}
        default = field.metadata.get("default", field.default)
        text = field.metadata.get("help", "")
        settings["help"] = f"{text} (default: {default})" if default not in (None, ()) else text
        if kind.base is bool:
            settings["action"] = argparse.BooleanOptionalAction
        else:
            settings["type"] = _READERS[kind.base]
            settings["metavar"] = {int: "N", float: "X", str: "NAME"}[kind.base]
            if kind.many:
                settings["nargs"] = "+"
        group.add_argument("--" + field.name.replace("_", "-"), **settings)


def chosen(cls: Any, args: argparse.Namespace) -> dict[str, Any]:
    """The fields of a configuration class that were given on the command line."""
    kinds = field_kinds(cls)
    given = {f.name: getattr(args, f.name, None) for f in dataclasses.fields(cls)}
    return {name: tuple(value) if kinds[name].many else value for name, value in given.items() if value is not None}
