"""The demo: train a small policy in about two minutes on a laptop, try other team sizes, animate."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from legoswarm.evaluate.policies import evaluate_policy, format_table
from legoswarm.learn.folder import RunConfig, RunFolder
from legoswarm.learn.loop import resume_run, start_run
from legoswarm.learn.train import configure
from legoswarm.show.watch import watch


def demo(out: Path, command: str) -> None:
    """Train on three agents, evaluate on two to six, write an animation; everything lands in `out`.

    A demo that was interrupted goes on; a finished one is evaluated and drawn again.
    """
    # For two cores and a short run.
    options = {"width": 32, "depth": 1, "envs": 64, "epochs": 2, "minibatches": 4, "lr": 2e-3, "entropy": 0.03}
    config = RunConfig(configure("spread", algorithm="mappo", agents=3, steps=880_000, **options))
    started = time.monotonic()
    again = (out / "config.json").exists() and RunFolder(out).read_config() == config
    run = (resume_run(out) if again else start_run(config, out, command)).path
    print(f"trained in {time.monotonic() - started:.0f} s, compilation included", file=sys.stderr)
    print(format_table(list(evaluate_policy(str(run), agents=(3, 2, 4, 5, 6), episodes=200))))
    for agents in (3, 5):
        print("animation:", watch(str(run), run / f"spread-{agents}.gif", agents=agents, arrows=True))
