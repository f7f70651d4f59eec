"""Frozen configuration dataclasses to and from JSON objects; unknown keys and wrong types fail."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from types import UnionType
from typing import Any, TypeVar

Config = TypeVar("Config")


def option(default: Any, help: str) -> Any:
    """A field with a default and a line of help for the command line."""
    return dataclasses.field(default=default, metadata={"help": help})


def to_json(config: Any) -> dict[str, Any]:
    """The fields of a configuration as a JSON object."""
    return {
        field.name: list(value) if isinstance(value := getattr(config, field.name), tuple) else value
        for field in dataclasses.fields(config)
    }


def from_json(cls: type[Config], values: dict[str, Any], source: str) -> Config:
    """A configuration from a JSON object, checked field by field."""
    kinds = field_kinds(cls)
    if unknown := sorted(set(values) - set(kinds)):
        raise ValueError(f"{source}: unknown field {unknown[0]!r}")
    checked = {}
    for name, value in values.items():
        kind = kinds[name]
        if kind.many and isinstance(value, list):
            value = tuple(value)
        accepts = (int, float) if kind.base is float else kind.base
        items = value if kind.many and isinstance(value, tuple) else [value]
        fits = all(isinstance(v, accepts) and isinstance(v, bool) == (kind.base is bool) for v in items)
        if not (value is None and kind.optional) and not (fits and kind.many == isinstance(value, tuple)):
            raise ValueError(f"{source}: field {name!r} cannot be {value!r}")
        checked[name] = value
    return cls(**checked)


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
    return Kind(hint)
