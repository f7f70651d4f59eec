"""MASAC: squashed densities, critics of actions, the ring, one step by hand, resuming, equivariance, and it learns."""

import dataclasses
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenes import SPREAD, TAG, orthogonal, permute, random_scene, stack, transform

import legoswarm
from legoswarm.files import read_arrays, write_arrays
from legoswarm.frames.canonical import Frame
from legoswarm.learn.algorithms.masac import Learner, Masac, opponents, outlook, values
from legoswarm.learn.replay import Experience, Replay
from legoswarm.learn.scales import ValueNorm
from legoswarm.learn.train import TrainConfig, make_train
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.pairs import PairCritic
from legoswarm.policies.networks.team import decide, world_actions
from legoswarm.policies.policy import Policy
from legoswarm.policies.saved.trees import named_leaves, rebuild
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from tests.policies import policy_of
from tests.saved import random_weights
from tests.tiny import FAST, TURN, TinyPolicy, Yard, compiled, random_policies

SMALL = Masac(
    envs=16, updates=2, samples=64, capacity=1000, warmup=100, patience=32, lr=1e-2, gamma=0.9, tau=0.05,
    critic_width=16,
)  # fmt: skip
TINY = TinyPolicy(critic="none", squash=8.0)
CHASE = Tag(pursuers=2, evaders=3, obstacles=1)


@dataclasses.dataclass(frozen=True)
class Toll(Yard):
    """The nearer to the flag the more an agent earns; but near the flag it pays."""

    agents: int = 1

    def away(self, state):
        return jnp.linalg.norm(state.position[: self.agents] - state.position[-1:], axis=-1)

    def reward(self, state):
        return -(self.away(state) ** 2)

    def cost(self, state):
        return (self.away(state) < 0.4).astype(jnp.float32)

    def terminated(self, state):
        return state.time < 0

    def measure(self, state):
        return {**super().measure(state), "cost": self.cost(state).mean()}

    def figures(self, measures):
        return {**super().figures(measures), "cost": measures["cost"].mean()}


class TestOptions:
    @pytest.mark.parametrize(
        "changes",
        [
            {"gamma": 1.0},
            {"tau": 0.0},
            {"noise": 0.0},
            {"updates": 0},
            {"capacity": 100},
            {"warmup": 2000},
            {"patience": 2000},
            {"multiplier": 20.0},
            {"population": 1},
        ],
        ids=str,
    )
    def test_impossible_values_are_refused(self, changes):
        with pytest.raises(ValueError, match="must"):
            dataclasses.replace(SMALL, **{**{"envs": 128, "warmup": 0, "capacity": 1000}, **changes})

    @pytest.mark.parametrize("options", [{"critic": "pairs"}, {"squash": 0.0}], ids=str)
    def test_policies_that_it_cannot_train_are_refused(self, options):
        assert legoswarm.configure("spread", algorithm="masac").policy.squash == 8.0
        with pytest.raises(ValueError, match="masac needs a policy with the critic none and a squash"):
            legoswarm.configure("spread", algorithm="masac", **options)

    def test_a_limit_on_costs_that_nobody_counts_is_refused(self):
        with pytest.raises(ValueError, match="the task spread counts no costs"):
            legoswarm.configure("spread", cost_limit=0.1)

    def test_a_population_that_nobody_meets_is_refused(self):
        with pytest.raises(ValueError, match="the task spread has one role that acts: it meets no population"):
            legoswarm.configure("spread", population=3)

    def test_every_option_is_read_and_every_role_told_of(self):
        """By the whole program of a task with two roles, traced; what it learns with keeps its shapes."""
        read = set()

        @dataclasses.dataclass(frozen=True, eq=False)
        class Recorder(Masac):
            def __getattribute__(self, name):
                read.add(name)
                return super().__getattribute__(name)

        names = ("actor_loss", "critic_loss", "entropy", "gradient", "learning_rate", "return", "temperature")
        costs = ("cost", "cost_weight")
        for limit, task, roles, told in (
            (0.0, CHASE, ("pursuer", "evader"), names),
            (0.1, Toll(), ("agent",), (*names, *costs)),
        ):
            config = TrainConfig(task, TINY, Recorder(envs=4, samples=8, cost_limit=limit), steps=40)
            read.clear()  # the checks at construction do not count
            program = make_train(config)
            start = jax.eval_shape(program.init, jax.random.key(0))
            state, metrics = jax.eval_shape(program.advance, start, jnp.array(1))
            assert eqx.tree_equal(start, state)
            assert set(metrics) == {f"{role}/{name}" for role in roles for name in told}
        assert {field.name for field in dataclasses.fields(Masac)} <= read


class TestSquash:
    DECISION = Decision(jnp.array([0.3, -0.6]), jnp.array([-0.5, -0.2]), Frame(jnp.asarray(TURN)), 1.5)

    def test_densities_sum_to_one(self):
        """Over the square that all actions lie in, by the midpoint rule."""
        count, bound = 600, self.DECISION.squash
        axis = (np.arange(count) + 0.5) / count * 2 * bound - bound
        grid = jnp.asarray(np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2), jnp.float32)
        density = np.exp(np.asarray(jax.vmap(self.DECISION.log_prob)(grid), float))
        assert abs(density.sum() * (2 * bound / count) ** 2 - 1) < 2e-3

    def test_densities_in_numpy(self):
        """The Gaussian's density where the action comes from, over how much the squash shrinks what is around it."""
        mean, deviation = np.asarray(self.DECISION.mean, float), np.exp(np.asarray(self.DECISION.log_std, float))
        before = np.random.default_rng(0).normal(mean, deviation, (100, 2))
        action = 1.5 * np.tanh(before / 1.5)
        gaussian = -0.5 * ((before - mean) / deviation) ** 2 - np.log(deviation * np.sqrt(2 * np.pi))
        expected = (gaussian - np.log(1 - np.tanh(before / 1.5) ** 2)).sum(-1)
        found = jax.vmap(self.DECISION.log_prob)(jnp.asarray(action, jnp.float32))
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)

    def test_small_actions_are_left_alone_and_large_ones_bounded(self):
        decision = dataclasses.replace(self.DECISION, mean=jnp.array([0.01, -100.0]))
        np.testing.assert_allclose(decision.mode, [0.01, -1.5], rtol=1e-4)
        plain = dataclasses.replace(self.DECISION, squash=0.0)
        key = jax.random.key(3)
        np.testing.assert_allclose(self.DECISION.sample(key), 1.5 * np.tanh(plain.sample(key) / 1.5), rtol=1e-5)

    def test_numbers_and_gradients_at_the_bound(self):
        def told(mean):
            decision = dataclasses.replace(self.DECISION, mean=mean)
            return decision.log_prob(decision.mode) + decision.log_slope(decision.mode)

        value, gradient = jax.value_and_grad(told)(jnp.array([1000.0, -1000.0]))
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


@functools.cache
def judges():
    critic = random_weights(functools.partial(PairCritic, Policy(width=8), TAG, acts=True))
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 0.1]), critic)
    return jax.jit(lambda scenes, action: values(both, scenes, action, "pursuer"), compiler_options=FAST)


def judged_by(critics, scenes, action):
    """What two critics of evaders say."""
    run = jax.jit(lambda *args: values(*args, "evader"), compiler_options=FAST)
    return np.asarray(run(critics, scenes, action), float)


def judge(scenes, action):
    """The values of two random critics for every member of the first role, in each of some scenes."""
    return np.asarray(judges()(stack(scenes), jnp.asarray(action, jnp.float32)), float)


@pytest.fixture(scope="module")
def judged():
    """Scenes, actions, who is there of the first role, and what two random critics say."""
    rng = np.random.default_rng(5)
    scenes, action = [random_scene(rng, TAG) for _ in range(8)], rng.normal(0, 2, (8, TAG.agents, 2))
    there = np.stack([np.asarray(scene.exists)[TAG.block("pursuer")] for scene in scenes])
    return scenes, action, there, judge(scenes, action)


class TestCritics:
    def check(self, found, expected, there):
        scale = np.abs(expected[:, there]).max()
        assert np.abs(found - expected)[:, there].max() < 1e-4 * scale

    @pytest.mark.parametrize("mirror", [False, True])
    def test_rotations_reflections_and_translations(self, judged, mirror):
        scenes, action, there, expected = judged
        turn = orthogonal(0.7, mirror)
        moved = [transform(scene, turn, (2.0, -1.0)) for scene in scenes]
        self.check(judge(moved, action @ turn.T), expected, there)
        assert np.abs(judge(moved, action) - expected)[:, there].max() > 1e-2  # actions are turned along, or not

    def test_exchanged_entities(self, judged):
        rng, (scenes, action, there, expected) = np.random.default_rng(6), judged
        moved, orders = zip(*(permute(scene, rng) for scene in scenes), strict=True)
        agents = np.stack(orders)[:, : TAG.agents]
        members = agents[:, TAG.block("pursuer")]
        found = judge(moved, np.take_along_axis(action, agents[..., None], 1))
        expected = np.take_along_axis(expected, members[None], 2)
        self.check(found, expected, np.take_along_axis(there, members, 1))

    def test_who_is_not_there_does_not_count(self, judged):
        scenes, action, there, expected = judged
        missing = ~np.stack([np.asarray(scene.exists)[: TAG.agents] for scene in scenes])
        self.check(judge(scenes, np.where(missing[..., None], 50.0, action)), expected, there)

    def test_an_action_of_nothing_has_a_gradient(self):
        critic = random_weights(functools.partial(PairCritic, Policy(width=8), SPREAD, acts=True))
        scene = random_scene(np.random.default_rng(0), SPREAD)
        slope = jax.grad(lambda action: critic(scene, "agent", jnp.array(0), action))
        slope = jax.jit(slope, compiler_options=FAST)(jnp.zeros((SPREAD.agents, 2)))
        assert np.isfinite(slope).all()


class TestReplay:
    def rows(self, first, count):
        """Experience whose rewards are numbered."""
        empty = Replay.empty(Yard(), count).rows
        return eqx.tree_at(
            lambda rows: rows.reward, empty, jnp.arange(first, first + count)[:, None] + jnp.zeros((1, 2))
        )

    def test_the_newest_take_the_place_of_the_oldest(self):
        replay = Replay.empty(Yard(), 7)
        for first, filled, kept in [(0, 3, [0, 1, 2]), (3, 6, range(6)), (6, 7, range(2, 9)), (9, 7, range(5, 12))]:
            replay = replay.store(self.rows(float(first), 3))
            assert int(replay.filled) == filled
            assert sorted(np.asarray(replay.rows.reward)[:filled, 0].tolist()) == list(kept)

    def test_samples_are_what_is_there_each_as_likely(self):
        replay = Replay.empty(Yard(), 50).store(self.rows(1.0, 5))
        drawn = np.asarray(replay.sample(5000, key=jax.random.key(0)).reward)[:, 0]
        numbers, counts = np.unique(drawn, return_counts=True)
        assert numbers.tolist() == [1, 2, 3, 4, 5]
        assert np.abs(counts - 1000).max() < 5 * math.sqrt(800)


def random_learner(algorithm, policy, task, seed=0):
    """A learner with random weights, which takes no compiler, and an empty replay."""
    build = functools.partial(algorithm.init, random_policies(policy, task.layout), task, 10)
    learner = random_weights(build, seed)

    def empty(role, one):
        parts = ValueNorm.fresh(task.layout.members(role)), jax.tree.map(jnp.zeros_like, one.optimizer)
        return eqx.tree_at(lambda one: (one.rewards, one.optimizer), one, parts)

    roles = {role: empty(role, one) for role, one in learner.roles.items()}
    return Learner(roles, jax.tree.map(jnp.zeros_like, learner.replay), learner.past)


def random_experience(task, count, seed=0):
    """Rows of random scenes, actions and rewards; teams of any size, every other episode has ended for good."""
    rng, layout = np.random.default_rng(seed), task.layout
    scenes = [random_scene(rng, layout, hidden=0.0) for _ in range(2 * count)]
    after = [eqx.tree_at(lambda s: s.exists, b, a.exists) for a, b in zip(scenes[:count], scenes[count:], strict=True)]
    reward, action = rng.normal(-3, 2, (count, layout.agents)), rng.normal(0, 1, (count, layout.agents, 2))
    parts = stack(scenes[:count]), stack(after), np.float32(action), np.float32(reward), np.arange(count) % 2 == 0
    return Experience(*jax.tree.map(jnp.asarray, parts))


ONE_STEP = dataclasses.replace(SMALL, lr=0.05, grad_norm=1e6, tau=0.25, anneal=False)


@pytest.fixture(scope="module")
def one_step():
    """Learners of Tag whose actions have no noise to speak of, experience, and the program of the evaders' step."""
    batch, roles = random_experience(CHASE, 6), {}
    for role, one in random_learner(ONE_STEP, TINY, CHASE).roles.items():
        quiet = jnp.full(2, -9.0), jnp.log(jnp.array(0.01))
        one = eqx.tree_at(lambda one: (one.learned.actor.log_std, one.learned.log_temperature), one, quiet)
        roles[role] = ONE_STEP._rescaled(one, batch, role)

    def step(roles, batch):
        return ONE_STEP.improve(roles, "evader", batch, 10, key=jax.random.key(4))

    return roles, batch, compiled(step, roles, batch)


class TestOneStep:
    def expected_target(self, roles, batch):
        """r + gamma (min Q' + temperature H') in the critics' units, and just r where an episode has ended for good."""
        scene = batch.next_scene
        position, velocity, exists = (np.asarray(x, float) for x in (scene.position, scene.velocity, scene.exists))
        offsets = (position[:, None] - position[:, :5, None]) * exists[:, None, :, None]
        seen = np.concatenate([velocity[:, :5], offsets.sum(2)], -1)
        weights = [np.asarray(roles[role].learned.actor.weight, float) for role in ("pursuer", "evader")]
        action = 8 * np.tanh(np.concatenate([seen[:, :2] @ weights[0], seen[:, 2:] @ weights[1]], 1) / 8) @ TURN.T
        found = judged_by(roles["evader"].targets.reward, scene, jnp.asarray(action, jnp.float32))
        entropy = 2 * (0.5 * np.log(2 * np.pi * np.e) - 9) + np.log(1 - (action[:, 2:] / 8) ** 2).sum(-1)
        soft = found.min(0) + 0.01 * entropy
        there, reward = exists[:, 2:5] > 0, np.asarray(batch.reward, float)[:, 2:]
        target, size, goes_on = np.zeros((6, 3)), there.sum(1), ~np.asarray(batch.terminated)[:, None]
        for n in set(size) - {0}:
            own = reward[size == n][there[size == n]]
            mean, deviation = own.mean() / 0.1, np.sqrt(max(own.var(), 0.01)) / 0.1
            later = 0.9 * goes_on * (mean + deviation * soft)
            target[size == n] = ((reward + later - mean) / deviation)[size == n]
        return target, there

    def test_critics_in_numpy(self, one_step):
        """The loss, Adam's first step for the last layer's constant, and the targets a quarter of the way behind."""
        roles, batch, step = one_step
        learner = roles["evader"]
        after, info = step(roles, batch)
        target, there = self.expected_target(roles, batch)
        error = np.where(there, judged_by(learner.learned.critics.reward, batch.scene, batch.action) - target, 0)
        np.testing.assert_allclose(info["critic_loss"], (error**2).sum() / (2 * there.sum()), rtol=1e-3)
        slope = 2 * error.sum((1, 2)) / (2 * there.sum())
        bias = [np.asarray(one.learned.critics.reward.head.bias, float)[:, 0] for one in (learner, after)]
        np.testing.assert_allclose(bias[1] - bias[0], -0.05 * slope / (np.abs(slope) + 1e-5), rtol=1e-3)
        old, new, slow = (named_leaves(x) for x in (learner.targets, after.learned.critics, after.targets))
        for name, leaf in slow.items():
            np.testing.assert_allclose(leaf, old[name] + 0.25 * (new[name] - old[name]), atol=1e-5)

    def test_the_temperature_rises_for_want_of_noise(self, one_step):
        roles, batch, step = one_step
        after, info = step(roles, batch)
        assert float(info["entropy"]) < -10
        found = after.learned.log_temperature - roles["evader"].learned.log_temperature
        np.testing.assert_allclose(found, 0.05, rtol=1e-3)

    def test_only_what_has_ended_for_good_has_no_future(self, one_step):
        """Other next scenes: the targets change where an episode goes on, time limit or not, and nowhere else."""
        roles, batch, _ = one_step
        learner, other = (
            roles["evader"],
            eqx.tree_at(lambda b: b.next_scene.position, batch, replace_fn=lambda x: x / 2),
        )
        actors, key = {role: one.learned.actor for role, one in roles.items()}, jax.random.key(0)
        target = jax.jit(lambda b: ONE_STEP.target(learner, actors, b, "evader", key=key)[0], compiler_options=FAST)
        changed = np.asarray(target(batch) != target(other)) & np.asarray(batch.exists("evader"))
        ended = np.asarray(batch.terminated)
        assert not changed[ended].any()
        dead = eqx.tree_at(lambda b: b.next_scene.exists, batch, replace_fn=lambda x: x.at[:, 2].set(False))
        over = eqx.tree_at(lambda b: b.terminated, batch, replace_fn=jnp.ones_like)
        np.testing.assert_array_equal(target(dead)[:, 0], target(over)[:, 0])
        assert (changed.any(-1) == np.asarray(batch.exists("evader")).any(-1))[~ended].all()

    def test_a_team_that_has_lost_a_member_is_valued_as_the_smaller_team_that_it_is(self, one_step):
        """Critics speak in units of a team's size: what follows is decoded in those of the team that is left."""
        roles, batch, _ = one_step
        learner, actors = roles["evader"], {role: one.learned.actor for role, one in roles.items()}
        both = eqx.tree_at(lambda b: b.scene.exists, batch, replace_fn=jnp.ones_like)
        both = eqx.tree_at(lambda b: b.terminated, both, replace_fn=jnp.zeros_like)
        one_left = eqx.tree_at(
            lambda b: b.next_scene.exists, both, replace_fn=lambda x: jnp.ones_like(x).at[:, 3:5].set(False)
        )
        key = jax.random.key(0)
        found = ONE_STEP.target(learner, actors, one_left, "evader", key=key)[0][:, 0]
        value, entropy, _ = outlook(learner.targets, actors, one_left.next_scene, "evader", key=key)
        soft = (value + jnp.exp(learner.learned.log_temperature) * entropy)[:, 0]
        units = []
        for there in (one_left.exists("evader"), one_left.next_scene.exists[:, 2:5]):
            mean, deviation = learner.rewards.statistics(there, ONE_STEP.reward_floor)
            units.append((mean[:, 0] / 0.1, deviation[:, 0] / 0.1))
        (mean, deviation), (next_mean, next_deviation) = units
        assert np.abs(mean - next_mean).max() > 0.1
        expected = (one_left.reward[:, 2] + 0.9 * (next_mean + next_deviation * soft) - mean) / deviation
        np.testing.assert_allclose(found, expected, rtol=1e-4)

    def test_who_is_not_there_teaches_nothing(self, one_step):
        roles, batch, step = one_step
        gone = ~batch.scene.exists

        def odd(rows):
            return jnp.where(gone[:, : rows.shape[1]].reshape(6, -1, *[1] * (rows.ndim - 2)), 9.0, rows)

        def told(b):
            return b.reward, b.action, b.scene.position, b.scene.velocity, b.next_scene.position

        odd = eqx.tree_at(told, batch, tuple(odd(rows) for rows in told(batch)))
        assert gone.any()
        for one, two in zip(*(jax.tree.leaves(step(roles, b)[0].learned) for b in (batch, odd)), strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5)


@pytest.fixture(scope="module")
def spread():
    """One agent and one landmark, which a linear map can reach: the first state and the programs."""
    program = make_train(TrainConfig(Spread(agents=1), TINY, SMALL, steps=16 * 400))
    key = jax.random.key(0)
    start = compiled(program.init, key)(key)
    advance = compiled(program.advance, start, jnp.array(1))
    return start, advance, compiled(lambda s: program.evaluate(s, jax.random.key(1), 200)["return_2c"], start)


class TestTraining:
    def test_first_nobody_learns_then_critics_then_all(self, spread):
        """During the warmup, the patience and afterwards: after 96, 128 and 144 transitions."""
        start, advance, _ = spread
        for count, learners in [(6, set()), (8, {"critics"}), (9, {"critics", "actor", "log_temperature"})]:
            after = advance(start, jnp.array(count))[0]
            one, two = (named_leaves(s.learners.roles["agent"].learned) for s in (start, after))
            assert all((one[name] != two[name]).any() == (name.split("/")[0] in learners) for name in one)

    def test_the_replay_is_not_copied(self):
        """It may take most of the memory, and copying it most of the time."""
        config = TrainConfig(Spread(agents=1), TINY, dataclasses.replace(SMALL, capacity=500_000), steps=16 * 400)
        program = make_train(config)
        start = jax.eval_shape(program.init, jax.random.key(0))
        needs = compiled(program.advance, start, jnp.array(1)).memory_analysis()
        replay = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(start.learners.replay))
        assert needs.output_size_in_bytes > replay > 4e7
        assert needs.temp_size_in_bytes < 0.5 * replay

    def test_resumed_it_ends_as_if_nothing_had_happened(self, spread, tmp_path):
        """The ring has begun anew by then."""
        start, advance, _ = spread
        straight = advance(start, jnp.array(80))[0]
        write_arrays(tmp_path / "state", named_leaves(advance(start, jnp.array(70))[0]))
        resumed = advance(rebuild(start, read_arrays(tmp_path / "state"), "state"), jnp.array(10))[0]
        assert int(resumed.learners.replay.place) == 80 * 16 % 1000
        one, two = named_leaves(straight), named_leaves(resumed)
        assert one.keys() == two.keys()
        for name, leaf in one.items():
            np.testing.assert_array_equal(leaf, two[name], err_msg=name)

    def test_it_learns(self, spread):
        """A fresh policy earns -22, one that goes straight to the landmark about -4."""
        start, advance, score = spread
        state, metrics = advance(start, jnp.array(400))
        assert state.healthy
        assert all(np.isfinite(value) for value in metrics.values())
        assert float(score(start)) < -15
        assert float(score(state)) > -8


class TestPopulation:
    MANY = dataclasses.replace(SMALL, envs=4, samples=8, warmup=4, patience=0, population=3)

    def test_it_holds_the_last_actors_of_every_era_so_far(self):
        program = make_train(TrainConfig(CHASE, TINY, self.MANY, steps=4 * 6))
        state = jax.jit(program.init, compiler_options=FAST)(jax.random.key(0))
        advance, actors = compiled(program.advance, state, jnp.array(1)), []
        for _ in range(4):
            actors.append(self.MANY.actors(state.learners))
            state = advance(state, jnp.array(1))[0]
        for place, iteration in ((0, 1), (1, 3), (2, 0)):  # eras take two iterations; the third has not begun
            kept = jax.tree.map(lambda leaf, place=place: leaf[place], state.learners.past)
            assert eqx.tree_equal(kept, actors[iteration])
        assert not eqx.tree_equal(actors[1], actors[3])

    def test_every_other_time_the_others_are_of_an_era_so_far(self):
        learner = random_learner(self.MANY, TINY, CHASE)
        past = jax.tree.map(
            lambda leaf: leaf.at[:].set(jnp.arange(3.0).reshape(3, *[1] * (leaf.ndim - 1))), learner.past
        )

        def which(key):
            return opponents(learner.roles, past, jnp.array(1), key=key)["evader"].log_std[0]

        drawn = np.asarray(jax.vmap(which)(jax.random.split(jax.random.key(0), 4000)))
        now = float(learner.roles["evader"].learned.actor.log_std[0])
        shares = [(drawn == value).mean() for value in (now, 0.0, 1.0, 2.0)]
        np.testing.assert_allclose(shares, [0.5, 0.25, 0.25, 0.0], atol=0.03)

    def test_a_role_learns_against_them(self):
        """Its critics expect their next actions, not those of the actors of now; its own actor is the one of now."""
        learner, other = (random_learner(self.MANY, TINY, CHASE, seed) for seed in (0, 1))
        batch, key = random_experience(CHASE, 8), jax.random.key(0)
        now, then = self.MANY.actors(learner), self.MANY.actors(other)

        @functools.partial(jax.jit, compiler_options=FAST)
        def losses(everybody):
            after, info = self.MANY.improve(learner.roles, "pursuer", batch, 10, everybody=everybody, key=key)
            return after.learned, info["critic_loss"], info["actor_loss"]

        usual, past = losses(now), losses({**now, "evader": then["evader"]})
        assert eqx.tree_equal(usual, losses({**now, "pursuer": then["pursuer"]}))
        assert usual[1] != past[1]
        assert usual[2] != past[2]


@pytest.fixture(scope="module")
def toll():
    """A program that trains with a limit on costs, and one that evaluates."""
    limited = dataclasses.replace(SMALL, cost_limit=0.05, cost_start=0.2)  # from the hundredth step on
    program = make_train(TrainConfig(Toll(), TINY, limited, steps=16 * 500))
    start = jax.jit(program.init, compiler_options=FAST)(jax.random.key(0))
    figures = compiled(lambda state: program.evaluate(state, jax.random.key(1), 200), start)
    return start, compiled(program.advance, start, jnp.array(1)), figures


class TestCosts:
    def test_their_critic_in_numpy(self):
        """It learns c + gamma Q_c' of its own target, in the units of costs."""
        masac = dataclasses.replace(SMALL, cost_limit=0.05)
        role = random_learner(masac, TINY, Toll()).roles
        batch = random_experience(Toll(), 8)
        cost = np.random.default_rng(0).uniform(size=batch.reward.shape).astype(np.float32)
        batch = dataclasses.replace(batch, cost=jnp.asarray(cost))
        one, actors = role["agent"], {"agent": role["agent"].learned.actor}
        found = masac.target(one, actors, batch, "agent", key=jax.random.key(0))[1]
        later = outlook(one.targets, actors, batch.next_scene, "agent", key=jax.random.key(0))[2]
        goes_on = ~np.asarray(batch.terminated)[:, None] & np.asarray(batch.next_scene.exists[:, :1])
        np.testing.assert_allclose(found, cost + 0.9 * goes_on * np.asarray(later), rtol=1e-5)
        assert np.abs(later).min() > 0

    def test_they_weigh_more_while_they_are_above_the_limit_and_less_below(self, toll):
        start, advance, _ = toll
        before, metrics = advance(start, jnp.array(95))
        assert float(metrics["agent/cost_weight"]) == 0.0
        assert float(before.learners.roles["agent"].learned.log_weight) == pytest.approx(math.log(SMALL.multiplier))
        state, metrics = advance(before, jnp.array(60))
        assert float(metrics["agent/cost"]) > 0.05
        assert float(state.learners.roles["agent"].learned.log_weight) > math.log(SMALL.multiplier) + 0.1
        high = eqx.tree_at(lambda s: s.learners.roles["agent"].learned.log_weight, state, jnp.log(jnp.array(50.0)))
        within = advance(high, jnp.array(1))[0].learners.roles["agent"].learned.log_weight
        assert float(within) <= math.log(SMALL.multiplier_most) + 1e-6

    def test_they_are_kept_near_the_limit(self, toll):
        """Without a limit agents stand where they pay."""
        start, advance, figures = toll
        bounded = figures(advance(start, jnp.array(500))[0])
        free = make_train(TrainConfig(Toll(), TINY, SMALL, steps=16 * 500))
        begun = jax.jit(free.init, compiler_options=FAST)(jax.random.key(0))
        unbounded = figures_of(free, compiled(free.advance, begun, jnp.array(1))(begun, jnp.array(500))[0])
        assert float(unbounded["cost"]) > 0.5
        assert float(bounded["cost"]) < 0.2


def figures_of(program, state):
    return compiled(lambda s: program.evaluate(s, jax.random.key(1), 200), state)(state)


def test_lego_stays_equivariant():
    """After a large step and with a squash that is felt: actions turn with the scene."""
    policy, task = policy_of(width=8, depth=0, encoder="deepsets", critic="none", squash=0.5), Spread(agents=2)
    roles, batch = random_learner(ONE_STEP, policy, task).roles, random_experience(task, 8)

    def learned(roles, batch):
        return ONE_STEP.improve(roles, "agent", batch, 10, key=jax.random.key(4))[0].learned.actor

    actor = compiled(learned, roles, batch)(roles, batch)
    assert float(jnp.abs(actor.head.weight - roles["agent"].learned.actor.head.weight).min()) > 0.04

    def act(scene):
        decisions = decide({"agent": actor}, scene)
        return world_actions(task.layout, decisions, {role: d.mode for role, d in decisions.items()})

    act, rng = jax.jit(jax.vmap(act), compiler_options=FAST), np.random.default_rng(3)
    scenes = [random_scene(rng, task.layout, empty=False) for _ in range(40)]
    before = np.asarray(act(stack(scenes)), float)
    assert np.abs(before).max() > 0.25
    for mirror in (False, True):
        turn = orthogonal(2.1, mirror)
        after = np.asarray(act(stack([transform(scene, turn, (3.0, 1.0)) for scene in scenes])))
        np.testing.assert_allclose(after, before @ turn.T, atol=1e-3)
