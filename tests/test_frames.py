"""Canonical frames: the paper's equations, orthogonality, equivariance, and every degenerate view."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import SLOW, SPREAD, TAG, orthogonal, random_scene, stack, transform

from legoswarm.frames.canonical import canonicalize, make_frame
from legoswarm.frames.rules import CLOSE, check_frame
from legoswarm.layout import Layout
from legoswarm.policies.encoders.encoder import make_view_encoder
from legoswarm.policies.lego import LegoPolicy
from legoswarm.policies.networks.encoded import EncodedActor, frame_of
from legoswarm.scene import Entities, View, observe
from tests.policies import policy_of
from tests.tiny import FAST

AXES = ("velocity", "position")
angles = st.floats(-math.pi, math.pi)
seeds = st.integers(0, 2**32 - 1)


def make_view(velocity, near=(), far=(), hidden=(), slots=5):
    """An agent at (0.3, -0.2) and what it sees in two roles; the second role also has hidden members.

    Slots beyond those hold garbage, masked, so that all views have one shape.
    """

    def entities(seen, unseen):
        rows = np.concatenate([np.reshape(seen, (-1, 2)), np.reshape(unseen, (-1, 2)), np.full((slots, 2), 7.0)])
        drift = np.linspace(-0.4, 0.7, 2 * slots).reshape(slots, 2)
        mask = np.arange(slots) < len(seen)
        return Entities(jnp.asarray(rows[:slots], jnp.float32), jnp.asarray(drift, jnp.float32), jnp.asarray(mask))

    here, velocity = jnp.array([0.3, -0.2], jnp.float32), jnp.asarray(velocity, jnp.float32)
    return View(here, velocity, (entities(near, ()), entities(far, hidden)))


def turn_view(view, turn):
    """Q o."""

    def turned(rows):
        return jnp.asarray(np.asarray(rows, float) @ turn.T, jnp.float32)

    others = tuple(Entities(turned(e.position), turned(e.velocity), e.mask) for e in view.others)
    return View(turned(view.position), turned(view.velocity), others)


def rotation_of(view, axis="velocity", rest="equivariant"):
    return np.asarray(make_frame_jitted(view, axis, rest).rotation)


make_frame_jitted = jax.jit(make_frame, static_argnums=(1, 2))


@functools.cache
def scene_frames(axis, rest):
    """Frames of all agents of a batch of scenes, compiled once for each layout."""

    def of_scene(scene):
        roles = [(r, jnp.arange(scene.layout.slots[k])) for k, r in enumerate(scene.layout.controlled_roles)]
        parts = [
            jax.vmap(lambda m, r=role: make_frame(observe(scene, r, m), axis, rest).rotation)(members)
            for role, members in roles
        ]
        return jnp.concatenate(parts)

    return jax.jit(jax.vmap(of_scene))


class TestPaper:
    """`axis="velocity", rest="global"` is the paper, equations 1 to 5."""

    @staticmethod
    def reference(scene, agent):
        """Equations 1 to 5 in float64 from global positions; also |x^T J d|, how far y is from a tie."""
        p, v = np.asarray(scene.position, float), np.asarray(scene.velocity, float)
        seen = np.asarray(scene.exists & scene.visible[agent]).copy()
        seen[agent] = False
        J = np.array([[0.0, -1.0], [1.0, 0.0]])
        norm = np.sqrt(v[agent] @ v[agent])
        x = v[agent] / norm if norm != 0 else np.array([1.0, 0.0])  # (1)
        c = (p[agent] + p[seen].sum(0)) / (seen.sum() + 1)
        d = c - p[agent]  # (2)
        y = -(1.0 if x @ J @ d >= 0 else -1.0) * J @ x
        R = np.stack([x, y], axis=1)  # (3)
        own = np.array([norm, 0.0])
        return R, own, (p - p[agent]) @ R, v @ R, abs(x @ J @ d)  # (4), (5): rows times R are R^T times columns

    @pytest.mark.parametrize("layout", [SPREAD, TAG], ids=["spread", "tag"])
    def test_equals_the_equations_on_random_views(self, layout):
        role = layout.roles[0]

        @jax.jit
        def ours(scene, member):
            view = observe(scene, role, member)
            frame = make_frame(view, "velocity", "global")
            return frame.rotation, canonicalize(view, frame)

        rng, compared, resting = np.random.default_rng(0), 0, 0
        for _ in range(200):
            scene = random_scene(rng, layout)
            R, own, p, v, tie = self.reference(scene, 0)
            if 0 < tie < 1e-5:
                continue
            rotation, canonical = ours(scene, 0)
            # others are listed cyclically after the agent: member 0 sees the slots in order
            expected = []
            for at, name in enumerate(layout.roles):
                rows = np.arange(layout.entities)[layout.block(name)][1 if at == 0 else 0 :]
                expected.append((p[rows], v[rows]))
            np.testing.assert_allclose(rotation, R, atol=2e-6)
            np.testing.assert_allclose(canonical.velocity, own, atol=2e-6)
            for entities, (positions, velocities) in zip(canonical.others, expected, strict=True):
                np.testing.assert_allclose(entities.position, positions, atol=1e-5)
                np.testing.assert_allclose(entities.velocity, velocities, atol=1e-5)
            compared, resting = compared + 1, resting + (own[0] == 0)
        assert compared > 150
        assert resting > 20

    def test_sign_of_zero_is_plus_one(self):
        # y = -J x where x^T J d = 0: nobody there, and somebody straight ahead.
        for view in (make_view((0.0, 2.0)), make_view((0.0, 2.0), near=[(0.0, 0.5)])):
            np.testing.assert_array_equal(rotation_of(view, rest="global"), [[0.0, 1.0], [1.0, 0.0]])
        np.testing.assert_array_equal(rotation_of(make_view((0.0, 0.0)), rest="global"), np.diag([1.0, -1.0]))

    def test_any_speed_but_zero_gives_the_first_axis(self):
        frame = make_frame(make_view((0.0, 1e-9), near=[(1.0, 0.0)]), "velocity", "global")
        np.testing.assert_allclose(frame.rotation[:, 0], [0.0, 1.0], atol=1e-6)


@pytest.mark.parametrize("axis", AXES)
class TestEquivariance:
    """R(Q o) = Q R(o), with v = 0 included."""

    @pytest.mark.parametrize("layout", [SPREAD, TAG], ids=["spread", "tag"])
    @given(seeds, angles, st.booleans())
    def test_frames_follow_the_scene(self, axis, layout, seed, angle, mirror):
        rng, turn = np.random.default_rng(seed), orthogonal(angle, mirror)
        scenes = [random_scene(rng, layout) for _ in range(4)]
        before = np.asarray(scene_frames(axis, "equivariant")(stack(scenes)))
        after = np.asarray(scene_frames(axis, "equivariant")(stack([transform(s, turn) for s in scenes])))
        np.testing.assert_allclose(after, turn @ before, atol=1e-3)
        assert np.linalg.norm(before, 2, axis=(-2, -1)).max() < 1 + 1e-6

    @given(seeds, angles)
    def test_rest_is_included_and_a_reflection_changes_the_handedness(self, axis, seed, angle):
        rng = np.random.default_rng(seed)
        view = make_view((0.0, 0.0), near=rng.uniform(-1, 1, (2, 2)), far=rng.uniform(-1, 1, (3, 2)))
        before = rotation_of(view, axis)
        after = rotation_of(turn_view(view, orthogonal(angle, True)), axis)
        np.testing.assert_allclose(after, orthogonal(angle, True) @ before, atol=1e-3)
        assert np.linalg.det(before) == pytest.approx(-np.linalg.det(after), abs=1e-3)


def test_nearly_all_frames_are_orthogonal():
    rng = np.random.default_rng(0)
    scenes = [random_scene(rng, layout, hidden=0.0, empty=False) for layout in [SPREAD] for _ in range(500)]
    for axis in AXES:
        size = np.abs(np.linalg.det(np.asarray(scene_frames(axis, "equivariant")(stack(scenes)))))
        assert (size < 1 - 1e-5).mean() < 0.05


def test_the_papers_rest_is_not_equivariant():
    turn = orthogonal(1.0)
    view = make_view((0.0, 0.0), near=[(0.5, 0.2), (-0.1, 0.7)], far=[(0.9, -0.4)])
    turned = turn_view(view, turn)
    assert np.abs(rotation_of(turned, rest="global") - turn @ rotation_of(view, rest="global")).max() > 0.1
    np.testing.assert_allclose(rotation_of(turned), turn @ rotation_of(view), atol=1e-5)
    moving = make_view((0.6, 0.3), near=[(0.5, 0.2), (-0.1, 0.7)], far=[(0.9, -0.4)])
    after = rotation_of(turn_view(moving, turn), rest="global")
    np.testing.assert_allclose(after, turn @ rotation_of(moving, rest="global"), atol=1e-5)


def test_y_points_to_the_centroids_side_when_moving_and_outward_at_rest():
    near, far = [(0.5, 0.2), (-0.1, 0.7)], [(0.9, -0.4)]
    moving = rotation_of(make_view((1.0, 0.0), near, far))
    centroid = np.sum(near + far, axis=0) / 4
    assert moving[:, 1] @ centroid > 0
    rest = rotation_of(make_view((0.0, 0.0), near, far))
    np.testing.assert_allclose(rest[:, 0], centroid / np.hypot(*centroid), atol=1e-6)
    everyone = np.array(near + far)
    assert rest[:, 1] @ ((everyone**2).sum(-1)[:, None] * everyone).sum(0) > 0


class TestSlow:
    """Up to SLOW an agent is at rest, from twice that on the frame follows the velocity; between them it turns."""

    near, far = ((0.5, 0.2), (-0.1, 0.7)), ((0.9, -0.4),)

    @pytest.mark.parametrize("speed", [0.0, 1e-3, 0.99 * SLOW])
    def test_below(self, speed):
        velocity = speed * np.array([-0.6, 0.8])
        view = make_view(velocity, self.near, self.far)
        frame = make_frame(view)
        np.testing.assert_allclose(frame.rotation, rotation_of(make_view((0.0, 0.0), self.near, self.far)))
        own = canonicalize(view, frame).velocity
        np.testing.assert_allclose(own, np.asarray(frame.rotation).T @ velocity, atol=1e-7)
        assert speed == 0 or abs(own[1]) > 0.1 * speed

    @pytest.mark.parametrize("speed", [2.01 * SLOW, 1.0])
    def test_above(self, speed):
        view = make_view(speed * np.array([-0.6, 0.8]), self.near, self.far)
        frame = make_frame(view)
        np.testing.assert_allclose(frame.rotation[:, 0], [-0.6, 0.8], atol=1e-6)
        np.testing.assert_allclose(canonicalize(view, frame).velocity, [speed, 0.0], rtol=1e-6, atol=1e-7)

    def test_between(self):
        rest, fast = (rotation_of(make_view(s * np.array(MOVE), self.near, self.far))[:, 0] for s in (0, 1))
        ways = [rotation_of(make_view(s * SLOW * np.array(MOVE), self.near, self.far))[:, 0] for s in (1.3, 1.7)]
        shares = [np.linalg.solve(np.stack([rest, fast], 1), way) for way in ways]
        assert (np.array(shares) > 0.1).all()
        assert shares[0][1] / shares[0][0] < shares[1][1] / shares[1][0]

    def test_the_speed_is_the_policys_option(self):
        view = make_view(0.3 * np.array([-0.6, 0.8]), self.near, self.far)
        for slow, moving in ((0.0, True), (SLOW, True), (0.14, True), (0.31, False)):
            frame = frame_of(view, policy_of(slow=slow))
            assert (np.abs(np.asarray(frame.rotation[:, 0]) - [-0.6, 0.8]).max() < 1e-5) == moving
            np.testing.assert_allclose(frame.rotation, make_frame(view, slow=slow).rotation)

    def test_the_position_axis_never_follows_the_velocity(self):
        view = make_view((-0.6, 0.8), self.near, self.far)
        frame = make_frame(view, "position")
        np.testing.assert_allclose(frame.rotation[:, 0], rotation_of(make_view((0, 0), self.near, self.far))[:, 0])
        own = canonicalize(view, frame).velocity
        np.testing.assert_allclose(own, np.asarray(frame.rotation).T @ [-0.6, 0.8], atol=1e-6)


SQUARE = ((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))
CENTRED = ((1.0, 0.2), (-0.6, 0.5), (-0.4, -0.7))  # around the agent, neither symmetric nor on a line
LINE = ((0.6, 0.8), (-0.3, -0.4), (1.2, 1.6))
PAIR = ((0.6, 0.8), (1.6, -1.2))
REST, BARELY, CREEP, MOVE = (0.0, 0.0), (0.0, 1e-9), (-0.024, 0.032), (-0.6, 0.8)
NONE = (0.0, 0.0)

# name: velocity, seen in the first role, in the second, hidden; the direction of x; whether there is a side
DEGENERATE = {
    "alone, at rest": (REST, (), (), (), NONE, False),
    "alone, velocity 1e-9": (BARELY, (), (), (), NONE, False),
    "alone, creeping": (CREEP, (), (), (), NONE, False),
    "alone, moving": (MOVE, (), (), (), MOVE, False),
    "all masked, at rest": (REST, (), (), LINE, NONE, False),
    "all masked, moving": (MOVE, (), (), LINE, MOVE, False),
    "one neighbour, at rest": (REST, LINE[:1], (), LINE, LINE[0], False),
    "one neighbour, velocity 1e-9": (BARELY, LINE[:1], (), LINE, LINE[0], False),
    "one neighbour, creeping": (CREEP, LINE[:1], (), LINE, LINE[0], False),
    "one neighbour, moving": (MOVE, LINE[:1], (), LINE, MOVE, True),
    "one neighbour, straight ahead": (MOVE, ((-0.3, 0.4),), (), (), MOVE, False),
    "two neighbours, velocity 1e-9": (BARELY, PAIR[:1], PAIR[1:], LINE, (2.2, -0.4), True),
    "at the centroid, at rest": (REST, CENTRED, (), (), (0.414, 0.058), False),
    "at the centroid, creeping": (CREEP, CENTRED, (), (), (0.414, 0.058), False),
    "at the centroid, moving": (MOVE, CENTRED, (), (), MOVE, False),
    "amid a square, at rest": (REST, SQUARE, (), (), NONE, False),
    "amid a square, velocity 1e-9": (BARELY, SQUARE, (), (), NONE, False),
    "amid a square, moving": (MOVE, SQUARE, (), (), MOVE, False),
    "collinear, at rest": (REST, LINE, (), (), LINE[0], False),
    "collinear, creeping": (CREEP, LINE[:1], LINE[1:], (), LINE[0], False),
    "collinear, moving aside": (MOVE, LINE[:1], LINE[1:], (), MOVE, True),
    "collinear, moving along": (LINE[0], LINE[:1], LINE[1:], (), LINE[0], False),
    "coincident, at rest": (REST, ((0, 0),), ((0, 0),), (), NONE, False),
    "coincident, velocity 1e-9": (BARELY, ((0, 0),), ((0, 0),), (), NONE, False),
    "coincident, moving": (MOVE, ((0, 0),), ((0, 0),), (), MOVE, False),
    "nearly coincident, at rest": (REST, ((1e-6, 0),), ((0, 1e-6),), (), NONE, False),
    "nearly coincident, moving": (MOVE, ((1e-6, 0),), ((0, 1e-6),), (), MOVE, False),
}


@functools.partial(jax.jit, static_argnums=1)
def many_rotations(views, axis):
    return jax.vmap(lambda view: make_frame(view, axis).rotation)(views)


@pytest.mark.parametrize("name", DEGENERATE)
class TestDegenerate:
    """Views that single out no direction or no side: axes that are not there are zero, and all of it turns along."""

    def test_the_result_is_defined(self, name):
        *parts, towards, side = DEGENERATE[name]
        rotation = rotation_of(make_view(*parts))
        np.testing.assert_allclose(rotation[:, 0], np.divide(towards, np.hypot(*towards) or 1), atol=2e-3)
        assert np.linalg.norm(rotation[:, 1]) == pytest.approx(float(side), abs=2e-3)
        assert rotation[:, 0] @ rotation[:, 1] == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize("axis", AXES)
    def test_the_frame_follows_every_turn(self, name, axis):
        view = make_view(*DEGENERATE[name][:-2])
        turns = [orthogonal(angle, m) for angle in np.linspace(-3, 3, 25) for m in (False, True)]
        turned = jax.tree.map(lambda *rows: jnp.stack(rows), *(turn_view(view, turn) for turn in turns))
        np.testing.assert_allclose(many_rotations(turned, axis), np.stack(turns) @ rotation_of(view, axis), atol=1e-3)

    @pytest.mark.parametrize("rest", ["equivariant", "global"])
    def test_an_actor_and_its_gradient_are_finite(self, name, rest):
        view = make_view(*DEGENERATE[name][:-2])
        for leaf in jax.tree.leaves(actor_gradient("velocity", rest)(view)):
            assert np.isfinite(leaf).all()


@pytest.mark.parametrize("axis", AXES)
def test_a_view_without_slots(axis):
    view = make_view(MOVE, slots=0)
    np.testing.assert_array_equal(rotation_of(view, axis), rotation_of(make_view(MOVE), axis))
    for leaf in jax.tree.leaves(actor_gradient(axis, "equivariant")(view)):
        assert np.isfinite(leaf).all()


@functools.cache
def actor_gradient(axis, rest):
    config = policy_of(width=8, depth=1, heads=2, axis=axis, rest=rest)
    actor = EncodedActor(config, Layout(("agent", "thing"), (4, 4)), make_view_encoder, key=jax.random.key(0))

    def output(actor, view):
        decision = actor(view)
        return decision.frame.to_world(decision.mean).sum() + decision.log_prob(jnp.ones(2))

    def everything(view):
        frame = make_frame(view, axis, rest)
        return frame, canonicalize(view, frame), eqx.filter_value_and_grad(output)(actor, view)

    return jax.jit(everything, compiler_options=FAST)


def test_thresholds_are_far_above_rounding():
    # Relative positions of float32 scenes 10 away from the origin are known to 1e-6; a step of 0.1 s at SLOW is 5e-3.
    assert 1e-6 / CLOSE / LegoPolicy().tie < 5e-3


def test_a_tight_group_has_a_side_too():
    # The third moment of neighbours at 0.02 is 1e-5 in absolute terms, and still a direction.
    view = make_view(REST, near=0.02 * np.array(PAIR), far=0.02 * np.array(CENTRED))
    before, turn = rotation_of(view), orthogonal(0.7, True)
    np.testing.assert_allclose(rotation_of(turn_view(view, turn)), turn @ before, atol=1e-4)


def test_no_axis_is_the_world():
    view = make_view(MOVE, near=PAIR)
    frame = make_frame(view, "none")
    np.testing.assert_array_equal(frame.rotation, np.eye(2))
    np.testing.assert_allclose(canonicalize(view, frame).velocity, MOVE, atol=1e-7)
    np.testing.assert_array_equal(canonicalize(view, frame).others[0].position, view.others[0].position)


@pytest.mark.parametrize("mirror", [False, True])
def test_local_and_world_undo_each_other(mirror):
    """In frames of both hands: a reflection is its own inverse and would not tell R from R^T."""
    frame = make_frame(turn_view(make_view(CREEP, near=PAIR), orthogonal(0.9, mirror)))
    vectors = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    rotation = np.asarray(frame.rotation)
    np.testing.assert_allclose(frame.to_local(jnp.asarray(vectors)), vectors @ rotation, atol=1e-6)
    np.testing.assert_allclose(frame.to_world(jnp.asarray(vectors)), vectors @ rotation.T, atol=1e-6)
    np.testing.assert_allclose(frame.to_world(frame.to_local(jnp.asarray(vectors))), vectors, atol=1e-6)


def test_unknown_and_contradictory_choices():
    with pytest.raises(ValueError, match="axis must be velocity, position or none, not 'north'"):
        policy_of(axis="north")
    with pytest.raises(ValueError, match="rest must be equivariant or global, not 'asleep'"):
        policy_of("mappo-local", rest="asleep")
    for refuse in (check_frame, lambda axis, rest: policy_of(axis=axis, rest=rest)):
        with pytest.raises(ValueError, match="belongs to the velocity axis"):
            refuse("position", "global")
