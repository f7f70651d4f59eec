"""The compiled programs of a run, for all of its seeds at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from legoswarm.configs import named
from legoswarm.fast.backend import on_cpu, over_seeds
from legoswarm.fast.kept import kept
from legoswarm.learn.algorithms.algorithm import ALGORITHMS
from legoswarm.learn.train import TrainConfig, TrainState, make_train
from legoswarm.policies.networks.roles import Policies
from legoswarm.policies.policy import POLICIES
from legoswarm.policies.saved.trees import from_raw, raw_leaves
from legoswarm.tasks.task import TASKS


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
        """Return the state that training begins with."""
        origin = (self._seeds, raw_leaves(self._warm))
        leaves = on_cpu(lambda *origin: self._made_for(self._begin, *origin)(*origin), *origin)
        return from_raw(self.skeleton, leaves)

    def compile(self, state: TrainState, *, measuring: bool = True) -> None:
        """Have the programs for such a state ready."""
        leaves = raw_leaves(state)
        also = [(self._measure, leaves, jnp.array(0))] if measuring else []
        self._make((self._advance, leaves, jnp.array(1)), *also)

    def advance(self, state: TrainState, count: int) -> tuple[TrainState, dict[str, Array]]:
        """Run so many iterations; return the state and the means of their metrics."""
        args = (raw_leaves(state), jnp.array(count))
        leaves, metrics = self._made_for(self._advance, *args)(*args)
        return from_raw(self.skeleton, leaves), metrics

    def measure(self, state: TrainState, seed: int) -> dict[str, Array]:
        """Return the mean figures of episodes."""
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
        """Return the program of a function for such arguments."""
        if fun.__name__ not in self._made:
            self._make((fun, *args))
        return self._made[fun.__name__]

    def _make(self, *calls: tuple[Any, ...]) -> None:
        """Make programs of functions and arguments.

        They are traced here, where JAX's settings of this thread hold, and compiled in threads, side by side: XLA
        leaves Python's lock alone, and Python waits for its threads before it ends. An interrupt in the middle of a
        compilation in this thread would end the process, and crash it, while XLA goes on.
        """
        decides = self._decides()
        with ThreadPoolExecutor() as pool:
            making = {
                fun.__name__: pool.submit(jax.jit(kept(fun, args, decides)).lower(*args).compile)
                for fun, *args in calls
            }
            # Here, not when the pool ends: an interrupt while it joins a thread makes Python 3.11 forget the thread.
            self._made |= {name: program.result() for name, program in making.items()}

    def _decides(self) -> Any:
        """Return what decides the programs; None if a user's own class takes part, which may change unseen."""
        config = self.config
        kinds = ((TASKS, config.task), (POLICIES, config.policy), (ALGORITHMS, config.algorithm))
        own = all(registry.own(part.name) for registry, part in kinds)
        encoder = getattr(config.policy, "encoder", None)
        if encoder is not None and own:
            from legoswarm.policies.encoders.encoder import ENCODERS

            own = ENCODERS.own(encoder)
        return [*(named(part) for _, part in kinds), config.steps, config.runaway, self.episodes] if own else None
