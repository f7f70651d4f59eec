"""Watching a trained policy: one episode as an animation file."""

from __future__ import annotations

from pathlib import Path

import jax

from legoswarm.evaluate.episodes import play
from legoswarm.evaluate.outside import play_outside
from legoswarm.evaluate.policies import resized, trained_task
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
) -> Path:
    """Play one episode of mean actions and write it to `out`; its suffix decides the format."""
    if Path(out).suffix.lower() not in (*MOVIES, *STILLS):
        raise ValueError(f"{out} does not end in one of {', '.join((*MOVIES, *STILLS))}")
    swarm = load(policy, seed)
    sizes = None if agents is None else [agents]
    task = resized(trained_task(swarm.file), sizes, None if teams is None else [teams])[0]
    swarm.file.check_team(task.layout)
    if isinstance(task, OutsideTask):
        trajectory = play_outside(task, swarm.actors, episode)
    else:
        run = jax.jit(lambda actors, key: play(task, actors, task.reset(key)))
        trajectory = run(swarm.actors, jax.random.key(episode))
    animate(task, trajectory, Path(out), axes=axes, arrows=arrows)
    return Path(out)
