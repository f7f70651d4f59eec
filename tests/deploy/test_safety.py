"""The safety filter: each rule on its own, and all of them against policies that want to crash."""

import dataclasses

import numpy as np
import pytest

from legoswarm.deploy.safety import Obstacles, Reason, Rules, Sighting, Verdict, apply_rules
from legoswarm.deploy.sitl.plants import Mode, PointMass

pytestmark = pytest.mark.usefixtures("unchecked")
RULES = Rules()
TICK = 0.02
LOW, HIGH = 0.6, 1.2  # m, the layers
NOWHERE = Obstacles(np.zeros((0, 2)), np.zeros(0))
# What is promised for drones with a velocity lag of 0.25 s, noise up to 2 cm and latency up to 0.1 s (docs/deploy.md).
SEPARATION = 0.24  # m between two drones of one layer
CLEARANCE = 0.09  # m from a drone's centre to an obstacle's surface
OVERSHOOT = 0.1  # m beyond the soft fence; the hard one is 0.3 m beyond it


def see(position, *, velocity=None, age=0.0, steered=None, flying=None):
    position = np.array(position, float)
    shape = position.shape[:-1]
    return Sighting(
        position,
        np.zeros((*shape, 2)) if velocity is None else np.array(velocity, float),
        np.full(shape, float(age)),
        np.ones(shape, bool) if steered is None else np.array(steered),
        np.ones(shape, bool) if flying is None else np.array(flying),
    )


def fly(wanted, start, seconds, *, obstacles=NOWHERE, rules=RULES, **seen):
    """Drones that do at once as they are told: the verdicts and positions, tick by tick."""
    position = np.array(start, float)
    memory = Verdict.start(0.0, position.shape[:-1])
    verdicts, places = [], []
    for tick in range(round(seconds / TICK)):
        now = TICK * (tick + 1)
        velocities = np.array(wanted(now, position) if callable(wanted) else wanted, float)
        verdict = apply_rules(rules, velocities, see(position, **seen), obstacles, memory, now)
        memory = verdict
        position[..., :2] += TICK * verdict.velocity
        verdicts.append(verdict)
        places.append(position.copy())
    return verdicts, np.array(places)


def reasons(verdicts, drone):
    return [Reason(int(verdict.reasons[drone])) for verdict in verdicts]


def test_far_from_everything_the_wish_is_granted():
    verdicts, _ = fly([[0.3, -0.2]], [[0, 0, LOW]], 1)
    np.testing.assert_allclose(verdicts[-1].velocity, [[0.3, -0.2]], atol=1e-12)
    assert reasons(verdicts, 0)[-1] == Reason(0)


def test_speed_and_acceleration_are_limited():
    verdicts, _ = fly([[9.0, 0.0]], [[0, 0, LOW]], 1)
    speed = np.array([np.linalg.norm(verdict.velocity[0]) for verdict in verdicts])
    np.testing.assert_allclose(np.diff(speed)[:10], RULES.acceleration * TICK)
    assert speed.max() <= RULES.speed + 1e-12
    assert reasons(verdicts, 0)[0] == Reason.SPEED | Reason.ACCELERATION
    assert reasons(verdicts, 0)[-1] == Reason.SPEED


def test_the_fence_stops_what_runs_against_it_but_not_along_it():
    verdicts, places = fly([[0.4, 0.3]], [[1.0, 0, LOW]], 4)
    assert places[-1, 0, 0] == pytest.approx(RULES.soft_fence, abs=1e-3)
    assert verdicts[-1].velocity[0, 1] == pytest.approx(0.3)
    assert Reason.FENCE in reasons(verdicts, 0)[-1]
    assert Reason.OUTSIDE not in reasons(verdicts, 0)[-1]


def test_a_drone_beyond_the_fence_is_reported_and_brought_back():
    verdicts, places = fly([[0.4, 0.0]], [[RULES.fence + 0.01, 0, LOW]], 1)
    assert Reason.OUTSIDE in reasons(verdicts, 0)[0]
    assert places[-1, 0, 0] < RULES.fence
    assert Reason.OUTSIDE not in reasons(verdicts, 0)[-1]


def test_an_obstacle_keeps_its_distance():
    obstacles = Obstacles(np.array([[0.0, 0.0]]), np.array([0.05]))
    verdicts, places = fly([[0.5, 0.0]], [[-1, 0.0, HIGH]], 5, obstacles=obstacles)
    gaps = np.linalg.norm(places[:, 0, :2], axis=-1) - 0.05
    assert gaps.min() == pytest.approx(RULES.clearance, abs=2e-3)
    assert Reason.OBSTACLE in reasons(verdicts, 0)[-1]


def test_two_of_a_layer_keep_apart_and_share_what_it_takes():
    verdicts, places = fly([[0.4, 0], [-0.4, 0]], [[-1, 0, LOW], [1, 0, LOW]], 6)
    gaps = places[:, 1, 0] - places[:, 0, 0]
    assert gaps.min() == pytest.approx(RULES.separation, abs=2e-3)
    np.testing.assert_allclose(places[-1, 0, 0], -places[-1, 1, 0], atol=1e-6)
    assert Reason.SEPARATION in reasons(verdicts, 0)[-1]


def test_one_that_nobody_steers_keeps_others_away_in_both_layers():
    start = [[-1, 0, LOW], [0, 0, LOW], [1, 0, HIGH]]
    verdicts, places = fly([[0.5, 0], [0.5, 0], [-0.5, 0]], start, 5, steered=[True, False, True])
    assert (places[:, 1] == start[1]).all()
    for drone in (0, 2):
        gaps = np.abs(places[:, drone, 0])
        assert gaps.min() == pytest.approx(RULES.separation, abs=2e-3)
        assert Reason.SEPARATION in reasons(verdicts, drone)[-1]


def test_one_on_the_ground_is_in_nobodys_way():
    _, places = fly([[0.5, 0], [0, 0]], [[-1, 0, LOW], [0, 0, 0]], 5, steered=[True, False], flying=[True, False])
    assert places[-1, 0, 0] > 1


def test_layers_pass_over_each_other_at_a_distance():
    verdicts, places = fly([[0.4, 0], [-0.4, 0]], [[-0.8, 0.35, LOW], [0.8, 0, HIGH]], 4)
    assert places[-1, 0, 0] > 0.5
    assert all(not verdict.reasons.any() for verdict in verdicts[20:])


def test_the_lower_one_is_paused_while_the_upper_one_goes():
    """Hysteresis: from 0.30 m until 0.40 m, and the upper one may go where it likes, but not closer."""
    verdicts, places = fly([[0.4, 0], [0.4, 0]], [[-0.5, 0, LOW], [-0.15, 0, HIGH]], 2)
    assert not any(Reason.PAUSE in reason for reason in reasons(verdicts, 0))
    slow = lambda now, _: [[0.4, 0], [0.2, 0]] if now < 1.2 else [[0.4, 0], [0.5, 0]]  # noqa: E731
    verdicts, places = fly(slow, [[-0.5, 0, LOW], [-0.15, 0, HIGH]], 2.5)
    lateral = places[:, 1, 0] - places[:, 0, 0]
    paused = np.array([Reason.PAUSE in reason for reason in reasons(verdicts, 0)])
    begun, ended = paused.argmax(), len(paused) - 1 - paused[::-1].argmax()
    assert lateral[begun - 1] < RULES.pause <= lateral[begun - 2]
    assert paused[begun : ended + 1].all()
    assert lateral[ended - 1] < RULES.resume <= lateral[ended] + 1e-9
    assert not any(Reason.PAUSE in reason for reason in reasons(verdicts, 1))


def test_the_upper_one_does_not_come_closer_over_a_paused_one():
    verdicts, places = fly([[0, 0], [-0.5, 0]], [[0, 0, LOW], [0.5, 0, HIGH]], 1.0)
    lateral = np.linalg.norm(places[:, 1, :2] - places[:, 0, :2], axis=-1)
    assert lateral.min() > RULES.pause - 0.1  # the way to brake
    assert Reason.OVER in reasons(verdicts, 1)[-1]


def test_a_pause_has_an_end():
    """Nobody moves by itself: held for 1 s, sent away, free after 2 s but only apart, until 0.40 m."""
    rules = dataclasses.replace(RULES, leave=0.05)
    verdicts, places = fly([[0.3, 0], [0, 0]], [[-0.1, 0, LOW], [0.1, 0, HIGH]], 4, rules=rules)
    lateral = places[:, 1, 0] - places[:, 0, 0]
    time = TICK * (1 + np.arange(len(verdicts)))
    velocity = np.array([verdict.velocity[:, 0] for verdict in verdicts])
    paused = np.array([Reason.PAUSE in reason for reason in reasons(verdicts, 0)])
    leaving = np.array([[Reason.LEAVE in reason for reason in reasons(verdicts, drone)] for drone in (0, 1)])
    assert (velocity[time < rules.hold] == 0).all()
    assert time[leaving[0]][0] == pytest.approx(TICK + rules.hold)
    assert time[paused][-1] <= TICK + rules.patience
    assert time[leaving[1]][0] == pytest.approx(TICK + rules.patience)
    settled = (time > rules.hold + 0.2) & (time < rules.patience)
    np.testing.assert_allclose(velocity[settled, 0], -rules.leave)
    apart = (time > rules.patience + 0.2) & (np.maximum.accumulate(lateral) < rules.resume)
    assert apart.any()
    np.testing.assert_allclose(velocity[apart], np.broadcast_to([-rules.leave, rules.leave], (apart.sum(), 2)))
    assert lateral.max() > rules.resume
    assert lateral.min() >= 0.2 - 1e-9


def test_exactly_underneath_there_is_still_a_way_out():
    _, places = fly([[0, 0], [0, 0]], [[0, 0, LOW], [0, 0, HIGH]], 6)
    assert np.linalg.norm(places[-1, 0, :2] - places[-1, 1, :2]) > RULES.resume - 0.02


@pytest.mark.parametrize(
    ("wanted", "age", "reason"),
    [([[np.nan, 0.1]], 0.0, Reason.NOT_A_NUMBER), ([[np.inf, 0.1]], 0.0, Reason.NOT_A_NUMBER),
     ([[0.3, 0.1]], 0.2, Reason.STALE)],
)  # fmt: skip
def test_what_is_unknown_stands_still(wanted, age, reason):
    verdicts, places = fly(wanted, [[0.3, 0.2, LOW]], 0.5, age=age)
    assert (places == [[0.3, 0.2, LOW]]).all()
    assert all(reasons(verdicts, 0)[tick] == reason for tick in range(len(verdicts)))


def test_one_scene_is_treated_as_in_an_array_of_scenes():
    rng = np.random.default_rng(0)
    world = Adversary(rng, 50, 4)
    memory = Verdict.start(0.0, (50, 4))
    for tick in range(20):
        wanted = world.wanted(tick)
        sighting, now = see(world.plant.position), TICK * (tick + 1)
        together = apply_rules(RULES, wanted, sighting, world.obstacles, memory, now)
        for at in range(0, 50, 10):
            one = apply_rules(
                RULES,
                wanted[at],
                see(world.plant.position[at]),
                Obstacles(world.obstacles.centre[at], world.obstacles.radius[at]),
                Verdict(
                    memory.time, *(part[at] for part in (memory.velocity, memory.reasons, memory.close, memory.since))
                ),
                now,
            )
            np.testing.assert_allclose(one.velocity, together.velocity[at], atol=2e-3)
        memory = together
        world.step(together.velocity)


@pytest.mark.parametrize(
    ("field", "value"), [("gain", 4.0), ("resume", 0.2), ("hold", 3.0), ("inset", 3.0), ("speed", 0.0)]
)
def test_impossible_rules_are_refused(field, value):
    with pytest.raises(ValueError, match=r"safety rules|positive"):
        dataclasses.replace(RULES, **{field: value})


class Adversary:
    """Random admissible scenes on the point-mass plant, and policies that want to crash."""

    def __init__(self, rng, scenes, drones, obstacles=2):
        self.rng, self.shape = rng, (scenes, drones)
        reach = RULES.soft_fence
        height = np.where(rng.uniform(size=self.shape) < 0.6, LOW, HIGH)
        centre = rng.uniform(-reach, reach, (scenes, obstacles, 2))
        self.obstacles = Obstacles(centre, rng.uniform(0.03, 0.15, (scenes, obstacles)))
        spread = rng.uniform(0.5, 1, (scenes, 1, 1)) * reach  # many start close to each other
        place = np.zeros((*self.shape, 2))
        bad = np.ones(self.shape, bool)
        while bad.any():
            place = np.where(bad[..., None], rng.uniform(-spread, spread, place.shape), place)
            gaps = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1) + 9 * np.eye(drones)
            away = np.linalg.norm(place[:, :, None] - centre[:, None], axis=-1) - self.obstacles.radius[:, None]
            bad = (gaps < RULES.separation).any(-1) | (away < RULES.clearance).any(-1)
        self.plant = PointMass(np.concatenate([place, height[..., None]], -1))

    def wanted(self, tick):
        """Towards the nearest drone, the nearest obstacle, the middle of all, a place outside, or anywhere."""
        place, rng = self.plant.position[..., :2], self.rng
        if tick % 25 == 0:
            self.kind = rng.integers(0, 5, self.shape)
            self.goal = rng.uniform(-4, 4, place.shape)
        gaps = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1) + 9 * np.eye(self.shape[1])
        away = np.linalg.norm(place[:, :, None] - self.obstacles.centre[:, None], axis=-1)
        nearest = np.take_along_axis(place, gaps.argmin(-1)[..., None], 1)
        obstacle = np.take_along_axis(self.obstacles.centre, away.argmin(-1)[..., None], 1)
        middle = np.broadcast_to(place.mean(1, keepdims=True), place.shape)
        anywhere = place + rng.normal(size=place.shape)
        target = np.choose(self.kind[..., None], [nearest, obstacle, middle, self.goal, anywhere])
        return 10 * (target - place)

    def step(self, velocity):
        full = np.concatenate([velocity, np.zeros((*self.shape, 1))], -1)
        self.plant.step(full, np.zeros(self.shape), np.full(self.shape, int(Mode.FLY)), TICK)

    def margins(self):
        """The smallest gap between two of a layer, to an obstacle's surface, and to the soft fence."""
        place, height = self.plant.position[..., :2], self.plant.position[..., 2]
        gaps = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1)
        layer = (height[:, :, None] == height[:, None]) & ~np.eye(self.shape[1], dtype=bool)
        away = np.linalg.norm(place[:, :, None] - self.obstacles.centre[:, None], axis=-1)
        return (
            np.where(layer, gaps, np.inf).min(),
            (away - self.obstacles.radius[:, None]).min(),
            RULES.soft_fence - np.abs(place).max(),
        )


@pytest.mark.parametrize(
    ("scenes", "drones", "latency", "noise"),
    [(1500, 2, 0.1, 0.02), (2000, 3, 0.0, 0.0), (2000, 3, 0.1, 0.02), (2000, 3, 0.04, 0.02), (1500, 4, 0.0, 0.02),
     (1000, 4, 0.1, 0.02)],
)  # fmt: skip
def test_rules_hold_against_policies_that_want_to_crash(scenes, drones, latency, noise):
    """10,000 random scenes in all; 2.4 s each, with positions that are old, off by up to 2 cm, and noisy.

    The noise has a standard deviation of 2 cm on each axis, and of 5 cm/s in velocities.
    """
    rng = np.random.default_rng(drones + scenes)
    world = Adversary(rng, scenes, drones)
    memory = Verdict.start(0.0, world.shape)
    past, smallest, paused = [], np.full(3, np.inf), np.zeros(world.shape, int)
    bias = rng.uniform(-noise, noise, world.plant.position.shape) / np.sqrt(2)  # at most `noise` in the plane
    for tick in range(120):
        past = [*past[-5:], (world.plant.position, world.plant.velocity[..., :2])]
        position, velocity = past[max(len(past) - 1 - round(latency / TICK), 0)]
        shaken = position + bias + noise * rng.normal(size=position.shape)
        velocity = velocity + 2.5 * noise * rng.normal(size=velocity.shape)
        now = TICK * (tick + 1)
        verdict = apply_rules(RULES, world.wanted(tick), see(shaken, velocity=velocity), world.obstacles, memory, now)
        change = np.linalg.norm(verdict.velocity - memory.velocity, axis=-1)
        assert np.linalg.norm(verdict.velocity, axis=-1).max() <= RULES.speed + 1e-9
        assert change.max() <= RULES.acceleration * TICK + 1e-9
        paused = np.where(verdict.reasons & Reason.PAUSE, paused + 1, 0)
        assert paused.max() <= RULES.patience / TICK + 1
        memory = verdict
        world.step(verdict.velocity)
        smallest = np.minimum(smallest, world.margins())
    apart, clear, inside = smallest
    assert apart >= SEPARATION
    assert clear >= CLEARANCE
    assert inside >= -OVERSHOOT


def test_without_lag_noise_and_latency_the_rules_hold_to_the_millimetre():
    """Braking straight ahead keeps every bound, so there is always a way to keep them all."""
    rules = dataclasses.replace(RULES, ahead=1e-9)
    world = Adversary(np.random.default_rng(1), 200, 4)
    memory = Verdict.start(0.0, world.shape)
    smallest = np.full(3, np.inf)
    for tick in range(150):
        now = TICK * (tick + 1)
        sighting = see(world.plant.position)
        verdict = apply_rules(rules, world.wanted(tick), sighting, world.obstacles, memory, now)
        memory = verdict
        world.plant.position[..., :2] += TICK * verdict.velocity
        smallest = np.minimum(smallest, world.margins())
    assert smallest[0] >= RULES.separation - 0.01
    assert smallest[1] >= RULES.clearance - 0.01
    assert smallest[2] >= -0.001
