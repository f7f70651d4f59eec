"""What LEGO promises, for actions and values of whole teams in float32.

The policies are random but lively: their outputs are of order 1 and depend on everything they see. The error is
relative to the largest action (or value) in the scene. No scene and no agent is left out, symmetric ones included.
"""

import dataclasses
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import SPREAD, TAG, make_scene, orthogonal, pad, permute, random_scene, stack, symmetric_scenes, transform

from legoswarm.layout import Layout
from legoswarm.learn.algorithms.ippo import Ippo
from legoswarm.learn.algorithms.mappo import Mappo, value_of
from legoswarm.limits import Limit
from legoswarm.policies.networks.roles import make_policies
from legoswarm.policies.networks.team import decide, join, world_actions
from legoswarm.policies.saved.file import load_policy
from tests.policies import policy_of
from tests.tiny import FAST

TOLERANCE = 1e-3  # near a tie, where rounding by 1e-6 is 2e-4 of the frame; elsewhere it is 1e-5
LIMITS = (Limit(), Limit("disc", 0.8))
SCENES = 8  # in each example

ATTENTION = policy_of(width=32, depth=2, heads=4, axis="velocity")
DEEPSETS = policy_of(width=16, depth=1, encoder="deepsets", pooling="max", leash=1.0, axis="velocity")  # it pulls
JOINT = policy_of(width=16, depth=2, heads=4, encoder="joint", axis="velocity")
CRITICS = ("full", "local", "pairs")  # local: the same as `full`, but of what its agent sees, as IPPO asks it
OUTPUTS = {"action": {}, "full": {}, "local": {}, "pairs": {"critic": "pairs"}}
MAPPO, IPPO = Mappo(), Ippo()
ONE, TWO, PAIRS = ("action", "full"), ("action", "local"), ("pairs",)


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
    """A jitted function from a batch of scenes to the actions or to values (of `CRITICS`)."""
    policies = lively(dataclasses.replace(config, **OUTPUTS[name]), layout)
    return compiled(policies, layout, name == "action", IPPO if name == "local" else MAPPO)


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


def draw_scenes(rng, layout):
    return [random_scene(rng, layout) for _ in range(SCENES)]


@each_case
class TestSymmetries:
    @settings(max_examples=20)
    @given(seeds, angles, st.booleans(), shifts)
    def test_rotations_reflections_and_translations(self, config, layout, outputs, seed, angle, mirror, shift):
        scenes, turn = draw_scenes(np.random.default_rng(seed), layout), orthogonal(angle, mirror)
        before = outcome(config, scenes, outputs)
        after = outcome(config, [transform(s, turn, shift) for s in scenes], outputs)
        for name, rows in before.items():
            compared = existing(scenes)
            if name in CRITICS:
                check(after[name], rows, compared)
                continue
            for limit in LIMITS:
                check(limit(after[name]), limit(rows) @ turn.T, compared)

    @settings(max_examples=8)
    @given(seeds)
    def test_permutations_within_a_role(self, config, layout, outputs, seed):
        rng = np.random.default_rng(seed)
        scenes = draw_scenes(rng, layout)
        moved, orders = zip(*(permute(s, rng) for s in scenes), strict=True)
        before, after = outcome(config, scenes, outputs), outcome(config, moved, outputs)
        compared = existing(moved)
        for name, rows in before.items():
            expected = np.stack([r[order[: layout.agents]] for r, order in zip(rows, orders, strict=True)])
            check(after[name], expected, compared)

    @settings(max_examples=8)
    @given(seeds)
    def test_what_is_not_seen_does_not_matter(self, config, layout, outputs, seed):
        rng = np.random.default_rng(seed)
        scenes = draw_scenes(rng, layout)
        moved, blind = zip(*(_move_one(s, rng) for s in scenes), strict=True)
        before, after = outcome(config, scenes, outputs), outcome(config, moved, outputs)
        for name in set(before) - {"full", "pairs"}:  # bit by bit
            np.testing.assert_array_equal(after[name][np.stack(blind)], before[name][np.stack(blind)])

    @settings(max_examples=8)
    @given(seeds)
    def test_unused_slots_do_not_matter(self, config, layout, outputs, seed):
        rng = np.random.default_rng(seed)
        scenes = draw_scenes(rng, layout)
        before = outcome(config, scenes, outputs)
        after = outcome(config, [_fill_unused(s, rng) for s in scenes], outputs)
        for name, rows in before.items():
            np.testing.assert_array_equal(after[name][existing(scenes)], rows[existing(scenes)])


@pytest.mark.parametrize(
    ("config", "layout"), [(ATTENTION, SPREAD), (dataclasses.replace(JOINT, axis="position"), SPREAD), (JOINT, TAG)]
)
def test_symmetric_scenes(config, layout):
    """Lines, polygons, mirror images, everybody in one point: at rest, creeping, flying at the centroid and away."""
    rng = np.random.default_rng(5)
    scenes = symmetric_scenes(layout, rng)
    before = outcome(config, list(scenes.values()), ("action",))["action"]
    for mirror in (False, True):
        turn, shift = orthogonal(rng.uniform(-math.pi, math.pi), mirror), rng.uniform(-1, 1, 2)
        moved = [transform(scene, turn, shift) for scene in scenes.values()]
        after = outcome(config, moved, ("action",))["action"]
        for at, name in enumerate(scenes):
            error = np.linalg.norm(after[at] - before[at] @ turn.T, axis=-1).max()
            assert error < TOLERANCE * max(np.linalg.norm(before[at], axis=-1).max(), 1.0), (name, mirror, error)


def test_a_thousand_agents():
    """They stand at random and on rings, at rest and flying at the centre."""
    layout, rng = Layout(SPREAD.roles, (1000, 1000)), np.random.default_rng(1)
    angles = 2 * np.pi * np.arange(1000) / 1000
    ring, turn = np.stack([np.cos(angles), np.sin(angles)], -1), orthogonal(0.7, True)
    for position in (rng.uniform(-1, 1, (2000, 2)), np.concatenate([ring, 0.5 * ring])):
        for speed in (0.0, 0.7):
            scene = make_scene(layout, position, np.pad(-speed * position[:1000], ((0, 1000), (0, 0))))
            before, after = (outcome(DEEPSETS, [s], ("action",))["action"] for s in (scene, transform(scene, turn)))
            check(after, before @ turn.T, existing([scene]))


def largest_step(config):
    """Of actions along paths through ties of all kinds, the largest step, and that again in 400 parts: the largest."""
    scenes, rng, largest = symmetric_scenes(SPREAD, np.random.default_rng(5)), np.random.default_rng(6), 0.0
    for name in ("polygon around one, at rest", "mirror, one on the axis, moving", "line, between"):
        ways = rng.uniform(-0.05, 0.05, (2, SPREAD.agents, 2))
        ways = np.pad(ways, ((0, 0), (0, SPREAD.entities - SPREAD.agents), (0, 0)))
        start = np.asarray(scenes[name].position, float), np.asarray(scenes[name].velocity, float)

        def steps(low, high, start=start, ways=ways):
            places = np.linspace(low, high, 401)
            path = [make_scene(SPREAD, *(a + x * way for a, way in zip(start, ways, strict=True))) for x in places]
            sizes = np.linalg.norm(np.diff(outcome(config, path, ("action",))["action"], axis=0), axis=-1).max(-1)
            return sizes.max(), *places[sizes.argmax() :][:2]

        largest = max(largest, steps(*steps(-1, 1)[1:])[0])
    return largest


def test_actions_are_continuous():
    assert largest_step(JOINT) < 0.1
    assert largest_step(dataclasses.replace(JOINT, tie=1e-9)) > 0.5  # a frame that switches


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
@settings(max_examples=8)
@given(seeds)
def test_padding(slots, padded, seed):
    """A team in a layout of exactly its size, and in a layout with more slots, unused and full of garbage."""
    (config, outputs), layout = PADDED[padded], Layout(padded.roles, slots, padded.controlled)
    rng, extra = np.random.default_rng(seed), tuple(np.subtract(padded.slots, slots))
    tight = [random_scene(rng, layout, empty=False) for _ in range(SCENES)]
    wide, at = zip(*(pad(s, extra, rng) for s in tight), strict=True)
    before, after = outcome(config, tight, outputs), outcome(config, wide, outputs)
    compared = existing(tight)
    for name, rows in before.items():
        check(after[name][:, at[0][: layout.agents]], rows, compared)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layout", "acting"),
    [
        ("spread-any", SPREAD, True),  # MASAC's critics are not in the file
        *(
            (name, layout, acting)
            for name, layout in (("spread-mpe2", SPREAD), ("tag", TAG))
            for acting in (True, False)
        ),
    ],
)
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
        check(after, expected, existing(moved))


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
        before, after = self.both(ATTENTION, scenes, ("action",))
        compared = existing(scenes)
        check(after["action"], before["action"] @ self.turn.T, compared)
        with pytest.raises(AssertionError, match="relative error"):
            check(box(after["action"]), box(before["action"]) @ self.turn.T, compared, tolerance=0.05)

    def test_the_papers_rest_is_not_equivariant(self):
        config = dataclasses.replace(DEEPSETS, rest="global")
        moving, resting = self.scenes(still=0.0), self.scenes(still=1.0)
        for scenes, holds in ((moving, True), (resting, False)):
            before, after = self.both(config, scenes, ONE)
            compared = existing(scenes)
            for name, rows in before.items():
                expected = rows @ self.turn.T if name == "action" else rows
                if holds:
                    check(after[name], expected, compared)
                else:
                    with pytest.raises(AssertionError, match="relative error"):
                        check(after[name], expected, compared, tolerance=0.05)
