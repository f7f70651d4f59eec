"""What each baseline promises and what it does not; and that all of them train, are saved, evaluated and act.

Scenes, margins and lively random policies are those of the tests of LEGO's symmetries.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenes import SPREAD, TAG, make_scene, orthogonal, pad, permute, random_scene, stack, transform
from test_equivariance import _fill_unused, _move_one, check, existing, lively

import legoswarm
from legoswarm.cli import main
from legoswarm.evaluate.policies import evaluate_policy
from legoswarm.layout import Layout
from legoswarm.learn import loop
from legoswarm.learn.algorithms.ippo import Ippo
from legoswarm.learn.algorithms.mappo import Mappo, value_of
from legoswarm.learn.algorithms.masac import Masac
from legoswarm.learn.train import configure
from legoswarm.policies.networks.leash import pull_back
from legoswarm.policies.networks.mlp import to_vector
from legoswarm.policies.networks.pairs import PairCritic
from legoswarm.policies.networks.pic import PicCritic
from legoswarm.policies.networks.roles import count_parameters, make_policies
from legoswarm.policies.networks.team import decide, join, world_actions
from legoswarm.policies.policy import POLICIES
from legoswarm.scene import observe, seen_alone
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from tests.policies import policy_of
from tests.saved import random_weights, save_small
from tests.tiny import FAST, TinyPolicy

BASELINES = ("mappo", "mappo-local", "mappo-gnn", "pic")
SMALL = {"width": 16, "depth": 1, "heads": 2, "leash": 1.0}  # short enough to pull
each_baseline = pytest.mark.parametrize("name", BASELINES)
each_layout = pytest.mark.parametrize("layout", [SPREAD, TAG], ids=["spread", "tag"])


def own_options(name, **options):
    """Those of the options that a policy has."""
    known = {field.name for field in dataclasses.fields(POLICIES[name])}
    return {option: value for option, value in options.items() if option in known}


def config_of(name, **changes):
    return policy_of(name, **own_options(name, **SMALL, axis="position") | changes)


@functools.cache
def program(name, layout, axis="position"):
    """A compiled function from a batch of scenes to the actions and values of all agents of a lively policy."""
    policies = lively(config_of(name, **own_options(name, axis=axis)), layout)

    def actions_and_values(policies, scene):
        decisions = decide({role: policy.actor for role, policy in policies.items()}, scene)
        actions = world_actions(layout, decisions, {role: d.mean for role, d in decisions.items()})
        return actions, join(layout, {role: values_of(policies[role], scene, role) for role in policies})

    run = jax.jit(jax.vmap(actions_and_values, in_axes=(None, 0)), compiler_options=FAST)
    return functools.partial(run, policies)


def values_of(policy, scene, role):
    members = jnp.arange(scene.layout.members(role))
    return jax.vmap(lambda member: policy.critic(scene, role, member))(members)


def outcome(name, scenes, axis="position"):
    """Actions (scenes, agents, 2) and values (scenes, agents), scaled to order 1."""
    actions, values = program(name, scenes[0].layout, axis)(stack(scenes))
    lift = scenes[0].layout.agents ** 2 if name == "pic" else 1  # it divides by the number of agents twice
    return np.asarray(actions, float), lift * np.asarray(values, float)


def draw_scenes(layout, seed=0, count=30, **how):
    rng = np.random.default_rng(seed)
    return [random_scene(rng, layout, **how) for _ in range(count)]


def differ(found, expected, compared):
    """The typical error is far above rounding: the symmetry does not hold."""
    found, expected = (rows.reshape(*compared.shape, -1)[compared] for rows in (found, expected))
    error = np.linalg.norm(found - expected, axis=-1)
    return np.median(error) > 0.05 * np.median(np.linalg.norm(expected, axis=-1))


# Rotations, reflections, translations


@pytest.mark.parametrize(("layout", "axis"), [(SPREAD, "position"), (TAG, "velocity")], ids=["spread", "tag"])
@pytest.mark.parametrize("mirror", [False, True], ids=["rotation", "reflection"])
def test_mappo_local_is_equivariant(layout, axis, mirror):
    scenes, turn = draw_scenes(layout), orthogonal(2.0, mirror)
    actions, values = outcome("mappo-local", scenes, axis)
    turned_actions, turned_values = outcome("mappo-local", [transform(s, turn, (3.0, -5.0)) for s in scenes], axis)
    compared = existing(scenes)
    assert compared.sum() > 40
    check(turned_actions, actions @ turn.T, compared)
    check(turned_values, values, compared)


@each_layout
@pytest.mark.parametrize("name", ["mappo", "mappo-gnn", "pic"])
def test_raw_policies_are_not_equivariant(name, layout):
    scenes = draw_scenes(layout)
    actions, values = outcome(name, scenes)
    for mirror in (False, True):
        turn = orthogonal(1.0, mirror)
        turned_actions, turned_values = outcome(name, [transform(s, turn) for s in scenes])
        assert differ(turned_actions, actions @ turn.T, existing(scenes))
        assert differ(turned_values, values, existing(scenes))
    moved_actions, moved_values = outcome(name, [transform(s, np.eye(2), (1.0, 1.0)) for s in scenes])
    assert differ(moved_actions, actions, existing(scenes))  # they see where they are
    assert differ(moved_values, values, existing(scenes))


# Permutations


@each_layout
def test_mappo_gnn_is_permutation_equivariant(layout):
    scenes, rng = draw_scenes(layout), np.random.default_rng(1)
    moved, orders = zip(*(permute(s, rng) for s in scenes), strict=True)
    for before, after in zip(outcome("mappo-gnn", scenes), outcome("mappo-gnn", moved), strict=True):
        expected = np.stack([rows[order[: layout.agents]] for rows, order in zip(before, orders, strict=True)])
        check(after, expected, existing(moved))


def reorder(scene, order):
    """The scene in which new entity k is old entity order[k]; within roles."""
    agents = order[: scene.layout.agents]
    position, velocity, exists, visible = (np.asarray(getattr(scene, f)) for f in FIELDS)
    return make_scene(scene.layout, position[order], velocity[order], exists[order], visible[agents][:, order])


FIELDS = ("position", "velocity", "exists", "visible")


def shuffled_agents(layout, rng):
    """An order in which the agents of each role are exchanged; objects stay."""
    order = np.arange(layout.entities)
    for role in layout.controlled_roles:
        order[layout.block(role)] = rng.permutation(order[layout.block(role)])
    return order


@each_layout
def test_the_value_of_pic_does_not_depend_on_how_agents_are_numbered(layout):
    scenes, rng = draw_scenes(layout), np.random.default_rng(2)
    orders = [shuffled_agents(layout, rng) for _ in scenes]
    _, values = outcome("pic", scenes)
    moved_actions, moved_values = outcome("pic", [reorder(s, o) for s, o in zip(scenes, orders, strict=True)])
    for role in layout.controlled_roles:  # one value for the team, to each of its members
        np.testing.assert_array_equal(values[:, layout.block(role)].std(1), 0)
    check(moved_values, values, np.ones(values.shape, bool))
    actions = np.stack([rows[o[: layout.agents]] for rows, o in zip(outcome("pic", scenes)[0], orders, strict=True)])
    assert differ(moved_actions, actions, np.ones(values.shape, bool))


@each_layout
@pytest.mark.parametrize("name", ["mappo", "mappo-local"])
def test_mlps_know_cyclic_orders_only(name, layout):
    """Numbering a role's agents from another one on changes nothing for them, exchanging two of them does."""
    scenes = draw_scenes(layout, empty=False, hidden=0.1)
    before = outcome(name, scenes)
    for role in layout.controlled_roles:
        members = np.arange(layout.entities)[layout.block(role)]
        cycle, swap = np.arange(layout.entities), np.arange(layout.entities)
        cycle[members], swap[members[:2]] = np.roll(members, 1), members[[1, 0]]
        compared = existing(scenes) & np.isin(np.arange(layout.agents), members)
        for order, holds in ((cycle, True), (swap, False)):
            agents = order[: layout.agents]
            for old, new in zip(before, outcome(name, [reorder(s, order) for s in scenes]), strict=True):
                if holds:
                    check(new, old[:, agents], compared[:, agents])
                else:
                    assert differ(new, old[:, agents], compared[:, agents])


# What is not there, not seen, far away


@each_layout
@each_baseline
def test_what_is_not_there_or_not_seen_does_not_matter(name, layout):
    """Unused slots are filled with garbage, and one entity moves that some agents do not see."""
    scenes, rng = draw_scenes(layout), np.random.default_rng(3)
    actions, values = outcome(name, scenes)
    filled_actions, filled_values = outcome(name, [_fill_unused(s, rng) for s in scenes])
    there = existing(scenes)
    np.testing.assert_array_equal(filled_actions[there], actions[there])
    np.testing.assert_array_equal(filled_values[there], values[there])
    moved, blind = zip(*(_move_one(s, rng) for s in scenes), strict=True)
    moved_actions, moved_values = outcome(name, moved)
    np.testing.assert_array_equal(moved_actions[np.stack(blind)], actions[np.stack(blind)])
    assert (moved_values != values).any(1).mean() > 0.2  # critics see all that exist


def test_padding_changes_nothing_for_mappo_gnn():
    tight = Layout(SPREAD.roles, (3, 2))
    scenes, rng = draw_scenes(tight, count=10, empty=False), np.random.default_rng(4)
    wide, at = zip(*(pad(s, (3, 4), rng) for s in scenes), strict=True)
    for before, after in zip(outcome("mappo-gnn", scenes), outcome("mappo-gnn", wide), strict=True):
        check(after[:, at[0][:3]], before, existing(scenes))


@each_baseline
def test_all_are_on_the_same_leash(name):
    """Far from what it sees, an agent's mean action differs from that without a leash by the same pull."""
    actors = [lively(config_of(name, leash=leash), SPREAD)["agent"].actor for leash in (0.0, 1.5)]

    @functools.partial(jax.jit, compiler_options=FAST)
    def means(actors, view):
        return [decision.frame.to_world(decision.mean) for decision in (actor(view) for actor in actors)]

    scene = draw_scenes(SPREAD, count=1, empty=False, hidden=0.0)[0]
    far = dataclasses.replace(scene, position=scene.position.at[0].set(jnp.array([3.0, -2.0])))
    for view, pulls in ((observe(scene, "agent", 0), False), (observe(far, "agent", 0), True)):
        free, held = means(actors, view)
        pull = pull_back(view, config_of(name, leash=1.5))
        assert bool(jnp.abs(pull).max() > 1) == pulls
        np.testing.assert_allclose(held - free, pull, atol=1e-5)


# What the networks compute


def test_the_vector_of_an_observation():
    layout = Layout(("red", "blue", "thing"), (3, 2, 1), controlled=2)
    position, velocity = np.arange(12.0).reshape(6, 2) ** 2, np.arange(12.0).reshape(6, 2)
    exists, visible = np.array([1, 1, 1, 0, 1, 1], bool), np.ones((5, 6), bool)
    visible[1, 5] = False
    scene = make_scene(layout, position, velocity, exists, visible)

    def slot(entity, agent):
        return [*(position[entity] - position[agent]), *velocity[entity], 1]

    own = [*position[1], *velocity[1]]
    expected = [*own, *slot(2, 1), *slot(0, 1), *[0] * 5, *slot(4, 1), *[0] * 5]
    np.testing.assert_array_equal(to_vector(observe(scene, "red", 1)), expected)
    np.testing.assert_array_equal(to_vector(observe(scene, "red", 1, full=True)), [*expected[:-5], *slot(5, 1)])
    expected = [*position[4], *velocity[4], *slot(0, 4), *slot(1, 4), *slot(2, 4), *[0] * 5, *slot(5, 4)]
    np.testing.assert_array_equal(to_vector(observe(scene, "blue", 1)), expected)


@pytest.mark.parametrize("layout", [Layout(("agent", "landmark"), (3, 2)), TAG], ids=["one role", "two roles"])
def test_the_critic_of_pic_in_numpy(layout):
    """h = (relu(A (W x + b)) + relu(U x + c)) / N twice, A = (1 - I) / N; the maximum over agents; linear."""
    critic = random_weights(functools.partial(PicCritic, config_of("pic"), layout))
    assert (critic.groups is None) == (layout.controlled == 1)
    scene = draw_scenes(layout, count=1, empty=False)[0]
    rows, n = [], layout.agents
    for at, role in enumerate(layout.controlled_roles):
        for member in range(layout.slots[at]):
            view = jax.tree.map(np.asarray, observe(scene, role, member, full=True))
            row = [*view.position, *view.velocity]
            for others, sort in zip(view.others, layout.roles, strict=True):
                near = np.argsort(np.hypot(*others.position.T))
                for k in near if sort in layout.controlled_roles else range(len(near)):
                    row += [*others.position[k], *others.velocity[k], 1]
            rows.append([*row, *([] if critic.groups is None else np.asarray(critic.groups[at]))])
    x, mix = np.array(rows, float), (1 - np.eye(n)) / n
    for layer in critic.layers:
        assert layer.own.weight.shape[1] == 2 * SMALL["width"]
        heard, own = (x @ np.asarray(a.weight, float) + np.asarray(a.bias) for a in (layer.others, layer.own))
        x = (np.maximum(mix @ heard, 0) + np.maximum(own, 0)) / n
    expected = x.max(0) @ np.asarray(critic.head.weight, float) + np.asarray(critic.head.bias)
    np.testing.assert_allclose(critic(scene, layout.roles[0], jnp.array(0)), expected[0], rtol=1e-4)


def hide_and_move(scene, agent, entity):
    """The scene, the same with an entity that an agent does not see, and that with the entity somewhere else."""
    hidden = dataclasses.replace(scene, visible=scene.visible.at[agent, entity].set(False))
    moved = dataclasses.replace(
        hidden, position=hidden.position.at[entity].add(1.0), velocity=hidden.velocity.at[entity].add(0.5)
    )
    return scene, hidden, moved


@pytest.mark.parametrize("name", [*BASELINES, "lego"])
def test_the_critic_of_ippo_sees_what_its_agent_sees(name):
    """It is the critic that MAPPO asks about the whole state, whatever the policy; for agents and landmarks."""
    critic = lively(config_of(name), SPREAD)["agent"].critic

    @functools.partial(jax.jit, compiler_options=FAST)
    def values(critic, scenes):
        return [
            jax.vmap(lambda scene, by=algorithm: value_of(critic, scene, "agent", jnp.array(0), by))(scenes)
            for algorithm in (Ippo(), Mappo())
        ]

    scene = draw_scenes(SPREAD, count=1, empty=False, hidden=0.0)[0]
    for entity in (2, 9):
        alone, central = values(critic, stack(hide_and_move(scene, 0, entity)))
        assert abs(alone[0] - alone[1]) > 1e-4
        assert alone[1] == alone[2]
        assert abs(central[1] - central[2]) > 1e-4
        np.testing.assert_allclose(alone[0], central[0], rtol=1e-4)


def test_what_one_agent_sees_is_a_scene_of_its_own():
    scene = next(scene for scene in draw_scenes(TAG, hidden=0.5) if not (scene.visible.all() or scene.exists.all()))
    for role in TAG.controlled_roles:
        for member in range(TAG.members(role)):
            me = TAG.block(role).start + member
            alone = seen_alone(scene, role, member)
            expected = np.asarray(scene.exists) & (np.asarray(scene.visible)[me] | (np.arange(TAG.entities) == me))
            np.testing.assert_array_equal(alone.exists, expected)
            whole, seen = observe(alone, role, member, full=True), observe(scene, role, member)
            jax.tree.map(np.testing.assert_array_equal, whole, seen)


def test_parameters_are_counted():
    def count(name, layout):
        return count_parameters(jax.eval_shape(lambda key: make_policies(config_of(name), layout, key=key), KEY))

    assert {"lego", *BASELINES} <= set(POLICIES.names())
    three, six = (Layout(("agent", "landmark"), (n, n)) for n in (3, 6))
    inputs = 4 + 5 * 5
    mlp = (inputs + 1) * 16 + 17 * 16
    assert count("mappo", three) == {"actor": mlp + 17 * 2 + 2, "critic": mlp + 2 * inputs * 16 + 17}
    assert count("pic", three)["actor"] == count("mappo", three)["actor"]
    for name in ("mappo", "mappo-local", "pic"):
        assert count(name, six)["actor"] > count(name, three)["actor"]
    for name in ("lego", "mappo-gnn"):
        assert count(name, six) == count(name, three)


KEY = jax.random.key(0)

# Training and what comes after

TINY_BATCHES = {"envs": 4, "rollout": 5, "epochs": 1, "minibatches": 1}
MAPPO = Mappo(**TINY_BATCHES)
SPREAD_TASK, TAG_TASK = Spread(agents=2, horizon=5), Tag(pursuers=2, evaders=1, obstacles=1, horizon=5)


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize(
    ("name", "task"),
    [("mappo", TAG_TASK), ("mappo-local", SPREAD_TASK), ("mappo-gnn", SPREAD_TASK), ("pic", TAG_TASK)],
    ids=BASELINES,
)
def test_trains_is_saved_evaluated_and_acts(name, task, tmp_path):
    """Those whose networks depend on the role train with two of them; one trains with IPPO, one the critic of pairs."""
    critic = "pairs" if name == "mappo" else "full"
    policy = policy_of(name, critic, **own_options(name, width=8, depth=0, heads=2, encoder="deepsets"))
    algorithm = (Ippo if name == "mappo-gnn" else Mappo)(**TINY_BATCHES)
    train = legoswarm.TrainConfig(task, policy, algorithm, steps=60)
    folder = legoswarm.start_run(
        legoswarm.RunConfig(train, evaluations=1, eval_episodes=3), tmp_path / "run", quiet=True
    )
    swarm = legoswarm.load(folder.path)
    assert swarm.file.config == policy
    fresh = lively(policy, task.layout)
    trained = swarm.file.one()
    assert count_parameters(trained) == count_parameters(fresh)
    assert jax.tree.structure(trained) == jax.tree.structure(fresh)
    if critic == "pairs":
        critics = [trained[role].critic for role in task.layout.controlled_roles]
        assert all(isinstance(one, PairCritic) for one in critics)
        assert all(np.abs(one.head.bias).max() > 0 for one in critics)  # where they start, it is zero
        assert not np.allclose(*(one.gather.weight for one in critics))
    roles = [role for role, n in zip(task.layout.roles, task.layout.slots, strict=True) for _ in range(n)]
    rng = np.random.default_rng(0)
    place, speed = rng.uniform(-1, 1, (2, len(roles), 2))
    visible = rng.uniform(size=(task.layout.agents, len(roles))) < 0.5
    actions = swarm.act(place, speed, roles, visible)
    assert actions.shape == (task.layout.agents, 2)
    assert (actions != swarm.act(place, speed, roles)).any()
    (row,) = evaluate_policy(str(folder.path), episodes=2)
    assert all(math.isfinite(value) for value in row.values())
    assert row["frame_flips"] == 0 or name == "mappo-local"


# Another team size


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a small policy of each name for Spread, and of some for Tag."""
    folder = tmp_path_factory.mktemp("saved")
    for name in BASELINES:
        save_small(folder / name, Spread(agents=3), config=config_of(name))
    save_small(folder / "tag-mappo", Tag(), config=config_of("mappo"))
    save_small(folder / "tag-lego", Tag(pursuers=2), config=config_of("lego"))
    return folder


REFUSED = {
    "eval @mappo --agents 3 4": "mappo acts only for the team it was trained with (3 agents, 3 landmarks), not 4",
    "eval @mappo-local --agents 1": "not 1 agent, 1 landmark",
    "eval @pic --agents 2": "pic acts only for the team it was trained with (3 agents, 3 landmarks), not 2 agents",
    "watch @mappo --agents 4": "not 4 agents, 4 landmarks",
    "train spread --from @mappo --agents 2 --out run": "not 2 agents, 2 landmarks",
    "eval tag --pursuers @tag-lego --evaders @tag-mappo": "(3 pursuers, 2 evaders, 2 obstacles), not 2 pursuers",
    "eval @tag-mappo --teams 3v1v2": "not 3 pursuers, 1 evader, 2 obstacles",
    "train spread --policy mappo --critic local --out run": "critic must be full, pairs or none, not 'local'",
    "train spread --policy pic --critic pairs --out run": "critic must be full or none, not 'pairs'",
    "train spread --policy pic --algorithm mappo --critic none --out run": "needs a critic: pic has the critic none",
}


@pytest.mark.parametrize("line", REFUSED)
def test_another_team_size_is_refused_in_one_sentence(line, saved, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(saved / word[1:]) if word.startswith("@") else word for word in line.split()]) == 2
    out, err = capsys.readouterr()
    assert REFUSED[line] in err
    assert (out, err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_acting_for_another_team_is_refused(saved):
    team = np.zeros((5, 2)), np.zeros((5, 2)), ["agent"] * 3 + ["landmark"] * 2
    for name in BASELINES:
        swarm = legoswarm.load(saved / name)
        if name == "mappo-gnn":
            assert swarm.act(*team).shape == (3, 2)
        else:
            with pytest.raises(ValueError, match=f"{name} acts only .*not 3 agents, 2 landmarks"):
                swarm.act(*team)


def test_a_warm_start_keeps_the_team(saved):
    for agents in (2, 3):
        train = legoswarm.TrainConfig(Spread(agents=agents), config_of("mappo"), MAPPO, steps=60)
        config = legoswarm.RunConfig(train, start=str(saved / "mappo"))
        if agents == 3:
            assert jax.tree.leaves(loop._warm_start(config))
        else:
            with pytest.raises(ValueError, match="acts only for the team"):
                loop._warm_start(config)


# Defaults


@pytest.mark.parametrize("name", ["lego", *BASELINES, "segnn", "segnn-planar"])
def test_defaults_of_each_policy(name):
    """They stand in its class: its options and, for each algorithm, what was found for it; what is given wins."""
    cls = POLICIES[name]
    tuned, own = cls.tuned["mappo"], cls.suits.get("mappo", {})
    assert set(tuned) == {"lr", "epochs", "minibatches", "entropy"}
    train = configure("spread", name)
    assert (train.task, train.policy) == (Spread(), cls())
    assert train.algorithm == (Masac(**cls.tuned["masac"]) if name == "lego" else Mappo(**tuned))
    assert train == legoswarm.TrainConfig(Spread(), cls()) == configure(Spread(), cls())
    given = configure("spread", name, "mappo", width=16, epochs=7, agents=4, steps=10_000)
    assert (given.task, given.policy, given.steps) == (Spread(agents=4), cls(width=16, **own), 10_000)
    assert given.algorithm == Mappo(**{**tuned, "epochs": 7})
    assert configure("spread", name, "ippo").algorithm == Ippo(**tuned)  # it is MAPPO but for what critics know


def test_defaults_of_somebodys_own_policy():
    assert POLICIES["tiny"] is TinyPolicy
    assert not POLICIES.own("tiny")
    assert configure("spread", "tiny").algorithm == legoswarm.TrainConfig(Spread(), TinyPolicy()).algorithm == Mappo()


def test_the_command_line_takes_the_same_defaults(monkeypatch, capsys):
    monkeypatch.setattr(POLICIES["mappo"], "tuned", {"mappo": {"lr": 0.123, "epochs": 7}, "ippo": {"lr": 0.2}})
    seen = []

    def start(config, out, *rest, **options):
        seen.append(config.train)
        raise ValueError("enough")

    monkeypatch.setattr("legoswarm.learn.run.start_run", start)
    lines = {
        "--policy mappo": configure("spread", "mappo"),
        "--policy mappo --lr 0.5 --width 12": configure("spread", "mappo", lr=0.5, width=12),
        "--policy mappo --algorithm ippo": configure("spread", "mappo", "ippo"),
        "--policy pic": configure("spread", "pic"),
        "": legoswarm.TrainConfig(Spread()),
    }
    for line in lines:
        assert main(["train", "spread", *line.split()]) == 2
    assert seen == list(lines.values())
    found = [(type(train.algorithm), train.algorithm.lr, train.policy.width) for train in seen]
    assert [train.algorithm.epochs for train in seen[:-1]] == [7, 7, 7, 5]
    assert found == [
        (Mappo, 0.123, 128),
        (Mappo, 0.5, 12),
        (Ippo, 0.2, 128),
        (Mappo, 1.2e-3, 128),
        (Masac, 2e-3, 64),
    ]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["train", "spread", "--policy", "mappo", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "learning rate (default: 0.123)" in out
    assert "features of every layer (default: 128)" in out
    assert "--heads" not in out
