"""The demo: train a small policy in about two minutes on a laptop, try other team sizes, animate."""

from __future__ import annotations

import time
from pathlib import Path

from legoswarm.evaluate.policies import evaluate_policy
from legoswarm.learn.folder import RunConfig, RunFolder
from legoswarm.learn.loop import resume_run, start_run
from legoswarm.learn.train import configure
from legoswarm.show.watch import watch
from legoswarm.studies.paper import GENERALIZATION

# For two cores and a short run.
OPTIONS = {
    "steps": 880_000, "width": 32, "depth": 1, "envs": 64, "epochs": 2, "minibatches": 4, "lr": 2e-3, "entropy": 0.03,
}  # fmt: skip
BEGIN = """\
legoswarm trains one policy with three agents, who cover three landmarks without colliding, and then lets it steer
teams of two to six;"""
MEANING = """\
The return is minus the team size times the distance of every landmark to its nearest agent, minus 2 for each pair of
agents that collide, summed over 25 steps. Closer to zero is better."""
BELOW = """\
+- is the standard error over 200 episodes. A landmark is covered if an agent is within 0.1 at the end. The paper's
policy has another encoder and critic, and trained longer; train spread --recipe published repeats it."""
ROW = "{:>6}  {:>27}  {:>29}  {:>17}"


def demo(out: Path, command: str) -> None:
    """Train on three agents, evaluate on two to six, write animations; everything lands in `out`.

    A demo that was interrupted goes on; a finished one is evaluated and drawn again.
    """
    config = RunConfig(configure("spread", algorithm="mappo", agents=3, **OPTIONS))
    again = (out / "config.json").exists() and RunFolder(out).read_config() == config
    rows = RunFolder(out).read_metrics() if again else []
    if rows and rows[-1]["iteration"] == config.train.iterations:
        print(f"{BEGIN} {out} holds a trained policy, which is used (remove the folder to train anew).\n")
        run = out
    else:
        print(f"{BEGIN} this takes about two minutes.", flush=True)
        started = time.monotonic()
        run = (resume_run(out) if again else start_run(config, out, command)).path
        print(f"It was trained in {time.monotonic() - started:.0f} s, compilation included.\n")
    print(f"{MEANING}\n")
    print(ROW.format("agents", "return, trained with three", "the paper's, trained with four", "landmarks covered"))
    for row in evaluate_policy(str(run), agents=(2, 3, 4, 5, 6), episodes=200):
        ours = f"{row['return_2c']:.1f} +- {row['return_2c_se']:.1f}"
        paper, _ = GENERALIZATION["lego"][row["agents"]]
        print(ROW.format(row["agents"], ours, paper, f"{row['covered']:.0%}"), flush=True)
    print(f"\n{BELOW}\n")
    for agents in (3, 5):
        path = watch(str(run), run / f"spread-{agents}.gif", agents=agents, arrows=True)
        print(f"{path} shows {agents} agents.")
