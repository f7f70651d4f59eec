"""A memory of what happened, from which learning draws: a ring that the newest steps overwrite."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from legoswarm.fast.sharding import divided
from legoswarm.learn.algorithms.algorithm import Memory
from legoswarm.learn.scales import masked_mean
from legoswarm.scene import Scene
from legoswarm.tasks.task import Task


class Experience(eqx.Module):
    """What is learned from, one row for each environment step."""

    scene: Scene
    next_scene: Scene
    action: Float[Array, "*rows agents dim"]
    reward: Float[Array, "*rows agents"]
    terminated: Bool[Array, "*rows"]
    cost: Float[Array, "*rows agents"] | None = None

    def exists(self, role: str) -> Bool[Array, "*rows members"]:
        """Tell who of a role is there."""
        return self.scene.exists[..., self.scene.layout.block(role)]

    def paid(self, role: str) -> Float[Array, ""] | float:
        """Return the mean cost of a step for a member of a role."""
        block = self.scene.layout.block(role)
        return 0.0 if self.cost is None else masked_mean(self.cost[..., block], self.exists(role))


class Replay(Memory):
    """A ring of experience: once it is full, the newest takes the place of the oldest."""

    rows: Experience
    filled: Int[Array, ""]
    place: Int[Array, ""]  # of the next row

    @staticmethod
    def empty(task: Task, capacity: int) -> Replay:
        """Make room for so many steps of a task."""
        scene = jax.eval_shape(lambda key: task.scene(task.reset(key)), jax.random.key(0))
        scene = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), scene)
        action = jnp.zeros_like(scene.position[:, : task.layout.agents])
        reward = jnp.zeros_like(action[..., 0])
        cost = jnp.zeros_like(reward) if hasattr(task, "cost") else None
        rows = Experience(scene, scene, action, reward, jnp.zeros(capacity, bool), cost)
        return Replay(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def store(self, new: Experience) -> Replay:
        """Put rows into their places."""
        capacity, count = len(self.rows.terminated), len(new.terminated)
        places = (self.place + jnp.arange(count)) % capacity
        rows = jax.tree.map(lambda old, row: old.at[places].set(row), self.rows, new)
        return Replay(rows, jnp.minimum(self.filled + count, capacity), (self.place + count) % capacity)

    def sample(self, count: int, *, key: PRNGKeyArray) -> Experience:
        """Draw rows of those that are there, each as likely as any other."""
        places = jax.random.randint(key, (count,), 0, self.filled)
        return divided(jax.tree.map(lambda rows: rows[places], self.rows), axis=0)
