"""Spread in the mpe2 package itself, stepped by its own code."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from legoswarm.configs import check_fields, option
from legoswarm.layout import Layout
from legoswarm.tasks.adapters.outside import ParallelEnvTask, Whereabouts
from legoswarm.tasks.spread import AGENT_RADIUS, LANDMARK_RADIUS, Spread
from legoswarm.tasks.task import TASKS, State


@TASKS.register
@dataclasses.dataclass(frozen=True)
class Mpe2Spread(ParallelEnvTask):
    """Spread as mpe2 has it: rewards are mpe2's own, figures are those of Spread, computed from its positions.

    Policies see positions and velocities of all entities, read from `world` (mpe2's observation vector lacks the
    others' velocities). An action u becomes mpe2's five numbers: u_x = a2 - a1, u_y = a4 - a3.
    """

    name: ClassVar[str] = "mpe2-spread"
    primary: ClassVar[str] = "return_2c"

    agents: int = option(3, "number of agents, and of landmarks", low=1)
    limit: str = option("box:1", "none, disc:SIZE or box:SIZE; mpe2 itself clips actions to box:1")
    horizon: int = option(25, "steps of an episode", low=1, high=2**31 - 1)

    def __post_init__(self) -> None:
        check_fields(self)
        _ = self.action_limit

    @property
    def layout(self) -> Layout:
        """Return the roles: agents, then landmarks."""
        return Layout(("agent", "landmark"), (self.agents, self.agents))

    @property
    def radii(self) -> tuple[float, ...]:
        """Return each entity's radius."""
        return (AGENT_RADIUS,) * self.agents + (LANDMARK_RADIUS,) * self.agents

    def make(self) -> Any:
        """Return mpe2's environment, without what costs over half of its time and nobody needs here.

        These are wrappers that check its caller, and observations: `look` reads the world instead.
        """
        try:
            from mpe2 import simple_spread_v3
            from pettingzoo.utils.conversions import aec_to_parallel
        except ImportError:
            raise ValueError(f"{self.name} needs the mpe2 package: pip install 'legoswarm[mpe2]'") from None
        env: Any = simple_spread_v3.raw_env(N=self.agents, max_cycles=self.horizon, continuous_actions=True)
        env.observe = lambda agent: None
        return aec_to_parallel(env)

    def look(self, env: Any) -> Whereabouts:
        """Return where agents and landmarks are."""
        entities = env.unwrapped.world.agents + env.unwrapped.world.landmarks
        return Whereabouts(
            np.array([entity.state.p_pos for entity in entities]), np.array([entity.state.p_vel for entity in entities])
        )

    def action(self, vector: Float[np.ndarray, " dim"]) -> np.ndarray:
        """Return mpe2's action of a force direction in the box of 1."""
        x, y = vector.tolist()  # numbers of Python's own are ten times as fast here as arrays of two
        return np.array([0.0, *(min(max(part, 0.0), 1.0) for part in (-x, x, -y, y))], np.float32)

    def measure(self, env: Any) -> dict[str, Any]:
        """Return D_t, C_t and the number of agents, as Spread does."""
        position, velocity, *_ = self.look(env)
        return self._spread.measure(State(position, velocity, np.ones(len(position), bool), np.array(0)))

    def figures(self, measures: dict[str, Any]) -> dict[str, Any]:
        """Return Spread's figures, and the mean over agents of mpe2's own rewards."""
        return {**self._spread.figures(measures), "return": measures["return"].sum()}

    @property
    def _spread(self) -> Spread:
        return Spread(agents=self.agents, protocol="mpe2", horizon=self.horizon)
