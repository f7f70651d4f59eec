"""The policy file: `policy.safetensors` with the weights of one or more seeds, `policy.json` with the rest."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import equinox as eqx
import jax

from legoswarm.files import read_arrays, write_arrays, write_json
from legoswarm.policies.networks.roles import Policies, make_policies
from legoswarm.policies.policy import Policy, check_team
from legoswarm.policies.saved.description import Description, find_policy, read_description, unusable
from legoswarm.policies.saved.trees import named_leaves, rebuild, take
from legoswarm.scene import Layout


@dataclasses.dataclass(frozen=True)
class PolicyFile(Description):
    """Trained policies, seeds stacked along the first axis of every array, and what is known about them."""

    policies: Policies = dataclasses.field(kw_only=True)

    def one(self, seed: int | None = None) -> Policies:
        """Return the policies of one seed; by default the best."""
        return take(self.policies, self.at(seed))

    def only(self, seed: int | None = None) -> PolicyFile:
        """Return the file of one seed alone; by default the best."""
        at, notes = self.at(seed), dict(self.notes)
        if isinstance(steps := notes.get("steps"), list) and len(steps) == len(self.seeds):
            notes["steps"] = [steps[at]]
        return dataclasses.replace(
            self,
            policies=take(self.policies, slice(at, at + 1)),
            seeds=(self.seeds[at],),
            figures={name: [values[at]] for name, values in self.figures.items()},
            best=0,
            notes=notes,
        )

    def check_team(self, team: Layout) -> None:
        """Refuse a team that the policy cannot act for: one of another size, if its weights depend on the size."""
        check_team(self.config, self.layout, team)


def save_policy(folder: Path, file: PolicyFile, stem: str = "policy") -> None:
    """Write `stem`.safetensors and `stem`.json into `folder`."""
    write_arrays(folder / f"{stem}.safetensors", named_leaves(file.policies))
    write_json(folder / f"{stem}.json", file.to_json())


def load_policy(name: str | os.PathLike[str], nearest: int | None = None) -> PolicyFile:
    """Read and check a policy file; a FileError says in one sentence what is wrong with it.

    With `nearest` it encodes only so many entities of each role, whatever it was trained with.
    """
    weights, about = find_policy(name)
    description = read_description(about)
    if nearest is not None:
        if not hasattr(description.config, "nearest"):
            raise ValueError(f"{description.config.name} looks at everybody: it cannot look at the nearest alone")
        config = dataclasses.replace(description.config, nearest=nearest)  # pyright: ignore[reportCallIssue]
        description = dataclasses.replace(description, config=config)
    try:
        skeleton = _skeleton(description.config, description.layout, len(description.seeds))
    except ValueError as error:
        raise unusable(about, error) from None
    policies = rebuild(skeleton, read_arrays(weights), str(weights))
    return PolicyFile(**vars(description), policies=policies)


def _skeleton(config: Policy, layout: Layout, seeds: int) -> Policies:
    """Return the shapes of the arrays that a file of this architecture must hold."""

    def build(keys: jax.Array) -> Policies:
        return jax.vmap(lambda key: make_policies(config, layout, key=key))(keys)

    return eqx.filter_eval_shape(build, jax.random.split(jax.random.key(0), seeds))
