"""Put one seed of a run into the package's zoo, with its training command and evaluated figures.

python tools/make_zoo.py RUN NAME [--agents 2 3 4 5 6] [--episodes 1000] [--seed 0 --because "..."]

In Tag the run's own evaluation says little about a seed: pursuers that capture much may have poor evaders before them.
"""

import argparse
import dataclasses
from pathlib import Path

import legoswarm
from legoswarm.evaluate.policies import EPISODE_SEED, evaluate_policy
from legoswarm.files import read_json
from legoswarm.policies.saved.file import load_policy, save_policy
from legoswarm.provenance import provenance

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("run", type=Path)
parser.add_argument("name")
parser.add_argument("--agents", type=int, nargs="+", default=[2, 3, 4, 5, 6, 7, 8])
parser.add_argument("--episodes", type=int, default=1000)
parser.add_argument("--seed", type=int, help="instead of the best by the run's own last evaluation")
parser.add_argument("--because", default="", help="why that seed")
args = parser.parse_args()

file = load_policy(args.run)
one = file.only(args.seed)
seed = one.seeds[0]
why = args.because or f"the best of {len(file.seeds)} by the run's own last evaluation"
config = read_json(args.run / "config.json")
sizes = args.agents if file.task["name"] == "spread" else None
rows = list(evaluate_policy(str(args.run), agents=sizes, episodes=args.episodes, seed=seed))
notes = {
    **one.notes,
    "planned_steps": config["steps"],
    "command": config["command"],
    "chosen": f"seed {seed}, {why}",
    "evaluation": {
        "command": " ".join(
            [f"legoswarm eval zoo:{args.name}", *(["--agents", *map(str, sizes)] if sizes else []), "--json"]
        ),
        "episode_seed": EPISODE_SEED,
        **provenance(),
        "rows": [{name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()} for row in rows],
    },
}
save_policy(Path(legoswarm.__file__).parent / "zoo", dataclasses.replace(one, notes=notes), args.name)
