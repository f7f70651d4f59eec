"""The description of a policy, `policy.json`: where it is found, what it says and what it may claim; free of JAX."""

from __future__ import annotations

import dataclasses
import math
import os
import reprlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from legoswarm.configs import from_json, named
from legoswarm.files import FileError, read_json
from legoswarm.layout import Layout
from legoswarm.limits import Limit
from legoswarm.policies.policy import POLICIES, Policy

FORMAT = 2
# What a description may claim at most: a damaged one must not keep the machine busy before it is refused.
MAX_ROLES = 32
MAX_DIMENSION = 16
MAX_LAYERS = 512  # layers of all encoders of all actors
MAX_SLOTS = 2**16  # a thousand agents have 32,768 LiDAR hits at most
MAX_SEEDS = 10_000


@dataclasses.dataclass(frozen=True)
class Description:
    """All that is known about trained policies but their weights."""

    config: Policy
    layout: Layout  # roles, and the slots it was trained with
    limit: Limit
    task: dict[str, Any]
    seeds: tuple[int, ...]
    figures: dict[str, list[float | int | None]]  # of each seed; None where it was not finite
    best: int  # position in `seeds` of the seed with the best primary figure
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def sensing(self) -> float:
        """Return the radius within which agents saw in training."""
        radius = self.task.get("sensing")
        return float(radius) if isinstance(radius, int | float) and radius > 0 else math.inf

    def at(self, seed: int | None = None) -> int:
        """Return where a seed stands among the seeds; by default the best."""
        if seed is not None and seed not in self.seeds:
            raise ValueError(f"no seed {seed} in this policy; it has {', '.join(map(str, self.seeds))}")
        return self.best if seed is None else self.seeds.index(seed)

    def to_json(self) -> dict[str, Any]:
        """Return the description as it stands in the file."""
        return {
            "format": FORMAT,
            "policy": named(self.config),
            "dimension": self.layout.dimension,
            "roles": list(self.layout.roles),
            "slots": list(self.layout.slots),
            "controlled": self.layout.controlled,
            "private": self.layout.private,
            "limit": str(self.limit),
            "task": self.task,
            "seeds": list(self.seeds),
            "figures": self.figures,
            "best": self.best,
            **self.notes,
        }


@dataclasses.dataclass(frozen=True)
class _Fields:
    """The fields of the file that loading relies on; others are notes."""

    format: int
    policy: dict[str, Any]
    dimension: int
    roles: tuple[str, ...]
    slots: tuple[int, ...]
    controlled: int
    limit: str
    task: dict[str, Any]
    seeds: tuple[int, ...]
    figures: dict[str, Any]
    best: int
    private: int = 0

    def __post_init__(self) -> None:
        if len(self.roles) > MAX_ROLES:
            raise ValueError(f"it has more than {MAX_ROLES} roles")
        check_slots(self.slots)
        if not 0 <= self.best < len(self.seeds) <= MAX_SEEDS or len(set(self.seeds)) < len(self.seeds):
            raise ValueError("its best seed is not one of its seeds")
        if not isinstance(self.task.get("name"), str):
            raise ValueError("its task has no name")
        for name, values in self.figures.items():
            numbers = isinstance(values, list) and all(v is None or isinstance(v, int | float) for v in values)
            if not numbers or len(values) != len(self.seeds):
                raise ValueError(f"its figure {name!r} does not have one number for each seed")


def check_slots(slots: Sequence[int]) -> None:
    """Refuse numbers of entities that a policy file would not hold."""
    if not all(0 <= count <= MAX_SLOTS for count in slots):
        raise ValueError(f"a role has between 0 and {MAX_SLOTS:,} entities, not {reprlib.repr(max(slots, key=abs))}")


def find_policy(name: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Return where weights and description of `zoo:NAME`, a run folder or a .safetensors file lie."""
    text = os.fspath(name)
    if text.startswith("zoo:"):
        zoo = Path(str(resources.files("legoswarm") / "zoo"))
        weights = zoo / f"{text[4:]}.safetensors"
        if not weights.is_file():
            known = ", ".join(f"zoo:{path.stem}" for path in sorted(zoo.glob("*.safetensors")))
            raise FileError(f"there is no {text} in the zoo; it has {known or 'nothing'}")
    else:
        path = Path(name)
        is_folder = os.path.isdir(path)  # unlike Path.is_dir, False for names that no file can have
        weights = path / "policy.safetensors" if is_folder else path
        if not os.path.exists(weights):
            raise FileError(f"{path} {'holds no policy.safetensors' if is_folder else 'does not exist'}")
    return weights, weights.with_suffix(".json")


def read_description(path: Path) -> Description:
    """Read and check a description; a FileError says in one sentence what is wrong with it."""
    values = read_json(path)
    if values.get("format") == 1:
        raise unusable(path, f"it was written by version 0.1; convert it: python tools/convert.py {path}")
    if values.get("format", FORMAT) != FORMAT:
        raise unusable(path, f"its format is {reprlib.repr(values['format'])}, this version reads {FORMAT}")
    known = {field.name for field in dataclasses.fields(_Fields)}
    notes = {name: values.pop(name) for name in set(values) - known}
    try:
        fields = from_json(_Fields, values, "the description")
        config = POLICIES.read(fields.policy, "policy")
        layout = Layout(fields.roles, fields.slots, fields.controlled, fields.dimension, fields.private)
        if layout.dimension > MAX_DIMENSION:
            raise ValueError(f"space has at most {MAX_DIMENSION} dimensions here")
        if layout.controlled * len(layout.roles) * (getattr(config, "depth", 0) + 1) > MAX_LAYERS:
            raise ValueError(f"it has more than {MAX_LAYERS} encoder layers")
        limit = Limit.parse(fields.limit)
    except ValueError as error:
        raise unusable(path, error) from None
    return Description(config, layout, limit, fields.task, fields.seeds, fields.figures, fields.best, notes)


def unusable(path: Path, why: object) -> FileError:
    """Return the error that says why a description cannot be used."""
    return FileError(f"{path} is not a usable policy description: {why}")
