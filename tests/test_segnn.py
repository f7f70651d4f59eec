"""SEGNN: that it is what e3nn computes, that the planar form is the same, and what both promise.

There is no frame, so no scene is left out of the comparisons.
"""

import dataclasses
import functools
import math
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenes import SPREAD, TAG, orthogonal, pad, permute, random_scene, stack, transform
from test_equivariance import _fill_unused, _move_one, check

import legoswarm
from legoswarm.cli import main
from legoswarm.evaluate.policies import evaluate_policy
from legoswarm.layout import Layout
from legoswarm.learn.algorithms.ippo import Ippo
from legoswarm.learn.algorithms.mappo import Mappo, value_of
from legoswarm.policies.networks.leash import pull_back
from legoswarm.policies.networks.roles import count_parameters, make_policies, over_members
from legoswarm.policies.networks.segnn import complete, star
from legoswarm.policies.networks.steerable import (
    SIGMOID_GAIN,
    SILU_GAIN,
    Irreps,
    SphericalWeights,
    balanced,
    paths_to,
)
from legoswarm.policies.networks.team import decide_one
from legoswarm.scene import observe
from legoswarm.tasks.spread import Spread
from tests.policies import policy_of
from tests.saved import save_small
from tests.tiny import FAST

each_name = pytest.mark.parametrize("name", ["segnn", "segnn-planar"])
each_layout = pytest.mark.parametrize("layout", [SPREAD, TAG], ids=["spread", "tag"])


def config_of(name, **changes):
    return policy_of(name, **{"width": 16, "depth": 2, "leash": 1.0, **changes})  # short enough to pull


def lively(config, layout, seed=0):
    """Policies with random parameters, none zero, and results of order 1."""
    shapes = eqx.filter_eval_shape(make_policies, config, layout, key=jax.random.key(0))
    rng = np.random.default_rng(seed)

    def draw(like):
        scale = 0.8 * like.shape[-2] ** -0.5 if like.ndim > 1 else 0.3
        return jnp.asarray(scale * rng.normal(size=like.shape), jnp.float32)

    return jax.tree.map(draw, shapes)


def acting(layout):
    """The role that is looked at: in Tag the evaders, all else being the same for the pursuers."""
    return layout.controlled_roles[-1]


def assess(policy, scene):
    """The actions and values of all agents of the role."""
    role = acting(scene.layout)
    members = jnp.arange(scene.layout.members(role))
    decisions = jax.vmap(lambda member: policy.actor(observe(scene, role, member)))(members)
    return decisions.mean, jax.vmap(lambda member: policy.critic(scene, role, member))(members)


@functools.cache
def program(name, layout):
    """`assess` for a batch of scenes, compiled, of a lively policy."""
    run = jax.jit(jax.vmap(assess, in_axes=(None, 0)), compiler_options=FAST)
    return functools.partial(run, lively(config_of(name), layout)[acting(layout)])


def outcome(name, scenes):
    return tuple(np.asarray(rows, float) for rows in program(name, scenes[0].layout)(stack(scenes)))


def there(scenes):
    """Which agents of the role exist."""
    layout = scenes[0].layout
    return np.stack([np.asarray(s.exists)[layout.block(acting(layout))] for s in scenes])


def draw_scenes(layout, seed=0, count=30, **how):
    rng = np.random.default_rng(seed)
    return [random_scene(rng, layout, **how) for _ in range(count)]


# The network written with e3nn's own tensor products, harmonics and gates, in three dimensions


class InE3nn:
    """What a network with the weights of O(3) computes for a graph in the plane z = 0. e3nn's axes are (y, z, x)."""

    def __init__(self):
        self.e3nn = pytest.importorskip("e3nn_jax")

    def vectors(self, flat):
        flat = jnp.asarray(flat)
        return self.e3nn.IrrepsArray("1o", jnp.stack([flat[..., 1], 0 * flat[..., 0], flat[..., 0]], -1))

    def lengths(self, flat):
        return self.e3nn.IrrepsArray("0e", jnp.linalg.norm(flat, axis=-1, keepdims=True))

    def weigh(self, parts, irreps, bias, gated):
        """Orders together, with the bias; with `gated`, the gates, which e3nn has last, are used up."""
        if bias is not None:
            parts[0] = parts[0] + bias[:, None]
        if gated:
            parts[0] = jnp.roll(parts[0], irreps.scalars, axis=-2)
        kinds = [(part.shape[-2], f"{order}{'eoe'[order]}") for order, part in enumerate(parts)]
        chosen = [at for at, (count, _) in enumerate(kinds) if count]
        chunks = [parts[at] for at in chosen]
        y = self.e3nn.from_chunks([kinds[at] for at in chosen], chunks, chunks[0].shape[:-2], jnp.float32)
        if not gated:
            return y
        acts = {
            "even_act": lambda x: SILU_GAIN * jax.nn.silu(x),
            "even_gate_act": lambda x: SIGMOID_GAIN * jax.nn.sigmoid(x),
        }
        return self.e3nn.gate(y, **acts, normalize_act=False)  # finding the gains takes it long each time

    def edge(self, edge_map, x, harmonics, irreps):
        z = self.e3nn.tensor_product(x, harmonics, filter_ir_out=["0e", "1o", "2e"])
        weights = edge_map.weights.scalars, edge_map.weights.vectors, edge_map.weights.tensors
        parts = [jnp.einsum("...ki,ko->...oi", *pair) for pair in zip(z.chunks, weights, strict=True)]
        return self.weigh(parts, irreps, edge_map.bias, gated=True)

    def node(self, node_map, x, kinds, gated=None):
        one_hot = np.eye(max(kinds) + 1, dtype=np.float32)[list(kinds)]
        z = self.e3nn.tensor_product(x, self.e3nn.IrrepsArray(f"{one_hot.shape[1]}x0e", jnp.asarray(one_hot)))
        found = {ir.l: chunk for (_, ir), chunk in zip(z.irreps, z.chunks, strict=True)}
        parts = []
        for order, weight in enumerate((node_map.scalars, node_map.vectors, node_map.tensors)):
            if weight is None:
                parts.append(jnp.zeros((len(kinds), node_map.after[order], 2 * order + 1)))
            else:
                chunk = found[order].reshape(len(kinds), weight.shape[1], weight.shape[0], -1)
                parts.append(jnp.einsum("nukd,kuo->nod", chunk, weight))
        return self.weigh(parts, gated, node_map.bias, gated is not None)

    def layer(self, layer, x, graph):
        receivers, senders = graph.edge.shape
        ends = x.array[:receivers, None], x.array[None, len(x.array) - senders :]
        ends = [self.e3nn.IrrepsArray(x.irreps, jnp.broadcast_to(e, (receivers, senders, e.shape[-1]))) for e in ends]
        harmonics = self.e3nn.spherical_harmonics("0e+1o+2e+3o", self.vectors(graph.offset), True)
        message = self.e3nn.concatenate([self.lengths(graph.offset), *ends]).regroup()
        for edge_map in layer.messages:
            message = self.edge(edge_map, message, harmonics, layer.irreps)
        received = jnp.where(graph.edge[..., None], message.array, 0.0).sum(1)
        received = jnp.pad(received, ((0, len(x.array) - receivers), (0, 0)))
        both = self.e3nn.concatenate([x, self.e3nn.IrrepsArray(x.irreps, received)]).regroup()
        step = self.node(layer.updates[0], both, graph.kinds, layer.irreps)
        return x + self.node(layer.updates[1], step, graph.kinds)

    def network(self, network, graph):
        x = self.e3nn.concatenate([self.lengths(graph.velocity), self.vectors(graph.velocity)])
        x = self.node(network.embed, x, graph.kinds)
        for layer in network.layers:
            x = self.layer(layer, x, graph)
        x = self.node(network.nodes[0], x, graph.kinds, network.nodes[1].before)
        x = self.node(network.nodes[1], x, graph.kinds)
        x = self.e3nn.IrrepsArray(x.irreps, x.array.mean(0, keepdims=True, where=graph.exists[:, None]))
        x = self.node(network.whole[0], x, (0,), network.whole[1].before)
        return self.node(network.whole[1], x, (0,)).array[0]


FEW = Layout(TAG.roles, (2, 1, 1), TAG.controlled)


def test_segnn_is_what_e3nn_computes():
    policy, scene = lively(config_of("segnn"), FEW)["evader"], draw_scenes(FEW, count=1, empty=False)[0]

    @functools.partial(jax.jit, compiler_options=FAST)
    def both(policy, scene):
        view = observe(scene, "evader", 0)
        networks = (policy.actor.network, star(view)), (policy.critic.network, complete(scene))
        return [network(graph) for network, graph in networks], [InE3nn().network(*pair) for pair in networks]

    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        (action, value), ((y, z, x), (number,)) = both(policy, scene)
    assert abs(z) < 1e-6  # nothing points out of the plane
    assert min(math.hypot(x, y), abs(number)) > 0.01
    np.testing.assert_allclose(action.values[0], [x, y], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(value.values[0, 0], number, rtol=1e-3)


def test_irreps():
    assert balanced(64) == Irreps(23, 7, 4)  # 64 numbers in three dimensions
    assert [sum(n * d for n, d in zip(balanced(w), (1, 3, 5), strict=True)) for w in (9, 16, 100)] == [9, 16, 100]
    with pytest.raises(ValueError, match="a width of at least 9, not 8"):
        balanced(8)
    assert [len(paths_to(order)) for order in range(3)] == [3, 5, 5]


def test_the_gains_are_those_of_e3nn():
    e3nn = pytest.importorskip("e3nn_jax")
    for gain, function in ((SILU_GAIN, jax.nn.silu), (SIGMOID_GAIN, jax.nn.sigmoid)):
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            np.testing.assert_allclose(gain * function(1.0), e3nn.normalize_function(function)(1.0), rtol=1e-4)


def to_planar(policies):
    """The weights of `segnn` as weights of `segnn-planar`, without e3nn."""

    def convert(leaf):
        return leaf.planar() if isinstance(leaf, SphericalWeights) else leaf

    return jax.tree.map(convert, policies, is_leaf=lambda node: isinstance(node, SphericalWeights))


@each_layout
def test_the_planar_form_contains_the_other(layout):
    """An exact map of weights: the same actions and values from the weights of O(2)."""
    planar, like = to_planar(lively(config_of("segnn"), layout)), lively(config_of("segnn-planar"), layout)
    assert [leaf.shape for leaf in jax.tree.leaves(planar)] == [leaf.shape for leaf in jax.tree.leaves(like)]
    scenes = draw_scenes(layout)
    for before, after in zip(
        outcome("segnn", scenes),
        program("segnn-planar", layout).func(planar[acting(layout)], stack(scenes)),
        strict=True,
    ):
        check(np.asarray(after, float), before, there(scenes), tolerance=1e-5)


# What both promise


@each_layout
@each_name
@pytest.mark.parametrize("mirror", [False, True], ids=["rotation", "reflection"])
def test_equivariance(name, layout, mirror):
    scenes, turn = draw_scenes(layout), orthogonal(2.0, mirror)
    actions, values = outcome(name, scenes)
    turned_actions, turned_values = outcome(name, [transform(s, turn, (3.0, -5.0)) for s in scenes])
    assert 0.1 < actions.std() < 10
    assert 0.1 < values.std() < 10
    check(turned_actions, actions @ turn.T, there(scenes))
    check(turned_values, values, there(scenes))


@each_layout
@each_name
def test_permutations(name, layout):
    scenes, rng = draw_scenes(layout), np.random.default_rng(1)
    moved, orders = zip(*(permute(s, rng) for s in scenes), strict=True)
    for before, after in zip(outcome(name, scenes), outcome(name, moved), strict=True):
        block = layout.block(acting(layout))
        expected = np.stack([rows[order[block] - block.start] for rows, order in zip(before, orders, strict=True)])
        check(after, expected, there(moved))


@each_layout
@each_name
def test_what_is_not_there_or_not_seen_does_not_matter(name, layout):
    scenes, rng = draw_scenes(layout), np.random.default_rng(3)
    actions, values = outcome(name, scenes)
    filled_actions, filled_values = outcome(name, [_fill_unused(s, rng) for s in scenes])
    np.testing.assert_array_equal(filled_actions[there(scenes)], actions[there(scenes)])
    np.testing.assert_array_equal(filled_values[there(scenes)], values[there(scenes)])
    moved, blind = zip(*(_move_one(s, rng) for s in scenes), strict=True)
    moved_actions, moved_values = outcome(name, moved)
    blind = np.stack(blind)[:, layout.block(acting(layout))]
    np.testing.assert_array_equal(moved_actions[blind], actions[blind])
    assert (moved_values != values).any(1).mean() > 0.2  # critics see all that exist


@pytest.mark.parametrize("slots", [(3, 2), (1, 0)], ids=["team", "alone"])
def test_padding(slots):
    scenes, rng = draw_scenes(Layout(SPREAD.roles, slots), count=10, empty=False), np.random.default_rng(4)
    wide, at = zip(*(pad(s, np.subtract(SPREAD.slots, slots), rng) for s in scenes), strict=True)
    for before, after in zip(outcome("segnn-planar", scenes), outcome("segnn-planar", wide), strict=True):
        check(after[:, at[0][: slots[0]]], before, there(scenes))


@each_layout
def test_one_value_for_a_team_at_the_cost_of_one(layout):
    role, scenes = acting(layout), draw_scenes(layout)
    np.testing.assert_array_equal(outcome("segnn-planar", scenes)[1].std(1), 0)
    critic = lively(config_of("segnn-planar"), layout)[role].critic
    alone = jax.jit(jax.vmap(lambda scene: critic(scene, role, jnp.array(0)))).lower(stack(scenes))
    team = jax.jit(lambda batch: over_members(lambda *who: critic(who[0], role, who[1]), batch, role)).lower(
        stack(scenes)
    )
    assert team.cost_analysis()["flops"] < 1.01 * alone.cost_analysis()["flops"]


def test_the_critic_of_ippo_sees_what_its_agent_sees():
    critic = lively(config_of("segnn-planar"), SPREAD)["agent"].critic
    scene = draw_scenes(SPREAD, count=1, empty=False, hidden=0.0)[0]
    hidden = dataclasses.replace(scene, visible=scene.visible.at[0, 9].set(False))
    moved = dataclasses.replace(hidden, position=hidden.position.at[9].add(1.0))

    @functools.partial(jax.jit, compiler_options=FAST)
    def value(critic, scene):
        return [value_of(critic, scene, "agent", jnp.array(0), by) for by in (Mappo(), Ippo())]

    central, alone = zip(*(map(float, value(critic, s)) for s in (scene, hidden, moved)), strict=True)
    assert alone[0] == pytest.approx(central[0], rel=1e-4)
    assert abs(alone[0] - alone[1]) > 1e-4
    assert alone[1] == alone[2]
    assert central[0] == central[1]
    assert abs(central[1] - central[2]) > 1e-4


def test_the_actor():
    """One deviation for both axes, the world's frame, the same leash as everybody's, and only the nearest if asked."""
    scene = draw_scenes(SPREAD, count=1, empty=False, hidden=0.0)[0]
    view = observe(dataclasses.replace(scene, position=scene.position.at[0].set(jnp.array([3.0, -2.0]))), "agent", 0)

    def decide(view, **how):
        actor = lively(config_of("segnn-planar", **{"depth": 1, "leash": 0.0, **how}), SPREAD)["agent"].actor
        return jax.jit(lambda view: actor(view), compiler_options=FAST)(view)

    free, held = decide(view), decide(view, leash=1.5)
    np.testing.assert_array_equal(free.frame.rotation, np.eye(2))
    assert free.log_std[0] == free.log_std[1] != 0
    pull = pull_back(view, policy_of("segnn-planar", leash=1.5))
    assert np.abs(pull).max() > 1
    np.testing.assert_allclose(held.mean - free.mean, pull, atol=1e-5)
    near = lively(config_of("segnn-planar", depth=1, nearest=2), SPREAD)["agent"].actor
    chosen = jax.jit(lambda scene: decide_one(near, scene, "agent", jnp.array(0)), compiler_options=FAST)(scene).mean
    np.testing.assert_allclose(chosen, near(observe(scene, "agent", 0, nearest=2)).mean, atol=1e-5)
    assert np.abs(chosen - near(observe(scene, "agent", 0)).mean).max() > 1e-3


def test_two_at_one_place():
    """An edge without direction: everything stays finite, forward and backward."""
    policy = lively(config_of("segnn-planar", depth=1), SPREAD)["agent"]
    scene = draw_scenes(SPREAD, count=1, empty=False)[0]
    scene = dataclasses.replace(scene, position=jnp.zeros_like(scene.position), velocity=jnp.zeros_like(scene.velocity))

    @functools.partial(jax.jit, compiler_options=FAST)
    @jax.grad
    def slope(policy):
        actions, values = assess(policy, scene)
        return (actions**2).sum() + (values**2).sum()

    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope(policy)))


# Training and what comes after


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
def test_trains_is_saved_evaluated_and_acts(tmp_path):
    task, policy = Spread(agents=2, horizon=5), policy_of("segnn", width=9, depth=1)
    mappo = Mappo(envs=4, rollout=5, epochs=1, minibatches=1)
    train = legoswarm.TrainConfig(task, policy, mappo, steps=60)
    folder = legoswarm.start_run(
        legoswarm.RunConfig(train, evaluations=1, eval_episodes=3), tmp_path / "run", quiet=True
    )
    swarm = legoswarm.load(folder.path)
    assert count_parameters(swarm.file.one()) == count_parameters(lively(policy, task.layout))
    roles = [role for role, n in zip(task.layout.roles, task.layout.slots, strict=True) for _ in range(n)]
    rng = np.random.default_rng(0)
    place, speed = rng.uniform(-1, 1, (2, len(roles), 2))
    visible = rng.uniform(size=(task.layout.agents, len(roles))) < 0.5
    actions = swarm.act(place, speed, roles, visible)
    assert (actions != swarm.act(place, speed, roles)).any()
    more = [roles[0], *roles]  # a larger team than it was trained with
    assert swarm.act(*rng.uniform(-1, 1, (2, len(more), 2)), more).shape == (task.layout.agents + 1, 2)
    (row,) = evaluate_policy(str(folder.path), episodes=2)
    assert all(math.isfinite(value) for value in row.values())
    assert row["frame_flips"] == 0


def test_without_e3nn(tmp_path, monkeypatch, capsys):
    save_small(tmp_path / "segnn", Spread(agents=2), config=config_of("segnn"))
    save_small(tmp_path / "planar", Spread(agents=2), config=config_of("segnn-planar"))
    monkeypatch.setitem(sys.modules, "e3nn_jax", None)
    assert legoswarm.load(tmp_path / "planar").roles == ("agent", "landmark")
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "segnn")]) != 0
    assert main(["train", "spread", "--policy", "segnn", "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert err.count("pip install 'legoswarm[segnn]'") == err.count("\n") == 2
    assert not (tmp_path / "run").exists()
