"""The two protocols of the particle worlds: what the paper ran, and what Farama's mpe2 does."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxtyping import Float

from legoswarm.arrays import AnyArray
from legoswarm.limits import Limit
from legoswarm.tasks.worlds.particles import Bodies, advance


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Everything the two differ in, but for Spread's reward."""

    velocity_first: bool  # the order of the integrator
    limit: str  # on actions
    landmark_reach: float  # landmarks and obstacles are drawn from [-reach, reach]^2
    obstacle_reach: float
    obstacle_radius: float

    def action_limit(self, limit: str | None) -> Limit:
        """Return the limit that a task names, or the protocol's own."""
        return Limit.parse(self.limit if limit is None else limit)

    def step(self, state: Any, action: Float[AnyArray, "agents dim"], bodies: Bodies) -> Any:
        """Return the task state after one step of particle physics."""
        position, velocity = advance(
            state.position, state.velocity, state.exists, action, bodies, velocity_first=self.velocity_first
        )
        return dataclasses.replace(state, position=position, velocity=velocity, time=state.time + 1)


PROTOCOLS = {
    "paper": Protocol(True, "disc:8", landmark_reach=0.8, obstacle_reach=0.8, obstacle_radius=0.1),
    "mpe2": Protocol(False, "box:1", landmark_reach=1.0, obstacle_reach=0.9, obstacle_radius=0.2),
}


def find_protocol(name: str) -> Protocol:
    """Return a protocol by its name."""
    if name not in PROTOCOLS:
        raise ValueError(f"the protocol must be {' or '.join(PROTOCOLS)}, not {name!r}")
    return PROTOCOLS[name]
