"""Any task as a PettingZoo `ParallelEnv`, for algorithms that live outside this package."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from legoswarm.tasks.task import State, Task

try:
    from gymnasium.spaces import Box, Space
    from gymnasium.utils import seeding
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise ImportError(
        f"the PettingZoo wrapper needs pettingzoo ({error}); install it with: pip install legoswarm[mpe2]"
    ) from None


class ParallelTask(ParallelEnv[str, np.ndarray, np.ndarray]):
    """A task with PettingZoo's parallel API; agents are named by role: `agent_0`, `pursuer_0`, `evader_1`.

    An observation is the agent's velocity and position, then for every other entity in the layout's order
    its relative position, its velocity and 1 if it is visible (all zeros if it is hidden or absent). An
    action is a force direction; the task limits it. With mixed team sizes, `agents` are the episode's.
    """

    def __init__(self, task: Task) -> None:
        """Wrap `task`; call `reset` before the first step."""
        layout = task.layout
        pairs = zip(layout.controlled_roles, layout.slots, strict=False)
        size = task.action_limit.size
        self.task = task
        self.metadata = {"name": f"legoswarm_{task.name}", "render_modes": [], "is_parallelizable": True}
        self.render_mode = None
        self.possible_agents = [f"{role}_{number}" for role, slots in pairs for number in range(slots)]
        self.agents: list[str] = []
        self.action_spaces = {name: Box(-size, size, (layout.dimension,), np.float32) for name in self.possible_agents}
        numbers = 2 * layout.dimension * layout.entities + layout.entities - 1
        self.observation_spaces = {name: Box(-np.inf, np.inf, (numbers,), np.float32) for name in self.possible_agents}
        self._random: np.random.Generator | None = None
        self._state: State | None = None

    def observation_space(self, agent: str) -> Space[np.ndarray]:
        """Return the space of an agent's observations, the same object at every call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[np.ndarray]:
        """Return the square around the task's limit, the same object at every call."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Start an episode. A seed fixes this episode and all that follow; `options` are not used."""
        if seed is not None or self._random is None:
            self._random, _ = seeding.np_random(seed)
        key = jax.random.key(self._random.integers(2**32, dtype=np.uint32))
        state, observations = _reset(self.task, key)
        self._state = state
        present = np.asarray(state.exists)[: len(self.possible_agents)]
        self.agents = [name for name, exists in zip(self.possible_agents, present, strict=True) if exists]
        return self._by_name(np.asarray(observations)), {name: {} for name in self.agents}

    def step(
        self, actions: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Move all agents. Only the horizon truncates; only the task terminates; either ends the episode."""
        if self._state is None:
            raise RuntimeError("call reset before the first step")
        if not self.agents:
            return {}, {}, {}, {}, {}
        missing = [name for name in self.agents if name not in actions]
        if missing:
            raise ValueError(f"actions are missing for {', '.join(missing)}")
        action = np.zeros((len(self.possible_agents), self.task.layout.dimension), np.float32)
        for row, name in enumerate(self.possible_agents):
            if name in self.agents:
                action[row] = actions[name]
        state, observations, reward, terminated = _step(self.task, self._state, action)
        self._state, live, over = state, self.agents, bool(terminated)
        truncated = int(state.time) >= self.task.horizon
        outcome = (
            self._by_name(np.asarray(observations)),
            {name: float(value) for name, value in self._by_name(np.asarray(reward)).items()},
            dict.fromkeys(live, over),
            dict.fromkeys(live, truncated),
            {name: {} for name in live},
        )
        if over or truncated:
            self.agents = []
        return outcome

    def _by_name(self, rows: np.ndarray) -> dict[str, Any]:
        return {name: row for name, row in zip(self.possible_agents, rows, strict=True) if name in self.agents}


@functools.partial(jax.jit, static_argnums=0)
def _reset(task: Task, key: PRNGKeyArray) -> tuple[State, Float[Array, "agents features"]]:
    state = task.reset(key)
    return state, _observations(task, state)


@functools.partial(jax.jit, static_argnums=0)
def _step(
    task: Task, state: State, action: Float[Array, "agents dim"]
) -> tuple[State, Float[Array, "agents features"], Float[Array, " agents"], Bool[Array, ""]]:
    state = task.step(state, action)
    return state, _observations(task, state), task.reward(state), task.terminated(state)


def _observations(task: Task, state: State) -> Float[Array, "agents features"]:
    """Return each agent's velocity and position, then every other entity's features; see `ParallelTask`."""
    scene = task.scene(state)
    agents, entities = scene.layout.agents, scene.layout.entities
    position, velocity = scene.position[:agents], scene.velocity[:agents]
    seen = scene.seen()[..., None]
    relative = scene.position[None] - position[:, None]
    moving = jnp.broadcast_to(scene.velocity[None], relative.shape)
    features = jnp.concatenate([relative, moving, jnp.ones_like(relative[..., :1])], -1)
    features = jnp.where(seen, features, 0.0)
    others = np.array([[j for j in range(entities) if j != i] for i in range(agents)], int).reshape(agents, -1)
    features = features[np.arange(agents)[:, None], others]
    return jnp.concatenate([velocity, position, features.reshape(agents, -1)], -1)
