"""What LEGO promises, for actions and values of whole teams in float32.

The policies are random but lively: their outputs are of order 1 and depend on everything they see. The error is
relative to the largest action (or value) in the scene; agents whose frame hangs on less than the margins of
`scenes.near_tie` are left out, and how many that are is measured at the end.
"""

import dataclasses
import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import SPREAD, TAG, near_tie, orthogonal, pad, permute, random_scene, stack, transform

from legoswarm.layout import Layout
from legoswarm.learn.algorithms.ippo import Ippo
from legoswarm.learn.algorithms.mappo import Mappo, value_of
from legoswarm.limits import Limit
from legoswarm.policies.networks.roles import make_policies
from legoswarm.policies.networks.team import decide, join, world_actions
from legoswarm.policies.saved.file import load_policy
from tests.policies import policy_of
from tests.tiny import FAST

TOLERANCE = 1e-4
LIMITS = (Limit(), Limit("disc", 0.8))
SCENES = 8  # in each example

ATTENTION = policy_of(width=32, depth=2, heads=4, axis="velocity")
DEEPSETS = policy_of(width=16, depth=1, encoder="deepsets", pooling="max", leash=1.0, axis="velocity")  # it pulls
JOINT = policy_of(width=16, depth=2, heads=4, encoder="joint", axis="velocity")
CRITICS = ("full", "local", "pairs")  # local: the same as `full`, but of what its agent sees, as IPPO asks it
OUTPUTS = {"hands 1": {"hands": 1}, "hands 2": {"hands": 2}, "full": {}, "local": {}, "pairs": {"critic": "pairs"}}
MAPPO, IPPO = Mappo(), Ippo()
ONE, TWO, PAIRS = ("hands 1", "full"), ("hands 2", "local"), ("pairs",)


def case(layout, config, axis, outputs, *marks):
    name = f"{layout.roles[0]}-{config.encoder}-{axis}" if outputs is not PAIRS else f"{layout.roles[0]}-pairs"
    return pytest.param(dataclasses.replace(config, axis=axis), layout, outputs, id=name, marks=marks)


# Compiling takes the time: each encoder and axis has half of the outputs in Spread and the other half in Tag.
each_case = pytest.mark.parametrize(
    ("config", "layout", "outputs"),
    [
        case(SPREAD, ATTENTION, "velocity", ONE),
        case(SPREAD, ATTENTION, "position", TWO),
        case(SPREAD, DEEPSETS, "velocity", TWO),
        case(SPREAD, DEEPSETS, "position", ONE),
        case(TAG, ATTENTION, "velocity", TWO, pytest.mark.slow),
        case(TAG, ATTENTION, "position", ONE, pytest.mark.slow),
        case(TAG, DEEPSETS, "velocity", ONE),
        case(TAG, DEEPSETS, "position", TWO),
        case(TAG, JOINT, "velocity", ONE),
        case(SPREAD, DEEPSETS, "none", PAIRS),
        case(TAG, DEEPSETS, "none", PAIRS),
    ],
)

seeds = st.integers(0, 2**32 - 1)
angles = st.floats(-math.pi, math.pi)
shifts = st.tuples(st.floats(-10, 10), st.floats(-10, 10))


def lively(config, layout):
    """Policies with random parameters, none zero and none special, and a gain of about 1 in every layer."""
    start = eqx.filter_eval_shape(make_policies, config, layout, key=jax.random.key(0))
    rng = np.random.default_rng(7)

    def draw(path, leaf):
        noise = rng.normal(size=leaf.shape)
        if path[-1].name == "weight":
            noise = 1.2 * noise / leaf.shape[0] ** 0.5
        else:
            noise = 0.2 * noise + (path[-1].name == "scale")
        return jnp.asarray(noise, jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, start)


@functools.cache
def output(config, layout, name):
    """A jitted function from a batch of scenes to the actions (`hands 1`, `hands 2`) or values (of `CRITICS`)."""
    policies = lively(dataclasses.replace(config, **OUTPUTS[name]), layout)
    return compiled(policies, layout, name.startswith("hands"), IPPO if name == "local" else MAPPO)


def compiled(policies, layout, acting, algorithm=MAPPO):
    """The same of any policies."""

    def actions(policies, scene):
        decisions = decide({role: policy.actor for role, policy in policies.items()}, scene)
        return world_actions(layout, decisions, {role: d.mean for role, d in decisions.items()})

    def values(policies, scene):
        def of_role(role):
            members = jnp.arange(layout.members(role))
            return jax.vmap(lambda m: value_of(policies[role].critic, scene, role, m, algorithm))(members)

        return join(layout, {role: of_role(role) for role in layout.controlled_roles})

    run = jax.jit(jax.vmap(actions if acting else values, in_axes=(None, 0)), compiler_options=FAST)
    return functools.partial(run, policies)


def outcome(config, scenes, outputs):
    """Each of `outputs` for many scenes of one layout."""
    batch, layout = stack(scenes), scenes[0].layout
    return {name: np.asarray(output(config, layout, name)(batch), float) for name in outputs}


def check(found, expected, compared, tolerance=TOLERANCE):
    """Rows (scenes, agents, ...) agree where `compared`, relative to the largest expected one in the scene."""
    found, expected = (rows.reshape(*compared.shape, -1) for rows in (found, expected))
    assert np.isfinite(found).all()
    size = np.linalg.norm(expected, axis=-1)
    scale = np.where(compared, size, 0).max(1, keepdims=True).clip(min=0.1)
    error = np.where(compared, np.linalg.norm(found - expected, axis=-1) / scale, 0)
    assert error.max() < tolerance, f"relative error {error.max():.1e} of agent {np.argwhere(error == error.max())[0]}"


def existing(scenes):
    return np.stack([np.asarray(s.exists)[: s.layout.agents] for s in scenes])


def compared_agents(scenes, axis, mirror, hands=1):
    if axis == "none":
        return existing(scenes)
    ties = np.stack([near_tie(s, axis, mirror=mirror, hands=hands) for s in scenes])
    return existing(scenes) & ~ties


def draw_scenes(rng, layout):
    return [random_scene(rng, layout) for _ in range(SCENES)]


@each_case
class TestSymmetries:
    @settings(max_examples=40)
    @given(seeds, angles, st.booleans(), shifts)
    def test_rotations_reflections_and_translations(self, config, layout, outputs, seed, angle, mirror, shift):
        scenes, turn = draw_scenes(np.random.default_rng(seed), layout), orthogonal(angle, mirror)
        before = outcome(config, scenes, outputs)
        after = outcome(config, [transform(s, turn, shift) for s in scenes], outputs)
        for name, rows in before.items():
            hands = 2 if name == "hands 2" else 1  # a critic has one
            compared = compared_agents(scenes, config.axis, mirror, hands)
            if name in CRITICS:
                check(after[name], rows, compared)
                continue
            for limit in LIMITS:
                check(limit(after[name]), limit(rows) @ turn.T, compared)

    @settings(max_examples=15)
    @given(seeds)
    def test_permutations_within_a_role(self, config, layout, outputs, seed):
        rng = np.random.default_rng(seed)
        scenes = draw_scenes(rng, layout)
        moved, orders = zip(*(permute(s, rng) for s in scenes), strict=True)
        before, after = outcome(config, scenes, outputs), outcome(config, moved, outputs)
        compared = compared_agents(moved, config.axis, mirror=False)
        for name, rows in before.items():
            expected = np.stack([r[order[: layout.agents]] for r, order in zip(rows, orders, strict=True)])
            check(after[name], expected, compared)

    @settings(max_examples=15)
    @given(seeds)
    def test_what_is_not_seen_does_not_matter(self, config, layout, outputs, seed):
        rng = np.random.default_rng(seed)
        scenes = draw_scenes(rng, layout)
        moved, blind = zip(*(_move_one(s, rng) for s in scenes), strict=True)
        before, after = outcome(config, scenes, outputs), outcome(config, moved, outputs)
        for name in set(before) - {"full", "pairs"}:  # bit by bit
            np.testing.assert_array_equal(after[name][np.stack(blind)], before[name][np.stack(blind)])

    @settings(max_examples=15)
    @given(seeds)
    def test_unused_slots_do_not_matter(self, config, layout, outputs, seed):
        rng = np.random.default_rng(seed)
        scenes = draw_scenes(rng, layout)
        before = outcome(config, scenes, outputs)
        after = outcome(config, [_fill_unused(s, rng) for s in scenes], outputs)
        for name, rows in before.items():
            np.testing.assert_array_equal(after[name][existing(scenes)], rows[existing(scenes)])


def _move_one(scene, rng):
    """One entity is somewhere else; the agents that do not see it."""
    entity = rng.integers(scene.layout.entities)
    position, velocity = np.array(scene.position), np.array(scene.velocity)
    position[entity], velocity[entity] = rng.uniform(-1, 1, (2, 2))
    blind = ~np.asarray(scene.visible)[:, entity] | ~np.asarray(scene.exists)[entity]
    blind[entity : entity + 1] = False
    return dataclasses.replace(scene, position=jnp.asarray(position), velocity=jnp.asarray(velocity)), blind


def _fill_unused(scene, rng):
    unused = ~np.asarray(scene.exists)[:, None]
    position = np.where(unused, rng.normal(0, 100, unused.shape), scene.position).astype(np.float32)
    velocity = np.where(unused, rng.normal(0, 100, unused.shape), scene.velocity).astype(np.float32)
    return dataclasses.replace(scene, position=jnp.asarray(position), velocity=jnp.asarray(velocity))


PADDED = {SPREAD: (ATTENTION, ONE), TAG: (dataclasses.replace(DEEPSETS, axis="position"), TWO)}
TEAMS = {SPREAD: [(1, 0), (1, 2), (3, 3)], TAG: [(2, 1, 0), (3, 2, 2)]}


@pytest.mark.parametrize(
    ("slots", "padded"),
    [pytest.param(slots, wide, id="-".join(map(str, slots))) for wide in TEAMS for slots in TEAMS[wide]],
)
@settings(max_examples=15)
@given(seeds)
def test_padding(slots, padded, seed):
    """A team in a layout of exactly its size, and in a layout with more slots, unused and full of garbage."""
    (config, outputs), layout = PADDED[padded], Layout(padded.roles, slots, padded.controlled)
    rng, extra = np.random.default_rng(seed), tuple(np.subtract(padded.slots, slots))
    tight = [random_scene(rng, layout, empty=False) for _ in range(SCENES)]
    wide, at = zip(*(pad(s, extra, rng) for s in tight), strict=True)
    before, after = outcome(config, tight, outputs), outcome(config, wide, outputs)
    compared = compared_agents(tight, config.axis, mirror=False)
    for name, rows in before.items():
        check(after[name][:, at[0][: layout.agents]], rows, compared)


@pytest.mark.slow
@pytest.mark.parametrize("acting", [True, False], ids=["actions", "values"])
@pytest.mark.parametrize(("name", "layout"), [("spread-any", SPREAD), ("spread-mpe2", SPREAD), ("tag", TAG)])
def test_after_training(name, layout, acting):
    """The zoo's policies at a team size they were not trained with; the box of mpe2 is left out."""
    file = load_policy(f"zoo:{name}")
    assert file.layout.slots != layout.slots
    run = compiled(file.one(), layout, acting)
    rng = np.random.default_rng(3)
    for mirror in (False, True):
        turn, shift = orthogonal(rng.uniform(-math.pi, math.pi), mirror), rng.uniform(-10, 10, 2)
        scenes = [random_scene(rng, layout) for _ in range(100)]
        moved, orders = zip(*(permute(transform(s, turn, shift), rng) for s in scenes), strict=True)
        before, after = (np.asarray(run(stack(group)), float) for group in (scenes, moved))
        before = before @ turn.T if acting else before
        expected = np.stack([r[order[: layout.agents]] for r, order in zip(before, orders, strict=True)])
        check(after, expected, compared_agents(moved, file.config.axis, mirror))


class TestTheseTestsCanFail:
    turn = orthogonal(0.6)

    def scenes(self, still):
        rng = np.random.default_rng(11)
        return [random_scene(rng, SPREAD, still=still, slow=0.0, hidden=0.0, empty=False) for _ in range(SCENES)]

    def both(self, config, scenes, outputs):
        turned = [transform(s, self.turn) for s in scenes]
        return outcome(config, scenes, outputs), outcome(config, turned, outputs)

    def test_policies_are_lively(self):
        scenes = self.scenes(still=0.3)
        for config, outputs in ((ATTENTION, ONE), (DEEPSETS, TWO)):
            for rows in outcome(config, scenes, outputs).values():
                assert 0.3 < rows.std() < 5

    def test_a_box_is_not_equivariant(self):
        scenes, box = self.scenes(still=0.3), Limit("box", 0.3)
        before, after = self.both(ATTENTION, scenes, ("hands 1",))
        compared = compared_agents(scenes, "velocity", mirror=False)
        check(after["hands 1"], before["hands 1"] @ self.turn.T, compared)
        with pytest.raises(AssertionError, match="relative error"):
            check(box(after["hands 1"]), box(before["hands 1"]) @ self.turn.T, compared, tolerance=0.05)

    def test_the_papers_rest_is_not_equivariant(self):
        config = dataclasses.replace(DEEPSETS, rest="global")
        moving, resting = self.scenes(still=0.0), self.scenes(still=1.0)
        for scenes, holds in ((moving, True), (resting, False)):
            before, after = self.both(config, scenes, ONE)
            compared = compared_agents(scenes, "velocity", mirror=False)
            for name, rows in before.items():
                expected = rows @ self.turn.T if name.startswith("hands") else rows
                if holds:
                    check(after[name], expected, compared)
                else:
                    with pytest.raises(AssertionError, match="relative error"):
                        check(after[name], expected, compared, tolerance=0.05)


def test_few_agents_are_left_out(capsys):
    """The share of agents near a tie: in 2,000 complete scenes where all see all, and in 1,000 of the others."""
    kinds = {"complete": (1000, {"hidden": 0.0, "empty": False}), "any": (500, {})}
    shares = {}
    for kind, (count, options) in kinds.items():
        rng = np.random.default_rng(0)
        scenes = [random_scene(rng, layout, **options) for layout in (SPREAD, TAG) for _ in range(count)]
        for axis, hands in itertools.product(("velocity", "position"), (1, 2)):
            ties = [near_tie(s, axis, mirror=True, hands=hands)[existing([s])[0]] for s in scenes]
            shares[kind, axis, hands] = np.concatenate(ties).mean()
    with capsys.disabled():
        print("\nagents left out, one hand and two:", end="")
        for kind, axis in itertools.product(kinds, ("velocity", "position")):
            one, two = (100 * shares[kind, axis, hands] for hands in (1, 2))
            print(f" {kind} scenes, {axis} axis {one:.2f} % and {two:.2f} %;", end="")
    assert max(shares.values()) < 0.05
