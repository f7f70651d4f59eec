"""Frozen dataclasses as configurations: options with limits, JSON objects, and registries of classes by name.

Tasks, policies and algorithms are such classes: their fields are what the command line offers and what `config.json`
holds. Unknown keys, wrong types and impossible values fail.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import numbers
import pkgutil
import reprlib
import sys
import typing
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Generic, TypeVar

import numpy as np

Config = TypeVar("Config")
Thing = TypeVar("Thing")
Given = TypeVar("Given")


def option(
    default: Any,
    help: str,
    *,
    low: float | int | None = None,
    high: float | int | None = None,
    above: float | int | None = None,
    among: Sequence[Any] = (),
    traced: bool = False,
) -> Any:
    """Return a field with a default, a line of help and what `check_fields` holds its value to.

    A `traced` number of an algorithm is an argument of the compiled program: another value needs no other program.
    """
    limits = {"low": low, "high": high, "above": above, "among": tuple(among), "traced": traced}
    return dataclasses.field(default=default, metadata={"help": help, **limits})


def with_default(cls: Any, name: str, default: Any) -> Any:
    """Return the option of that name in a base class with another default."""
    [field] = [each for each in dataclasses.fields(cls) if each.name == name]
    return dataclasses.field(default=default, metadata=field.metadata)


def check_fields(config: Any) -> None:
    """Refuse a configuration with a field of the wrong type, or outside the limits of its option."""
    kinds = field_kinds(type(config))
    for field in dataclasses.fields(config):
        value: Any = getattr(config, field.name)
        kind, limits = kinds[field.name], field.metadata
        if value is None and kind.optional:
            continue
        items: Any = value if kind.many and isinstance(value, tuple | list) else [value]
        if kind.many != isinstance(value, tuple | list) or not all(_fits(each, kind.base) for each in items):
            raise ValueError(f"{field.name} must be {_WORDS[kind.base]}, not {reprlib.repr(value)}")
        low, high, above = (limits.get(name) for name in ("low", "high", "above"))
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            span = f"at least {low}" if high is None else f"between {low} and {high}"
            raise ValueError(f"{field.name} must be {span}, not {value}")
        if above is not None and not value > above:
            raise ValueError(f"{field.name} must be {'positive' if above == 0 else f'more than {above}'}, not {value}")
        if limits.get("among") and value not in limits["among"]:
            raise ValueError(f"{field.name} must be {_either(limits['among'])}, not {value!r}")


def traced_fields(config: Any) -> tuple[str, ...]:
    """Return the names of the fields that the compiled program takes as arguments."""
    return tuple(field.name for field in dataclasses.fields(config) if field.metadata.get("traced"))


def with_traced(config: Config, values: Mapping[str, Any]) -> Config:
    """Return a configuration whose traced fields have other values: traced ones, which no check can look at."""
    copy, traced = object.__new__(type(config)), traced_fields(config)
    for name, value in vars(config).items():
        object.__setattr__(copy, name, values.get(name, value) if name in traced else value)
    return copy


def plain_fields(cls: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return values as the types that a configuration's fields have, or refuse them: 2e6 is a whole number too."""
    kinds = field_kinds(cls)
    return {name: _plain(name, value, kinds[name]) for name, value in given.items()}


def _plain(name: str, value: Any, kind: Kind) -> Any:
    if kind.base not in _WORDS or (value is None and kind.optional):
        return value
    many = isinstance(value, Sequence | np.ndarray | range) and not isinstance(value, str)
    several: Any = value if many else [value]
    items = [_whole(item) if kind.base is int else item for item in several]
    if many != kind.many or not all(_fits(item, kind.base) for item in items):
        raise ValueError(f"{name} must be {_WORDS[kind.base]}{', or several' * kind.many}, not {reprlib.repr(value)}")
    return tuple(map(kind.base, items)) if many else kind.base(items[0])


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float | np.floating) and value.is_integer() else value


def _either(choices: Sequence[Any]) -> str:
    """Return the choices as words: a, b or c."""
    *first, last = map(str, choices)
    return f"{', '.join(first)} or {last}" if first else last


def to_json(config: Any) -> dict[str, Any]:
    """Return the fields of a configuration as a JSON object."""
    return {
        field.name: list(value) if isinstance(value := getattr(config, field.name), tuple) else value
        for field in dataclasses.fields(config)
    }


def named(config: Any) -> dict[str, Any]:
    """Return an object of a registered class as a JSON object: its class's name and its fields."""
    return {"name": config.name, **to_json(config)}


def from_json(cls: type[Config], values: Any, source: str) -> Config:
    """Build a configuration from a JSON object, checked field by field."""
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


_WORDS = {int: "a whole number", float: "a finite number", str: "a word", bool: "true or false"}


def _fits(value: Any, base: type) -> bool:
    """Tell whether a value is of a type; an integer is a number too, a boolean is not, infinity neither."""
    if base is float and isinstance(value, numbers.Real):
        number: Any = value if isinstance(value, int) else float(value)  # int: 10**400 has no float
        return not isinstance(value, bool) and bool(abs(number) <= sys.float_info.max)
    if base is int and isinstance(value, numbers.Integral):
        return not isinstance(value, bool)
    return isinstance(value, base) and isinstance(value, bool) == (base is bool)


def _required(cls: Any) -> set[str]:
    empty = dataclasses.MISSING
    return {f.name for f in dataclasses.fields(cls) if f.default is empty and f.default_factory is empty}


@dataclasses.dataclass(frozen=True)
class Kind:
    """Say what a field holds: one value or several of a base type, perhaps None."""

    base: type
    many: bool = False
    optional: bool = False


@functools.cache
def field_kinds(cls: Any) -> dict[str, Kind]:
    """Return the kind of each field of a configuration class."""
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


class Registry(Generic[Thing]):
    """Classes (or builders) of one kind by name; the package's own are found in the files of one folder.

    A new one is one new file: the folder's modules are imported when a name is first asked for, and each registers
    what it defines. Users register theirs from outside.
    """

    def __init__(self, kind: str, folder: str):
        self.kind, self._folder = kind, folder
        self._things: dict[str, Thing] = {}
        self._homes: dict[str, str] = {}

    def register(self, thing: Given, name: str | None = None, home: str | None = None) -> Given:
        """Make a class known by its `name`, or a builder by the name given; usable as a decorator."""
        each: Any = thing
        known: str = each.name if name is None else name
        place: str = each.__module__ if home is None else home
        if not place.startswith("legoswarm."):
            self._all()  # the package's own come first: read later, they would take the name back
        self._things[known], self._homes[known] = each, place
        return thing

    def names(self) -> list[str]:
        """Return the known names."""
        return sorted(self._all())

    def __getitem__(self, name: str) -> Thing:
        if name not in self._all():
            raise ValueError(f"unknown {self.kind} {name!r}; known: {', '.join(self.names())}; --import brings more")
        return self._things[name]

    def own(self, name: str) -> bool:
        """Tell whether what a name stands for comes with the package."""
        return name in self._all() and self._homes[name].startswith("legoswarm.")

    def make(self, name: str, **fields: Any) -> Any:
        """Build an object from its name and fields; a field that it does not have is refused by name."""
        cls: Any = self[name]
        if unknown := sorted(set(fields) - {field.name for field in dataclasses.fields(cls)}):
            raise ValueError(f"the {self.kind} {name} has no option {unknown[0]!r}")
        return cls(**plain_fields(cls, fields))

    def read(self, values: Any, source: str) -> Any:
        """Build an object from what `named` made of it."""
        if not isinstance(values, dict) or not isinstance(values.get("name"), str):
            raise ValueError(f"{source} has no name")
        fields: Any = {key: value for key, value in values.items() if key != "name"}
        return from_json(typing.cast(Any, self[values["name"]]), fields, source)

    def _all(self) -> dict[str, Thing]:
        folder, self._folder = self._folder, ""
        if folder:
            for module in pkgutil.iter_modules(importlib.import_module(folder).__path__):
                if not module.ispkg:
                    importlib.import_module(f"{folder}.{module.name}")
        return self._things
