"""Watching a trained policy: one episode as an animation file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from legoswarm.evaluate.episodes import play
from legoswarm.evaluate.outside import play_outside
from legoswarm.evaluate.policies import changed, resized, trained_task
from legoswarm.policies.saved.act import load
from legoswarm.show.animate import MOVIES, animate
from legoswarm.show.draw import STILLS
from legoswarm.tasks.adapters.outside import OutsideTask


def watch(
    policy: str,
    out: str | Path,
    *,
    agents: int | None = None,
    teams: str | None = None,
    seed: int | None = None,
    episode: int = 0,
    axes: bool = False,
    arrows: bool = False,
    nearest: int | None = None,
    changes: dict[str, Any] | None = None,
) -> Path:
    """Play one episode of mean actions and write it to `out`; its suffix decides the format.

    `changes` are fields of the task that differ from training.
    """
    if Path(out).suffix.lower() not in (*MOVIES, *STILLS):
        raise ValueError(f"{out} does not end in one of {', '.join((*MOVIES, *STILLS))}")
    swarm = load(policy, seed, nearest)
    task = changed(trained_task(swarm.file), changes or {})
    (task,) = resized(task, None if agents is None else [agents], None if teams is None else [teams])
    swarm.file.check_team(task.layout)
    if isinstance(task, OutsideTask):
        trajectory = play_outside(task, swarm.actors, episode)
    else:
        run = jax.jit(lambda actors, key: play(task, actors, task.reset(key)))
        trajectory = run(swarm.actors, jax.random.key(episode))
    animate(task, trajectory, Path(out), axes=axes, arrows=arrows)
    return Path(out)
