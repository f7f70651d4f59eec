"""Sweep learning rate and entropy bonus of a policy: all trials and seeds side by side in one program.

    python tools/sweep.py lego --agents 3 --steps 1e6 --lr 3e-4 6e-4 1.2e-3 --entropy 0 0.01 --epochs 5 10 --out a.json

Epochs change the program, so each number of them is one of its own. The figure of a trial is the mean over seeds of
return_2c (500 episodes of mean actions) at the team size it was trained with.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from legoswarm.cli.options import number, whole
from legoswarm.fast.backend import on_cpu, over_seeds
from legoswarm.files import write_json
from legoswarm.learn.train import TrainConfig, configure, make_train
from legoswarm.provenance import provenance
from legoswarm.tasks.task import TASKS

EPISODES = 500


def sweep(config: TrainConfig, trials: list[dict[str, float]], seeds: int) -> tuple[dict[str, np.ndarray], float]:
    """Figures (trials, seeds) of all trials after training, and the seconds it took."""

    def program(trial: dict[str, Any]):
        algorithm = dataclasses.replace(config.algorithm)
        for name, value in trial.items():  # traced values, past the checks of a frozen class
            object.__setattr__(algorithm, name, value)
        return make_train(dataclasses.replace(config, algorithm=algorithm))

    def begin(trial: dict[str, Any], seed: Any) -> Any:
        return program(trial).init(jax.random.key(seed))

    def train(trial_state: Any) -> dict[str, Any]:
        trial, state = trial_state
        functions = program(trial)
        state, _ = functions.advance(state, jnp.array(config.iterations))
        return {**functions.evaluate(state, jax.random.key(0), EPISODES), "healthy": state.healthy}

    pairs = list(itertools.product(trials, range(seeds)))
    stacked = {name: jnp.array([trial[name] for trial, _ in pairs], jnp.float32) for name in trials[0]}
    started = time.monotonic()
    states = on_cpu(jax.jit(jax.vmap(begin)), stacked, jnp.array([seed for _, seed in pairs]))
    figures = jax.device_get(jax.jit(over_seeds(train))((stacked, states)))
    shape = (len(trials), seeds)
    return {name: np.asarray(values).reshape(shape) for name, values in figures.items()}, time.monotonic() - started


def main() -> None:
    """Read the command line, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy")
    parser.add_argument("--task", default="spread", choices=TASKS.names())
    parser.add_argument("--agents", type=whole, default=3)
    parser.add_argument("--steps", type=whole, default=1_000_000)
    parser.add_argument("--seeds", type=whole, default=3)
    parser.add_argument("--lr", type=number, nargs="+", default=[3e-4, 5e-4, 1e-3])
    parser.add_argument("--entropy", type=number, nargs="+", default=[0.0, 0.01])
    parser.add_argument("--epochs", type=whole, nargs="+", default=[5, 10])
    parser.add_argument("--minibatches", type=whole, default=4)
    parser.add_argument("--envs", type=whole, default=128)
    parser.add_argument("--width", type=whole, default=64)
    parser.add_argument("--critic", help="default: the policy's")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    task = TASKS.make(args.task, **({"agents": args.agents} if args.task == "spread" else {}))
    trials = [{"lr": lr, "entropy": entropy} for lr in args.lr for entropy in args.entropy]
    options = {"width": args.width, "envs": args.envs, "minibatches": args.minibatches}
    options |= {"critic": args.critic} if args.critic else {}
    rows = []
    for epochs in args.epochs:
        config = configure(task, args.policy, steps=args.steps, epochs=epochs, **options)
        figures, seconds = sweep(config, trials, args.seeds)
        for at, trial in enumerate(trials):
            returns = figures[task.primary][at]
            row = {**trial, "epochs": epochs, "minibatches": args.minibatches, task.primary: returns.tolist()}
            rows.append({**row, "mean": float(returns.mean()), "healthy": figures["healthy"][at].tolist()})
            print(args.policy, row, f"mean {returns.mean():.1f}", flush=True)
        about = {
            "command": " ".join(["python", *sys.argv]),
            "agents": args.agents,
            "critic": config.policy.critic,
            "steps": args.steps,
            "seconds": seconds,
        }
        write_json(args.out, {"policy": args.policy, **about, "trials": rows, **provenance()})


if __name__ == "__main__":
    main()
