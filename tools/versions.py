"""Seconds of the demo's training to a return of -43.4, for any version of this repository since its first.

    git archive baa06f9 | tar x -C /tmp/first
    python tools/versions.py /tmp/first --epochs 4 --lr 1e-3
    python tools/versions.py . --epochs 2 --lr 2e-3 --entropy 0.03

`legoswarm bench --until` is younger than what this compares with. Nothing comes from a compilation cache.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("checkout", type=Path)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--entropy", type=float, default=0.0)
args = parser.parse_args()
sys.path.insert(0, str(args.checkout.resolve()))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from legoswarm.learn.algorithms.mappo import MappoConfig  # noqa: E402
from legoswarm.learn.train import TrainConfig
from legoswarm.learn.train import make_train  # noqa: E402
from legoswarm.policies import PolicyConfig  # noqa: E402
from legoswarm.tasks import Spread  # noqa: E402

jax.config.update("jax_enable_compilation_cache", False)
mappo = Mappo(envs=64, minibatches=4, epochs=args.epochs, lr=args.lr, entropy=args.entropy)
config = TrainConfig(Spread(agents=3), policy_of(width=32, depth=1), mappo, steps=480_000)
program = make_train(config)


@jax.jit
def onward(state, count):
    """Some iterations, then 200 episodes."""
    state, _ = program.advance(state, count)
    return state, program.evaluate(state, jax.random.key(0), 200)["return_2c"]


started = time.monotonic()
state = jax.block_until_ready(jax.jit(lambda key: program.init(key))(jax.random.key(0)))
print(f"{time.monotonic() - started:5.1f} s  first state")
figure, steps = -float("inf"), 0
while figure < -43.4:
    state, figure = onward(state, jnp.array(5))
    steps += 5 * mappo.batch
    print(f"{time.monotonic() - started:5.1f} s  {steps:6d} steps  return_2c {float(figure):.1f}")
started = time.monotonic()
jax.block_until_ready(onward(state, jnp.array(60)))
print(f"{60 * mappo.batch / (time.monotonic() - started):.0f} steps/s from there on, one evaluation included")
