"""Spread, Tag, the action limits and the particle physics beneath them."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legoswarm.limits import Limit
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from legoswarm.tasks.task import TASKS, State
from legoswarm.tasks.worlds.chase import boundary_penalty, occluded
from legoswarm.tasks.worlds.particles import DT, advance, contact_forces

angles = st.floats(-math.pi, math.pi)
seeds = st.integers(0, 2**32 - 1)
both_protocols = pytest.mark.parametrize("protocol", ["paper", "mpe2"])


def make_state(position, velocity=None, exists=None):
    """A float64 NumPy state; at rest and complete unless said otherwise."""
    position = np.asarray(position, float)
    velocity = np.zeros_like(position) if velocity is None else np.asarray(velocity, float)
    exists = np.ones(len(position), bool) if exists is None else np.asarray(exists)
    return State(position, velocity, exists, np.zeros((), np.int64))


def random_state(task, seed, spread=1.0):
    generator = np.random.default_rng(seed)
    shape = (task.layout.entities, 2)
    velocity = generator.uniform(-1, 1, shape)
    velocity[task.layout.agents :] = 0
    return make_state(generator.uniform(-spread, spread, shape), velocity)


def random_action(task, seed, size=3.0):
    return np.random.default_rng([seed, 1]).uniform(-size, size, (task.layout.agents, 2))


def to_jax(state):
    """The same state as float32 JAX arrays."""
    return State(
        jnp.asarray(state.position, jnp.float32),
        jnp.asarray(state.velocity, jnp.float32),
        jnp.asarray(state.exists),
        jnp.asarray(state.time, jnp.int32),
    )


def orthogonal(angle, mirror):
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return turn @ np.diag([1.0, -1.0 if mirror else 1.0])


def start_positions(task, count=400):
    states = jax.jit(jax.vmap(task.reset))(jax.random.split(jax.random.key(0), count))
    assert not np.any(states.velocity)
    assert not np.any(states.time)
    return np.asarray(states.position)


def test_shapes_are_checked_in_the_tests():
    with pytest.raises(jaxtyping.TypeCheckError):
        make_state(np.zeros((4, 3)), np.zeros((4, 2)))


class TestLimit:
    def test_values(self):
        action = np.array([[3.0, 4.0], [0.3, -0.4], [-2.0, 0.0]])
        np.testing.assert_array_equal(Limit()(action), action)
        np.testing.assert_allclose(Limit("disc", 1.0)(action), [[0.6, 0.8], [0.3, -0.4], [-1.0, 0.0]])
        np.testing.assert_array_equal(Limit("box", 1.0)(action), [[1.0, 1.0], [0.3, -0.4], [-1.0, 0.0]])

    @given(angles, st.booleans(), seeds, st.sampled_from([Limit(), Limit("disc", 1.5)]))
    def test_none_and_disc_are_equivariant(self, angle, mirror, seed, limit):
        turn = orthogonal(angle, mirror)
        action = np.random.default_rng(seed).normal(0, 2, (5, 2))
        np.testing.assert_allclose(limit(action @ turn.T), limit(action) @ turn.T, atol=1e-12)

    def test_box_is_equivariant_under_quarter_turns_only(self):
        limit, action = Limit("box", 1.0), np.array([[3.0, 0.5]])
        quarter, eighth = orthogonal(math.pi / 2, False), orthogonal(math.pi / 4, False)
        np.testing.assert_allclose(limit(action @ quarter.T), limit(action) @ quarter.T, atol=1e-12)
        assert np.abs(limit(action @ eighth.T) - limit(action) @ eighth.T).max() > 0.1

    @pytest.mark.parametrize("text", ["none", "disc:8", "box:1", "disc:1.23456789012"])
    def test_text_round_trip(self, text):
        assert str(Limit.parse(text)) == text
        assert Limit.parse(str(Limit.parse(text))) == Limit.parse(text)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "must be none, disc:SIZE or box:SIZE, not ''"),
            ("disc", "must be none, disc:SIZE or box:SIZE, not 'disc'"),
            ("none:3", "must be none, disc:SIZE or box:SIZE, not 'none:3'"),
            ("ball:3", "must be none, disc:SIZE or box:SIZE, not 'ball'"),
            ("disc:big", "must be a number, not 'big'"),
            ("disc:-1", "must be positive, not -1"),
            ("box:0", "must be positive, not 0"),
            ("box:nan", "must be positive, not nan"),
        ],
    )
    def test_parse_errors(self, text, message):
        with pytest.raises(ValueError, match=message):
            Limit.parse(text)

    def test_tasks_take_the_protocols_limit_unless_told(self):
        for task in (Spread, Tag):
            assert task().action_limit == Limit("disc", 8.0)
            assert task(protocol="mpe2").action_limit == Limit("box", 1.0)
            assert task(limit="none").action_limit == Limit()
            with pytest.raises(ValueError, match="disc:SIZE"):
                task(limit="")


class TestStarts:
    @pytest.mark.parametrize(("side", "low", "high"), [("uniform", -1, 1), ("left", -1, 0), ("right", 0, 1)])
    def test_agents_start_on_their_side(self, side, low, high):
        task = Spread(agents=3, start=side)
        agents, landmarks = np.split(start_positions(task), [3], axis=1)
        assert low <= agents[..., 0].min() < low + 0.02
        assert high - 0.02 < agents[..., 0].max() <= high
        assert abs(agents[..., 0].mean() - (low + high) / 2) < 0.06  # 1200 draws: 3.6 standard errors
        assert agents[..., 1].min() < -0.98
        assert agents[..., 1].max() > 0.98
        assert landmarks.min() < -0.78
        assert landmarks.max() > 0.78

    @pytest.mark.parametrize(("protocol", "bound"), [("paper", 0.8), ("mpe2", 1.0)])
    def test_landmarks_lie_within_the_protocols_bound(self, protocol, bound):
        landmarks = start_positions(Spread(agents=3, protocol=protocol))[:, 3:]
        assert bound - 0.02 < np.abs(landmarks).max() <= bound

    def test_landmarks_on_one_side(self):
        task = Spread(agents=3, start="left", landmark_start="right")
        agents, landmarks = np.split(start_positions(task), [3], axis=1)
        assert agents[..., 0].max() <= 0 <= landmarks[..., 0].min()
        assert landmarks[..., 0].max() <= 0.8

    @pytest.mark.parametrize(("protocol", "bound"), [("paper", 0.8), ("mpe2", 0.9)])
    def test_tag(self, protocol, bound):
        task = Tag(protocol=protocol, arena=True)
        positions = start_positions(task)
        assert 0.98 < np.abs(positions[:, :5]).max() <= 1
        assert bound - 0.02 < np.abs(positions[:, 5:7]).max() <= bound
        assert not positions[:, 7].any()

    def test_the_number_of_landmarks_may_differ(self):
        task = Spread(agents=2, landmarks=4)
        state = make_state([[0, 0], [5, 0], [0, 1], [0, 2], [5, 3], [5, 4]])
        assert task.layout.slots == (2, 4)
        np.testing.assert_allclose(task.reward(state), [-2 * (1 + 2 + 3 + 4)] * 2)


class TestErrors:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"agents": 0}, "at least one agent"),
            ({"agents": -2}, "at least one agent"),
            ({"landmarks": 0}, "at least one agent and one landmark"),
            ({"protocol": "gym"}, "protocol must be paper or mpe2, not 'gym'"),
            ({"start": "top"}, "start must be one of uniform, left, right"),
            ({"landmark_start": "top"}, "start must be one of uniform, left, right"),
            ({"horizon": 0}, "horizon must be at least 1"),
            ({"sizes": (2, 4)}, "between 1 and the 3 agents"),
            ({"sizes": (0,)}, "between 1 and the 3 agents"),
            ({"sizes": (2,), "landmarks": 3}, "as many landmarks as agents"),
            ({"limit": "disc:0"}, "must be positive"),
            ({"colour": "red"}, "the task spread has no option 'colour'"),
        ],
    )
    def test_spread(self, fields, message):
        with pytest.raises(ValueError, match=message):
            TASKS.make("spread", **fields)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"pursuers": 0}, "at least one pursuer"),
            ({"evaders": 0}, "at least one pursuer, one evader"),
            ({"obstacles": -1}, "no negative number of obstacles"),
            ({"protocol": "gym"}, "protocol must be paper or mpe2, not 'gym'"),
            ({"horizon": 0}, "horizon must be at least 1"),
            ({"limit": "cube:1"}, "not 'cube'"),
        ],
    )
    def test_tag(self, fields, message):
        with pytest.raises(ValueError, match=message):
            TASKS.make("tag", **fields)

    def test_unknown_task(self):
        with pytest.raises(ValueError, match=r"unknown task 'chess'; known: .*spread, tag"):
            TASKS.make("chess")

    def test_a_task_survives_json(self):
        task = Spread(agents=4, sizes=(2, 3))
        fields = dataclasses.asdict(task) | {"sizes": [2, 3]}
        assert TASKS.make("spread", **fields) == task
        assert hash(TASKS.make("spread", **fields)) == hash(task)


class TestPhysics:
    def test_order_of_the_integrator(self):
        """`paper` moves with the new velocity, `mpe2` with the old one; F = 5 u, damping 0.25."""
        position = [[0, 0], [9, 9]]
        velocity = [[1, 0], [0, 0]]
        action = np.array([[0.0, 0.6]])
        paper = Spread(agents=1).step(make_state(position, velocity), action)
        mpe2 = Spread(agents=1, protocol="mpe2").step(make_state(position, velocity), action)
        for state in (paper, mpe2):
            np.testing.assert_allclose(state.velocity, [[0.75, 0.3], [0, 0]])
            assert state.time == 1
        np.testing.assert_allclose(paper.position, [[0.075, 0.03], [9, 9]])
        np.testing.assert_allclose(mpe2.position, [[0.1, 0.0], [9, 9]])

    @pytest.mark.parametrize(("role", "acceleration", "top"), [(0, 3.0, 1.0), (1, 4.0, 1.3)])
    def test_speed_limits_of_tag(self, role, acceleration, top):
        task = Tag(pursuers=1, evaders=1, obstacles=0, limit="none")
        state = make_state([[0, 0], [5, 5]])
        action = np.zeros((2, 2))
        action[role] = [0.1, 0]
        np.testing.assert_allclose(task.step(state, action).velocity[role], [acceleration * 0.1 * DT, 0])
        action[role] = [300, 400]
        np.testing.assert_allclose(task.step(state, action).velocity[role], [0.6 * top, 0.8 * top])

    def test_contact_pushes_both_apart_and_landmarks_push_nobody(self):
        task = Spread(agents=2)
        position = np.array([[0.0, 0], [0.2, 0], [0.05, 0], [0.1, 0]])
        force = contact_forces(position, np.ones(4, bool), task.bodies)
        np.testing.assert_allclose(force, [[-10, 0], [10, 0]], rtol=1e-9)

    def test_obstacles_push_and_stay_and_the_centre_does_not_push(self):
        task = Tag(pursuers=1, evaders=1, obstacles=1, arena=True)
        position = np.array([[0.15, 0.0], [0.0, 0.01], [0.3, 0.0], [0.0, 0.0]])
        force = contact_forces(position, np.ones(4, bool), task.bodies)
        np.testing.assert_allclose(force[0], [-2.5, 0], atol=1e-6)  # 0.175 - 0.15, from the obstacle only
        np.testing.assert_allclose(force[1], 0, atol=1e-6)
        after = task.step(make_state(position), np.zeros((2, 2)))
        np.testing.assert_array_equal(after.position[2:], position[2:])
        np.testing.assert_array_equal(after.velocity[2:], 0)

    @both_protocols
    @pytest.mark.parametrize("task_class", [Spread, Tag])
    def test_coinciding_entities_give_finite_forces(self, task_class, protocol):
        task = task_class(protocol=protocol)

        def twice(state, action):
            state = task.step(task.step(state, action), action)
            return state.position, state.velocity, task.reward(state)

        in_jax, action = jax.jit(twice), np.ones((task.layout.agents, 2))
        for offset in (0.0, 1e-30, 1e-13):
            position = np.zeros((task.layout.entities, 2))
            position[1] = offset
            state = make_state(position)
            for after in (twice(state, action), in_jax(to_jax(state), jnp.asarray(action, jnp.float32))):
                assert all(np.isfinite(values).all() for values in after)
                assert np.abs(after[1]).max() < 1e3

    @both_protocols
    @pytest.mark.parametrize("task_class", [Spread, Tag])
    def test_numpy_and_jax_agree(self, task_class, protocol):
        """The same world in float64 NumPy and in float32 JAX: `advance`, `reward`, `measure`."""
        task = task_class(protocol=protocol)

        @jax.jit
        def in_jax(state, action):
            limited = task.action_limit(action)
            first = protocol == "paper"
            moved = advance(*astuple(state)[:3], limited, task.bodies, velocity_first=first)
            state = task.step(state, action)
            return moved, state, task.reward(state), task.measure(state)

        for seed in range(20):
            state, action = random_state(task, seed, spread=0.4), random_action(task, seed, 10.0)
            moved, after, reward, measure = in_jax(to_jax(state), jnp.asarray(action, jnp.float32))
            state = task.step(state, action)
            assert state.position.dtype == np.float64
            assert after.position.dtype == np.float32
            for ours, theirs in ((state.position, moved[0]), (state.velocity, moved[1])):
                np.testing.assert_allclose(theirs, ours, atol=2e-5)
            np.testing.assert_array_equal(moved[0], after.position)
            np.testing.assert_allclose(reward, task.reward(state), atol=1e-3)
            for name, value in task.measure(state).items():
                np.testing.assert_allclose(measure[name], value, atol=1e-4, err_msg=name)

    @given(angles, st.booleans(), seeds, st.sampled_from([Spread(limit="disc:2"), Tag(limit="none")]))
    def test_a_step_is_equivariant_without_a_box(self, angle, mirror, seed, task):
        turn = orthogonal(angle, mirror)
        state, action = random_state(task, seed, spread=0.5), random_action(task, seed)
        turned = make_state(state.position @ turn.T, state.velocity @ turn.T)
        after, turned_after = task.step(state, action), task.step(turned, action @ turn.T)
        np.testing.assert_allclose(turned_after.position, after.position @ turn.T, atol=1e-9)
        np.testing.assert_allclose(turned_after.velocity, after.velocity @ turn.T, atol=1e-9)

    @pytest.mark.parametrize("task", [Spread(agents=4), Tag(arena=True)])
    def test_worlds_batch(self, task):
        """vmap over worlds gives what each world gives alone."""

        def look(position):
            exists = jnp.ones(len(position), bool)
            state = State(position, jnp.zeros_like(position), exists, jnp.zeros((), jnp.int32))
            return task.reward(state), task.measure(state), task.scene(state).visible

        positions = jnp.stack([to_jax(random_state(task, seed)).position for seed in range(4)])
        batched, by_itself = jax.jit(jax.vmap(look))(positions), jax.jit(look)
        for row, position in enumerate(positions):
            alone = by_itself(position)
            jax.tree.map(lambda b, a, row=row: np.testing.assert_allclose(b[row], a, 1e-5), batched, alone)


def astuple(state):
    return tuple(getattr(state, field.name) for field in dataclasses.fields(state))


def padded(values, spare, counts, slots):
    """Rows of each role, filled up to `slots` of that role with rows of `spare`."""
    rows, start = [], 0
    for count, slot in zip(counts, slots, strict=True):
        rows += [values[start : start + count], spare[: slot - count]]
        start += count
    return np.concatenate(rows)


class TestPadding:
    @both_protocols
    @pytest.mark.parametrize("size", [1, 2, 3])
    def test_a_padded_spread_is_the_smaller_spread(self, protocol, size):
        big, small = (
            Spread(agents=4, protocol=protocol, sizes=(size,)),
            Spread(agents=size, protocol=protocol),
        )
        assert_padded_equal(big, small, (size, size))

    @both_protocols
    @pytest.mark.parametrize("counts", [(1, 2, 2), (3, 1, 2), (2, 2, 1)])
    def test_a_padded_tag_is_the_smaller_tag(self, protocol, counts):
        small = Tag(*counts, protocol=protocol)
        assert_padded_equal(Tag(3, 2, 2, protocol=protocol), small, counts)

    def test_sizes_are_all_drawn_with_as_many_landmarks(self):
        task = Spread(agents=5, sizes=[2, 5])  # a list, as in JSON
        states = jax.jit(jax.vmap(task.reset))(jax.random.split(jax.random.key(1), 200))
        agents, landmarks = np.split(np.asarray(states.exists), 2, axis=1)
        np.testing.assert_array_equal(agents, landmarks)
        sizes = agents.sum(1)
        assert set(sizes.tolist()) == {2, 5}
        assert 70 < (sizes == 2).sum() < 130  # 4 standard errors
        np.testing.assert_array_equal(agents, np.arange(5) < sizes[:, None])
        team = jax.vmap(task.measure)(states)["team"]
        np.testing.assert_array_equal(team, sizes)


def assert_padded_equal(big, small, counts):
    """Twelve steps of both from the same state; the spare entities stand in the middle of the crowd."""
    slots, controlled = big.layout.slots, big.layout.controlled
    exists = padded(np.ones(sum(counts), bool), np.zeros(9, bool), counts, slots)
    kept, spare = np.flatnonzero(exists), np.full((9, 2), 0.01)
    for seed in range(5):
        alone, action = random_state(small, seed, spread=0.3), random_action(small, seed)
        position = padded(alone.position, spare, counts, slots)
        together = make_state(position, padded(alone.velocity, 0 * spare, counts, slots), exists)
        push = padded(action, np.full((9, 2), 5.0), counts[:controlled], slots[:controlled])
        for _ in range(12):
            alone, together = small.step(alone, action), big.step(together, push)
            np.testing.assert_allclose(together.position[kept], alone.position, atol=1e-9)
            np.testing.assert_allclose(together.velocity[kept], alone.velocity, atol=1e-9)
            rewards, present = big.reward(together), exists[: big.layout.agents]
            np.testing.assert_allclose(rewards[present], small.reward(alone), atol=1e-9)
            assert not rewards[~present].any()
            measures = big.measure(together)
            for name, value in small.measure(alone).items():
                np.testing.assert_allclose(measures[name], value, atol=1e-9, err_msg=name)
        np.testing.assert_array_equal(together.position[~exists], 0.01)
        seen, seen_alone = big.scene(to_jax(together)).seen(), small.scene(to_jax(alone)).seen()
        np.testing.assert_array_equal(seen[np.ix_(kept[: small.layout.agents], kept)], seen_alone)


class TestSpread:
    state = make_state([[0, 0], [0.2, 0], [2, 0], [0, 1], [0.2, -2], [2, 0]])  # three agents, three landmarks

    def test_rewards(self):
        """D_t = 1 + 2 + 0; one colliding pair."""
        np.testing.assert_allclose(Spread().reward(self.state), [-3 * 3 - 2] * 3)
        np.testing.assert_allclose(Spread(protocol="mpe2").reward(self.state), [-2.0, -2.0, -1.5])

    def test_measures_and_figures(self):
        task = Spread()
        measure = task.measure(self.state)
        assert measure == {"distance": 3.0, "covered": pytest.approx(1 / 3), "collisions": 1.0, "team": 3.0}
        figures = task.figures({name: np.full(25, value) for name, value in measure.items()})
        assert figures == {
            "return_2c": -3 * 75 - 2 * 25,
            "return_1c": -3 * 75 - 25,
            "distance": 75,
            "collisions": 25,
            "covered": pytest.approx(1 / 3),
            "cover_time": 25,
            "touches": pytest.approx(50 / 3),
        }

    def test_return_2c_is_one_agents_return_in_the_paper(self):
        task, state = Spread(agents=4), random_state(Spread(agents=4), 3, spread=0.3)
        measures, rewards = [], []
        for seed in range(task.horizon):
            state = task.step(state, random_action(task, seed, size=1.0))
            measures.append(task.measure(state))
            rewards.append(task.reward(state))
        figures = task.figures({name: np.array([m[name] for m in measures]) for name in measures[0]})
        assert figures["collisions"] > 0
        np.testing.assert_allclose(np.sum(rewards, 0), figures["return_2c"])
        np.testing.assert_allclose(figures["return_1c"] - figures["return_2c"], figures["collisions"])

    def test_everybody_sees_everything_and_nothing_terminates(self):
        task, state = Spread(), to_jax(self.state)
        assert task.scene(state).seen().all()
        assert task.scene(state).seen().shape == (3, 6)
        assert not task.terminated(state)


class TestTag:
    def test_rewards_measures_and_figures(self):
        """Two pursuers touch evader 0, one of them evader 1; evader 1 is at the boundary."""
        task = Tag(pursuers=3, evaders=2, obstacles=0)
        state = make_state([[0.9, 0.0], [0.9, 0.16], [-1, -1], [0.9, 0.08], [0.95, -0.05]])
        boundary = [0.0, 0.5]
        evaders = [-20 - boundary[0], -10 - boundary[1]]
        np.testing.assert_allclose(task.reward(state), [30, 30, 30, *evaders], atol=1e-9)
        measure = task.measure(state)
        assert measure["captures"] == 3
        assert measure["pursuer_return"] == 30
        np.testing.assert_allclose(measure["evader_return"], sum(evaders) / 2)
        figures = task.figures({name: np.array([0.0, value]) for name, value in measure.items()})
        assert figures["capture_share"] == 1
        assert figures["captures"] == 3
        assert figures["pursuer_return"] == 30
        np.testing.assert_allclose(figures["evader_return"], sum(evaders) / 2)
        np.testing.assert_allclose(figures["evader_gap"], math.hypot(0.05, 0.13) / 2)  # half of the time they are at 0
        assert figures["hidden_share"] == 0
        nothing = task.figures({name: np.zeros(2) for name in measure})
        assert nothing["capture_share"] == 0
        assert not task.terminated(state)

    def test_who_is_hidden_from_whom(self):
        """An obstacle hides one of two evaders from one of two pursuers; who is not there counts for nothing."""
        task = Tag(pursuers=2, evaders=2, obstacles=1)
        state = make_state([[-1.0, 0.0], [-1.0, 2.0], [1.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
        assert task.measure(state)["hidden_share"] == 0.25
        assert Tag(pursuers=2, evaders=2, obstacles=1, occlusion=False).measure(state)["hidden_share"] == 0
        alone = dataclasses.replace(state, exists=np.array([True, False, True, False, True]))
        assert task.measure(alone)["hidden_share"] == 1
        assert task.measure(alone)["evader_gap"] == 0
        assert task.measure(state)["evader_gap"] == 2

    @pytest.mark.parametrize(
        ("pursuers", "surround"),
        [
            ([[1.0, 0], [2, 0]], 0.0),
            ([[1.0, 0], [-3, 0]], 1.0),
            ([[1.0, 0], [0, 2]], 1 - math.sqrt(0.5)),
            ([[0, 0], [0, 0]], 1),
        ],
        ids=["in line", "on both sides", "at a right angle", "no direction"],
    )
    def test_how_evenly_pursuers_stand_around_an_evader(self, pursuers, surround):
        task = Tag(pursuers=2, evaders=2, obstacles=0)
        state = make_state([*pursuers, [0.0, 0.0], [5.0, 5.0]])
        state = dataclasses.replace(state, exists=np.array([True, True, True, False]))
        np.testing.assert_allclose(task.measure(state)["surround"], surround, atol=1e-12)

    def test_boundary_penalty_is_mpe2s_formula(self):
        def bound(x):  # mpe2, simple_tag.py
            if x < 0.9:
                return 0
            if x < 1.0:
                return (x - 0.9) * 10
            return min(np.exp(2 * x - 2), 10)

        grid = np.array([0, 0.3, 0.89, 0.9, 0.95, 0.999, 1.0, 1.5, 2.1, 2.2, 3, 300])
        position = np.stack(np.meshgrid(grid, -grid), -1).reshape(-1, 2)
        expected = [bound(abs(x)) + bound(abs(y)) for x, y in position]
        np.testing.assert_allclose(boundary_penalty(position), expected, atol=1e-12)
        in_jax = boundary_penalty(jnp.asarray(position, jnp.float32))
        np.testing.assert_allclose(in_jax, expected, atol=1e-5)

    @pytest.mark.parametrize(
        ("target", "hidden"),
        [
            ((1.0, 0.0), True),  # straight through
            ((1.0, 0.19), True),  # passes 0.094 from the centre
            ((1.0, 0.21), False),  # passes 0.103 from it
            ((0.35, 0.0), False),  # in front of the obstacle
            ((0.45, 0.0), True),  # inside it
            ((-1.0, 0.0), False),  # the other way
            ((0.0, 0.0), False),  # at the same place
        ],
    )
    def test_occlusion_by_hand(self, target, hidden):
        """Seen from the origin, past an obstacle of radius 0.1 at (0.5, 0)."""
        position, obstacle = np.array([[0.0, 0.0], target]), np.array([[0.5, 0.0]])
        matrix = np.array([[False, hidden], [hidden, False]])
        np.testing.assert_array_equal(occluded(position, obstacle, np.array([True]), 0.1), matrix)
        assert not occluded(position, obstacle, np.array([False]), 0.1).any()

    def test_occlusion_equals_a_sampled_segment(self):
        generator, radius = np.random.default_rng(0), 0.2
        counted = {True: 0, False: 0}
        for _ in range(10):
            position, obstacles = generator.uniform(-1, 1, (8, 2)), generator.uniform(-0.9, 0.9, (2, 2))
            share = np.linspace(0, 1, 4001)[:, None, None, None]
            segment = (1 - share) * position[:, None] + share * position[None]
            nearest = np.linalg.norm(segment[..., None, :] - obstacles, axis=-1).min((0, -1))
            for dtype in (np.float64, np.float32):
                ours = occluded(position.astype(dtype), obstacles.astype(dtype), np.ones(2, bool), radius)
                for i, j in zip(*np.nonzero(~np.eye(8, dtype=bool)), strict=True):
                    if abs(nearest[i, j] - radius) > 1e-3:  # the samples are up to 7e-4 apart
                        assert ours[i, j] == (nearest[i, j] < radius)
                        counted[bool(ours[i, j])] += 1
        assert min(counted.values()) > 200

    def test_scene_hides_agents_only(self):
        """A pursuer behind an obstacle: friend and foe are hidden, obstacles and the centre are not."""
        position = [[-1, 0], [1, 0], [1, 0.05], [0, 0], [0.3, 0], [0, 0]]
        task, state = Tag(pursuers=2, evaders=1, arena=True), to_jax(make_state(position))
        assert task.layout.roles == ("pursuer", "evader", "obstacle", "centre")
        visible = np.ones((3, 6), bool)
        visible[0, 1:3] = visible[1:3, 0] = False
        np.testing.assert_array_equal(task.scene(state).visible, visible)
        assert dataclasses.replace(task, occlusion=False).scene(state).visible.all()

    def test_an_agent_inside_an_obstacle_still_sees_itself(self):
        task = Tag(pursuers=1, evaders=1, obstacles=1)
        visible = task.scene(to_jax(make_state([[0, 0], [1, 1], [0, 0.01]]))).visible
        np.testing.assert_array_equal(visible, [[True, False, True], [False, True, True]])
