"""What JAX says for random scenes of every team size up to twelve, to compare other implementations with.

All teams share one layout of twelve slots for each role, so that JAX compiles each policy once. The error is relative
to the largest action of a scene, or to 1 where that is larger. Near a tie of
the frame, where rounding by 1e-7 counts more, it may be `AT_TIES`.
"""

import dataclasses
import functools
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from saved import small_policy
from scenes import random_scene, stack, symmetric_scenes

from legoswarm.policies.networks.team import decide, world_actions
from legoswarm.policies.saved.file import save_policy
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from tests.policies import policy_of
from tests.tiny import compiled

TOLERANCE, AT_TIES = 1e-5, 1e-3
SCENES = 60
SLOTS = 12

TAG = Tag(pursuers=SLOTS, evaders=SLOTS, obstacles=SLOTS)
SPREAD = Spread(agents=SLOTS)
BASE = policy_of(width=16, depth=2, heads=4, precision="float32")


def options(task, limit, **changes):
    return dataclasses.replace(task, limit=limit), dataclasses.replace(BASE, **changes)


CASES = {
    "default": options(TAG, "disc:8"),
    "paper": options(SPREAD, "none", axis="velocity", rest="global", leash=0.0, heads=2, nearest=5),
    "soft": options(TAG, "box:0.5", axis="velocity", tie=0.1, pooling="max", heads=1, depth=1),
    "sets": options(SPREAD, "disc:0.5", encoder="deepsets", leash=0.4, squash=2.0),
    "sets-max": options(TAG, "none", encoder="deepsets", axis="velocity", pooling="max", depth=1, leash=1.0, nearest=2),
    "joint": options(TAG, "disc:8", encoder="joint"),
    "joint-max": options(SPREAD, "none", encoder="joint", pooling="max", squash=0.7, depth=1, heads=2, nearest=3),
    "world": options(SPREAD, "box:1", axis="none", depth=0, pooling="max"),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A policy on disk, scenes, and the actions JAX takes in them."""

    path: Path
    scenes: list
    actions: np.ndarray
    there: np.ndarray

    def teams(self):
        """Each scene as arguments of `act`, the agents' rows in it, and what JAX says."""
        for scene, actions, there in zip(self.scenes, self.actions, self.there, strict=True):
            layout, exists = scene.layout, np.asarray(scene.exists)
            names = [role for role, slots in zip(layout.roles, layout.slots, strict=True) for _ in range(slots)]
            roles = [name for name, here in zip(names, exists, strict=True) if here]
            arrays = (np.asarray(x, float)[exists] for x in (scene.position, scene.velocity))
            yield (*arrays, roles, np.asarray(scene.visible)[there][:, exists]), actions[there]

    def agrees(self, found):
        """Are most actions within `TOLERANCE`, and all, those of symmetric scenes too, within `AT_TIES`?"""
        errors = list(self.errors(found))
        return np.quantile(errors, 0.6) < TOLERANCE and max(errors) < AT_TIES

    def errors(self, found):
        """The error of each action; `found` has one array for each scene."""
        for rows, (_, expected) in zip(found, self.teams(), strict=True):
            error = np.linalg.norm(rows - expected, axis=1) / max(1.0, np.linalg.norm(expected, axis=1).max())
            yield from error


@functools.cache
def case(name):
    """One of CASES: a lively policy, with outputs of order 1 that depend on everything."""
    task, config = CASES[name]
    file = small_policy(task, seeds=(3, 5), best=1, config=config)
    file = dataclasses.replace(file, policies=jax.tree_util.tree_map_with_path(lively, file.policies))
    path = Path(tempfile.mkdtemp())
    save_policy(path, file)
    rng = np.random.default_rng(0)
    scenes = [random_scene(rng, task.layout) for _ in range(SCENES)]
    if config.rest == "equivariant" and not config.nearest:  # ties of other kinds are no matter of frames
        scenes += list(symmetric_scenes(task.layout, rng).values())[::7]
    there = np.stack([np.asarray(scene.exists)[: task.layout.agents] for scene in scenes])

    def act(policies, scene):
        decisions = decide({role: policy.actor for role, policy in policies.items()}, scene)
        means = {role: decision.mode for role, decision in decisions.items()}
        return file.limit(world_actions(task.layout, decisions, means))

    batch, policies = stack(scenes), file.one()
    run = compiled(jax.vmap(act, in_axes=(None, 0)), policies, batch)
    return Case(path, scenes, np.asarray(run(policies, batch)), there)


def lively(path, leaf):
    """Random weights of a gain of about 1."""
    gain = 1.7 / leaf.shape[-2] ** 0.5 if path[-1].name == "weight" else 0.3
    return jnp.asarray(leaf * gain, leaf.dtype)
