"""The policy file: `policy.safetensors` with the weights of one or more seeds, `policy.json` with the rest."""

from __future__ import annotations

import dataclasses
import os
import reprlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from legoswarm.configs import from_json, to_json
from legoswarm.files import FileError, read_arrays, read_json, write_arrays, write_json
from legoswarm.policies.config import PolicyConfig
from legoswarm.policies.policy import Policies, make_policies
from legoswarm.scene import Layout
from legoswarm.tasks import Limit, Task, task_class
from legoswarm.trees import named_leaves, rebuild

FORMAT = 1
# What a description may claim at most: a damaged one must not keep the machine busy before it is refused.
MAX_ROLES = 32
MAX_LAYERS = 512  # layers of all encoders of all actors
MAX_SLOTS = 10_000
MAX_SEEDS = 10_000


@dataclasses.dataclass(frozen=True)
class PolicyFile:
    """Trained policies, seeds stacked along the first axis of every array, and what is known about them."""

    policies: Policies
    config: PolicyConfig
    layout: Layout  # roles, and the slots it was trained with
    limit: Limit
    task: dict[str, Any]
    seeds: tuple[int, ...]
    figures: dict[str, list[float | int | None]]  # of each seed; None where it was not finite
    best: int  # position in `seeds` of the seed with the best primary figure
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)

    def one(self, seed: int | None = None) -> Policies:
        """The policies of one seed; by default the best."""
        if seed is not None and seed not in self.seeds:
            raise ValueError(f"no seed {seed} in this policy; it has {', '.join(map(str, self.seeds))}")
        at = self.best if seed is None else self.seeds.index(seed)
        return jax.tree.map(lambda leaf: leaf[at], self.policies)

    def make_task(self, **changes: Any) -> Task:
        """The task it was trained on, with some fields changed."""
        fields = dict(self.task)
        cls: Any = task_class(fields.pop("name"))
        return dataclasses.replace(from_json(cls, fields, "the policy's task"), **changes)


@dataclasses.dataclass(frozen=True)
class _About:
    """The fields of a description that loading relies on; others are notes."""

    format: int
    policy: dict[str, Any]
    roles: tuple[str, ...]
    slots: tuple[int, ...]
    controlled: int
    limit: str
    task: dict[str, Any]
    seeds: tuple[int, ...]
    figures: dict[str, Any]
    best: int

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"its format is {self.format}, this version reads {FORMAT}")
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


def save_policy(folder: Path, file: PolicyFile, stem: str = "policy") -> None:
    """Write `stem`.safetensors and `stem`.json into `folder`."""
    write_arrays(folder / f"{stem}.safetensors", named_leaves(file.policies))
    about = {
        "format": FORMAT,
        "policy": to_json(file.config),
        "roles": list(file.layout.roles),
        "slots": list(file.layout.slots),
        "controlled": file.layout.controlled,
        "limit": str(file.limit),
        "task": file.task,
        "seeds": list(file.seeds),
        "figures": file.figures,
        "best": file.best,
        **file.notes,
    }
    write_json(folder / f"{stem}.json", about)


def find_policy(name: str | Path) -> tuple[Path, Path]:
    """Weights and description of `zoo:NAME`, a run folder, or a .safetensors file with its .json beside it."""
    text = str(name)
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


def load_policy(name: str | Path) -> PolicyFile:
    """Read and check a policy file; a FileError says in one sentence what is wrong with it."""
    weights, about_path = find_policy(name)
    values = read_json(about_path)
    known = {field.name for field in dataclasses.fields(_About)}
    notes = {name: values.pop(name) for name in set(values) - known}
    try:
        about = from_json(_About, values, "the description")
        config = from_json(PolicyConfig, about.policy, "policy")
        layout = Layout(about.roles, about.slots, about.controlled)
        if layout.controlled * len(layout.roles) * (config.depth + 1) > MAX_LAYERS:
            raise ValueError(f"it has more than {MAX_LAYERS} encoder layers")
        limit = Limit.parse(about.limit)
        skeleton = _skeleton(config, layout, len(about.seeds))
    except ValueError as error:
        raise FileError(f"{about_path} is not a usable policy description: {error}") from None
    policies = rebuild(skeleton, read_arrays(weights), str(weights))
    return PolicyFile(policies, config, layout, limit, about.task, about.seeds, about.figures, about.best, notes)


def _skeleton(config: PolicyConfig, layout: Layout, seeds: int) -> Policies:
    """Shapes of the arrays that a file of this architecture must hold."""

    def build(keys: jax.Array) -> Policies:
        return jax.vmap(lambda key: make_policies(config, layout, key=key))(keys)

    return eqx.filter_eval_shape(build, jax.random.split(jax.random.key(0), seeds))
