"""Random scenes, what may be done to them, and when a frame is too close to a switch to be compared.

Scenes are made and moved in NumPy float64 and rounded to float32 once, so that what a test measures is the
policy's error. Distances are those of the tasks: entities within a square of side 2, speeds around 0.5.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from legoswarm.frames.rules import TINY
from legoswarm.layout import Layout
from legoswarm.policies.lego import LegoPolicy
from legoswarm.scene import Scene

SLOW = LegoPolicy().slow
SPREAD = Layout(("agent", "landmark"), (6, 6))
TAG = Layout(("pursuer", "evader", "obstacle"), (4, 3, 3), controlled=2)

# Margins: closer than this to a switch of the frame, float32 decides and not the scene. Moving a scene by 10
# rounds a relative position by up to 1e-6, which turns a direction of length l by 1e-6 / l. A lively policy then
# errs by up to 5e-6 / |d| where d gives the first axis.
SPEED_MARGIN = 1e-6  # | |v| - SLOW |: velocities are turned, never moved
HEADING_MARGIN = 0.05  # |d| where it gives the first axis: error below 1e-4
SIDE_LENGTH_MARGIN = 0.01  # |d| or |e| where it only gives the side: its direction is known to 1e-4
SIDE_MARGIN = 3e-4  # |cross(x, side)| / |side|: that, and the frame's own limit of 1e-4 for parallel vectors
PARALLEL = 1e-6  # below this, vectors are parallel by construction (a single neighbour), not by chance


def orthogonal(angle, mirror=False):
    """A rotation, or with `mirror` a reflection."""
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return turn @ np.diag([1.0, -1.0 if mirror else 1.0])


def make_scene(layout, position, velocity, exists=None, visible=None):
    """A float32 scene; complete and visible unless said otherwise."""
    exists = np.ones(layout.entities, bool) if exists is None else exists
    visible = np.ones((layout.agents, layout.entities), bool) if visible is None else visible
    return Scene(
        jnp.asarray(position, jnp.float32),
        jnp.asarray(velocity, jnp.float32),
        jnp.asarray(exists, bool),
        jnp.asarray(visible, bool),
        layout,
    )


def random_scene(rng, layout, *, still=0.3, slow=0.1, hidden=0.3, empty=True):
    """A scene in which each agent is at rest, slow or moving, and objects do not move.

    `still` and `slow` are probabilities for each agent, `hidden` for each pair in half of the scenes. With
    `empty`, any number of slots of each role is in use, but at least one of the first role.
    """
    entities, agents = layout.entities, layout.agents
    position = rng.uniform(-1, 1, (entities, 2))
    velocity = np.zeros((entities, 2))
    speed = np.abs(rng.normal(0, 0.7, agents))
    draw = rng.uniform(size=agents)
    speed = np.where(draw < still, 0, np.where(draw < still + slow, SLOW * rng.uniform(size=agents), speed))
    heading = rng.uniform(-math.pi, math.pi, agents)
    velocity[:agents] = speed[:, None] * np.stack([np.cos(heading), np.sin(heading)], -1)
    exists = np.ones(entities, bool)
    if empty:
        for at, role in enumerate(layout.roles):
            block = layout.block(role)
            slots = block.stop - block.start
            used = rng.integers(min(1, slots) if at == 0 else 0, slots + 1)
            exists[block] = rng.permutation(slots) < used
    visible = np.ones((agents, entities), bool)
    if rng.uniform() < 0.5:
        visible = rng.uniform(size=visible.shape) >= hidden
    return make_scene(layout, position, velocity, exists, visible)


def transform(scene, turn, shift=(0.0, 0.0)):
    """Every position p to Q p + b, every velocity v to Q v."""
    position, velocity = np.asarray(scene.position, float), np.asarray(scene.velocity, float)
    return make_scene(
        scene.layout, position @ turn.T + np.asarray(shift), velocity @ turn.T, scene.exists, scene.visible
    )


def permute(scene, rng):
    """The scene with entities exchanged within each role, and the order: new entity k is old entity order[k]."""
    layout = scene.layout
    order = np.concatenate([rng.permutation(np.arange(layout.entities)[layout.block(r)]) for r in layout.roles])
    position, velocity, exists, visible = _arrays(scene)
    visible = visible[order[: layout.agents]][:, order]
    return make_scene(layout, position[order], velocity[order], exists[order], visible), order


def pad(scene, extra, rng):
    """The scene with `extra` unused slots for each role, full of garbage, and where the old entities stand now."""
    old = scene.layout
    new = Layout(old.roles, tuple(int(n + m) for n, m in zip(old.slots, extra, strict=True)), old.controlled)
    at = np.concatenate([new.block(r).start + np.arange(n) for r, n in zip(old.roles, old.slots, strict=True)])
    at = at.astype(int)
    position, velocity = rng.normal(0, 100, (2, new.entities, 2))
    exists = np.zeros(new.entities, bool)
    visible = rng.uniform(size=(new.agents, new.entities)) < 0.5
    position[at], velocity[at], exists[at], old_visible = _arrays(scene)
    visible[np.ix_(at[: old.agents], at)] = old_visible
    return make_scene(new, position, velocity, exists, visible), at


def stack(scenes):
    """Many scenes of one layout as one, with a leading axis, for `jax.vmap`."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *scenes)


def near_tie(scene, axis, *, mirror, hands=1):
    """For each agent: does its frame hang on less than the margins, so that float32 may decide it otherwise?

    With `mirror` also agents whose view has no handedness (nothing that they see lies aside of x), for which
    one frame cannot follow a reflection. With two `hands` the handedness decides nothing.
    """
    arrays = _arrays(scene)
    return np.array([_near_tie(_vectors(*arrays, i), axis, mirror, hands) for i in range(scene.layout.agents)])


def frame_vectors(scene, agent):
    """v, d, e of an agent in float64; d and e are zero if it sees nothing."""
    return _vectors(*_arrays(scene), agent)


def _vectors(position, velocity, exists, visible, agent):
    seen = exists & visible[agent]
    seen[agent] = False
    relative = position[seen] - position[agent]
    d = relative.sum(0) / (seen.sum() + 1)
    weight = (relative**2).sum(-1)
    e = (weight[:, None] * relative).sum(0) / max(weight.sum(), TINY**2)
    return velocity[agent], d, e


def _near_tie(vectors, axis, mirror, hands):
    v, d, e = vectors
    speed = math.hypot(*v)
    if axis == "velocity" and abs(speed - SLOW) < SPEED_MARGIN:
        return True
    moving = axis == "velocity" and speed > SLOW
    if moving:
        x, sides = v, (d, e)
    elif d.any():
        if math.hypot(*d) < HEADING_MARGIN:
            return True
        x, sides = d, (e, v)
    else:  # sees nothing: the own velocity is all there is
        if speed == 0:
            return True
        x, sides = v, ()
    if hands == 2:
        return False
    x = x / math.hypot(*x)
    for side in sides:
        length = math.hypot(*side)
        if length == 0:
            continue
        sine = abs(x[0] * side[1] - x[1] * side[0]) / length
        if sine < PARALLEL:
            continue
        return sine < SIDE_MARGIN or length < (2 * TINY if side is v else SIDE_LENGTH_MARGIN)
    return mirror


def _arrays(scene):
    exact = np.asarray(scene.position, float), np.asarray(scene.velocity, float)
    return *exact, np.asarray(scene.exists).copy(), np.asarray(scene.visible).copy()
