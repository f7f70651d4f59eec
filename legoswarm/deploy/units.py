"""Units of a lab and of a task: what a policy sees of drones in metres and seconds, and how its actions are flown.

A policy knows Tag: an arena of about [-1, 1]^2 and steps of 0.1 s. In the lab one unit is `scale` metres and one
second of the task takes `stretch` seconds, so a speed v of the task is flown with v scale / stretch. With the defaults,
1.5 m and 5, an evader's full speed of 1.3 becomes 0.39 m/s (the safety rules allow 0.5, which leaves room for
corrections), a step takes 0.5 s, and the 100 steps of an episode take 50 s.

An action of the task is a force. It is turned into a motion by the task's own integrator: a virtual drone that moves as
the task would have it, and whose velocity the real one flies, corrected by its distance to it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from legoswarm.deploy.link import Pose
from legoswarm.deploy.safety import Mask, Plane
from legoswarm.tasks.worlds.chase import EVADER_RADIUS, PURSUER_RADIUS, chase_bodies, occluded
from legoswarm.tasks.worlds.particles import DT, Bodies, advance
from legoswarm.tasks.worlds.protocol import find_protocol

ROLES = ("pursuer", "evader")


@runtime_checkable
class Pilot(Protocol):
    """A policy that steers drones: `deploy.runtime.Runtime`, `legoswarm.Swarm`, or anything that acts like them."""

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles that the policy knows."""
        ...

    def act(
        self, positions: np.ndarray, velocities: np.ndarray, roles: Sequence[str], visible: np.ndarray | None = None
    ) -> np.ndarray:
        """Return an action for each pursuer and evader."""
        ...


@runtime_checkable
class Positions(Protocol):
    """Where positions come from: the drones' own estimators, or motion capture."""

    def pose(self, name: str) -> Pose | None:
        """Return the newest pose of a drone at once, or None before the first."""
        ...


@dataclasses.dataclass(frozen=True)
class Chase:
    """Tag in a lab: who flies, where obstacles stand, and how large and how fast everything is."""

    roles: tuple[str, ...]  # of the drones; pursuers come first
    obstacles: Float[np.ndarray, "obstacles 2"]  # m
    fence: float  # m; half the side of the square that nobody leaves
    scale: float = 1.5  # m for each unit of the task
    stretch: float = 5.0  # s for each second of the task
    protocol: str = "paper"

    def __post_init__(self) -> None:
        if not (0 < self.scale < math.inf and 0 < self.stretch < math.inf and self.fence > 0):
            raise ValueError("the scale, the time stretch and the fence must be positive numbers")
        if set(self.roles) != set(ROLES) or list(self.roles) != sorted(self.roles, key=ROLES.index):
            raise ValueError("a chase needs at least one pursuer and one evader, pursuers first")

    @property
    def period(self) -> float:
        """Return the seconds of one step of the policy."""
        return DT * self.stretch

    @property
    def pursuers(self) -> int:
        """Return how many of the drones, the first ones, are pursuers."""
        return self.roles.count("pursuer")

    @property
    def bodies(self) -> Bodies:
        """Return drones and obstacles as bodies of the task, in its units."""
        evaders, radius = len(self.roles) - self.pursuers, find_protocol(self.protocol).obstacle_radius
        return chase_bodies(self.pursuers, evaders, len(self.obstacles), radius)

    def top_speed(self) -> float:
        """Return the largest speed of the task, m/s."""
        return max(self.bodies.max_speed) * self.scale / self.stretch

    def capture_distance(self, pause: float) -> float:
        """Return the lateral distance of a capture, m: touching in the task, but not closer than a pause."""
        return max((PURSUER_RADIUS + EVADER_RADIUS) * self.scale, pause)

    def act(self, policy: Pilot, position: Plane, velocity: Plane, present: Mask) -> Plane:
        """Return the policy's actions for drones at these places (m, m/s), zero for those that are not present.

        Line of sight is the task's: obstacles count with the radius of training. Obstacles are always seen.
        """
        centre = "centre" in policy.roles  # trained with the arena's centre as an entity
        seen = np.flatnonzero(present)
        places = np.concatenate([position[seen], self.obstacles, np.zeros((int(centre), 2))]) / self.scale
        velocities = np.zeros_like(places)
        velocities[: len(seen)] = velocity[seen] * self.stretch / self.scale
        roles = [self.roles[at] for at in seen] + ["obstacle"] * len(self.obstacles) + ["centre"] * centre
        visible = np.ones((len(seen), len(places)), bool)
        radius = find_protocol(self.protocol).obstacle_radius
        if len(self.obstacles):
            there = np.ones(len(self.obstacles), bool)
            visible[:, : len(seen)] = ~occluded(places[: len(seen)], self.obstacles / self.scale, there, radius)
        actions = np.zeros_like(position)
        actions[seen] = policy.act(places, velocities, roles, visible=visible)
        return actions

    def step(self, position: Plane, velocity: Plane, action: Plane, free: Mask, present: Mask) -> tuple[Plane, Plane]:
        """Take one step of the task from these places (m, m/s); who is not free stays there, and pushes others."""
        places = np.concatenate([position, self.obstacles]) / self.scale
        speeds = np.concatenate([velocity * self.stretch / self.scale, np.zeros_like(self.obstacles)])
        exists = np.concatenate([present, np.ones(len(self.obstacles), bool)])
        first = find_protocol(self.protocol).velocity_first
        places, speeds = advance(places, speeds, exists, action, self.bodies, velocity_first=first)
        drones = len(position)
        moved = np.where(free[:, None], places[:drones] * self.scale, position)
        speed = np.where(free[:, None], speeds[:drones] * self.scale / self.stretch, 0.0)
        inside = np.clip(moved, -self.fence, self.fence)
        return inside, np.where(inside == moved, speed, 0.0)


@dataclasses.dataclass(frozen=True)
class Reference:
    """Virtual drones on their way through one step of the task, from `start` to `position`; m, m/s and s."""

    begun: float
    start: Plane
    position: Plane
    velocity: Plane  # of the task, at the step's end

    @staticmethod
    def at_rest(position: Plane, time: float) -> Reference:
        """Return virtual drones that stand."""
        return Reference(time, position, position, np.zeros_like(position))

    def follow(
        self,
        chase: Chase,
        action: Plane,
        measured: tuple[Plane, Plane],
        free: Mask,
        present: Mask,
        time: float,
        *,
        anchor: float = 0.15,
    ) -> Reference:
        """Return the next step, under the policy's actions.

        Virtual drones that are farther than `anchor` from the measured positions start from the measured positions
        and velocities instead; those that are not free stand where they were measured.
        """
        position, velocity = measured
        off = np.linalg.norm(self.position - position, axis=-1) > anchor
        start = np.where((off | ~free)[:, None], position, self.position)
        speed = np.where(off[:, None], velocity, self.velocity)
        return Reference(time, start, *chase.step(start, speed, action, free, present))

    def velocities(self, chase: Chase, measured: Plane, time: float, *, correction: float = 2.0) -> Plane:
        """Return what to fly now: the virtual velocity and `correction` times the distance to the virtual drone."""
        share = min(max((time - self.begun) / chase.period, 0.0), 1.0)
        along = self.position - self.start
        return along / chase.period + correction * (self.start + share * along - measured)
