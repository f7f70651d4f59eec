"""Limited sight: sensing radius, the nearest, private entities; in JAX, in NumPy and in the critic of pairs."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from saved import save_small, small_policy
from scenes import make_scene, orthogonal

import legoswarm
from legoswarm.deploy.runtime import load_runtime
from legoswarm.evaluate.episodes import play
from legoswarm.layout import Layout
from legoswarm.policies.networks.pairs import PairCritic, sending
from legoswarm.policies.policy import Policy
from legoswarm.policies.saved.act import Swarm
from legoswarm.policies.saved.look import look
from legoswarm.scene import Scene, observe
from legoswarm.tasks.navigation import Navigation
from legoswarm.tasks.spread import Spread
from tests.policies import policy_of

TEAM = Layout(("red", "blue", "stone"), (5, 4, 6), controlled=2)
OWNERS = Layout(("agent", "goal", "hit"), (4, 4, 12), private=2)
NEAR = policy_of(width=8, depth=1, heads=2, nearest=4, precision="float32")


def limited(scene, sensing):
    return dataclasses.replace(scene, sensing=sensing)


def expected(scene, agent, nearest):
    """The entities that an agent sees of each role, written down from the rules."""
    layout, place = scene.layout, np.asarray(scene.position, float)
    distance = np.linalg.norm(place - place[agent], axis=1)
    found = []
    for role in layout.roles:
        block, each = layout.block(role), layout.each(role)
        seen = []
        for other in range(block.start, block.stop):
            mine = not each or (other - block.start) // each == agent
            near = bool(each) or distance[other] < scene.sensing * (1 - 1e-4)
            shown = scene.visible is None or bool(scene.visible[agent, other])
            if other != agent and bool(scene.exists[other]) and mine and near and shown:
                seen.append(other)
        seen.sort(key=lambda other: distance[other])
        if nearest and len(seen) > nearest:
            limit = distance[seen[nearest]]
            seen = [other for other in seen[:nearest] if distance[other] < limit * (1 - 1e-4)]
        found.append(sorted(seen))
    return found


def found_by_jax(scene, role, member, nearest):
    view = observe(scene, role, member, nearest=nearest)
    agent, place = scene.layout.block(role).start + member, np.asarray(scene.position)
    rows = [np.asarray(role.position)[np.asarray(role.mask)] + place[agent] for role in view.others]
    return [sorted(int(np.abs(place - row).sum(1).argmin()) for row in role) for role in rows]


def random_scene(layout, seed, hidden=0.2):
    rng = np.random.default_rng(seed)
    place = rng.uniform(-1, 1, (layout.entities, 2))
    exists = rng.uniform(size=layout.entities) < 0.8
    exists[0] = True
    visible = rng.uniform(size=(layout.agents, layout.entities)) >= hidden if hidden else None
    return dataclasses.replace(
        make_scene(layout, place, rng.normal(size=place.shape), exists),
        visible=None if visible is None else jnp.asarray(visible),
    )


@pytest.mark.parametrize("layout", [TEAM, OWNERS])
@pytest.mark.parametrize(("sensing", "nearest"), [(math.inf, 0), (0.8, 0), (math.inf, 2), (0.9, 3)])
def test_who_is_seen(layout, sensing, nearest):
    for seed, hidden in ((0, 0.3), (1, 0.0)):
        scene = limited(random_scene(layout, seed, hidden), sensing)
        agent = 0
        for role in layout.controlled_roles:
            for member in range(layout.members(role)):
                assert found_by_jax(scene, role, member, nearest) == expected(scene, agent, nearest)
                agent += 1
        table = np.asarray(scene.seen())
        for agent in range(layout.agents):
            whole = sorted(itertools.chain(*expected(scene, agent, 0)))
            assert sorted(set(np.flatnonzero(table[agent])) - {agent}) == whole


def test_what_is_as_far_away_as_the_last_or_as_the_radius_is_not_seen():
    """So that it does not matter in which order entities stand, or how their distances are rounded."""
    angles = np.arange(6) * math.pi / 3 + 0.2
    ring = np.stack([np.cos(angles), np.sin(angles)], -1)
    place = np.concatenate([np.zeros((1, 2)), 0.5 * ring[:2], ring])
    layout = Layout(("agent", "landmark"), (3, 6))
    for turn in (0.0, 0.3, 1.1):
        scene = make_scene(layout, place @ orthogonal(turn).T, np.zeros_like(place))
        view = observe(scene, "agent", 0, nearest=3)
        assert [int(role.mask.sum()) for role in view.others] == [2, 0]
        assert [int(role.mask.sum()) for role in observe(limited(scene, 1.0), "agent", 0).others] == [2, 0]
        assert [int(role.mask.sum()) for role in observe(limited(scene, 1.001), "agent", 0).others] == [2, 6]
        assert [int(role.mask.sum()) for role in observe(limited(scene, 0.5), "agent", 0).others] == [0, 0]


@pytest.mark.parametrize(("sensing", "nearest"), [(math.inf, 0), (0.8, 0), (math.inf, 2), (0.9, 3)])
def test_numpy_sees_the_same(sensing, nearest):
    for layout, seed in ((TEAM, 0), (TEAM, 1), (OWNERS, 2)):
        scene = limited(random_scene(layout, seed, hidden=0.3 * seed), sensing)
        scene = dataclasses.replace(scene, exists=jnp.ones(layout.entities, bool))
        rng = np.random.default_rng(seed)
        names = [role for role, slots in zip(layout.roles, layout.slots, strict=True) for _ in range(slots)]
        order = np.arange(layout.entities) if layout.private else rng.permutation(layout.entities)
        agents = order[order < layout.agents]
        place = np.asarray(scene.position, float)
        visible = None if scene.visible is None else np.asarray(scene.visible)[agents][:, order]
        seen, found = look(
            layout,
            place[order],
            np.asarray(scene.velocity)[order],
            [names[at] for at in order],
            visible,
            sensing,
            nearest,
        )
        for own, role in enumerate(layout.controlled_roles):
            for at in range(layout.members(role)):
                agent = int(order[found.members[own, at]])
                rows = [seen.others_position[own, r, at][seen.mask[own, r, at]] for r in range(len(layout.roles))]
                near = [
                    sorted(int(np.abs(place - place[agent] - row).sum(1).argmin()) for row in role) for role in rows
                ]
                assert near == expected(scene, agent, nearest)


def test_acting_with_a_radius(tmp_path):
    """JAX and NumPy say the same; a radius of training holds unless another one is given; who is beyond has no say."""
    path = save_small(tmp_path / "p", Spread(agents=4, sensing=0.7), config=dataclasses.replace(NEAR, nearest=3))
    rng = np.random.default_rng(0)
    place, speed, roles = rng.uniform(-1, 1, (40, 2)), rng.normal(size=(40, 2)), ["agent"] * 20 + ["landmark"] * 20
    policies = legoswarm.load(path), load_runtime(path)
    for sensing in (None, 0.4, math.inf):
        one, two = (policy.act(place, speed, roles, sensing=sensing) for policy in policies)
        np.testing.assert_allclose(one, two, atol=1e-4)
    far = place.copy()
    beyond = np.linalg.norm(place - place[0], axis=1) > 0.7
    far[beyond] += 5
    for policy in policies:
        usual = policy.act(place, speed, roles)
        np.testing.assert_allclose(policy.act(place, speed, roles, sensing=0.7), usual)
        np.testing.assert_allclose(policy.act(far, speed, roles)[0], usual[0], atol=1e-6)
        assert np.abs(policy.act(place, speed, roles, sensing=math.inf) - usual).max() > 1e-3
        with pytest.raises(ValueError, match=r"the sensing radius must be positive, not -1\.0"):
            policy.act(place, speed, roles, sensing=-1.0)


def test_a_few_among_many_others(tmp_path):
    """Of one role there are more than are looked at, of the agents' own fewer."""
    path = save_small(tmp_path / "p", Spread(agents=3), config=dataclasses.replace(NEAR, nearest=3))
    rng, roles = np.random.default_rng(0), ["agent"] * 3 + ["landmark"] * 9
    place, speed = rng.uniform(-1, 1, (2, 12, 2))
    one, two = (policy.act(place, speed, roles) for policy in (legoswarm.load(path), load_runtime(path)))
    np.testing.assert_allclose(one, two, atol=1e-5)


@pytest.mark.parametrize("grid", [False, True])
def test_a_thousand_agents_turned_and_in_another_order(grid, tmp_path):
    """Also where everybody stands on a grid, so that the radius and the last of the nearest are tied everywhere."""
    path = save_small(tmp_path / "p", Spread(agents=4, sensing=0.9), config=dataclasses.replace(NEAR, nearest=6))
    policy, rng = load_runtime(path), np.random.default_rng(0)
    place = rng.uniform(-16, 16, (2000, 2))
    if grid:
        place = np.stack(np.divmod(np.arange(2000), 40), -1) * 0.45
    speed, roles = rng.normal(size=place.shape) * 0.3, np.array(["agent"] * 1000 + ["landmark"] * 1000)
    usual = policy.act(place, speed, roles.tolist())
    order = np.r_[rng.permutation(1000), 1000 + rng.permutation(1000)]
    for turn, shift in ((orthogonal(0.7), 3.0), (orthogonal(2.0, mirror=True), -1.0)):
        found = policy.act(place[order] @ turn.T + shift, speed[order] @ turn.T, roles[order].tolist())
        error = np.linalg.norm(found - usual[order[:1000]] @ turn.T, axis=1)
        assert error.max() < 1e-3 * np.linalg.norm(usual, axis=1).max()


# The critic


def summaries(critic, scene):
    return critic._summaries(jax.tree.map(lambda x: x[None], scene), None)


def test_the_critic_of_all_pairs_is_the_one_of_the_nearest_if_those_are_all():
    scene = random_scene(TEAM, 3, hidden=0.0)
    all_pairs, nearest = (PairCritic(Policy(width=8), TEAM, nearest=n, key=jax.random.key(0)) for n in (0, 5))
    one, two = (jax.jit(lambda s, c=critic: summaries(c, s))(scene) for critic in (all_pairs, nearest))
    # five of six stones are the nearest: they alone are told apart
    index, there = sending(scene, 6)
    assert isinstance(index, slice)
    full = dataclasses.replace(scene, exists=scene.exists.at[-1].set(False))
    one, two = (jax.jit(lambda s, c=critic: summaries(c, s))(full) for critic in (all_pairs, nearest))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert there.shape == (15, 15)


def test_private_entities_send_to_their_agent_alone():
    scene = random_scene(OWNERS, 4, hidden=0.0)
    critic = PairCritic(Policy(width=8), OWNERS, key=jax.random.key(0))
    value = jax.jit(lambda s: jnp.stack([critic(s, "agent", jnp.array(at)) for at in range(4)]))
    summary = jax.jit(lambda s: summaries(critic, s)[0][0])
    scene = dataclasses.replace(scene, exists=jnp.ones(OWNERS.entities, bool))
    moved = dataclasses.replace(scene, position=scene.position.at[5].add(0.5))  # the goal of agent 1
    changed = np.abs(np.asarray(summary(moved) - summary(scene))).max(1) > 1e-6
    assert changed.tolist() == [False, True, False, False]
    assert np.isfinite(value(scene)).all()


def largest(fn, *args):
    """The number of elements of the largest array that a function makes on its way."""
    sizes = []

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            sizes.extend(math.prod(v.aval.shape) for v in equation.outvars if hasattr(v.aval, "shape"))
            for value in equation.params.values():
                for inner in jax.tree.leaves(value, is_leaf=lambda x: hasattr(x, "jaxpr") or hasattr(x, "eqns")):
                    inner = getattr(inner, "jaxpr", inner)
                    if hasattr(inner, "eqns"):
                        walk(inner)

    walk(jax.make_jaxpr(fn)(*args).jaxpr)
    return max(sizes)


def test_nothing_grows_with_the_square_of_the_team_but_distances():
    """Twice the team: distances of all to all take four times the room, everything else twice."""

    def room(agents):
        task = Spread(agents=agents, sensing=1.2, density=1.0)
        file = small_policy(task, config=dataclasses.replace(NEAR, width=16, nearest=4))
        critic = PairCritic(Policy(width=16), task.layout, acts=True, nearest=4, key=jax.random.key(0))
        state = task.reset(jax.random.key(0))

        def both(state):
            scene = task.scene(state)
            actors = {role: policy.actor for role, policy in file.one().items()}
            actions = legoswarm.policies.networks.team.decide(actors, scene)["agent"].mean
            return critic.values(jax.tree.map(lambda x: x[None], scene), "agent", actions[None])

        return largest(both, state)

    small, large = room(256), room(1024)
    assert large == 2 * 2048 * 1024  # where everybody of a role is, seen from everybody, to find the nearest
    assert small == 2 * 512 * 256


# Tasks


def test_the_arena_grows_with_the_team():
    for agents in (4, 64):
        task = Spread(agents=agents, density=1.0, sensing=1.2, horizon=50)
        state = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), 100))
        half = math.sqrt(agents) / 2
        place = np.abs(np.asarray(state.position))
        assert 0.98 * half < place[:, :agents].max() <= half
        assert 0.95 * (half - 0.2) < place[:, agents:].max() <= half - 0.2
    mixed = Spread(agents=16, sizes=(4, 16), density=1.0)
    state = jax.vmap(mixed.reset)(jax.random.split(jax.random.key(0), 100))
    team, place = np.asarray(state.exists)[:, :16].sum(1), np.abs(np.asarray(state.position))
    assert set(team) == {4, 16}
    assert place[team == 4][:, :4].max() <= 1
    assert place[team == 16][:, :16].max() > 1.8


def test_covered_and_when_and_how_often_agents_touch():
    task = Spread(agents=2, horizon=4)
    place = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.05, 0.0], [1.2, 0.0]])
    state = dataclasses.replace(task.reset(jax.random.key(0)), position=place)
    assert task.measure(state)["covered"] == 0.5
    measures = {name: jnp.zeros(4) for name in ("distance", "collisions")} | {"team": jnp.full(4, 2.0)}
    figures = task.figures({**measures, "covered": jnp.array([0.5, 1.0, 0.5, 0.5]), "collisions": jnp.ones(4)})
    assert (figures["covered"], figures["cover_time"], figures["touches"]) == (0.5, 2, 4)
    assert task.figures({**measures, "covered": jnp.zeros(4)})["cover_time"] == 4


def test_what_a_collision_costs_does_not_depend_on_the_team():
    place = np.random.default_rng(0).uniform(-3, 3, (16, 2))
    task = Spread(agents=8, density=1.0)
    state = dataclasses.replace(task.reset(jax.random.key(0)), position=jnp.asarray(place, jnp.float32))
    measures = task.measure(state)
    assert float(task.reward(state)[0]) == pytest.approx(
        -4 * float(measures["distance"]) - 2 * float(measures["collisions"])
    )


def test_a_large_team_is_evaluated_in_parts(tmp_path, monkeypatch):
    """With the same figures as at once."""
    path = save_small(tmp_path / "p", Spread(agents=2, sensing=1.2, density=1.0, horizon=3), config=NEAR)
    whole = legoswarm.evaluate(path, agents=[6], episodes=7)
    monkeypatch.setattr("legoswarm.evaluate.policies.TOGETHER", 18)
    assert legoswarm.evaluate(path, agents=[6], episodes=7) == whole


def test_scenes_of_tasks_carry_no_table():
    for task in (Spread(sensing=1.0), Navigation()):
        scene = task.scene(task.reset(jax.random.key(0)))
        assert isinstance(scene, Scene)
        assert scene.visible is None
    swarm = Swarm(small_policy(Navigation(agents=3), config=NEAR))
    trajectory = jax.jit(
        lambda key: play(Navigation(agents=3, horizon=3), swarm.actors, Navigation(agents=3).reset(key))
    )
    assert np.isfinite(trajectory(jax.random.key(0)).actions).all()
