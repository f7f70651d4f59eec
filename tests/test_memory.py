"""Tag with a memory: everybody knows where it last saw those it no longer sees, for so many steps and no longer."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from saved import save_small, small_policy

import legoswarm
from legoswarm.cli import main
from legoswarm.deploy.fly import prepare
from legoswarm.deploy.runtime import load_runtime
from legoswarm.deploy.setting import Setting
from legoswarm.evaluate.policies import evaluate_policy
from legoswarm.policies.networks.team import decide, knowing
from legoswarm.scene import observe
from legoswarm.studies.failure import FailingTag
from legoswarm.tasks.tag import Tag
from tests.policies import policy_of

TASK = Tag(pursuers=2, evaders=2, obstacles=3, memory=3, sensing=1.1)
ROLES = ("pursuer", "evader")
PUSHES = (2 * np.sin(np.arange(40)[:, None] / 6 + np.arange(8))).reshape(40, 4, 2).astype(np.float32)
SMALL = policy_of(width=8, depth=1, heads=2, precision="float32")


@pytest.fixture(scope="module")
def states():
    """Forty steps of agents that fly about."""
    step, found = jax.jit(TASK.step), [jax.jit(TASK.reset)(jax.random.key(3))]
    for push in PUSHES:
        found.append(step(found[-1], push))
    return found


@jax.jit
def views(state):
    """Who sees whom, and everybody's observation, by role."""
    scene = TASK.scene(state)
    return scene.seen(), [jax.vmap(lambda at, r=role: observe(scene, r, at).others)(np.arange(2)) for role in ROLES]


def test_what_was_seen_last_is_known_for_so_many_steps(states):
    last, ages, lost, back = {}, {}, 0, 0
    for state in states:
        place, speed = np.asarray(state.position), np.asarray(state.velocity)
        seen, found = jax.tree.map(np.asarray, views(state))
        for agent, other in itertools.product(range(4), repeat=2):
            pair = agent, other
            rows = found[agent // 2][TASK.layout.roles.index(f"lost-{ROLES[other // 2]}")]
            row = jax.tree.map(lambda values, agent=agent, other=other: values[agent % 2, other % 2], rows)
            if seen[pair]:
                back += ages.get(pair, 0) > 0
                last[pair], ages[pair] = (place[other], speed[other]), 0
                assert not row.mask
                continue
            ages[pair] = ages.get(pair, 99) + 1
            assert bool(row.mask) == (ages[pair] <= TASK.memory)
            if row.mask:
                lost += 1
                np.testing.assert_allclose(row.position + place[agent], last[pair][0], atol=1e-6)
                np.testing.assert_array_equal(row.velocity, last[pair][1])
    assert lost > 15
    assert back > 2


def test_who_is_gone_remembers_nothing_and_is_remembered(states):
    """Until the others forget: they did not see it go."""
    state = dataclasses.replace(states[0], exists=states[0].exists.at[0].set(False))
    _, found = views(jax.jit(TASK.step)(state, jnp.zeros((4, 2))))
    lost = [np.concatenate([role[at].mask[:, :1] for role in found]) for at in (3, 4)]
    assert not any(rows[0].any() for rows in lost)
    sees = np.asarray(views(states[0])[0])[1:, 0]
    assert lost[0][1:, 0].tolist() == sees.tolist()
    assert sees.any()


def test_the_world_is_the_same(states):
    plain = dataclasses.replace(TASK, memory=0)
    state = jax.jit(plain.reset)(jax.random.key(3))
    for there in states[:3]:
        np.testing.assert_array_equal(state.position, there.position[:7])
        np.testing.assert_array_equal(jax.jit(plain.reward)(state), jax.jit(TASK.reward)(there))
        state = jax.jit(plain.step)(state, PUSHES[int(state.time)])
    assert plain.layout.roles == TASK.layout.roles[:3]
    with pytest.raises(ValueError, match="memory must be at least 0"):
        Tag(memory=-1)


def test_policies_act_on_it_with_and_without_jax(tmp_path, states):
    """Rows of those that are not lost are NaN; what is remembered makes a difference."""
    path = save_small(tmp_path / "p", TASK, config=SMALL)
    scene = next(s for s in map(TASK.scene, states) if np.asarray(s.exists)[7:].sum() >= 3)
    layout = scene.layout
    roles = [role for role, slots in zip(layout.roles, layout.slots, strict=True) for _ in range(slots)]
    there = np.asarray(scene.exists)[:, None]
    place, speed = (np.where(there, values, np.nan) for values in (scene.position, scene.velocity))
    seen = np.asarray(scene.seen())
    actions = [policy.act(place, speed, roles, visible=seen) for policy in (legoswarm.load(path), load_runtime(path))]
    np.testing.assert_allclose(*actions, atol=1e-5)
    place[7:] = np.nan
    assert np.abs(legoswarm.load(path).act(place, speed, roles, visible=seen) - actions[0]).max() > 1e-3


@pytest.mark.parametrize("name", ["lego", "mappo"])
def test_an_actor_does_not_see_what_it_does_not_know(name, states):
    plain, shows = TASK, dataclasses.replace(TASK, arena=True)  # a role in the middle
    config = policy_of(name, width=8, precision="float32")
    actors = {role: policy.actor for role, policy in small_policy(plain, config=config).one().items()}
    know = {role: knowing(actor, plain.layout.roles, shows.layout.roles) for role, actor in actors.items()}
    states = [jax.jit(task.reset)(jax.random.key(2)) for task in (plain, shows)]
    states = [jax.jit(task.step)(state, PUSHES[3]) for task, state in zip((plain, shows), states, strict=True)]
    one, other = decide(actors, plain.scene(states[0])), decide(know, shows.scene(states[1]))
    for role in ROLES:
        np.testing.assert_allclose(one[role].mean, other[role].mean, atol=1e-6)


def test_those_who_remember_meet_those_who_do_not(tmp_path):
    short = {"pursuers": 2, "evaders": 1, "obstacles": 2, "horizon": 3}
    kinds = {"plain": {}, "knows": {"memory": 5}, "longer": {"memory": 9}}
    paths = {
        kind: str(save_small(tmp_path / kind, Tag(**short, **fields), config=SMALL)) for kind, fields in kinds.items()
    }

    def meet(pursuers, evaders):
        opponents = {"pursuer": paths[pursuers], "evader": paths[evaders]}
        return next(evaluate_policy("tag", opponents=opponents, episodes=8))

    assert meet("plain", "knows")["pursuer_return"] >= 0
    with pytest.raises(ValueError, match="they live in different worlds: memory 5 and 9"):
        meet("knows", "longer")


def test_a_pursuer_that_has_stopped_is_remembered_where_it_stands():
    task = FailingTag(pursuers=2, evaders=1, obstacles=0, memory=5, kind="kept", at=4)
    start = jax.jit(task.reset)(jax.random.key(0))
    start = dataclasses.replace(start, time=jnp.array(4), velocity=start.velocity.at[0].set(0.7))
    after = task.step(start, jnp.ones((3, 2)))
    rows = task.layout.shared + task.pursuers * np.arange(3)  # what everybody knows of the first pursuer
    np.testing.assert_array_equal(after.position[rows], np.tile(start.position[0], (3, 1)))
    assert not np.asarray(after.velocity[rows]).any()


def test_what_cannot_remember_refuses_policies_that_do(tmp_path, capsys):
    path = str(save_small(tmp_path / "p", Tag(memory=4), config=SMALL))
    assert main(["page", path, "--out", str(tmp_path / "page.html")]) == 2
    assert "cannot show a policy that was trained with --memory" in capsys.readouterr().err
    with pytest.raises(ValueError, match="cannot fly this: nobody provides lost-pursuer, lost-evader"):
        prepare(path, Setting())
    with pytest.raises(ValueError, match="does not fit pursuer, evader, obstacle"):
        next(evaluate_policy(path, changes={"memory": 0}))
    with pytest.raises(ValueError, match="--nearest is for one policy"):
        next(evaluate_policy("tag", opponents={"pursuer": path, "evader": path}, nearest=3))
