"""The policy file: `policy.safetensors` with the weights of one or more seeds, `policy.json` with the rest."""

from __future__ import annotations

import dataclasses
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
MAX_ROLES = 32


@dataclasses.dataclass(frozen=True)
class PolicyFile:
    """Trained policies, seeds stacked along the first axis of every array, and what is known about them."""

    policies: Policies
    config: PolicyConfig
    layout: Layout  # roles, and the slots it was trained with
    limit: Limit
    task: dict[str, Any]
    seeds: tuple[int, ...]
    figures: dict[str, list[float]]  # for each figure, one value for each seed
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
        weights = path / "policy.safetensors" if path.is_dir() else path
        if not weights.exists():
            what = "holds no policy.safetensors" if path.is_dir() else "does not exist"
            raise FileError(f"{path} {what}")
    return weights, weights.with_suffix(".json")


def load_policy(name: str | Path) -> PolicyFile:
    """Read and check a policy file; a FileError says in one sentence what is wrong with it."""
    weights, about_path = find_policy(name)
    about = read_json(about_path)
    try:
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}, this version reads {FORMAT}")
        config = from_json(PolicyConfig, about["policy"], "policy")
        roles, slots = tuple(about["roles"]), tuple(about["slots"])
        if len(roles) > MAX_ROLES or not all(isinstance(r, str) for r in roles):
            raise ValueError("its roles are not a short list of names")
        if not all(isinstance(n, int) and 0 <= n <= 10_000 for n in slots):
            raise ValueError("its slots are not a list of numbers")
        layout = Layout(roles, slots, int(about["controlled"]))
        seeds, best = tuple(int(seed) for seed in about["seeds"]), int(about["best"])
        if not 0 <= best < len(seeds) <= 10_000:
            raise ValueError("its best seed is not one of its seeds")
        limit, task, figures = Limit.parse(about["limit"]), dict(about["task"]), dict(about["figures"])
        skeleton = _skeleton(config, layout, len(seeds))
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise FileError(f"{about_path} is not a usable policy description: {what}") from None
    policies = rebuild(skeleton, read_arrays(weights)[0], str(weights))
    known = {"format", "policy", "roles", "slots", "controlled", "limit", "task", "seeds", "figures", "best"}
    notes = {key: value for key, value in about.items() if key not in known}
    return PolicyFile(policies, config, layout, limit, task, seeds, figures, best, notes)


def _skeleton(config: PolicyConfig, layout: Layout, seeds: int) -> Policies:
    """Shapes of the arrays that a file of this architecture must hold."""

    def build(keys: jax.Array) -> Policies:
        return jax.vmap(lambda key: make_policies(config, layout, key=key))(keys)

    return eqx.filter_eval_shape(build, jax.random.split(jax.random.key(0), seeds))
