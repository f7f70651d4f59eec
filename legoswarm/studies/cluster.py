"""Work on a cluster of machines through Ray: a task with its resources for each piece, again if its machine is lost."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from legoswarm.own import import_own, imported

ENGINES = ("local", "ray")
CPUS = 2.0  # of a piece of work


def check_engine(engine: str) -> None:
    """Refuse an engine that is unknown or not installed."""
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; known: {', '.join(ENGINES)}")
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        raise ValueError("the engine ray needs Ray: pip install 'legoswarm[ray]'")


def on_cluster(
    work: Callable[..., Any], pieces: Mapping[str, tuple[Any, ...]], *, cpus: float, gpus: float | None
) -> Iterator[tuple[str, Any]]:
    """Call `work` with each piece, wherever there is room; give names with what came of them, first what is first done.

    The cluster is that of RAY_ADDRESS (`auto`: the one that this machine belongs to), else this machine alone. An error
    is given in place of a result. A piece whose machine or process is lost is done again, three times at most.
    """
    import ray
    from ray.exceptions import RayError

    if not ray.is_initialized():
        ray.init(include_dashboard=False)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = float(any(node.get("GPU") for node in nodes)) if gpus is None else gpus
    if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
        raise ValueError(f"no machine of the cluster has {cpus:g} cores and {gpus:g} GPUs, which each part takes")
    # A process of its own for each piece: JAX keeps the memory of a GPU as long as its process lives.
    task: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_calls=1)(_prepared)
    waiting = {task.remote(imported(), work, piece): name for name, piece in pieces.items()}
    while waiting:
        for done in ray.wait([*waiting])[0]:
            name = waiting.pop(done)
            try:
                yield name, ray.get(done)
            except RayError as error:
                yield name, getattr(error, "cause", error)


def _prepared(own: Sequence[str], work: Callable[..., Any], piece: tuple[Any, ...]) -> Any:
    """Do a piece of work as the command line would: with its caches, and with what users have imported."""
    from legoswarm.fast.caches import use_caches

    use_caches()
    for name in own:
        import_own(name)
    return work(*piece)
