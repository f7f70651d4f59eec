"""Frozen configuration dataclasses to and from JSON objects; unknown keys and wrong types fail."""

from __future__ import annotations

import dataclasses
import reprlib
import sys
import typing
from collections.abc import Sequence
from types import UnionType
from typing import Any, TypeVar

Config = TypeVar("Config")


def option(default: Any, help: str, shown: str | None = None) -> Any:
    """A field with a default and a line of help for the command line, which may have the default in other words."""
    return dataclasses.field(default=default, metadata={"help": help, "default": shown or default})


def to_json(config: Any) -> dict[str, Any]:
    """The fields of a configuration as a JSON object."""
    return {
        field.name: list(value) if isinstance(value := getattr(config, field.name), tuple) else value
        for field in dataclasses.fields(config)
    }


def from_json(cls: type[Config], values: Any, source: str) -> Config:
    """A configuration from a JSON object, checked field by field."""
    kinds = field_kinds(cls)
    if not isinstance(values, dict):
        raise ValueError(f"{source} is not an object with fields")
    if unknown := sorted(set(values) - set(kinds)):
        raise ValueError(f"{source}: unknown field {unknown[0]!r}")
    if missing := sorted(_required(cls) - set(values)):
        raise ValueError(f"{source}: field {missing[0]!r} is missing")
    checked = {}
    for name, value in values.items():
        kind = kinds[name]
        items = value if kind.many and isinstance(value, list) else [value]
        if value is None and kind.optional:
            checked[name] = None
        elif kind.many == isinstance(value, list) and all(_fits(item, kind.base) for item in items):
            items = [float(item) for item in items] if kind.base is float else items
            checked[name] = tuple(items) if kind.many else items[0]
        else:
            raise ValueError(f"{source}: field {name!r} cannot be {reprlib.repr(value)}")
    return cls(**checked)


def _fits(value: Any, base: type) -> bool:
    """Whether a JSON value is of a type; an integer is a number too, a boolean is not."""
    if base is float and isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return isinstance(value, base) and isinstance(value, bool) == (base is bool)


def _required(cls: Any) -> set[str]:
    empty = dataclasses.MISSING
    return {f.name for f in dataclasses.fields(cls) if f.default is empty and f.default_factory is empty}


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a field holds: one value or several of a base type, perhaps None."""

    base: type
    many: bool = False
    optional: bool = False


def field_kinds(cls: Any) -> dict[str, Kind]:
    """The kind of each field of a configuration class."""
    hints = typing.get_type_hints(cls)
    return {field.name: _kind(hints[field.name]) for field in dataclasses.fields(cls)}


def _kind(hint: Any) -> Kind:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (UnionType, typing.Union):
        rest = [arg for arg in args if arg is not type(None)]
        return dataclasses.replace(_kind(rest[0]), optional=True)
    if origin in (tuple, Sequence):
        return Kind(args[0], many=True)
    return Kind(origin or hint)
