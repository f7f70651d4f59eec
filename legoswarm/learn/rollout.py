"""Collecting experience: every policy acts in many worlds at once."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.team import Actors, decide, world_actions
from legoswarm.scene import Scene
from legoswarm.tasks.task import State, Task, cost_of


class Transition(eqx.Module):
    """One step of one world; stacked over time and worlds it is a rollout.

    `next_scene` is the scene that the step led to, before any reset: what a truncated episode is
    bootstrapped from. An agent that is no longer there has died: nothing follows for it, though the episode goes on.
    """

    scene: Scene
    next_scene: Scene
    action: Float[Array, "*batch agents dim"]  # in the world frame, before the task limits it
    local: dict[str, Float[Array, "*batch members dim"]]
    log_prob: dict[str, Float[Array, "*batch members"]]
    reward: Float[Array, "*batch agents"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    cost: Float[Array, "*batch agents"] | None = None  # what a constraint limits, where the task counts it


def reset_worlds(task: Task, key: PRNGKeyArray, worlds: int, steps: int) -> State:
    """Return fresh worlds, their clocks spread over the episode so that rollouts see all of its phases."""
    key_reset, key_clock = jax.random.split(key)
    state = jax.vmap(task.reset)(jax.random.split(key_reset, worlds))
    phases = max(task.horizon // steps, 1)
    clock = steps * jax.random.randint(key_clock, (worlds,), 0, phases)
    return eqx.tree_at(lambda s: s.time, state, clock.astype(state.time.dtype))


def collect(task: Task, actors: Actors, state: State, key: PRNGKeyArray, steps: int) -> tuple[State, Transition]:
    """Take `steps` steps in every world, worlds that end being reset; arrays are (steps, worlds, ...)."""
    worlds = state.time.shape[0]

    def step(state: State, key: PRNGKeyArray) -> tuple[State, Transition]:
        key_act, key_reset = jax.random.split(key)
        state, transition = jax.vmap(lambda s, a, r: _step_world(task, actors, s, a, r))(
            state, jax.random.split(key_act, worlds), jax.random.split(key_reset, worlds)
        )
        return state, transition

    return jax.lax.scan(step, state, jax.random.split(key, steps))


def draw(actors: Actors, scene: Scene, key: PRNGKeyArray) -> tuple[dict[str, Decision], dict[str, Array]]:
    """Draw an action of every agent in its frame; also return the decisions, by role as well."""
    decisions, local = decide(actors, scene), {}
    for (role, decision), key_role in zip(decisions.items(), jax.random.split(key, len(decisions)), strict=True):
        keys = jax.random.split(key_role, len(decision.mean))
        local[role] = jax.vmap(lambda d, k: d.sample(k))(decision, keys)
    return decisions, local


def act(actors: Actors, scene: Scene, key: PRNGKeyArray) -> tuple[Array, dict[str, Array], dict[str, Array]]:
    """Draw everybody's action; return it in the world frame, and by role in the agents' frames with its log density."""
    decisions, local = draw(actors, scene, key)
    return world_actions(scene.layout, decisions, local), local, log_probs(decisions, local)


def log_probs(decisions: dict[str, Decision], local: dict[str, Array]) -> dict[str, Array]:
    """Return the log densities of everybody's actions, by role."""
    return {role: jax.vmap(lambda d, a: d.log_prob(a))(decisions[role], local[role]) for role in decisions}


def _step_world(
    task: Task, actors: Actors, state: State, key_act: PRNGKeyArray, key_reset: PRNGKeyArray
) -> tuple[State, Transition]:
    scene = task.scene(state)
    action, local, log_prob = act(actors, scene, key_act)
    after = task.step(state, action)
    terminated, truncated = task.terminated(after), after.time >= task.horizon
    transition = Transition(
        scene, task.scene(after), action, local, log_prob, task.reward(after), terminated, truncated & ~terminated,
        cost_of(task, after),
    )  # fmt: skip
    fresh = task.reset(key_reset)
    ended = terminated | truncated
    return jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, after), transition
