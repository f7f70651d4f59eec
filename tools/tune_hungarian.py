"""Tune the gains of the Hungarian controller: every pair of a grid, on starts that no evaluation has.

    python tools/tune_hungarian.py --out results/references/gains.json

A pair's score is the mean over team sizes of its return_2c divided by the best return of that size: 1 is best at all.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
from pathlib import Path

import jax
import numpy as np

from legoswarm.evaluate.references import fly_hungarian
from legoswarm.files import finite, write_json
from legoswarm.provenance import provenance
from legoswarm.tasks.spread import Spread

SIZES, EPISODES, SEED = (2, 4, 8), 500, 77
PULL, BRAKE = (8.0, 10.0, 12.0, 15.0, 18.0, 22.0), (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


def mean_return(task: Spread, gains: tuple[float, float]) -> float:
    """Return the mean return_2c of the episodes."""
    states = jax.vmap(task.reset)(jax.random.split(jax.random.key(SEED), EPISODES))
    measures = fly_hungarian(task, states, gains).measures
    return float(jax.vmap(task.figures)(measures)["return_2c"].mean())


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, required=True)
args = parser.parse_args()
rows = []
for protocol in ("paper", "mpe2"):
    pairs = list(itertools.product(PULL, BRAKE))
    returns = np.array([[mean_return(Spread(agents=n, protocol=protocol), pair) for n in SIZES] for pair in pairs])
    scores = (returns / returns.max(0)).mean(1)
    for pair, values, score in zip(pairs, returns, scores, strict=True):
        rows.append({"protocol": protocol, "gains": pair, "return_2c": values, "score": score})
    print(protocol, pairs[scores.argmin()], returns[scores.argmin()], file=sys.stderr, flush=True)
settings = {"agents": SIZES, "episodes": EPISODES, "seed": SEED}
command = shlex.join(["python", *sys.argv])
args.out.parent.mkdir(parents=True, exist_ok=True)
write_json(args.out, finite({"command": command, **settings, **provenance("scipy"), "rows": rows}, 3))
