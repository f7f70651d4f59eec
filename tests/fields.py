"""Environments from outside for tests, in a file that processes with worlds can import; nothing here is JAX."""

import dataclasses
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from legoswarm.configs import option
from legoswarm.layout import Layout
from legoswarm.tasks.adapters.outside import ParallelEnvTask, VectorEnvTask, Whereabouts
from legoswarm.tasks.task import TASKS

HORIZON = 6


class FieldEnv:
    """Agents move by their actions and pay their distance to a flag at (1, 0) until the first one leaves |x| <= 2.

    With the API of PettingZoo, and none of its classes.
    """

    def __init__(self, count: int, mortal: bool = False):
        self.possible_agents = [f"walker_{number}" for number in range(count)]
        self.agents: list[str] = []
        self.mortal = mortal  # the last one dies at its third step
        self.random = np.random.default_rng()

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.place = self.random.uniform(-1, 1, (len(self.agents), 2))
        self.speed, self.time = np.zeros_like(self.place), 0
        return dict.fromkeys(self.agents, self.place), {name: {} for name in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.speed = np.array([actions.get(name, (0.0, 0.0)) for name in self.possible_agents], float)
        self.place = self.place + 0.1 * self.speed
        self.time += 1
        names, pay = list(self.agents), -np.linalg.norm(self.place - [1.0, 0.0], axis=1)
        ended, late = bool(abs(self.place[0, 0]) > 2), self.time >= HORIZON
        if ended or late:
            self.agents = []
        elif self.mortal and self.time == 3:
            self.agents = names[:-1]
        over = {name: ended or (name not in self.agents and not late) for name in names}
        return (
            dict.fromkeys(names, self.place), dict(zip(names, pay[: len(names)], strict=True)), over,
            dict.fromkeys(names, late), {name: {} for name in names},
        )  # fmt: skip


@TASKS.register
@dataclasses.dataclass(frozen=True)
class Field(ParallelEnvTask):
    """The adapter of a field."""

    name: ClassVar[str] = "field"

    agents: int = option(2, "number of agents")
    workers: int = option(1, "processes that the worlds live in")
    limit: str = option("box:1", "on actions")
    horizon: int = option(HORIZON, "steps of an episode")
    fault: str = option("", "what is wrong with it")

    @property
    def layout(self):
        return Layout(("agent", "flag"), (self.agents + (self.fault == "agents"), 1))

    def make(self):
        return FieldEnv(self.agents, self.fault == "mortal")

    def look(self, env: Any):
        position = np.concatenate([env.place, [[1.0, 0.0]]])
        velocity = np.concatenate([env.speed, [[0.0, 0.0]]])
        if self.fault == "shape":
            return Whereabouts(position[:1], velocity)
        if self.fault == "late" and env.time == 3:
            raise KeyError("nothing to see at step 3")
        return (position, velocity) if self.fault == "kind" else Whereabouts(position, velocity)

    def action(self, vector):
        return vector["x"] if self.fault == "action" else vector

    def measure(self, env: Any):
        return {"far": np.abs(env.place)} if self.fault == "measure" else {"far": float(np.abs(env.place).max())}


class OneField(gymnasium.Env):
    """The same as a Gymnasium environment, all agents in one action."""

    def __init__(self, count: int):
        self.inner = FieldEnv(count)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (count, 2))
        self.action_space = gymnasium.spaces.Box(-1, 1, (count, 2))

    def reset(self, *, seed=None, options=None):
        self.inner.reset(seed)
        return self.inner.place.astype(np.float32), {}

    def step(self, action):
        names = list(self.inner.agents)
        _, reward, ended, late, _ = self.inner.step(dict(zip(names, action, strict=True)))
        total = sum(reward.values()) / len(names)
        return self.inner.place.astype(np.float32), total, ended[names[0]], late[names[0]], {}


@TASKS.register
@dataclasses.dataclass(frozen=True)
class Fields(VectorEnvTask):
    """The adapter of fields that Gymnasium steps together."""

    name: ClassVar[str] = "fields"

    agents: int = option(2, "number of agents")
    workers: int = option(1, "processes that the worlds live in")
    limit: str = option("box:1", "on actions")
    horizon: int = option(HORIZON, "steps of an episode")

    @property
    def layout(self):
        return Layout(("agent", "flag"), (self.agents, 1))

    def make(self, count: int):
        return SyncVectorEnv([lambda: OneField(self.agents)] * count, autoreset_mode=AutoresetMode.DISABLED)

    def look(self, env: Any):
        inner = [one.unwrapped.inner for one in env.envs]
        flag = np.broadcast_to([[1.0, 0.0]], (len(inner), 1, 2))
        position, velocity = (np.array([getattr(each, name) for each in inner]) for name in ("place", "speed"))
        return Whereabouts(np.concatenate([position, flag], 1), np.concatenate([velocity, 0 * flag], 1))
