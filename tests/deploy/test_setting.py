"""Between lab and task: the adapter gives the task's own scene and steps, and virtual drones do what a policy means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.deploy.inprocess import World
from legoswarm.deploy.safety import Rules
from legoswarm.deploy.setting import Reference, Setting
from legoswarm.deploy.sitl.plants import Mode, PointMass
from legoswarm.tasks.tag import Tag
from legoswarm.tasks.task import State

ROLES = ("pursuer", "pursuer", "evader")
OBSTACLES = np.array([[0.6, 0.3], [-0.75, -0.45]])
EVERYBODY = np.ones(3, bool)


def make_chase(protocol="paper", **how):
    return Setting(ROLES, centres=OBSTACLES, rules=Rules(fence=100.3), protocol=protocol, **how)


class Recorder:
    """A policy that keeps what it was shown and answers with a given action."""

    roles = ("pursuer", "evader", "obstacle")

    def __init__(self, action=None):
        self.action = action

    def act(self, positions, velocities, roles, visible=None):
        self.seen = positions, velocities, list(roles), visible
        agents = sum(role in ("pursuer", "evader") for role in roles)
        return np.arange(2.0 * agents).reshape(agents, 2) if self.action is None else self.action[:agents]


def task_state(position, velocity, chase):
    """The same moment in the task's units."""
    places = np.concatenate([position, OBSTACLES]) / chase.scale
    speeds = np.concatenate([velocity * chase.stretch / chase.scale, np.zeros_like(OBSTACLES)])
    return State(places, speeds, np.ones(5, bool), np.zeros((), np.int32))


def test_policies_see_the_tasks_own_scene():
    chase, policy, task = make_chase(), Recorder(), Tag(pursuers=2, evaders=1)
    rng, hidden = np.random.default_rng(0), 0
    for _ in range(40):
        position, velocity = rng.uniform(-1.5, 1.5, (3, 2)), rng.uniform(-0.4, 0.4, (3, 2))
        actions = chase.act(policy, position, velocity, EVERYBODY)
        places, speeds, roles, visible = policy.seen
        state = jax.tree.map(jnp.asarray, task_state(position, velocity, chase))
        scene = task.scene(state)
        np.testing.assert_allclose(places, scene.position, atol=1e-6)
        np.testing.assert_allclose(speeds, scene.velocity, atol=1e-6)
        np.testing.assert_array_equal(visible, scene.visible)
        assert roles == ["pursuer", "pursuer", "evader", "obstacle", "obstacle"]
        np.testing.assert_array_equal(actions, np.arange(6).reshape(3, 2))
        hidden += (~visible).any()
    assert hidden > 5


def test_who_is_not_present_is_not_in_the_scene():
    chase, policy = make_chase(), Recorder()
    position = np.array([[0.0, 1], [1, 0], [-1, 0]])
    actions = chase.act(policy, position, np.zeros((3, 2)), np.array([False, True, True]))
    assert policy.seen[2] == ["pursuer", "evader", "obstacle", "obstacle"]
    np.testing.assert_allclose(policy.seen[0][:2] * chase.scale, position[1:])
    np.testing.assert_array_equal(actions, [[0, 0], [0, 1], [2, 3]])


def test_a_policy_that_knows_the_centre_is_shown_it():
    policy = Recorder()
    policy.roles = ("pursuer", "evader", "obstacle", "centre")
    make_chase().act(policy, np.ones((3, 2)), np.zeros((3, 2)), EVERYBODY)
    assert policy.seen[2][-1] == "centre"
    np.testing.assert_array_equal(policy.seen[0][-1], [0, 0])
    assert policy.seen[3].shape == (3, 6)


@pytest.mark.parametrize("protocol", ["paper", "mpe2"])
def test_a_step_is_the_tasks_own(protocol):
    chase, task = make_chase(protocol), Tag(pursuers=2, evaders=1, protocol=protocol)
    rng = np.random.default_rng(1)
    for _ in range(50):
        position, velocity = rng.uniform(-1, 1, (3, 2)), rng.uniform(-0.3, 0.3, (3, 2))
        action = rng.uniform(-1, 1, (3, 2))
        moved, speed = chase.step(position, velocity, action, EVERYBODY, EVERYBODY)
        after = task.step(task_state(position, velocity, chase), action)
        np.testing.assert_allclose(moved / chase.scale, after.position[:3], atol=1e-5)
        np.testing.assert_allclose(speed * chase.stretch / chase.scale, after.velocity[:3], atol=1e-4)


def test_one_that_is_not_free_stands_and_pushes():
    chase = make_chase()
    position = np.array([[0.0, 1.0], [0.2, 1.0], [-1, 0]])  # the pursuers touch in the task
    free = np.array([False, True, True])
    moved, speed = chase.step(position, np.full((3, 2), 0.1), np.ones((3, 2)), free, EVERYBODY)
    alone, _ = chase.step(position, np.full((3, 2), 0.1), np.ones((3, 2)), free, free)
    np.testing.assert_array_equal(moved[0], position[0])
    np.testing.assert_array_equal(speed[0], [0, 0])
    assert moved[1, 0] > alone[1, 0] + 0.02


def test_nobody_leaves_the_fence():
    chase = Setting(ROLES, centres=OBSTACLES, rules=Rules(fence=1.3))
    position = np.array([[0.99, 0], [0, -0.99], [0, 0]])
    moved, speed = chase.step(position, np.array([[0.3, 0.1], [0.1, -0.3], [0, 0]]), np.zeros((3, 2)), *[EVERYBODY] * 2)
    assert (np.abs(moved) <= 1.0).all()
    assert speed[0, 0] == speed[1, 1] == 0
    assert speed[0, 1] > 0


def test_the_tasks_top_speed_is_below_the_speed_limit():
    assert make_chase().top_speed == pytest.approx(1.3 * 1.5 / 5)
    assert make_chase().top_speed < Rules().speed


def test_captures_are_the_tasks_unless_a_pause_comes_first():
    assert make_chase().capture_distance == 0.3
    assert make_chase(scale=4.0).capture_distance == pytest.approx(0.5)


@pytest.mark.parametrize("roles", [("evader", "pursuer"), ("pursuer",), ("pursuer", "evader", "landmark")])
def test_other_teams_are_refused(roles):
    with pytest.raises(ValueError, match="pursuers first"):
        Setting(roles, centres=OBSTACLES)


def drive(chase, move, steps=100, seed=3):
    """The distance between drones that follow virtual ones and the plain task, in units, over time.

    `move(position, velocity, wanted, seconds)` gives the drones' next position and velocity.
    """
    rng, action = np.random.default_rng(seed), np.zeros((3, 2))
    ticks = 25
    start = np.array([[-1.0, 0.5], [0.0, -1.2], [1.0, 0.6]])
    plain, plain_speed = start, np.zeros((3, 2))
    position, velocity = start, np.zeros((3, 2))
    reference, errors = Reference.at_rest(start, 0.0), []
    for step in range(steps):
        action = 0.8 * action + 0.6 * rng.normal(size=(3, 2))
        now = step * chase.period
        reference = reference.follow(chase, action, (position, velocity), EVERYBODY, EVERYBODY, now)
        plain, plain_speed = chase.step(plain, plain_speed, action, EVERYBODY, EVERYBODY)
        for tick in range(ticks):
            wanted = reference.velocities(chase, position, now + tick * chase.period / ticks)
            position, velocity = move(position, velocity, wanted, chase.period / ticks)
        errors.append(np.linalg.norm(position - plain, axis=-1) / chase.scale)
    return np.array(errors)


def test_a_perfect_drone_flies_the_task_itself():
    errors = drive(make_chase(), lambda position, velocity, wanted, dt: (position + dt * wanted, wanted))
    assert errors.max() < 0.01


def test_a_drone_with_lag_stays_close_to_the_task():
    plant = PointMass(np.ones((3, 3)))

    def move(position, velocity, wanted, dt):
        plant.position[:, :2], plant.velocity[:, :2] = position, velocity
        plant.step(np.pad(wanted, ((0, 0), (0, 1))), np.zeros(3), np.full(3, int(Mode.FLY)), dt)
        return plant.position[:, :2].copy(), plant.velocity[:, :2].copy()

    assert drive(make_chase(), move).mean() < 0.03


def test_virtual_drones_are_anchored_to_real_ones():
    chase, virtual = make_chase(), np.array([[0.0, -3], [0, 3], [5, 0]])
    reference = Reference.at_rest(virtual, 0.0)
    measured = virtual + np.array([[0.14, 0.0], [0.16, 0.0], [3.0, 0.0]])
    speed = np.full((3, 2), 0.2)
    after = reference.follow(chase, np.zeros((3, 2)), (measured, speed), EVERYBODY, EVERYBODY, 1.0)
    np.testing.assert_array_equal(after.start, [virtual[0], measured[1], measured[2]])
    np.testing.assert_allclose(after.velocity, [[0, 0], *0.75 * speed[1:]], atol=1e-12)
    np.testing.assert_allclose(after.velocities(chase, after.start, 1.0), after.velocity, atol=1e-12)
    end = 1.0 + chase.period
    np.testing.assert_allclose(after.velocities(chase, after.position, end), after.velocity, atol=1e-12)
    np.testing.assert_allclose(after.velocities(chase, measured, 1.0)[0], [-0.28, 0], atol=1e-12)


def test_positions_come_from_the_drones_own_estimators():
    world = World(["cf1"], PointMass(np.array([[0.5, -0.25, 0.0]])))
    assert world.links[0].state() is None
    world.links[0].open(1.0)
    pose = world.links[0].state()
    np.testing.assert_array_equal(pose.position, [0.5, -0.25, 0])
    assert pose.received == world.now() > 0
