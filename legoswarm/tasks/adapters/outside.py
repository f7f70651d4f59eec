"""Tasks whose worlds live outside JAX: a PettingZoo `ParallelEnv` or a Gymnasium vector environment, and an adapter.

The adapter says where the entities are and what an action means; policies, algorithms, checkpoints and evaluation are
those of every other task. docs/own-environment.md has one of ten lines.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from legoswarm.configs import option
from legoswarm.limits import Limit
from legoswarm.scene import Layout, Scene
from legoswarm.tasks.task import State


class Whereabouts(NamedTuple):
    """Where the entities of a world are, in the layout's order; vector environments have an axis of worlds in front."""

    position: Float[np.ndarray, "*worlds entities dim"]
    velocity: Float[np.ndarray, "*worlds entities dim"]
    exists: Bool[np.ndarray, "*worlds entities"] | None = None  # by default all that are there, and living agents
    visible: Bool[np.ndarray, "*worlds agents entities"] | None = None  # by default everybody sees everything


@dataclasses.dataclass(frozen=True)
class OutsideTask:
    """What tasks with worlds outside JAX have in common; `ParallelEnvTask` and `VectorEnvTask` say what to write."""

    name: ClassVar[str]
    primary: ClassVar[str] = "return"  # the mean over agents of their summed rewards

    workers: int = option(2, "processes that the worlds live in", low=1, high=1024)
    overlap: bool = option(True, "learn from a rollout while the next one is collected, one update behind")
    limit: str = option("none", "on actions: none, disc:SIZE or box:SIZE; only a box breaks equivariance")
    horizon: int = option(100, "steps of an episode, unless the environment ends it before", low=1, high=2**31 - 1)

    @property
    def layout(self) -> Layout:
        """Return roles, slots and the dimension of space; the agents of the environment come first, in its order."""
        raise NotImplementedError

    @property
    def action_limit(self) -> Limit:
        """Return the limit on actions before the environment sees them."""
        return Limit.parse(self.limit)

    @property
    def radii(self) -> tuple[float, ...]:
        """Return each entity's radius, for drawing."""
        return (0.05,) * self.layout.entities

    def look(self, env: Any) -> Whereabouts:
        """Return where the entities of an environment are."""
        raise NotImplementedError

    def measure(self, env: Any) -> dict[str, Any]:
        """Return numbers to record at every step beside the mean reward, which is `return`."""
        return {}

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """Return an episode's figures from what was recorded at each of its steps."""
        return {name: values.sum() for name, values in measures.items()}

    # What the rest of the package asks of a task: shapes, but no worlds.

    def reset(self, key: PRNGKeyArray) -> State:
        """Return a state of zeros: it has the shapes of a world's."""
        del key
        zeros = jnp.zeros((self.layout.entities, self.layout.dimension))
        return State(zeros, zeros, jnp.ones(len(zeros), bool), jnp.zeros((), jnp.int32))

    def scene(self, state: State) -> Scene:
        """Return a state as a scene in which everybody sees everything."""
        visible = jnp.ones((self.layout.agents, self.layout.entities), bool)
        return Scene(state.position, state.velocity, state.exists, visible, self.layout)

    def step(self, state: State, action: Any) -> State:
        """Refuse: the worlds live outside."""
        raise ValueError(f"the worlds of {self.name} live outside JAX, in processes of their own")

    def reward(self, state: State) -> Any:
        """Refuse: the environment gives rewards."""
        return self.step(state, None)

    def terminated(self, state: State) -> Any:
        """Refuse: the environment ends episodes."""
        return self.step(state, None)


class ParallelEnvTask(OutsideTask):
    """A task made of a PettingZoo `ParallelEnv` whose agents take vectors: write `layout`, `make` and `look`."""

    def make(self) -> Any:
        """Return a new environment."""
        raise NotImplementedError

    def action(self, vector: Float[np.ndarray, " dim"]) -> Any:
        """Return what the environment takes for an agent's vector in the world frame; by default the vector itself."""
        return vector

    def worlds(self, count: int) -> ParallelWorlds:
        """Make so many worlds."""
        return ParallelWorlds(self, count)


class VectorEnvTask(OutsideTask):
    """A task made of a Gymnasium `VectorEnv`, whose worlds are stepped together: write `layout`, `make` and `look`.

    The environment must leave ended worlds to its caller: `autoreset_mode=AutoresetMode.DISABLED`.
    """

    def make(self, count: int) -> Any:
        """Return a new environment of so many worlds."""
        raise NotImplementedError

    def action(self, vectors: Float[np.ndarray, "worlds agents dim"]) -> Any:
        """Return what the environment takes for vectors in the world frame; by default the vectors themselves."""
        return vectors

    def worlds(self, count: int) -> VectorWorlds:
        """Make so many worlds."""
        return VectorWorlds(self, count)


Outcome = tuple[Any, Any, Any]  # rewards (worlds, agents), terminated (worlds,), truncated (worlds,)


class ParallelWorlds:
    """Worlds that are environments of their own."""

    def __init__(self, task: ParallelEnvTask, count: int):
        self.task, self.envs = task, [task.make() for _ in range(count)]
        self.rows = {name: row for row, name in enumerate(self.envs[0].possible_agents)}

    def reset(self, which: np.ndarray, seeds: np.ndarray | None = None) -> None:
        """Start an episode in some worlds; without seeds each goes on with its own random numbers."""
        for at in np.flatnonzero(which):
            self.envs[at].reset(seed=None if seeds is None else int(seeds[at]))

    def step(self, actions: np.ndarray, which: np.ndarray) -> Outcome:
        """Take a step in some worlds."""
        rewards, over = np.zeros(actions.shape[:2], np.float32), np.zeros((2, len(which)), bool)
        for at in np.flatnonzero(which):
            env = self.envs[at]
            moves = {name: self.task.action(actions[at, self.rows[name]]) for name in env.agents}
            _, reward, terminated, truncated, _ = env.step(moves)
            for name, value in reward.items():  # a vector of several objectives is one reward
                rewards[at, self.rows[name]] = value if isinstance(value, float) else np.sum(value)
            ended = not env.agents
            over[0, at] = ended and any(terminated.values())
            over[1, at] = ended or any(truncated.values())
        return rewards, over[0], over[1] & ~over[0]

    def look(self, which: np.ndarray) -> list[tuple[int, Whereabouts]]:
        """Return where everything is in some worlds."""
        return [(int(at), self._seen(self.envs[at])) for at in np.flatnonzero(which)]

    def measure(self, which: np.ndarray) -> list[tuple[int, dict[str, Any]]]:
        """Return what the task measures in some worlds."""
        return [(int(at), self.task.measure(self.envs[at])) for at in np.flatnonzero(which)]

    def _seen(self, env: Any) -> Whereabouts:
        seen = self.task.look(env)
        if not isinstance(seen, Whereabouts):
            raise TypeError(f"it must give Whereabouts, not {type(seen).__name__}")
        if seen.exists is None and env.agents and len(env.agents) < len(env.possible_agents):
            exists = np.ones(self.task.layout.entities, bool)
            exists[: len(env.possible_agents)] = [name in env.agents for name in env.possible_agents]
            seen = seen._replace(exists=exists)
        return seen


class VectorWorlds:
    """Worlds that one environment steps together."""

    def __init__(self, task: VectorEnvTask, count: int):
        self.task, self.count, self.env = task, count, task.make(count)

    def reset(self, which: np.ndarray, seeds: np.ndarray | None = None) -> None:
        """Start an episode in some worlds."""
        given = None if seeds is None else [int(seed) for seed in seeds]
        if which.all():
            self.env.reset(seed=given)
        elif which.any():
            self.env.reset(seed=given, options={"reset_mask": np.array(which)})

    def step(self, actions: np.ndarray, which: np.ndarray) -> Outcome:
        """Take a step in all worlds; those where it does not matter begin anew: none may be stepped after its end."""
        self.reset(~which)
        _, reward, terminated, truncated, _ = self.env.step(self.task.action(actions))
        reward = np.asarray(reward, np.float32).reshape(self.count, -1)
        return np.broadcast_to(reward, actions.shape[:2]), np.array(terminated, bool), np.array(truncated, bool)

    def look(self, which: np.ndarray) -> list[tuple[int, Whereabouts]]:
        """Return where everything is in some worlds."""
        seen = self.task.look(self.env)
        rows = [(int(at), [None if part is None else part[at] for part in seen]) for at in np.flatnonzero(which)]
        return [(at, Whereabouts._make(parts)) for at, parts in rows]

    def measure(self, which: np.ndarray) -> list[tuple[int, dict[str, Any]]]:
        """Return what the task measures in some worlds."""
        values = self.task.measure(self.env)
        return [(int(at), {name: value[at] for name, value in values.items()}) for at in np.flatnonzero(which)]
