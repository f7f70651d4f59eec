"""Set encoders: order, masks, empty sets, and the paper's attention layer written out in loops."""

import dataclasses
import functools
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legoswarm.fast.attention import MANY
from legoswarm.layout import Layout
from legoswarm.learn.train import configure
from legoswarm.policies.encoders.encoder import ENCODERS, make_view_encoder, register_view_encoder
from legoswarm.policies.encoders.role_wise import Attention, DeepSets, RoleEncoder, register_encoder
from legoswarm.policies.networks.attention import AttentionLayer
from legoswarm.policies.networks.pooling import pool
from legoswarm.policies.networks.roles import make_policies
from legoswarm.policies.policy import POLICIES
from legoswarm.scene import Entities, View
from tests.policies import policy_of

SMALL = policy_of(width=16, depth=2, heads=4)
FEATURES = 4  # position and velocity in the plane
SETS = {"attention": Attention, "deepsets": DeepSets}
seeds = st.integers(0, 2**32 - 1)
each_encoder = pytest.mark.parametrize(
    "config",
    [dataclasses.replace(SMALL, encoder=e, pooling=p) for e in SETS for p in ("mean", "max")],
    ids=lambda config: f"{config.encoder}-{config.pooling}",
)


def make_encoder(config):
    return SETS[config.encoder](config, FEATURES, key=jax.random.key(1))


@functools.cache
def encoder(config):
    """A set encoder whose biases and scales are not those of its start, jitted."""
    module = make_encoder(config)
    leaves, tree = jax.tree.flatten(module)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    leaves = [leaf + 0.2 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return eqx.filter_jit(jax.tree.unflatten(tree, leaves))


def random_set(rng, slots=6, share=0.6):
    features = rng.normal(size=(slots, FEATURES)).astype(np.float32)
    return features, rng.uniform(size=slots) < share


def encode(config, features, mask):
    return np.asarray(encoder(config)(jnp.asarray(features), jnp.asarray(mask)))


@each_encoder
class TestSets:
    @given(seeds)
    def test_the_order_does_not_matter(self, config, seed):
        rng = np.random.default_rng(seed)
        features, mask = random_set(rng)
        order = rng.permutation(len(mask))
        before, after = encode(config, features, mask), encode(config, features[order], mask[order])
        np.testing.assert_allclose(after, before, atol=3e-6 * max(1, np.abs(before).max()))

    @given(seeds)
    def test_masked_entities_have_no_influence(self, config, seed):
        rng = np.random.default_rng(seed)
        features, mask = random_set(rng)
        garbage = np.where(mask[:, None], features, rng.choice([-1e6, 0, 1e6, 3], features.shape).astype(np.float32))
        np.testing.assert_array_equal(encode(config, garbage, mask), encode(config, features, mask))

    def test_seen_entities_have_an_influence(self, config):
        features, _ = random_set(np.random.default_rng(0))
        changed = features.copy()
        changed[2] += 1
        full = np.ones(6, bool)
        assert np.abs(encode(config, changed, full) - encode(config, features, full)).max() > 0.01
        assert np.abs(encode(config, features, full) - encode(config, features, np.arange(6) < 5)).max() > 0.01

    def test_padding_changes_nothing(self, config):
        features, _ = random_set(np.random.default_rng(1), slots=3)
        padded = np.concatenate([features, np.full((3, FEATURES), 1e6, np.float32)])
        tight = encode(config, features, np.ones(3, bool))
        np.testing.assert_allclose(encode(config, padded, np.arange(6) < 3), tight, atol=1e-5)

    def test_an_empty_set_is_exactly_zero(self, config):
        features, _ = random_set(np.random.default_rng(2))
        np.testing.assert_array_equal(encode(config, features, np.zeros(6, bool)), np.zeros(config.width))

    def test_no_slots_is_exactly_zero(self, config):
        empty = encode(config, np.zeros((0, FEATURES), np.float32), np.zeros(0, bool))
        np.testing.assert_array_equal(empty, np.zeros(config.width))

    @pytest.mark.parametrize("seen", [0, 1, 6])
    def test_gradients_are_finite(self, config, seen):
        features, _ = random_set(np.random.default_rng(3))

        def total(arguments, mask):
            module, features = arguments
            return module(features, mask).sum()

        mask = jnp.arange(6) < seen
        arguments = make_encoder(config), jnp.asarray(features)
        gradient = eqx.filter_jit(eqx.filter_grad(total))(arguments, mask)
        for leaf in jax.tree.leaves(gradient):
            assert np.isfinite(leaf).all()
        by_entity = np.abs(gradient[1]).sum(1)
        assert (by_entity[:seen].sum() > 0) == (seen > 0)
        np.testing.assert_array_equal(by_entity[seen:], 0)


class TestPooling:
    x = np.array([[1.0, -4.0], [3.0, -2.0], [100.0, 100.0]], np.float32)

    def pool(self, mask, pooling):
        return np.asarray(pool(jnp.asarray(self.x), jnp.asarray(mask), pooling))

    def test_values(self):
        mask = np.array([True, True, False])
        np.testing.assert_array_equal(self.pool(mask, "mean"), [2.0, -3.0])
        np.testing.assert_array_equal(self.pool(mask, "max"), [3.0, -2.0])

    @pytest.mark.parametrize("pooling", ["mean", "max"])
    def test_empty(self, pooling):
        np.testing.assert_array_equal(self.pool(np.zeros(3, bool), pooling), [0.0, 0.0])
        nothing = pool(jnp.zeros((0, 2)), jnp.zeros(0, bool), pooling)
        np.testing.assert_array_equal(nothing, [0.0, 0.0])


def attention_in_loops(layer, x, mask):
    """Equations 7 and 8 in float64, one pair of nodes and one head at a time; normalised before, sigma after."""

    x = np.asarray(x, float)
    width, heads = x.shape[1], layer.heads
    d = width // heads
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    query, key, value = np.split(centred / deviation @ np.asarray(layer.qkv.weight, float), 3, axis=1)
    result = x.copy()
    for u in range(len(x)):
        heard = np.zeros(width)
        for h in range(heads):
            part = slice(h * d, (h + 1) * d)
            alpha = {v: query[u, part] @ key[v, part] / np.sqrt(d) for v in range(len(x)) if mask[v]}
            total = sum(np.exp(score) for score in alpha.values())
            for v, score in alpha.items():
                heard[part] += np.exp(score) / total * value[v, part]
        result[u] += np.maximum(heard @ np.asarray(layer.sigma.weight, float) + np.asarray(layer.sigma.bias, float), 0)
    return result


@pytest.mark.parametrize("heads", [1, 4])
def test_attention_layer_equals_the_equations(heads):
    rng = np.random.default_rng(4)
    layer = AttentionLayer(16, heads, key=jax.random.key(5))
    leaves, tree = jax.tree.flatten(layer)
    layer = jax.tree.unflatten(
        tree, [leaf + jnp.asarray(rng.normal(0, 0.3, leaf.shape), jnp.float32) for leaf in leaves]
    )
    for slots in (1, 2, 5, MANY + 9):
        x = rng.normal(size=(slots, 16)).astype(np.float32)
        mask = rng.uniform(size=slots) < 0.7
        mask[0] = True
        ours = np.asarray(layer(jnp.asarray(x), jnp.asarray(mask)))
        np.testing.assert_allclose(ours, attention_in_loops(layer, x, mask), rtol=1e-4, atol=1e-4)


def test_attention_looks_at_others_and_deepsets_does_not():
    # A pooled mean is linear in single entities exactly if no entity looks at another.
    features, _ = random_set(np.random.default_rng(6), slots=2)

    def excess(config):
        pair = encode(config, features, np.array([True, True]))
        alone = [encode(config, features, np.array(mask)) for mask in ([True, False], [False, True])]
        return np.abs(pair - np.mean(alone, axis=0)).max()

    assert excess(dataclasses.replace(SMALL, encoder="deepsets")) < 1e-5
    assert excess(SMALL) > 0.01


class TestJoint:
    LAYOUT = Layout(("agent", "landmark"), (3, 2))

    def parts(self, encoder, agents):
        """The summaries of the agent itself and of each role, before they are fused, of an agent among `agents`."""
        config = dataclasses.replace(SMALL, encoder=encoder)
        module = make_view_encoder(config, self.LAYOUT, key=jax.random.key(0))
        module = eqx.tree_at(lambda module: module.fuse, module, eqx.nn.Identity())
        landmarks = Entities(jnp.array([[0.3, 0.1], [-0.2, 0.6]]), jnp.zeros((2, 2)), jnp.ones(2, bool))
        seen = Entities(jnp.asarray(agents), jnp.zeros((len(agents), 2)), jnp.ones(len(agents), bool))
        return np.asarray(module(View(jnp.zeros(2), jnp.array([0.5, 0.0]), (seen, landmarks)))).reshape(3, -1)

    def test_landmarks_are_seen_beside_agents(self):
        """The summary of landmarks depends on where other agents are; that of the encoder of roles does not."""
        here, there = [[0.3, 0.2], [0.9, 0.9]], [[-0.2, 0.5], [0.9, 0.9]]
        assert np.abs(self.parts("joint", here) - self.parts("joint", there)).max(1).min() > 1e-3
        moved = np.abs(self.parts("attention", here) - self.parts("attention", there)).max(1)
        assert moved[1] > 1e-3
        np.testing.assert_array_equal(moved[[0, 2]], 0)

    def test_nobody_else(self):
        assert np.isfinite(self.parts("joint", np.zeros((0, 2)))).all()
        np.testing.assert_array_equal(self.parts("joint", np.zeros((0, 2)))[1], 0)


class Count(eqx.Module):
    """How many entities there are, in every feature; as a set encoder or as an encoder of observations."""

    width: int = eqx.field(static=True)

    def __call__(self, seen, mask=None):
        mask = seen.flat().mask if mask is None else mask
        return jnp.full(self.width, mask.sum().astype(jnp.float32))


class TestRegistry:
    LAYOUT = Layout(("agent", "landmark"), (2, 3))

    @pytest.fixture(autouse=True)
    def own_registry(self, monkeypatch):
        """What a test registers is forgotten after it."""
        ENCODERS.names()
        monkeypatch.setattr(ENCODERS, "_things", dict(ENCODERS._things))
        monkeypatch.setattr(ENCODERS, "_homes", dict(ENCODERS._homes))

    def actor(self, name, policy="lego"):
        config = dataclasses.replace(policy_of(policy, width=16), encoder=name)
        return make_policies(config, self.LAYOUT, key=jax.random.key(0))["agent"].actor

    def test_those_of_the_package(self):
        assert ENCODERS.names() == ["attention", "deepsets", "joint"]
        assert all(ENCODERS.own(name) for name in ENCODERS.names())
        for name, kind in SETS.items():
            encoder = make_view_encoder(dataclasses.replace(SMALL, encoder=name), self.LAYOUT, key=jax.random.key(0))
            assert isinstance(encoder, RoleEncoder)
            assert all(isinstance(role, kind) for role in encoder.roles)

    @pytest.mark.parametrize("policy", ["lego", "mappo-gnn"])
    def test_a_set_encoder_works_inside_a_policy(self, policy):
        """It is told how many numbers an entity has, and is built once for each role."""
        asked = []

        def build(policy, features, *, key):
            asked.append(features)
            return Count(policy.width)

        register_encoder("count", build)
        assert not ENCODERS.own("count")
        actor = self.actor("count", policy)
        assert asked == [FEATURES] * 4  # two roles, actor and critic
        assert all(isinstance(role, Count) for role in actor.encoder.roles)
        np.testing.assert_array_equal(
            actor.encoder.roles[0](jnp.zeros((3, 4)), jnp.array([True, False, True])), np.full(16, 2.0)
        )

    @pytest.mark.parametrize(("policy", "absolute"), [("lego", False), ("mappo-gnn", True)])
    def test_an_encoder_of_observations_works_inside_a_policy(self, policy, absolute):
        asked = []

        def build(policy, layout, *, absolute=False, key):
            asked.append((layout, absolute))
            return Count(policy.width)

        register_view_encoder("count", build)
        assert not ENCODERS.own("count")
        assert isinstance(self.actor("count", policy).encoder, Count)
        assert asked == [(self.LAYOUT, absolute)] * 2

    def test_another_one_in_place_of_the_packages(self):
        """What is registered last is built, and nobody takes it for the package's own."""
        register_encoder("joint", lambda policy, features, *, key: Count(policy.width))
        assert isinstance(self.actor("joint").encoder, RoleEncoder)
        assert not ENCODERS.own("joint")

    def test_unknown_names(self):
        with pytest.raises(ValueError, match=r"^unknown encoder 'transformer'; known: attention, deepsets, joint; "):
            self.actor("transformer")
        with pytest.raises(ValueError, match=r"unknown policy 'duplo'; known: lego, mappo, .*segnn"):
            policy_of("duplo")


def test_another_one_in_place_of_the_packages_before_those_are_imported():
    """The package's files are read when a name is first asked for: they do not take a name back."""
    code = """
from legoswarm.policies.policy import POLICIES, Policy
class Mine(Policy):
    name = "lego"
POLICIES.register(Mine)
assert POLICIES["lego"] is Mine and not POLICIES.own("lego")
assert POLICIES.own("mappo")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 0}, "width must be between 1 and 4096, not 0"),
        ({"width": True}, "width must be a whole number, not True"),
        ({"heads": 0}, "heads must be between 1 and 4096, not 0"),
        ({"depth": -1}, "depth must be between 0 and 32, not -1"),
        ({"nearest": -1}, "nearest must be between 0 and 10000, not -1"),
        ({"leash": -1.0}, "leash must be at least 0, not -1.0"),
        ({"leash": float("nan")}, "leash must be a finite number, not nan"),
        ({"leash_gain": -1.0}, "leash_gain must be at least 0, not -1.0"),
        ({"squash": float("inf")}, "squash must be a finite number, not inf"),
        ({"slow": -0.1}, "slow must be at least 0, not -0.1"),
        ({"pooling": "sum"}, "pooling must be mean or max, not 'sum'"),
        ({"critic": "team"}, "critic must be full, pairs or none, not 'team'"),
        ({"critic": "local"}, "critic must be full, pairs or none, not 'local'"),
        ({"precision": "float16"}, "precision must be auto, float32 or bfloat16, not 'float16'"),
        ({"log_std": 4.0}, "log_std must be between -10 and 3, not 4.0"),
        ({"log_std": float("nan")}, "log_std must be a finite number, not nan"),
        ({"tie": 0.0}, "tie must be positive, not 0.0"),
        ({"axis": "north"}, "axis must be velocity, position or none, not 'north'"),
        ({"axis": "position", "rest": "global"}, "belongs to the velocity axis"),
    ],
)
def test_impossible_options(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)


@pytest.mark.parametrize("encoder", ["attention", "joint"])
def test_the_width_is_a_multiple_of_the_heads(encoder):
    """Where there are heads: the encoder refuses, so that one without them takes any width."""
    odd, layout = policy_of(width=18, encoder=encoder), Layout(("agent",), (2,))
    with pytest.raises(ValueError, match=r"the width \(18\) must be a multiple of the heads \(4\)"):
        make_policies(odd, layout, key=jax.random.key(0))
    without = dataclasses.replace(odd, encoder="deepsets")
    assert eqx.filter_eval_shape(make_policies, without, layout, key=jax.random.key(0))


@pytest.mark.parametrize(
    ("policy", "option"),
    [
        ("mappo", "encoder"),
        ("mappo", "heads"),
        ("mappo", "tie"),
        ("mappo", "depth"),
        ("mappo-local", "pooling"),
        ("mappo-gnn", "axis"),
        ("pic", "nearest"),
        ("segnn", "encoder"),
        ("segnn-planar", "slow"),
        ("lego", "colour"),
    ],
)
def test_an_option_that_a_policy_does_not_have_is_refused_by_name(policy, option):
    with pytest.raises(ValueError, match=f"^the policy {policy} has no option '{option}'$"):
        policy_of(policy, **{option: 1})
    with pytest.raises(ValueError, match=f"nor the policy {policy} nor mappo has '{option}'"):
        configure("spread", policy, "mappo", **{option: 1})
    with pytest.raises(ValueError, match=f"unknown field '{option}'"):
        POLICIES.read({"name": policy, option: 1}, "policy")
