"""One run on several devices and hosts: its seeds are divided among them, then the worlds of each seed.

Devices form a grid of rows. Each row computes its own seeds and knows nothing of the others, so a seed's result does
not depend on how many rows there are. The devices of one row share the worlds of its seeds: XLA's partitioner divides
the program among them, and the sums over worlds, gradients above all, become sums over devices.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Tree = TypeVar("Tree")

SEEDS, WORLDS = "seeds", "worlds"  # the axes of the grid
AUTO = "auto"  # the coordinator is the one that the cluster's own variables name
PATIENCE = 30  # seconds that a process waits at its end for others, which may have failed


def join(coordinator: str | None, processes: int | None = None, process: int | None = None) -> None:
    """Let this process be one of several that train one run, on this machine or others; before JAX computes anything.

    The `coordinator` is HOST:PORT, where process 0 listens, or `auto`: Slurm, Open MPI and other clusters tell their
    processes who they are.
    """
    if coordinator is None:
        if processes is not None or process is not None:
            raise ValueError("processes need a coordinator: HOST:PORT of process 0, or auto in a cluster's job")
        return
    if [processes is None, process is None] != [coordinator == AUTO] * 2:
        raise ValueError("name the coordinator, how many processes there are and which one this is; or auto alone")
    if processes is not None and process is not None and not 0 <= process < processes:
        raise ValueError(f"the process must be one of 0 to {processes - 1}, not {process}")
    where = None if coordinator == AUTO else coordinator
    try:
        jax.distributed.initialize(where, processes, process, shutdown_timeout_seconds=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"no connection to the other processes: {error}") from None


def first_process() -> bool:
    """Tell whether this process is the one that writes files."""
    return jax.process_index() == 0


def agreed(word: bool = True) -> bool:
    """Return what the first process says, once all processes are here."""
    return word if jax.process_count() == 1 else bool(multihost_utils.broadcast_one_to_all(np.array(word)))


@contextlib.contextmanager
def first_of_all() -> Iterator[None]:
    """End all processes in good order if what the first one does meanwhile fails: without it they would wait for it."""
    try:
        yield
    except BaseException:
        agreed(False)
        raise
    if not agreed():
        raise ValueError("process 0 has refused this run, and says why")


def on_host(array: Any) -> np.ndarray:
    """Return an array as NumPy's; where its parts lie with several processes, all of them must ask."""
    elsewhere = isinstance(array, jax.Array) and not (array.is_fully_addressable or array.is_fully_replicated)
    return multihost_utils.process_allgather(array, tiled=True) if elsewhere else np.asarray(array)


def device_grid(devices: int, seeds: int, worlds: int) -> Mesh | None:
    """Return so many devices of every process as a grid (seeds, worlds), as many rows as seeds allow; None for one."""
    there = [jax.local_devices(process_index=process) for process in range(jax.process_count())]
    if (fewest := min(map(len, there))) < devices:
        hint = "; XLA_FLAGS=--xla_force_host_platform_device_count=N makes N of a CPU"
        raise ValueError(
            f"a process here has {fewest} device(s), not {devices}{hint * (jax.default_backend() == 'cpu')}"
        )
    chosen = [device for own in there for device in own[:devices]]
    rows = math.gcd(len(chosen), seeds)
    if worlds % (columns := len(chosen) // rows):
        raise ValueError(f"{seeds} seed(s) of {worlds} worlds cannot be divided among {len(chosen)} devices")
    return None if len(chosen) == 1 else Mesh(np.array(chosen).reshape(rows, columns), (SEEDS, WORLDS))


def by_seeds(grid: Mesh) -> NamedSharding:
    """Return the place of arrays (seeds, ...) of which each row of the grid holds its seeds."""
    return NamedSharding(grid, P(SEEDS))


def by_worlds(grid: Mesh) -> NamedSharding:
    """Return the place of arrays (seeds, worlds, ...) that are divided among all devices."""
    return NamedSharding(grid, P(SEEDS, WORLDS))


def everywhere(grid: Mesh) -> NamedSharding:
    """Return the place of arrays that every device has a copy of."""
    return NamedSharding(grid, P())


def placed(array: Any, place: NamedSharding) -> jax.Array:
    """Put an array, which every process has, into its place."""
    whole = np.asarray(array)
    return jax.make_array_from_callback(whole.shape, place, lambda at: whole[at])


def in_rows(fun: Callable[..., Any], grid: Mesh | None) -> Callable[..., Any]:
    """Return `fun`, of a tree stacked over seeds and of one that all seeds share, as every row computes its part."""
    if grid is None:
        return fun
    return jax.shard_map(
        fun, mesh=grid, in_specs=(P(SEEDS), P()), out_specs=P(SEEDS), axis_names={SEEDS}, check_vma=False
    )


def columns() -> int:
    """Count the devices that share a seed's worlds in the program that is being traced."""
    return dict(jax.sharding.get_abstract_mesh().shape).get(WORLDS, 1)


def divided(tree: Tree, axis: int) -> Tree:
    """Divide an axis of arrays among the devices that share a seed's worlds, if its size allows."""

    def one(array: Any) -> Any:
        if columns() == 1 or array.shape[axis] % columns():
            return array
        return jax.lax.with_sharding_constraint(array, P(*[None] * axis, WORLDS))

    return jax.tree.map(one, tree)
