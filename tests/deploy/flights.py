"""Missions in process with a policy of a few lines, and what every flight must have kept to."""

import dataclasses

import numpy as np
import pytest

from legoswarm.deploy.guard import Guard
from legoswarm.deploy.inprocess import InProcessLink, World
from legoswarm.deploy.mission import Mission
from legoswarm.deploy.plan import Drone, Plan, Status
from legoswarm.deploy.setting import Setting
from legoswarm.deploy.sitl.drone import Airspace
from legoswarm.deploy.sitl.plants import PointMass

# A machine that stands still for a second ends a flight in real time as it should. What is broken fails every time.
REAL_TIME = pytest.mark.flaky(reruns=3, reruns_delay=5)
STARTS = ((-1.0, -0.8, 0.0), (1.0, -0.8, 0.0), (0.0, 1.0, 0.0))
OBSTACLES = np.array([[0.75, 0.3], [-0.75, 0.3]])
TICK = 0.05  # s
SHORT = Plan(
    horizon=8,
    fail_at=3,
    failure="none",
    take_off_seconds=1.5,
    settle_seconds=0.4,
    land_seconds=1.5,
    connect_seconds=2.0,
    rate=10.0,
)


class Chaser:
    """Pursuers fly at the nearest evader, evaders from the nearest pursuer. `at[step]` is called at that step."""

    roles = ("pursuer", "evader", "obstacle")

    def __init__(self, at=None):
        self.at, self.step, self.shown = at or {}, -1, []

    def act(self, positions, velocities, roles, visible=None):
        if self.step >= 0:  # before take-off it is only asked whether it can act
            self.shown.append((np.array(positions), list(roles)))
        answer = self.at.get(self.step, lambda: None)()
        self.step += 1
        agents = [role for role in roles if role in ("pursuer", "evader")]
        if answer is not None:
            return np.full((len(agents), 2), answer)
        actions = []
        for at, role in enumerate(agents):
            others = [positions[k] for k, other in enumerate(agents) if other != role]
            offset = min((place - positions[at] for place in others), key=np.linalg.norm)
            actions.append((1 if role == "pursuer" else -1) * offset / max(np.linalg.norm(offset), 1e-6))
        return np.array(actions)


class Watched(InProcessLink):
    """A link that remembers how high its drone truly was when it was let go."""

    closed_at = None

    @property
    def height(self):
        return float(self._world.plant.position[self._world.drones.index(self.drone), 2])

    def close(self):
        super().close()
        self.closed_at = self.height


class Scenario:
    """Three simulated drones, and a mission for them."""

    def __init__(self, *, policy=None, starts=STARTS, obstacles=OBSTACLES, setting=None, faults=None, **how):
        plan = how.pop("plan", SHORT)
        setting = dataclasses.replace(setting or Setting(), plan=plan, centres=obstacles)
        self.air = Airspace(obstacles, setting.obstacle_radius)
        plant = PointMass(np.array(starts, float))
        self.world = World(["cf1", "cf2", "cf3"], plant, tick=TICK, airspace=self.air)
        for drone, changes in (faults or {}).items():
            self.world.drones[drone].inject(**changes)
        self.links = [Watched(link.name, link.drone, self.world) for link in self.world.links]
        self.world.links = self.links
        self.policy = policy or Chaser()
        self.mission = Mission(self.policy, setting, [link.name for link in self.links])
        self.guard = Guard(
            [Drone(*each) for each in zip(self.links, setting.roles, starts, strict=True)],
            setting.rules,
            plan,
            **{"obstacles": setting.obstacles, "clock": self.world, "positions": how.pop("positions", None)},
            **{**how, "about": {**self.mission.about, **how.get("about", {})}},
        )

    def fly(self):
        self.outcome = self.guard.fly(self.mission)
        return self.outcome

    def inject(self, drone, **faults):
        """Something to do at a step: faults for a drone."""
        return lambda: self.world.drones[drone].inject(**faults)


def assert_safe(scenario, *, falls=()):
    """Everybody stands, no motors were stopped above 0.1 m but those of `falls`, and no link was let go above it."""
    for at, (drone, link) in enumerate(zip(scenario.world.drones, scenario.links, strict=True)):
        assert link.height < 0.05
        cut_offs = [cut for cut in drone.commander.cut_offs if cut.height > 0.1]
        assert [cut.cause for cut in cut_offs] == (["stop setpoint"] if at in falls else [])
        assert link.closed_at is None or link.closed_at < 0.1


def changed(**fields):
    """The short plan with some fields changed."""
    return dataclasses.replace(SHORT, **fields)


LANDED = dict.fromkeys(("cf1", "cf2", "cf3"), Status.LANDED)
