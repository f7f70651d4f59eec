"""The compiled programs of a run, for all of its seeds at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from legoswarm.configs import named, traced_fields
from legoswarm.fast.backend import on_cpu, over_seeds
from legoswarm.fast.kept import kept
from legoswarm.fast.sharding import by_seeds, by_worlds, device_grid, everywhere, in_rows, placed
from legoswarm.learn.algorithms.algorithm import ALGORITHMS
from legoswarm.learn.train import TrainConfig, TrainState, make_train, settings_of, with_settings
from legoswarm.policies.networks.roles import Policies
from legoswarm.policies.policy import POLICIES
from legoswarm.policies.saved.trees import from_raw, raw_leaves
from legoswarm.tasks.task import TASKS


class Programs:
    """What a run executes, for all of its seeds at once: the first state, iterations, and measuring a state.

    Programs are made of lists of plain arrays, which all of JAX's ways of keeping them know.
    """

    def __init__(
        self,
        config: TrainConfig,
        seeds: Sequence[int],
        episodes: int = 100,
        warm: Policies | None = None,
        devices: int = 1,
    ):
        self.config, self.episodes = config, episodes
        self._grid = device_grid(devices, len(seeds), config.algorithm.envs)
        self._program = make_train(config)
        self._seeds, self._warm = jnp.array(seeds), warm
        self.skeleton = jax.eval_shape(self._start, self._seeds, warm)  # of states; refuses what cannot be trained
        self._made: dict[str, Callable[..., Any]] = {}
        self._places: list[Any] = []  # of a state's arrays
        self._results: dict[str, Any] = {}  # places of what programs return; by default XLA decides
        if self._grid is not None:
            seeds_place, worlds_place, figures = (place(self._grid) for place in (by_seeds, by_worlds, everywhere))
            places = jax.tree.map(lambda _: seeds_place, self.skeleton)
            worlds = jax.tree.map(lambda _: worlds_place, self.skeleton.worlds)
            self._places = jax.tree.leaves(eqx.tree_at(lambda state: state.worlds, places, worlds))
            self._results = {"_advance": (self._places, figures), "_measure": figures}

    def first_state(self) -> TrainState:
        """Return the state that training begins with."""
        origin = (self._seeds, raw_leaves(self._warm))
        leaves = on_cpu(lambda *origin: self.made_for(self._begin, *origin)(*origin), *origin)
        return self.with_settings(from_raw(self.skeleton, leaves))

    def with_settings(self, state: TrainState) -> TrainState:
        """Return a state with this run's own settings, on its devices: programs and checkpoints may be of others."""
        count = len(self._seeds)
        settings = {name: jnp.tile(value[None], count) for name, value in settings_of(self.config).items()}
        state = with_settings(state, settings)
        if self._grid is None:
            return state
        return from_raw(self.skeleton, list(map(placed, raw_leaves(state), self._places)))

    def compile(self, state: TrainState, *, measuring: bool = True) -> None:
        """Have the programs for such a state ready."""
        leaves = raw_leaves(state)
        also = [(self._measure, leaves, np.int32(0))] if measuring else []
        self.make((self._advance, leaves, np.int32(1)), *also)

    def advance(self, state: TrainState, count: int) -> tuple[TrainState, dict[str, Array]]:
        """Run so many iterations; return the state and the means of their metrics."""
        args = (raw_leaves(state), np.int32(count))
        leaves, metrics = self.made_for(self._advance, *args)(*args)
        return from_raw(self.skeleton, leaves), metrics

    def measure(self, state: TrainState, seed: int) -> dict[str, Array]:
        """Return the mean figures of episodes."""
        args = (raw_leaves(state), np.int32(seed))
        return self.made_for(self._measure, *args)(*args)

    def close(self) -> None:
        """Leave nothing behind: there is nothing but programs."""

    def _start(self, seeds: Int[Array, " seeds"], warm: Policies | None) -> TrainState:
        keys = jax.vmap(jax.random.key)(seeds)
        return jax.vmap(self._program.init, in_axes=(0, None if warm is None else 0))(keys, warm)

    def _begin(self, seeds: Int[Array, " seeds"], warm: list[Array]) -> list[Array]:
        return raw_leaves(self._start(seeds, from_raw(self._warm, warm)))

    def _advance(self, leaves: list[Array], count: Int[Array, ""]) -> tuple[list[Array], dict[str, Array]]:
        def advance(leaves: list[Array], count: Int[Array, ""]) -> tuple[list[Array], dict[str, Array]]:
            run = over_seeds(lambda one: self._program.advance(one, count))
            state, metrics = run(from_raw(self.skeleton, leaves))
            return raw_leaves(state), metrics

        return in_rows(advance, self._grid)(leaves, count)

    def _measure(self, leaves: list[Array], seed: Int[Array, ""]) -> dict[str, Array]:
        def measure(leaves: list[Array], seed: Int[Array, ""]) -> dict[str, Array]:
            run = over_seeds(lambda one: self._program.evaluate(one, jax.random.key(seed), self.episodes))
            return run(from_raw(self.skeleton, leaves))

        return in_rows(measure, self._grid)(leaves, seed)

    def made_for(self, fun: Callable[..., Any], *args: Any) -> Callable[..., Any]:
        """Return the program of a function for such arguments."""
        if fun.__name__ not in self._made:
            self.make((fun, *args))
        return self._made[fun.__name__]

    def make(self, *calls: tuple[Any, ...]) -> None:
        """Make programs of functions and arguments.

        They are traced here, where JAX's settings of this thread hold, and compiled in threads, side by side: XLA
        leaves Python's lock alone, and Python waits for its threads before it ends. An interrupt in the middle of a
        compilation in this thread would end the process, and crash it, while XLA goes on.
        """
        decides = self._decides()
        with ThreadPoolExecutor() as pool:
            making = {}
            for fun, *args in calls:
                program = jax.jit(kept(fun, args, decides), out_shardings=self._results.get(fun.__name__))
                making[fun.__name__] = pool.submit(program.lower(*args).compile)
            # Here, not when the pool ends: an interrupt while it joins a thread makes Python 3.11 forget the thread.
            self._made |= {name: program.result() for name, program in making.items()}

    def _decides(self) -> Any:
        """Return what decides the programs; None if a user's own class takes part, which may change unseen.

        Also None on several devices: what is kept is for one of them.
        """
        if self._grid is not None:
            return None
        config = self.config
        kinds = ((TASKS, config.task), (POLICIES, config.policy), (ALGORITHMS, config.algorithm))
        own = all(registry.own(part.name) for registry, part in kinds)
        encoder = getattr(config.policy, "encoder", None)
        if encoder is not None and own:
            from legoswarm.policies.encoders.encoder import ENCODERS

            own = ENCODERS.own(encoder)
        traced = dict.fromkeys(traced_fields(config.algorithm))  # arguments of the program
        return [*({**named(part), **traced} for _, part in kinds), config.runaway, self.episodes] if own else None
