"""Random and symmetric scenes, and what may be done to them.

Scenes are made and moved in NumPy float64 and rounded to float32 once, so that what a test measures is the
policy's error. Distances are those of the tasks: entities within a square of side 2, speeds around 0.5.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from legoswarm.layout import Layout
from legoswarm.policies.lego import LegoPolicy
from legoswarm.scene import Scene

SLOW = LegoPolicy().slow
SPREAD = Layout(("agent", "landmark"), (6, 6))
TAG = Layout(("pursuer", "evader", "obstacle"), (4, 3, 3), controlled=2)


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


def symmetric_scenes(layout, rng):
    """Scenes in which directions tie, exactly or nearly, by name; all of one layout, agents of its first role first.

    Each is at rest and in motion, and once more with everything moved by 1e-7 to 1e-3.
    """
    n, m = layout.agents, layout.entities
    angles = 2 * np.pi * np.arange(m) / m
    polygon = np.stack([np.cos(angles), np.sin(angles)], -1)
    half = rng.uniform(-1, 1, (m // 2, 2))
    mirrored = np.concatenate([half, half * [1, -1], np.zeros((m - 2 * len(half), 2))])
    shapes = {
        "random": rng.uniform(-1, 1, (m, 2)),
        "line": np.outer(rng.uniform(-1, 1, m), [0.6, 0.8]),
        "polygon": polygon,
        "polygon around one": np.concatenate([np.zeros((1, 2)), polygon[1:]]),
        "grid": np.stack(np.divmod(np.arange(m), 4), -1) * 0.3,
        "mirror": mirrored,
        "mirror, one on the axis": np.concatenate([[[0.4, 0.0]], mirrored[1:-1] * [1, 1], [[-0.2, 0.0]]]),
        "one point": np.full((m, 2), 0.3),
        "one landmark": np.concatenate([np.zeros((1, 2)), np.full((m - 1, 2), 0.5)]),
    }
    scenes = {}
    for name, position in shapes.items():
        towards = position.mean(0) - position[:n]
        length = np.linalg.norm(towards, axis=1, keepdims=True)
        at_centroid = np.where(length > 1e-12, towards / np.maximum(length, 1e-12), 0.0)
        speeds = {"at rest": 0.0, "creeping": SLOW, "between": 1.5 * SLOW, "moving": 0.7, "backwards": -0.7}
        for how, speed in speeds.items():
            velocity = np.concatenate([speed * at_centroid, np.zeros((m - n, 2))])
            scenes[f"{name}, {how}"] = make_scene(layout, position, velocity)
            for size in (1e-7, 1e-5, 1e-3):
                noise = rng.uniform(-size, size, (2, m, 2))
                moving = noise[1] * (np.arange(m) < n)[:, None]
                scenes[f"{name}, {how}, {size}"] = make_scene(layout, position + noise[0], velocity + moving)
    return scenes


def _arrays(scene):
    exact = np.asarray(scene.position, float), np.asarray(scene.velocity, float)
    return *exact, np.asarray(scene.exists).copy(), np.asarray(scene.visible).copy()
