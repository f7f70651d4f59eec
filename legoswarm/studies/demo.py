"""The demo: train a small policy in about two minutes on a laptop, try other team sizes, animate."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from legoswarm.evaluate.compare import evaluate_policy, format_table
from legoswarm.learn.algorithms.mappo import MappoConfig
from legoswarm.learn.folder import RunConfig, RunFolder
from legoswarm.learn.loop import resume_run, start_run
from legoswarm.learn.train import TrainConfig
from legoswarm.policies import PolicyConfig
from legoswarm.show.watch import watch
from legoswarm.tasks import Spread


def demo(out: Path, command: str) -> None:
    """Train on three agents, evaluate on two to six, write an animation; everything lands in `out`.

    A demo that was interrupted goes on; a finished one is evaluated and drawn again.
    """
    config = RunConfig(
        TrainConfig(
            Spread(agents=3),
            PolicyConfig(width=32, depth=1, critic="pairs"),
            MappoConfig(envs=64, epochs=2, minibatches=4, lr=2e-3, entropy=0.03),  # for two cores and a short run
            steps=480_000,
        ),
    )
    started = time.monotonic()
    again = (out / "config.json").exists() and RunFolder(out).read_config() == config
    run = (resume_run(out) if again else start_run(config, out, command)).path
    print(f"trained in {time.monotonic() - started:.0f} s, compilation included", file=sys.stderr)
    print(format_table(list(evaluate_policy(str(run), agents=(3, 2, 4, 5, 6), episodes=200))))
    for agents in (3, 5):
        print("animation:", watch(str(run), run / f"spread-{agents}.gif", agents=agents, arrows=True))
