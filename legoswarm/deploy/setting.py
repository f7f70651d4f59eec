"""A task in a lab, and how a policy flies there: Tag as in the paper's experiment, or Spread over landmarks.

A policy knows Tag: an arena of about [-1, 1]^2 and steps of 0.1 s. In the lab one unit is `scale` metres and one
second of the task takes `stretch` seconds, so a speed v of the task is flown with v scale / stretch. With the defaults,
1.5 m and 5, an evader's full speed of 1.3 becomes 0.39 m/s (the safety rules allow 0.5, which leaves room for
corrections), a step takes 0.5 s, and the 100 steps of an episode take 50 s.

An action of the task is a force. It is turned into a motion by the task's own integrator: a virtual drone that moves as
the task would have it, and whose velocity the real one flies, corrected by its distance to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from legoswarm.configs import check_fields, option
from legoswarm.deploy.plan import Plan
from legoswarm.deploy.safety import Mask, Obstacles, Plane, Rules
from legoswarm.deploy.trust import Limits
from legoswarm.files import FileError, read_text
from legoswarm.tasks.worlds.chase import EVADER_RADIUS, PURSUER_RADIUS, chase_bodies, occluded
from legoswarm.tasks.worlds.particles import DT, Bodies, advance
from legoswarm.tasks.worlds.protocol import find_protocol

ROLES = ("pursuer", "evader")
AGENT_RADIUS, AGENT_ACCELERATION = 0.15, 5.0  # of Spread
ANCHOR, CORRECTION = 0.15, 2.0  # m, 1/s: how far drones may be from virtual ones, and how fast they come back


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


@dataclasses.dataclass(frozen=True)
class Setting:
    """A task in a lab: who flies, where things stand, how large and how fast everything is, and by which rules.

    Drones are pursuers and evaders (Tag), or agents that cover `landmarks` (Spread).
    """

    roles: tuple[str, ...] = ("pursuer", "pursuer", "evader")  # of the drones; pursuers come first
    obstacle_radius: float = option(0.05, "physical radius of obstacles, m; the paper's, less than in training")
    scale: float = option(1.5, "metres for each unit of the task", above=0)
    stretch: float = option(5.0, "seconds for each second of the task", above=0)
    protocol: str = "paper"
    rules: Rules = dataclasses.field(default_factory=Rules)
    plan: Plan = dataclasses.field(default_factory=Plan)
    limits: Limits = dataclasses.field(default_factory=Limits)
    centres: Float[np.ndarray, "obstacles 2"] = dataclasses.field(default_factory=lambda: np.zeros((0, 2)))  # m
    landmarks: Float[np.ndarray, "landmarks 2"] = dataclasses.field(default_factory=lambda: np.zeros((0, 2)))  # m

    def __post_init__(self) -> None:
        check_fields(self)
        if self.spreads:
            if not len(self.landmarks) or not (np.abs(self.landmarks) <= self.rules.soft_fence).all():
                raise ValueError(f"Spread needs landmarks within {self.rules.soft_fence:g} m of the room's centre")
        elif set(self.roles) != set(ROLES) or list(self.roles) != sorted(self.roles, key=ROLES.index):
            raise ValueError("a chase needs at least one pursuer and one evader, pursuers first")

    @property
    def spreads(self) -> bool:
        """Return whether the task is Spread."""
        return set(self.roles) == {"agent"}

    def among(self, centres: Float[np.ndarray, "obstacles 2"]) -> Setting:
        """Return the same setting with obstacles at these places, m."""
        return dataclasses.replace(self, centres=centres)

    @property
    def obstacles(self) -> Obstacles:
        """Return the obstacles with the radius that they have in the lab."""
        return Obstacles(self.centres, np.full(len(self.centres), self.obstacle_radius))

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
        if self.spreads:  # no faster than the rules allow: drones would only lag behind
            count, fastest = len(self.roles), self.rules.speed * self.stretch / self.scale
            return Bodies((AGENT_RADIUS,) * count, (AGENT_ACCELERATION,) * count, (fastest,) * count, solid=count)
        evaders, radius = len(self.roles) - self.pursuers, find_protocol(self.protocol).obstacle_radius
        return chase_bodies(self.pursuers, evaders, len(self.centres), radius)

    @property
    def top_speed(self) -> float:
        """Return the largest speed of the task, m/s."""
        return max(self.bodies.max_speed) * self.scale / self.stretch

    @property
    def capture_distance(self) -> float:
        """Return the lateral distance of a capture, m: touching in the task, but not closer than a pause.

        Agents of Spread are that close to a landmark that they cover.
        """
        return max((PURSUER_RADIUS + EVADER_RADIUS) * self.scale, self.rules.pause)

    def act(self, policy: Pilot, position: Plane, velocity: Plane, present: Mask) -> Plane:
        """Return the policy's actions for drones at these places (m, m/s), zero for those that are not present.

        Line of sight is the task's: obstacles count with the radius of training. Obstacles are always seen.
        """
        centre = "centre" in policy.roles  # trained with the arena's centre as an entity
        seen, others = np.flatnonzero(present), self.landmarks if self.spreads else self.centres
        places = np.concatenate([position[seen], others, np.zeros((int(centre), 2))]) / self.scale
        velocities = np.zeros_like(places)
        velocities[: len(seen)] = velocity[seen] * self.stretch / self.scale
        kind = "landmark" if self.spreads else "obstacle"
        roles = [self.roles[at] for at in seen] + [kind] * len(others) + ["centre"] * centre
        visible = np.ones((len(seen), len(places)), bool)
        radius = find_protocol(self.protocol).obstacle_radius
        if len(self.centres) and not self.spreads:
            there = np.ones(len(self.centres), bool)
            visible[:, : len(seen)] = ~occluded(places[: len(seen)], self.centres / self.scale, there, radius)
        actions = np.zeros_like(position)
        actions[seen] = policy.act(places, velocities, roles, visible=visible)
        return actions

    def step(self, position: Plane, velocity: Plane, action: Plane, free: Mask, present: Mask) -> tuple[Plane, Plane]:
        """Take one step of the task from these places (m, m/s); who is not free stays there, and pushes others."""
        poles = self.centres[:0] if self.spreads else self.centres
        places = np.concatenate([position, poles]) / self.scale
        speeds = np.concatenate([velocity * self.stretch / self.scale, np.zeros_like(poles)])
        exists = np.concatenate([present, np.ones(len(poles), bool)])
        first = find_protocol(self.protocol).velocity_first
        places, speeds = advance(places, speeds, exists, action, self.bodies, velocity_first=first)
        drones = len(position)
        moved = np.where(free[:, None], places[:drones] * self.scale, position)
        speed = np.where(free[:, None], speeds[:drones] * self.scale / self.stretch, 0.0)
        inside = np.clip(moved, -self.rules.soft_fence, self.rules.soft_fence)
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
        self, setting: Setting, action: Plane, measured: tuple[Plane, Plane], free: Mask, present: Mask, time: float
    ) -> Reference:
        """Return the next step, under the policy's actions.

        Virtual drones that are farther than ANCHOR from the measured positions start from the measured positions
        and velocities instead; those that are not free stand where they were measured.
        """
        position, velocity = measured
        off = np.linalg.norm(self.position - position, axis=-1) > ANCHOR
        start = np.where((off | ~free)[:, None], position, self.position)
        speed = np.where(off[:, None], velocity, self.velocity)
        return Reference(time, start, *setting.step(start, speed, action, free, present))

    def velocities(self, setting: Setting, measured: Plane, time: float) -> Plane:
        """Return what to fly now: the virtual velocity and CORRECTION times the distance to the virtual drone."""
        share = min(max((time - self.begun) / setting.period, 0.0), 1.0)
        along = self.position - self.start
        return along / setting.period + CORRECTION * (self.start + share * along - measured)


def draw_obstacles(setting: Setting, count: int, rng: np.random.Generator) -> Float[np.ndarray, "obstacles 2"]:
    """Draw places of obstacles as the task does, m."""
    return setting.scale * rng.uniform(-0.8, 0.8, (count, 2))


def draw_start(setting: Setting, rng: np.random.Generator) -> Plane:
    """Draw places of drones as the task does, m, but with the distances that a mission asks for."""
    rules, radii = setting.rules, setting.scale * np.array(setting.bodies.radius)
    count = len(setting.roles)
    touch = 0.0 if setting.spreads else radii[:count, None] + radii[None, count:]  # in the task
    clear = np.maximum(touch, setting.obstacle_radius + rules.clearance) + 0.05
    for _ in range(10_000):
        drones = setting.scale * rng.uniform(-1, 1, (count, 2))
        gaps = np.linalg.norm(drones[:, None] - drones[None], axis=-1) + np.eye(count) * 2 * rules.separation
        away = np.linalg.norm(drones[:, None] - setting.centres[None], axis=-1)
        inside = np.abs(drones) < rules.soft_fence
        if (gaps > rules.separation + 0.05).all() and (away > clear).all() and inside.all():
            return drones
    raise ValueError("there is no room for so many drones and obstacles")


def read_landmarks(path: Path) -> Float[np.ndarray, "landmarks 2"]:
    """Read the x and y of a landmark, m, from each line of a file."""
    rows = [line.replace(",", " ").split() for line in read_text(path).splitlines() if line.strip()]
    try:
        places = np.array([[float(x), float(y)] for x, y in rows], float).reshape(-1, 2)
    except ValueError:
        places = np.full((1, 2), np.nan)
    if not len(places) or not np.isfinite(places).all():
        raise FileError(f"{path} does not have two numbers, x and y in metres, in each line")
    return places
