"""A linear policy and a yard to run about in: everything that learning touches, small enough to redo in NumPy.

Programs made of them compile in a fraction of LEGO's time.
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from legoswarm.frames.canonical import Frame
from legoswarm.layout import Layout
from legoswarm.limits import Limit
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.roles import RolePolicy, make_policies
from legoswarm.policies.policy import POLICIES, Policy
from legoswarm.scene import Scene, observe
from legoswarm.tasks.task import TASKS, State

TURN = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)  # the frame of every agent: a reflection
FAST = {"xla_backend_optimization_level": 0}  # compile fast, run slowly


def compiled(function, *args, **settings):
    """`function` compiled for `args`, quickly."""
    return jax.jit(function, compiler_options=FAST, **settings).lower(*args).compile()


def random_policies(config, layout, seed=0):
    """Policies of an architecture with random weights; fresh ones are orthogonal, which takes long to compile."""
    rng = np.random.default_rng(seed)
    shapes = eqx.filter_eval_shape(lambda key: make_policies(config, layout, key=key), jax.random.key(0))
    return jax.tree.map(lambda like: jax.device_put(rng.normal(0, 0.4, like.shape).astype(like.dtype)), shapes)


def features(view):
    """Velocity and the summed offsets of the others that are there."""
    others = view.flat()
    return jnp.concatenate([view.velocity, (others.position * others.mask.astype(jnp.float32)[:, None]).sum(0)])


class TinyActor(eqx.Module):
    """A linear map of four features."""

    weight: Float[Array, "4 2"]
    log_std: Float[Array, "2"]
    squash: float = eqx.field(static=True, default=0.0)

    def __call__(self, view):
        frame = Frame(jnp.asarray(TURN))
        return Decision(features(view) @ self.weight, self.log_std, frame, self.squash)


class TinyCritic(eqx.Module):
    """A linear map of four features and the agent's own position, and a constant."""

    weight: Float[Array, "4"]
    place: Float[Array, "2"]
    bias: Float[Array, ""]

    def __call__(self, scene, role, member):
        view = observe(scene, role, member, full=True)
        return features(view) @ self.weight + view.position @ self.place + self.bias


@POLICIES.register
@dataclasses.dataclass(frozen=True)
class TinyPolicy(Policy):
    """Small random weights."""

    name: ClassVar[str] = "tiny"
    label: ClassVar[str] = "tiny"
    colour: ClassVar[str] = "#000000"

    def build(self, layout, role, *, key):
        draw = 0.3 * jax.random.normal(key, (15,))
        actor = TinyActor(draw[:8].reshape(4, 2), jnp.full(2, self.log_std), self.squash)
        return RolePolicy(actor, TinyCritic(draw[8:12], draw[12:14], draw[14]))


TINY = TinyPolicy()


@TASKS.register
@dataclasses.dataclass(frozen=True)
class Yard:
    """Agents earn -|p|^2 for each step; an episode ends for good when the first one leaves |x| <= 1.

    A start is a mine with the chance `mines`, where rewards are not numbers, and far outside with the chance
    `cliffs`. Both are for watching learning diverge.
    """

    name: ClassVar[str] = "yard"
    primary: ClassVar[str] = "score"

    agents: int = 2
    horizon: int = 6
    mines: float = 0.0
    cliffs: float = 0.0

    @property
    def layout(self):
        return Layout(("agent", "flag"), (self.agents, 1))

    @property
    def action_limit(self):
        return Limit("disc", 2.0)

    @property
    def radii(self):
        return (0.1,) * (self.agents + 1)

    def reset(self, key):
        key_place, key_fate = jax.random.split(key)
        position = jax.random.uniform(key_place, (self.agents + 1, 2), minval=-0.9, maxval=0.9)
        fate = jax.random.uniform(key_fate)
        position = jnp.where(fate < self.cliffs, 1e5, position)
        position = position.at[-1].set(jnp.where(fate > 1 - self.mines, 50.0, position[-1]))
        return State(position, jnp.zeros_like(position), jnp.ones(self.agents + 1, bool), jnp.zeros((), jnp.int32))

    def step(self, state, action):
        n = self.agents
        moves = self.action_limit(action)
        position = state.position.at[:n].add(0.3 * moves)
        return State(position, state.velocity.at[:n].set(moves), state.exists, state.time + 1)

    def reward(self, state):
        mine = jnp.where(state.position[-1, 0] == 50.0, jnp.nan, 0.0)
        return mine - (state.position[: self.agents] ** 2).sum(-1)

    def terminated(self, state):
        return jnp.abs(state.position[0, 0]) > 1.0

    def scene(self, state):
        visible = jnp.ones((self.agents, self.agents + 1), bool)
        return Scene(state.position, state.velocity, state.exists, visible, self.layout)

    def measure(self, state):
        return {"score": (state.position[: self.agents] ** 2).sum()}

    def figures(self, measures):
        return {"score": -measures["score"].sum()}
