"""A trained LEGO policy without JAX: NumPy over the policy file, any team size.

    runtime = load_runtime("zoo:spread")
    actions = runtime.act(positions, velocities, roles)

`python -m legoswarm.deploy.runtime POLICY` measures how long acting takes.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from legoswarm.deploy.actor import Affine, NumpyActors, NumpyAttention
from legoswarm.files import FileError, check_array, read_arrays
from legoswarm.policies.lego import LegoPolicy
from legoswarm.policies.saved.description import Description, find_policy, read_description, unusable
from legoswarm.policies.saved.look import look

ENCODERS = ("attention", "deepsets", "joint")


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A trained policy that acts for a whole team, as `legoswarm.Swarm` does; `load_runtime` makes it."""

    description: Description
    actors: NumpyActors
    seed: int

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles that the policy knows, in their fixed order."""
        return self.description.layout.roles

    @property
    def controlled_roles(self) -> tuple[str, ...]:
        """Return the roles that the policy acts for."""
        return self.description.layout.controlled_roles

    def act(
        self,
        positions: np.ndarray,
        velocities: np.ndarray,
        roles: Sequence[str],
        visible: np.ndarray | None = None,
        sensing: float | None = None,
    ) -> np.ndarray:
        """Return the mean actions in the world frame, limited as in training.

        `positions` and `velocities` are (entities, 2), `roles` names each entity's role, in any order. The
        result has one row for each entity of a controlled role, in the order given. `visible[i, j]` says
        whether the i-th controlled agent sees entity j. Nobody sees farther than `sensing`, by default the
        radius of training.
        """
        about = self.description
        radius, near = about.sensing if sensing is None else sensing, about.config.nearest  # pyright: ignore
        seen, order = look(about.layout, positions, velocities, roles, visible, radius, near)
        with np.errstate(all="ignore"), _one_thread(len(roles)):  # actions that are not finite are refused
            actions = about.limit(self.actors(about.config, *seen[1:]))  # pyright: ignore
        return order.join(actions)


MANY = 32  # entities: from there on matrices are large enough for BLAS to share them among threads


@functools.cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def _one_thread(entities: int) -> contextlib.AbstractContextManager[Any]:
    """Keep BLAS from using several threads: on busy cores they wait for each other for longer than they save."""
    return contextlib.nullcontext() if entities < MANY else _libraries().limit(limits=1, user_api="blas")


def load_runtime(name: str | Path, seed: int | None = None, nearest: int | None = None) -> Runtime:
    """Load a trained policy: `zoo:NAME`, a run folder or a policy file; by default its best seed.

    With `nearest` it encodes only so many entities of each role, whatever it was trained with.
    """
    weights, about = find_policy(name)
    description = read_description(about)
    if nearest is not None and isinstance(description.config, LegoPolicy):
        config = dataclasses.replace(description.config, nearest=nearest)
        description = dataclasses.replace(description, config=config)
    config = description.config
    if not isinstance(config, LegoPolicy):
        raise FileError(f"{about} describes a {config.name} policy, but without JAX only lego policies act")
    if config.encoder not in ENCODERS:
        raise FileError(f"{about} names the encoder {config.encoder!r}; without JAX there are {', '.join(ENCODERS)}")
    if config.encoder != "deepsets" and config.width % config.heads:
        raise unusable(about, f"the width ({config.width}) must be a multiple of the heads ({config.heads})")
    if description.layout.dimension != 2:
        raise FileError(
            f"{about} is of {description.layout.dimension} dimensions; without JAX policies act in the plane"
        )
    at = description.at(seed)
    arrays = _Arrays(weights, len(description.seeds), at)
    actors = _read_actors(arrays, description)
    arrays.check_all_taken(description.layout.controlled_roles)
    return Runtime(description, actors, description.seeds[at])


class _Arrays:
    """The arrays of one seed by their names in the policy file, each checked when taken."""

    def __init__(self, path: Path, seeds: int, at: int):
        self.path, self.seeds, self.at = path, seeds, at
        self.arrays = read_arrays(path)
        self.taken: set[str] = set()

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Return an array of the actors; refuse one that is missing or has another shape."""
        if name not in self.arrays:
            raise self._unfit(name)
        self.taken.add(name)
        check_array(self.arrays[name], (self.seeds, *shape), np.dtype(np.float32), name, str(self.path))
        return self.arrays[name][self.at]

    def stack(self, rows: Sequence[Sequence[str]], name: str, *shape: int) -> np.ndarray:
        """Return the arrays of that name of all modules, which are named in rows."""
        return np.array([[self.take(f"{module}/{name}", *shape) for module in row] for row in rows])

    def check_all_taken(self, roles: Sequence[str]) -> None:
        """Refuse a file with arrays that are neither taken nor part of a critic."""
        known = {f"{role}/critic/" for role in roles}
        left = [name for name in self.arrays if name not in self.taken and not name.startswith(tuple(known))]
        if left:
            raise self._unfit(min(left))

    def _unfit(self, name: str) -> FileError:
        return FileError(f"{self.path} does not fit the architecture it claims: {name!r} is missing or unknown")


def _read_actors(arrays: _Arrays, description: Description) -> NumpyActors:
    """Read the actors of all controlled roles, by the names and shapes that `policies.lego` gives their arrays."""
    config, layout = description.config, description.layout
    assert isinstance(config, LegoPolicy)
    width, parts = config.width, 1 + len(layout.roles)
    actors = [f"{role}/actor" for role in layout.controlled_roles]
    roles = [[f"{actor}/encoder/roles/{at}" for at in range(len(layout.roles))] for actor in actors]
    joint = config.encoder == "joint"
    encoders = [[f"{actor}/encoder"] for actor in actors] if joint else roles  # where layers are: one for all, or each

    def of_actors(name: str, inputs: int, outputs: int) -> Affine:
        rows = [[f"{actor}/{name}"] for actor in actors]
        return Affine(arrays.stack(rows, "weight", inputs, outputs)[:, 0], arrays.stack(rows, "bias", outputs))

    def of_encoders(rows: list[list[str]], name: str, inputs: int) -> Affine:
        weight, bias = arrays.stack(rows, f"{name}weight", inputs, width), arrays.stack(rows, f"{name}bias", width)
        return Affine(weight[:, :, None], bias[:, :, None, None])

    def attention(name: str) -> NumpyAttention:
        heads, size = config.heads, width // config.heads
        qkv = arrays.stack(encoders, f"{name}qkv/weight", width, 3 * width)
        qkv = qkv.reshape(*qkv.shape[:2], width, 3, heads, size)
        qkv[..., 0, :, :] *= size**-0.5
        qkv = np.moveaxis(qkv, 4, 2).reshape(*qkv.shape[:2], 1, heads, width, 3 * size)
        sigma = of_encoders(encoders, f"{name}sigma/", width)
        return NumpyAttention(qkv, Affine(sigma.weight.reshape(*qkv.shape[:4], size, width), sigma.bias))

    def deep_sets(name: str) -> Affine:
        return of_encoders(encoders, name, width)

    layer = deep_sets if config.encoder == "deepsets" else attention
    fuse = of_actors("encoder/fuse/linears/0", parts * width, width)
    for actor in actors:
        arrays.take(f"{actor}/log_std", 2)  # no part of the mean action
    return NumpyActors(
        of_actors("encoder/myself" if joint else "encoder/myself/linears/0", 2, width),
        of_encoders(roles, "" if joint else "embed/", 4),
        tuple(layer(f"layers/{at}/") for at in range(config.depth)),
        Affine(fuse.weight.reshape(len(actors), parts, width, width), fuse.bias),
        of_actors("encoder/fuse/linears/1", width, width),
        of_actors("head", width, 2),
    )


def main() -> None:
    """Measure how long acting takes, as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m legoswarm.deploy.runtime", description="Measure acting.")
    parser.add_argument("policy", metavar="POLICY", help="a run, a policy file or zoo:NAME")
    parser.add_argument("--team", type=int, nargs="+", metavar="N", help="entities of each role (default: as trained)")
    parser.add_argument("--calls", type=int, default=20_000, metavar="N", help="how often (default: 20000)")
    args = parser.parse_args()
    try:
        _measure(args.policy, args.team, args.calls)
    except (FileError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def _measure(policy: str, team: Sequence[int] | None, calls: int) -> None:
    """Print how long acting takes."""
    runtime = load_runtime(policy)
    team = team or runtime.description.layout.slots
    if len(team) != len(runtime.roles) or min(*team, calls - 1) < 0:
        raise ValueError(f"--team needs a number for each of {', '.join(runtime.roles)}, and --calls at least 1")
    words = ", ".join(f"{count} {role}" for role, count in zip(runtime.roles, team, strict=True))
    print(f"{words}: {calls} calls")
    rng = np.random.default_rng(0)
    names = [role for role, count in zip(runtime.roles, team, strict=True) for _ in range(count)]
    positions, velocities = rng.uniform(-1, 1, (2, len(names), 2))
    # What the second line lacks of the first, the machine spent on something else.
    for name, clock in (("wall clock", time.perf_counter), ("processor time", time.thread_time)):
        seconds = np.empty(calls)
        for at in range(calls):
            start = clock()
            runtime.act(positions, velocities, names)
            seconds[at] = clock() - start
            positions += 0.01 * rng.normal(size=positions.shape)
        middle, high, most = (1e3 * np.quantile(seconds, share) for share in (0.5, 0.99, 1.0))
        print(f"{name}: median {middle:.3f} ms, 99 % below {high:.3f} ms, longest {most:.3f} ms")


if __name__ == "__main__":
    main()
