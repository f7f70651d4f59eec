"""The programs of a run; what was traced of them is kept between runs.

JAX's compilation cache is keyed by the traced program, so every start traces all of it anew: most of the time
that a start from that cache takes. Here the traced program is kept under all that decides it: the configuration, the
source of this package, versions, JAX's settings and the machine. Only for tasks and policies that come with the
package: a user's own could change without leaving a trace in the key.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jaxtyping import Array, Int

from legoswarm.configs import to_json
from legoswarm.files import write_bytes
from legoswarm.learn.train import TrainConfig, TrainState, make_train
from legoswarm.policies import Policies
from legoswarm.policies.networks.sets import own_encoder
from legoswarm.policies.policy import own_policy
from legoswarm.policies.saved.trees import from_raw, on_cpu, over_seeds, raw_leaves
from legoswarm.provenance import provenance

FOLDER = "LEGOSWARM_PROGRAMS"  # the environment variable that names the folder; without it nothing is kept
TRITON = ("__gpu$xla.gpu.triton", "triton_kernel_call", "triton_kernel_call_ffi")  # where this JAX is the only reader
UNCHECKED = [export.DisabledSafetyCheck.custom_call(name) for name in TRITON]


class Programs:
    """What a run executes, for all of its seeds at once: the first state, iterations, and measuring a state.

    Programs are made of lists of plain arrays, which all of JAX's ways of keeping them know.
    """

    def __init__(self, config: TrainConfig, seeds: Sequence[int], episodes: int = 100, warm: Policies | None = None):
        self.config, self.episodes = config, episodes
        self._program = make_train(config)
        self._seeds, self._warm = jnp.array(seeds), warm
        self.skeleton = jax.eval_shape(self._start, self._seeds, warm)  # of states; refuses what cannot be trained
        self._made: dict[str, Callable[..., Any]] = {}

    def first_state(self) -> TrainState:
        """The state that training begins with."""
        origin = (self._seeds, raw_leaves(self._warm))
        leaves = on_cpu(lambda *origin: self._made_for(self._begin, *origin)(*origin), *origin)
        return from_raw(self.skeleton, leaves)

    def compile(self, state: TrainState, *, measuring: bool = True) -> None:
        """Have the programs for such a state ready."""
        leaves = raw_leaves(state)
        also = [(self._measure, leaves, jnp.array(0))] if measuring else []
        self._make((self._advance, leaves, jnp.array(1)), *also)

    def advance(self, state: TrainState, count: int) -> tuple[TrainState, dict[str, Array]]:
        """So many iterations, and the means of their metrics."""
        args = (raw_leaves(state), jnp.array(count))
        leaves, metrics = self._made_for(self._advance, *args)(*args)
        return from_raw(self.skeleton, leaves), metrics

    def measure(self, state: TrainState, seed: int) -> dict[str, Array]:
        """Mean figures of episodes."""
        args = (raw_leaves(state), jnp.array(seed))
        return self._made_for(self._measure, *args)(*args)

    def _start(self, seeds: Int[Array, " seeds"], warm: Policies | None) -> TrainState:
        keys = jax.vmap(jax.random.key)(seeds)
        return jax.vmap(self._program.init, in_axes=(0, None if warm is None else 0))(keys, warm)

    def _begin(self, seeds: Int[Array, " seeds"], warm: list[Array]) -> list[Array]:
        return raw_leaves(self._start(seeds, from_raw(self._warm, warm)))

    def _advance(self, leaves: list[Array], count: Int[Array, ""]) -> tuple[list[Array], dict[str, Array]]:
        state = from_raw(self.skeleton, leaves)
        state, metrics = over_seeds(lambda one: self._program.advance(one, count))(state)
        return raw_leaves(state), metrics

    def _measure(self, leaves: list[Array], seed: Int[Array, ""]) -> dict[str, Array]:
        state, key = from_raw(self.skeleton, leaves), jax.random.key(seed)
        return over_seeds(lambda one: self._program.evaluate(one, key, self.episodes))(state)

    def _made_for(self, fun: Callable[..., Any], *args: Any) -> Callable[..., Any]:
        """The program of a function for such arguments."""
        if fun.__name__ not in self._made:
            self._make((fun, *args))
        return self._made[fun.__name__]

    def _make(self, *calls: tuple[Any, ...]) -> None:
        """Make programs of functions and arguments.

        They are traced here, where JAX's settings of this thread hold, and compiled in threads, side by side: XLA
        leaves Python's lock alone, and Python waits for its threads before it ends. An interrupt in the middle of a
        compilation in this thread would end the process, and crash it, while XLA goes on.
        """
        with ThreadPoolExecutor() as pool:
            making = {
                fun.__name__: pool.submit(jax.jit(self._traced(fun, *args)).lower(*args).compile)
                for fun, *args in calls
            }
            # Here, not when the pool ends: an interrupt while it joins a thread makes Python 3.11 forget the thread.
            self._made |= {name: program.result() for name, program in making.items()}

    def _traced(self, fun: Callable[..., Any], *args: Any) -> Callable[..., Any]:
        """The function, or what was traced of it for such arguments, from its file or into it."""
        path = self._file(fun.__name__, args)
        if path is None:
            return fun
        with contextlib.suppress(OSError, ImportError):
            check, data = (whole := path.read_bytes())[:32], whole[32:]
            if hashlib.sha256(data).digest() == check:  # a damaged one is made anew
                return export.deserialize(bytearray(data)).call
        try:
            [device] = jax.tree.leaves(args)[0].devices()
            where = ["cpu"] if device.platform == "cpu" else None  # the first state is made there, beside a GPU too
            traced = export.export(jax.jit(fun), platforms=where, disabled_checks=UNCHECKED)(*args)
            data = bytes(traced.serialize())
            path.parent.mkdir(parents=True, exist_ok=True)
            if _source() == SOURCE:  # or else what was traced is not what the key says
                write_bytes(path, hashlib.sha256(data).digest() + data)
        except (OSError, ImportError, ValueError, NotImplementedError):  # no room, or nothing that JAX can keep
            return fun
        return traced.call

    def _file(self, name: str, args: Any) -> Path | None:
        """Where the program is kept; None where it is not."""
        folder, task, policy = os.environ.get(FOLDER), self.config.task, self.config.policy
        own = (
            type(task).__module__.startswith("legoswarm.") and own_policy(policy.policy) and own_encoder(policy.encoder)
        )
        if not folder or not own:
            return None
        leaves = [f"{leaf.dtype}{leaf.shape}{getattr(leaf, 'weak_type', False)}" for leaf in jax.tree.leaves(args)]
        decides = [
            name,
            {"name": task.name, **to_json(task)},
            to_json(policy),
            to_json(self.config.mappo),
            self.config.steps,
            self.episodes,
            leaves,
            _surroundings(),
            {
                name: str(getattr(jax.config, name, value))
                for name, value in jax.config.values.items()
                if "cache" not in name
            },
            [os.environ.get(name) for name in ("XLA_FLAGS", "LEGOSWARM_KERNELS")],
        ]
        return Path(folder) / hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _source() -> str:
    """A hash of the package's source as it is now."""
    package = Path(__file__).resolve().parents[1]
    source = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        source.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return source.hexdigest()


SOURCE = _source()  # when it was imported: it may be changed while a process runs


@functools.cache
def _surroundings() -> list[Any]:
    """What does not change while a process runs: the package's source, versions and the machine."""
    around = provenance()
    steerable = [f"{each.name} {each.version}" for each in importlib.metadata.distributions(name="e3nn-jax")]
    device = jax.devices()[0]
    return [SOURCE, around["versions"], steerable, around["hardware"], device.client.platform_version]
