"""What JAX says for random scenes of every team size up to twelve, to compare other implementations with.

All teams share one layout of twelve slots for each role, so that JAX compiles each policy once. The error is relative
to the largest action of a scene, or to 1 where that is larger. Agents whose frame hangs on less than the margins of
`scenes.near_tie` are left out.
"""

import dataclasses
import functools
import math
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from saved import small_policy
from scenes import SIDE_MARGIN, frame_vectors, near_tie, random_scene, stack

from legoswarm.policies.networks.team import decide, world_actions
from legoswarm.policies.saved.file import save_policy
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from tests.policies import policy_of
from tests.tiny import compiled

TOLERANCE = 1e-5
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
    "hands": options(TAG, "box:0.5", axis="velocity", hands=2, pooling="max", heads=1, depth=1),
    "sets": options(SPREAD, "disc:0.5", encoder="deepsets", hands=2, leash=0.4),
    "sets-max": options(TAG, "none", encoder="deepsets", axis="velocity", pooling="max", depth=1, leash=1.0, nearest=2),
    "joint": options(TAG, "disc:8", encoder="joint"),
    "joint-max": options(SPREAD, "none", encoder="joint", pooling="max", hands=2, depth=1, heads=2, nearest=3),
    "world": options(SPREAD, "box:1", axis="none", depth=0, pooling="max"),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A policy on disk, scenes, the actions JAX takes in them and which of these are compared."""

    path: Path
    scenes: list
    actions: np.ndarray
    there: np.ndarray
    compared: np.ndarray

    def teams(self):
        """Each scene as arguments of `act`, the agents' rows in it, and what JAX says."""
        for scene, actions, there in zip(self.scenes, self.actions, self.there, strict=True):
            layout, exists = scene.layout, np.asarray(scene.exists)
            names = [role for role, slots in zip(layout.roles, layout.slots, strict=True) for _ in range(slots)]
            roles = [name for name, here in zip(names, exists, strict=True) if here]
            arrays = (np.asarray(x, float)[exists] for x in (scene.position, scene.velocity))
            yield (*arrays, roles, np.asarray(scene.visible)[there][:, exists]), actions[there]

    def errors(self, found):
        """The error of each action that is compared; `found` has one array for each scene."""
        for rows, (_, expected), there, compared in zip(found, self.teams(), self.there, self.compared, strict=True):
            error = np.linalg.norm(rows - expected, axis=1) / max(1.0, np.linalg.norm(expected, axis=1).max())
            yield from error[compared[there]]

    @property
    def left_out(self):
        """The share of agents that are not compared."""
        return 1 - self.compared.sum() / self.there.sum()


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
    there = np.stack([np.asarray(scene.exists)[: task.layout.agents] for scene in scenes])
    ties = np.stack([hanging(scene, config) for scene in scenes])

    def act(policies, scene):
        decisions = decide({role: policy.actor for role, policy in policies.items()}, scene)
        means = {role: decision.mean for role, decision in decisions.items()}
        return file.limit(world_actions(task.layout, decisions, means))

    batch, policies = stack(scenes), file.one()
    run = compiled(jax.vmap(act, in_axes=(None, 0)), policies, batch)
    return Case(path, scenes, np.asarray(run(policies, batch)), there, there & ~ties)


def lively(path, leaf):
    """Random weights of a gain of about 1."""
    gain = 1.7 / leaf.shape[-2] ** 0.5 if path[-1].name == "weight" else 0.3
    return jnp.asarray(leaf * gain, leaf.dtype)


def hanging(scene, config):
    """For each agent: does its frame hang on less than the margins?"""
    agents = scene.layout.agents
    if config.axis == "none":
        return np.zeros(agents, bool)
    if config.rest == "equivariant":
        return near_tie(scene, config.axis, mirror=False, hands=config.hands)

    def on_the_line(agent):
        v, d, _ = frame_vectors(scene, agent)
        x = v if v.any() else np.array([1.0, 0.0])
        return d.any() and abs(x[0] * d[1] - x[1] * d[0]) < SIDE_MARGIN * math.hypot(*x) * math.hypot(*d)

    return np.array([on_the_line(agent) for agent in range(agents)])
