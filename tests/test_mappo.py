"""The MAPPO update: normalisation, losses and gradients against NumPy, minibatches, annealing, teams."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenes import make_scene, random_scene

from legoswarm.layout import Layout
from legoswarm.learn.algorithms.ippo import Ippo
from legoswarm.learn.algorithms.mappo import (
    Batch,
    Mappo,
    _prepare,
    _split,
    losses,
    make_optimizer,
    new_learner,
    value_of,
)
from legoswarm.learn.rollout import Transition, collect
from legoswarm.learn.scales import ValueNorm
from legoswarm.learn.train import TrainConfig, make_train
from legoswarm.policies.networks.roles import make_policies
from legoswarm.policies.policy import POLICIES
from legoswarm.scene import observe
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from tests.policies import policy_of
from tests.tiny import FAST, TINY, TURN, Yard, compiled, random_policies

ROWS, MEMBERS = 12, 3
LAYOUT = Layout(("agent", "flag"), (MEMBERS, 1))
SMALL = {"width": 12, "depth": 1, "heads": 2}
CONFIG = Mappo(envs=4, rollout=3, clip=0.2, entropy=0.03, huber=0.5, gamma=0.99, lam=0.95, value_decay=0.99)


def floats(tree):
    return jax.tree.map(lambda x: np.asarray(x, float), tree)


def make_batch(seed=0, mask=None):
    """Random rows whose ratios and values lie on both sides of the clipping range."""
    rng = np.random.default_rng(seed)
    position, velocity = rng.uniform(-1, 1, (2, ROWS, MEMBERS + 1, 2)).astype(np.float32)
    mask = np.arange(MEMBERS)[None] < rng.integers(1, MEMBERS + 1, (ROWS, 1)) if mask is None else mask
    exists = np.concatenate([mask, np.ones((ROWS, 1), bool)], 1)
    visible = np.ones((ROWS, MEMBERS, MEMBERS + 1), bool)
    scene = jax.vmap(lambda *parts: make_scene(LAYOUT, *parts))(position, velocity, exists, visible)
    local = rng.normal(0, 1, (ROWS, MEMBERS, 2))
    policy = make_policies(TINY, LAYOUT, key=jax.random.key(seed))["agent"]
    log_prob = reference_log_prob(policy.actor, position, velocity, exists, local)
    log_prob = log_prob + rng.uniform(-0.6, 0.6, log_prob.shape)
    value = reference_value(policy.critic, position, velocity, exists) + rng.uniform(-0.6, 0.6, log_prob.shape)
    advantage, target = rng.normal(0, 1, (2, ROWS, MEMBERS))
    numbers = (jnp.asarray(x, jnp.float32) for x in (local, log_prob, advantage, target, value))
    return policy, Batch(scene, *numbers, jnp.asarray(mask))


def seen(position, velocity, exists):
    """The features of every agent."""
    offsets = position[:, None] - position[:, :MEMBERS, None]
    return np.concatenate([velocity[:, :MEMBERS], (offsets * exists[:, None, :, None]).sum(2)], -1)


def reference_log_prob(actor, position, velocity, exists, local):
    actor = floats(actor)
    noise = (local - seen(position, velocity, exists) @ actor.weight) / np.exp(actor.log_std)
    return -0.5 * (noise**2).sum(-1) - actor.log_std.sum() - np.log(2 * np.pi)


def reference_value(critic, position, velocity, exists):
    critic = floats(critic)
    features = seen(position, velocity, exists)
    return features @ critic.weight + position[:, :MEMBERS] @ critic.place + critic.bias


def scene_arrays(batch):
    scene = batch.scene
    return np.asarray(scene.position, float), np.asarray(scene.velocity, float), np.asarray(scene.exists)


def huber(error, delta):
    size = np.abs(error)
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


class TestConfig:
    @pytest.mark.parametrize(
        "changes",
        [
            {"envs": 0},
            {"rollout": 0},
            {"epochs": 0},
            {"minibatches": 0},
            {"envs": 4, "rollout": 3, "minibatches": 5},
            {"lr": 0.0},
            {"clip": 0.0},
            {"grad_norm": -1.0},
            {"huber": 0.0},
            {"gamma": 1.1},
            {"lam": -0.1},
            {"value_decay": 1.0},
            {"lr": float("nan")},
            {"gamma": float("nan")},
        ],
        ids=str,
    )
    def test_impossible_values_are_refused(self, changes):
        with pytest.raises(ValueError, match=r"must|cannot"):
            Mappo(**changes)

    def test_steps_below_one_batch_are_refused(self):
        with pytest.raises(ValueError, match="99 steps are not one to 2\\^31 batches of 10 envs x 10 steps"):
            TrainConfig(Spread(), policy_of("lego"), Mappo(envs=10, rollout=10), steps=99)


def recorder(kind, read):
    """A subclass that notes which fields are looked at; comparing and hashing do not count."""

    @dataclasses.dataclass(frozen=True, eq=False)
    class Recorder(kind):
        __eq__, __hash__ = object.__eq__, object.__hash__

        def __getattribute__(self, name):
            read.add(name)
            return super().__getattribute__(name)

    return Recorder


def names(kind):
    return {field.name for field in dataclasses.fields(kind)}


class TestEveryFieldIsRead:
    """A field that nobody reads would be an option without effect; the checks at construction do not count."""

    def test_of_a_training(self):
        training, algorithm = set(), set()
        method = recorder(Mappo, algorithm)(envs=4, rollout=3)
        config = recorder(TrainConfig, training)(Yard(), TINY, method, steps=24)
        training.clear(), algorithm.clear()
        program = make_train(config)
        state = jax.eval_shape(program.init, jax.random.key(0))
        jax.eval_shape(program.advance, state, jnp.array(1))
        assert names(TrainConfig) - training == set()
        assert names(Mappo) - algorithm == set()

    @pytest.mark.parametrize("name", [name for name in POLICIES.names() if POLICIES.own(name)])
    def test_of_a_policy(self, name):
        """Building and asking its networks looks at every field, if not with its own critic then with that of pairs."""
        policy, read = POLICIES[name], set()
        small = {option: value for option, value in SMALL.items() if option in names(policy)}
        scene = random_scene(np.random.default_rng(0), LAYOUT)
        for critic in ["full"] if name == "pic" else ["full", "pairs"]:
            now = set()
            chosen = recorder(policy, now)(critic=critic, **small)
            now.clear()

            def ask(key, chosen=chosen):
                built = make_policies(chosen, LAYOUT, key=key)["agent"]
                return built.actor(observe(scene, "agent", 0)), built.critic(scene, "agent", jnp.array(0))

            jax.eval_shape(ask, jax.random.key(0))
            read |= now
        without = {"precision"} if name == "pic" else set()  # stores no hidden layers, and has no critic but its own
        assert names(policy) - read == without


def sum_of_losses(policy, batch, config):
    return losses(policy, batch, "agent", config)


both = jax.jit(jax.value_and_grad(sum_of_losses, has_aux=True), static_argnums=2, compiler_options=FAST)


def gradients(policy, batch, config):
    return both(policy, batch, config)[1]


class TestLosses:
    def test_the_clipped_surrogate(self):
        policy, batch = make_batch()
        new = reference_log_prob(policy.actor, *scene_arrays(batch), np.asarray(batch.local, float))
        mask, advantage = np.asarray(batch.mask), np.asarray(batch.advantage, float)
        ratio = np.exp(new - np.asarray(batch.log_prob, float))
        for clipped in (ratio < 0.8, ratio > 1.2):
            assert (clipped & mask & (advantage > 0)).any()
            assert (clipped & mask & (advantage < 0)).any()
        gain = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
        entropy = np.asarray(policy.actor.log_std).sum() + 1 + np.log(2 * np.pi)
        _, info = both(policy, batch, CONFIG)[0]
        np.testing.assert_allclose(info["actor_loss"], -gain[mask].mean() - 0.03 * entropy, rtol=1e-5)
        np.testing.assert_allclose(info["entropy"], entropy, rtol=1e-6)
        np.testing.assert_allclose(info["kl"], (ratio - 1 - np.log(ratio))[mask].mean(), rtol=1e-4)

    @pytest.mark.parametrize(
        ("log_std", "ceiling", "pushes"),
        [(0.0, 2.0, True), (0.6, 2.0, True), (0.8, 2.0, False), (3.0, 2.0, False), (3.0, 25.0, True)],
    )
    def test_noise_is_rewarded_up_to_a_ceiling(self, log_std, ceiling, pushes):
        """By default a deviation of two, which is the logarithm of 0.69."""
        policy, batch = make_batch()
        policy = eqx.tree_at(lambda p: p.actor.log_std, policy, jnp.full(2, log_std))
        config = dataclasses.replace(CONFIG, noise_ceiling=ceiling)
        free = dataclasses.replace(CONFIG, entropy=0.0)
        slope = (gradients(policy, batch, config).actor.log_std - gradients(policy, batch, free).actor.log_std).sum()
        assert float(slope) == pytest.approx(-2 * 0.03 if pushes else 0.0, abs=1e-5)
        entropy = both(policy, batch, config)[0][1]["entropy"]
        np.testing.assert_allclose(entropy, 2 * log_std + 1 + np.log(2 * np.pi), rtol=1e-6)

    def test_ratios_beyond_all_bounds_stay_finite(self):
        policy, batch = make_batch()
        batch = eqx.tree_at(lambda b: b.log_prob, batch, batch.log_prob - 500.0)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients(policy, batch, CONFIG)))

    @pytest.mark.parametrize("clip_value", [True, False])
    def test_the_clipped_huber_loss(self, clip_value):
        policy, batch = make_batch()
        value = reference_value(policy.critic, *scene_arrays(batch))
        old, target, mask = np.asarray(batch.value, float), np.asarray(batch.target, float), np.asarray(batch.mask)
        plain = huber(value - target, 0.5)
        near = huber(old + np.clip(value - old, -0.2, 0.2) - target, 0.5)
        assert (np.abs(value - target) < 0.5)[mask].any()
        assert (np.abs(value - target) > 0.5)[mask].any()
        assert (near > plain + 0.01)[mask].any()
        assert (near < plain - 0.01)[mask].any()
        expected = np.maximum(plain, near) if clip_value else plain
        config = dataclasses.replace(CONFIG, clip_value=clip_value)
        loss, info = both(policy, batch, config)[0]
        np.testing.assert_allclose(info["critic_loss"], expected[mask].mean(), rtol=1e-5)
        np.testing.assert_allclose(loss, info["actor_loss"] + info["critic_loss"], rtol=1e-6)

    def test_absent_agents_have_no_gradient(self):
        """Whatever stands in the slots of absent agents, gradients are the same to the bit, and are not zero."""
        policy, batch = make_batch()

        def garbage(field):
            mask = batch.mask.reshape(*batch.mask.shape, *[1] * (field.ndim - 2))
            return jnp.where(mask, field, 1e3)

        names = ("local", "log_prob", "advantage", "target", "value")
        other = dataclasses.replace(batch, **{name: garbage(getattr(batch, name)) for name in names})
        place = jnp.where(batch.scene.exists[..., None], batch.scene.position, 55.0)
        other = eqx.tree_at(lambda b: b.scene.position, other, place)
        assert not np.asarray(batch.mask).all()
        pairs = (gradients(policy, b, CONFIG) for b in (batch, other))
        for one, two in zip(*map(jax.tree.leaves, pairs), strict=True):
            np.testing.assert_array_equal(one, two)
            assert np.abs(one).max() > 1e-4

    def test_rows_without_agents_count_for_nothing(self):
        full = np.ones((ROWS, MEMBERS), bool)
        policy, batch = make_batch(mask=full)
        half = jax.tree.map(lambda x: x[: ROWS // 2], batch)
        rest = jnp.asarray(full & (np.arange(ROWS) < ROWS // 2)[:, None])
        masked = dataclasses.replace(batch, mask=rest)
        short, long = (gradients(policy, b, CONFIG) for b in (half, masked))
        for one, two in zip(*map(jax.tree.leaves, (short, long)), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def make_rollout(seed, layout, rewards, exists):
    """Random transitions of one role, (time, worlds) in front."""
    rng = np.random.default_rng(seed)
    shape = rewards.shape[:2]

    def scenes():
        parts = rng.uniform(-1, 1, (2, *shape, layout.entities, 2)).astype(np.float32)
        everything = np.concatenate([exists, np.ones((*shape, layout.entities - layout.agents), bool)], -1)
        visible = np.ones((*shape, layout.agents, layout.entities), bool)
        return jax.vmap(jax.vmap(lambda *p: make_scene(layout, *p)))(*parts, everything, visible)

    local = jnp.asarray(rng.normal(0, 1, (*shape, layout.agents, 2)), jnp.float32)
    action = local @ TURN.T
    log_prob = jnp.asarray(rng.normal(0, 1, (*shape, layout.agents)), jnp.float32)
    flags = (jnp.asarray(rng.uniform(size=shape) < 0.2) for _ in range(2))
    reward = jnp.asarray(rewards, jnp.float32)
    return Transition(scenes(), scenes(), action, {"agent": local}, {"agent": log_prob}, reward, *flags)


@pytest.fixture(scope="module")
def prepare():
    policy = make_policies(TINY, LAYOUT, key=jax.random.key(0))["agent"]
    learner = new_learner(policy, make_optimizer(CONFIG, 1), MEMBERS)
    return jax.jit(
        lambda rollout, config: _prepare(config, learner, rollout, "agent"), static_argnums=1, compiler_options=FAST
    )


@pytest.fixture(scope="module")
def team():
    """Which agents exist, and their rewards."""
    rng = np.random.default_rng(1)
    exists = np.arange(MEMBERS) < rng.integers(1, MEMBERS + 1, (1, 6, 1))
    return exists.repeat(5, 0), rng.normal(2, 3, (5, 6, MEMBERS))


class TestPrepare:
    def test_advantages_are_normalised_over_the_agents_that_exist(self, prepare, team):
        """For each team size: larger teams have larger rewards, and would drown the smaller ones."""
        exists, rewards = team
        size = exists.sum(-1, keepdims=True)
        _, batch = prepare(make_rollout(0, LAYOUT, rewards * 10**size, exists), CONFIG)
        advantage, target, mask = (np.asarray(x, float) for x in (batch.advantage, batch.target, batch.mask))
        np.testing.assert_array_equal(mask, exists.reshape(-1, MEMBERS))
        for count in range(1, MEMBERS + 1):
            rows = (mask.sum(-1) == count)[:, None] & (mask > 0)
            assert rows.any()
            for values in (advantage, target):
                assert abs(values[rows].mean()) < 1e-4
                assert abs(values[rows].std() - 1) < 1e-3
        assert abs(advantage.mean()) > 1e-3

    def test_rewards_of_absent_agents_change_nothing(self, prepare, team):
        exists, rewards = team
        one = prepare(make_rollout(0, LAYOUT, rewards, exists), CONFIG)
        two = prepare(make_rollout(0, LAYOUT, np.where(exists, rewards, 1e4), exists), CONFIG)
        for a, b in zip(*map(jax.tree.leaves, (one[0], two[0])), strict=True):
            np.testing.assert_array_equal(a, b)
        mask = np.asarray(one[1].mask)
        for name in ("advantage", "target", "value"):
            np.testing.assert_array_equal(
                np.asarray(getattr(one[1], name))[mask], np.asarray(getattr(two[1], name))[mask]
            )

    def test_a_team_that_changes_is_bootstrapped_in_the_units_of_its_new_size(self):
        """Critics that say 0 mean the average of a size: 10 for two agents, 1000 for one; who has died has 0."""
        policy = make_policies(TINY, LAYOUT, key=jax.random.key(0))["agent"]
        policy = eqx.tree_at(lambda p: p.critic, policy, replace_fn=lambda c: jax.tree.map(jnp.zeros_like, c))
        norm = ValueNorm(
            *(
                jnp.zeros(MEMBERS + 1).at[jnp.array([1, 2])].set(jnp.array(x))
                for x in ([1e3, 10.0], [1e6, 100.0], [1.0, 1.0])
            )
        )
        learner = eqx.tree_at(lambda n: n.norm, new_learner(policy, make_optimizer(CONFIG, 1), MEMBERS), norm)
        two, one = (np.broadcast_to(np.arange(MEMBERS) < size, (1, 1, MEMBERS)) for size in (2, 1))
        before, after = (make_rollout(0, LAYOUT, np.zeros((1, 1, MEMBERS)), exists) for exists in (two, one))
        mixed = dataclasses.replace(before, next_scene=after.scene, terminated=jnp.zeros((1, 1), bool))
        prepare = jax.jit(lambda rollout: _prepare(CONFIG, learner, rollout, "agent")[0], compiler_options=FAST)
        norms = [prepare(rollout) for rollout in (before, mixed)]
        decay, gamma = CONFIG.value_decay, CONFIG.gamma
        expected = decay * 10 + (1 - decay) * gamma * (1000 + 0) / 2
        np.testing.assert_allclose(norms[1].mean[2], expected, rtol=1e-4)
        assert float(norms[0].mean[2]) < 11

    @pytest.mark.parametrize("change", [{"gamma": 0.5}, {"lam": 0.5}, {"value_decay": 0.5}], ids=str)
    def test_the_estimate_follows_its_configuration(self, prepare, team, change):
        exists, rewards = team
        rollout = make_rollout(0, LAYOUT, rewards, exists)
        config = dataclasses.replace(CONFIG, **change)
        (norm, batch), (other_norm, other) = prepare(rollout, CONFIG), prepare(rollout, config)
        if "value_decay" in change:
            weights = [float(each.weight.max()) for each in (norm, other_norm)]
            assert weights == pytest.approx([0.01, 0.5])
        else:
            assert np.abs(np.asarray(batch.advantage - other.advantage)).max() > 0.1
            assert np.abs(np.asarray(batch.target - other.target)).max() > 0.1


@pytest.fixture(scope="module")
def numbered():
    """A batch in which every field carries its row's number."""
    _, batch = make_batch()
    rows = np.arange(ROWS, dtype=np.float32)
    return jax.tree.map(
        lambda x: jnp.broadcast_to(rows.reshape(-1, *[1] * (x.ndim - 1)), x.shape).astype(x.dtype), batch
    )


class TestMinibatches:
    @pytest.mark.parametrize("minibatches", [2, 3, ROWS])
    def test_an_epoch_visits_every_row_once(self, numbered, minibatches):
        orders = []
        for seed in range(2):
            parts = _split(numbered, minibatches, jax.random.key(seed))
            rows = np.asarray(parts.advantage)[..., 0]
            assert rows.shape == (minibatches, ROWS // minibatches)
            assert sorted(rows.ravel().tolist()) == list(range(ROWS))
            for field in (parts.scene.position, parts.local, parts.log_prob, parts.target, parts.value):
                np.testing.assert_array_equal(np.asarray(field).reshape(ROWS, -1)[:, 0], rows.ravel())
            orders.append(rows.ravel().tolist())
        assert orders[0] != orders[1]
        assert sorted(orders[0]) != orders[0]

    def test_a_single_one_is_the_batch(self, numbered):
        part = _split(numbered, 1, jax.random.key(0))
        for one, all_ in zip(*map(jax.tree.leaves, (part, numbered)), strict=True):
            np.testing.assert_array_equal(one[0], all_)


class TestOptimizer:
    @pytest.mark.parametrize("anneal", [True, False])
    def test_the_rate_falls_linearly_to_zero(self, anneal):
        config = Mappo(envs=4, rollout=3, epochs=2, minibatches=3, lr=0.01, anneal=anneal)
        optimizer = make_optimizer(config, iterations=2)
        weights = jnp.zeros(3)
        state, sizes = optimizer.init(weights), []
        with jax.numpy_dtype_promotion("standard"):
            for _ in range(14):
                steps, state = optimizer.update(jnp.ones(3), state)
                sizes.append(-float(steps[0]))
        expected = 0.01 * (np.maximum(1 - np.arange(14) / 12, 0) if anneal else np.ones(14))
        np.testing.assert_allclose(sizes, expected, rtol=1e-3, atol=1e-9)  # Adam's step under a constant gradient

    def test_the_gradient_norm_is_limited(self):
        """Adam forgets a gradient's scale except for its epsilon: a tiny limit shows in it."""
        config = Mappo(envs=4, rollout=3, lr=0.01, anneal=False, grad_norm=1e-5)
        optimizer = make_optimizer(config, iterations=2)
        gradient = jnp.array([3.0, 4.0])
        with jax.numpy_dtype_promotion("standard"):
            steps, _ = optimizer.update(gradient, optimizer.init(jnp.zeros(2)))
        clipped = np.array([0.6e-5, 0.8e-5])
        np.testing.assert_allclose(steps, -0.01 * clipped / (clipped + 1e-5), rtol=1e-3)


class TestCritic:
    """IPPO's critic sees what its agent sees; MAPPO's sees everything."""

    @pytest.mark.parametrize(
        "policy",
        [
            policy_of(width=8, depth=0, encoder="deepsets"),
            policy_of(width=8, depth=0, encoder="deepsets", critic="pairs"),
            policy_of("mappo", width=8),
        ],
        ids=["lego", "pairs", "mappo"],
    )
    def test_hidden_entities(self, policy):
        layout = Layout(("pursuer", "evader", "obstacle"), (2, 2, 1), controlled=2)
        rng = np.random.default_rng(4)
        scene = random_scene(rng, layout, hidden=0.0, empty=False)
        hidden = np.ones((4, 5), bool)
        hidden[0, 2] = hidden[3, 1] = False  # pursuer 0 does not see evader 0, nor evader 1 pursuer 1
        scene = eqx.tree_at(lambda s: s.visible, scene, jnp.asarray(hidden))
        policies = random_policies(policy, layout)
        roles = [("pursuer", 0), ("pursuer", 1), ("evader", 0), ("evader", 1)]

        def all_values(scene):
            def values(algorithm):
                return jnp.stack([value_of(policies[r].critic, scene, r, jnp.array(m), algorithm) for r, m in roles])

            return {algorithm.name: values(algorithm) for algorithm in (CONFIG, Ippo())}

        run = compiled(all_values, scene)

        def changed(entity):
            before, after = (run(s) for s in (scene, eqx.tree_at(lambda s: s.position, scene, moved(entity))))
            return {name: (np.asarray(after[name]) != np.asarray(before[name])).tolist() for name in before}

        def moved(entity):
            return scene.position.at[entity].add(0.3)

        assert changed(2) == {"mappo": [True] * 4, "ippo": [False, True, True, True]}
        assert changed(1) == {"mappo": [True] * 4, "ippo": [True, True, True, False]}


def test_two_teams_learn_at_the_same_time():
    """One iteration moves both roles' actors and critics, each with its own optimiser and normalisation."""
    mappo = Mappo(envs=8, rollout=5, epochs=2, minibatches=4, lr=1e-2, value_decay=0.99)
    program = make_train(TrainConfig(Tag(pursuers=2, evaders=1, obstacles=1), TINY, mappo, steps=400))
    before = compiled(program.init, jax.random.key(0))(jax.random.key(0))
    advance = compiled(program.advance, before, jnp.array(1))
    after, metrics = advance(before, jnp.array(1))
    assert set(after.learners) == {"pursuer", "evader"}
    for role in ("pursuer", "evader"):
        old, new = before.learners[role], after.learners[role]
        for one, two in zip(*map(jax.tree.leaves, (old.policy, new.policy)), strict=True):
            assert (np.asarray(one) != np.asarray(two)).all()
        for opt in (new.actor_opt, new.critic_opt):
            counts = [int(x) for x in jax.tree.leaves(opt) if jnp.issubdtype(x.dtype, jnp.integer)]
            assert counts
            assert set(counts) == {mappo.epochs * mappo.minibatches}
        assert float(new.norm.weight.max()) == pytest.approx(0.01)
        assert np.isfinite([float(metrics[f"{role}/{name}"]) for name in ("actor_loss", "critic_loss", "kl")]).all()
    pursuer, evader = after.learners["pursuer"], after.learners["evader"]
    for name in ("actor_opt", "critic_opt"):
        pairs = zip(*(jax.tree.leaves(getattr(side, name)) for side in (pursuer, evader)), strict=True)
        assert any((np.asarray(one) != np.asarray(two)).any() for one, two in pairs)
    assert abs(pursuer.norm.mean).max() != abs(evader.norm.mean).max()

    # One role's update does not look at the other's learner: a change in it shows only through the worlds.
    shifted = eqx.tree_at(lambda s: s.learners["evader"].critic_opt, before, after.learners["evader"].critic_opt)
    other, _ = advance(shifted, jnp.array(1))
    for one, two in zip(*map(jax.tree.leaves, (other.learners["pursuer"], pursuer)), strict=True):
        np.testing.assert_array_equal(one, two)
    assert (other.learners["evader"].policy.critic.weight != evader.policy.critic.weight).any()
    np.testing.assert_array_equal(other.learners["evader"].policy.actor.weight, evader.policy.actor.weight)


def test_an_update_is_one_step_of_adam():
    """One epoch, one minibatch: clipped gradients of the losses, then Adam, redone by hand from the same rollout."""
    mappo = Mappo(envs=4, rollout=3, epochs=1, minibatches=1, lr=1e-2, grad_norm=0.05, anneal=False, entropy=0.01)
    program = make_train(TrainConfig(Yard(), TINY, mappo, steps=24))
    state = compiled(program.init, jax.random.key(0))(jax.random.key(0))

    def by_hand(state):
        policy = state.learners["agent"].policy
        _, key_collect, _ = jax.random.split(state.key, 3)
        _, rollout = collect(Yard(), {"agent": policy.actor}, state.worlds, key_collect, mappo.rollout)
        _, batch = _prepare(mappo, state.learners["agent"], rollout, "agent")
        return jax.grad(sum_of_losses, has_aux=True)(policy, batch, mappo)[0]

    gradients = compiled(by_hand, state)(state)
    after, _ = compiled(program.advance, state, jnp.array(1))(state, jnp.array(1))
    for name in ("actor", "critic"):
        old, gradient, new = (
            floats(getattr(policy, name))
            for policy in (state.learners["agent"].policy, gradients, after.learners["agent"].policy)
        )
        norm = np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradient)))
        assert norm > 2 * mappo.grad_norm
        clipped = jax.tree.map(lambda g, norm=norm: g * mappo.grad_norm / norm, gradient)
        expected = jax.tree.map(lambda w, g: w - 1e-2 * g / (np.abs(g) + 1e-5), old, clipped)
        for one, two in zip(*map(jax.tree.leaves, (new, expected)), strict=True):
            np.testing.assert_allclose(one, two, atol=2e-5)
