"""Episodes with a trained policy: mean actions, figures, and how often frames flip."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from legoswarm.fast.sharding import divided
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.team import Actors, decide, world_actions
from legoswarm.tasks.task import State, Task


class Trajectory(eqx.Module):
    """One episode, step by step: states before each step, decisions taken there, and what was measured."""

    states: State
    decisions: dict[str, Decision]
    actions: Float[Array, "*time agents dim"]
    alive: Bool[Array, "*time"]
    measures: dict[str, Array]


def take_step(
    task: Task, carry: tuple[State, Array], decisions: dict[str, Decision], actions: Float[Array, "agents dim"]
) -> tuple[tuple[State, Array], Trajectory]:
    """Take one step and record it; the carry is the state and whether the episode still runs."""
    state, alive = carry
    after = task.step(state, actions)
    measures = {name: jnp.where(alive, value, jnp.zeros_like(value)) for name, value in task.measure(after).items()}
    record = Trajectory(state, decisions, task.action_limit(actions), alive, measures)
    return (after, alive & ~task.terminated(after)), record


def play(task: Task, actors: Actors, state: State) -> Trajectory:
    """Play one episode of mean actions from `state` to the horizon."""

    def step(carry: tuple[State, Array], _: None) -> tuple[tuple[State, Array], Trajectory]:
        decisions = decide(actors, task.scene(carry[0]))
        actions = world_actions(task.layout, decisions, {role: d.mode for role, d in decisions.items()})
        return take_step(task, carry, decisions, actions)

    return jax.lax.scan(step, (state, jnp.array(True)), None, length=task.horizon)[1]


def frame_flips(trajectory: Trajectory) -> Float[Array, ""]:
    """Return the share of an episode's steps at which an agent's frame flipped or turned by more than 90 degrees."""
    flips = []
    during = trajectory.alive[1:, None].astype(trajectory.actions.dtype)
    for decision in trajectory.decisions.values():
        now, before = decision.frame.rotation[1:], decision.frame.rotation[:-1]
        turned = (now[..., 0] * before[..., 0]).sum(-1) < 0
        mirrored = jnp.linalg.det(now) * jnp.linalg.det(before) < 0
        changed = (turned | mirrored).astype(now.dtype) * during
        flips.append(changed.mean(1).sum() / jnp.maximum(during.sum(), 1.0))
    return jnp.stack(flips).mean() if flips else jnp.zeros(())  # who decides nothing in a frame keeps the world's


def episode_figures(task: Task, trajectory: Trajectory) -> dict[str, Any]:
    """Return the task's figures of one episode, the frames' flip rate and the largest coordinate reached."""
    figures = task.figures(trajectory.measures)
    extent = jnp.abs(trajectory.states.position[:, : task.layout.agents]).max()
    return {**figures, "frame_flips": frame_flips(trajectory), "extent": extent}


def evaluate(task: Task, actors: Actors, starts: Key[Array, " episodes"]) -> dict[str, Float[Array, " episodes"]]:
    """Return the figures of an episode from each start."""
    starts = divided(starts, axis=0)
    return jax.vmap(lambda start: episode_figures(task, play(task, actors, task.reset(start))))(starts)
