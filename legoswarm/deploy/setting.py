"""The paper's experiment in a lab: two pursuers, an evader, two obstacles, and where everything starts."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from legoswarm.configs import option
from legoswarm.deploy.plan import Plan
from legoswarm.deploy.safety import Obstacles, Plane, Rules
from legoswarm.deploy.units import Chase


@dataclasses.dataclass(frozen=True)
class Setting:
    """The roles, sizes, rules and plan that all flights of one experiment share."""

    roles: tuple[str, ...] = ("pursuer", "pursuer", "evader")
    obstacle_radius: float = option(0.05, "physical radius of obstacles, m; the paper's, less than in training")
    scale: float = option(1.5, "metres for each unit of the task")
    stretch: float = option(5.0, "seconds for each second of the task")
    protocol: str = "paper"
    rules: Rules = dataclasses.field(default_factory=Rules)
    plan: Plan = dataclasses.field(default_factory=Plan)

    def chase(self, obstacles: Float[np.ndarray, "obstacles 2"]) -> Chase:
        """Return the chase among obstacles at these places, m."""
        return Chase(self.roles, obstacles, self.rules.soft_fence, self.scale, self.stretch, self.protocol)

    def physical(self, obstacles: Float[np.ndarray, "obstacles 2"]) -> Obstacles:
        """Return the obstacles with the radius that they have in the lab."""
        return Obstacles(obstacles, np.full(len(obstacles), self.obstacle_radius))


def draw_obstacles(setting: Setting, count: int, rng: np.random.Generator) -> Float[np.ndarray, "obstacles 2"]:
    """Draw places of obstacles as the task does, m."""
    return setting.scale * rng.uniform(-0.8, 0.8, (count, 2))


def draw_start(setting: Setting, obstacles: Float[np.ndarray, "obstacles 2"], rng: np.random.Generator) -> Plane:
    """Draw places of drones as the task does, m, but with the distances that a mission asks for."""
    rules, radii = setting.rules, setting.scale * np.array(setting.chase(obstacles).bodies.radius)
    count = len(setting.roles)
    touch = radii[:count, None] + radii[None, count:]  # in the task
    clear = np.maximum(touch, setting.obstacle_radius + rules.clearance) + 0.05
    for _ in range(10_000):
        drones = setting.scale * rng.uniform(-1, 1, (count, 2))
        gaps = np.linalg.norm(drones[:, None] - drones[None], axis=-1) + np.eye(count) * 2 * rules.separation
        away = np.linalg.norm(drones[:, None] - obstacles[None], axis=-1)
        inside = np.abs(drones) < rules.soft_fence
        if (gaps > rules.separation + 0.05).all() and (away > clear).all() and inside.all():
            return drones
    raise ValueError("there is no room for so many drones and obstacles")
