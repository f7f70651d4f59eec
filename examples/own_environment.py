"""An environment from outside: momaland's Crazyflies catch a target in three dimensions, through PettingZoo's API.

legoswarm train crazyflie-catch --import examples/own_environment.py --policy mappo --steps 1e6 --out runs/catch
legoswarm eval runs/catch --import examples/own_environment.py
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

import legoswarm
from legoswarm import Layout, ParallelEnvTask, Whereabouts, option


@legoswarm.TASKS.register
@dataclasses.dataclass(frozen=True)
class CrazyflieCatch(ParallelEnvTask):
    """Four drones surround a target that flees, and keep apart: the sum of momaland's two rewards."""

    name: ClassVar[str] = "crazyflie-catch"

    agents: int = option(4, "number of drones, at most 4")
    limit: str = option("box:1", "on actions")
    horizon: int = option(200, "steps of an episode")

    @property
    def layout(self) -> Layout:
        """Return the roles: drones, which act, and the target."""
        return Layout(("agent", "target"), (self.agents, 1), dimension=3)

    def make(self) -> Any:
        """Return a new environment."""
        from momaland.envs.crazyrl.catch import catch_v0

        return catch_v0.parallel_env(num_drones=self.agents)

    def look(self, env: Any) -> Whereabouts:
        """Return where drones and target are, and how far they went in the last step."""
        now = np.array([*env.agent_location.values(), env.target_location], float)
        before = np.array([*env.previous_location.values(), env.previous_target], float)
        return Whereabouts(now, now - before)


if __name__ == "__main__":
    from legoswarm.cli import main

    raise SystemExit(main())
