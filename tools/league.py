"""Let the pursuers of several policies of Tag meet the evaders of each, every seed of one every seed of the other.

    python tools/league.py lego=runs/a mappo=runs/b --episodes 64 --out league.json

Each row tells one pairing. The table that is printed says for each policy what its pursuers earn against the mean over
all evaders (higher is better), and what the mean over all pursuers earns against its evaders (lower is better).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from legoswarm.evaluate.policies import meeting_task, rows_of
from legoswarm.fast.caches import use_caches
from legoswarm.files import write_json
from legoswarm.policies.networks.team import knowing
from legoswarm.policies.saved.file import PolicyFile, load_policy
from legoswarm.provenance import provenance

STARTS = 2_000_003  # neither training's nor the tables'
ROLES = ("pursuer", "evader")
KEPT = ("pursuer_return", "evader_return", "captures", "extent", "evader_gap", "surround", "hidden_share")


def pairing(pursuers: PolicyFile, evaders: PolicyFile, episodes: int, starts: int) -> list[dict[str, Any]]:
    """Return a row for each seed of the pursuers against each seed of the evaders."""
    first, second = np.divmod(np.arange(len(pursuers.seeds) * len(evaders.seeds)), len(evaders.seeds))
    actors = {
        role: jax.tree.map(lambda leaf, at=at: leaf[at], file.policies[role].actor)
        for role, file, at in (("pursuer", pursuers, first), ("evader", evaders, second))
    }
    task = meeting_task((pursuers, evaders), {})
    actors = {
        role: knowing(actors[role], file.layout.roles, task.layout.roles)
        for role, file in (("pursuer", pursuers), ("evader", evaders))
    }
    rows = rows_of(task, actors, tuple(range(len(first))), episodes, starts)
    return [
        {
            "pursuer_seed": pursuers.seeds[first[at]],
            "evader_seed": evaders.seeds[second[at]],
            **{name: row[name] for name in KEPT},
        }
        for at, row in enumerate(rows)
    ]


def mean_over(rows: list[dict[str, Any]], role: str, name: str, seed: int, other: str) -> float:
    """Return what pursuers earn where one policy plays a role, each policy in the other role weighing the same."""
    mine = [row for row in rows if (row[role], row[f"{role}_seed"]) == (name, seed)]
    opponents = {row[other] for row in mine}
    return float(np.mean([np.mean([row["pursuer_return"] for row in mine if row[other] == one]) for one in opponents]))


def main() -> None:
    """Play all pairings, print the table and write a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", help="NAME=POLICY, a run folder, a policy file or zoo:NAME")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--starts", type=int, default=STARTS, help="seed of the starts")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    use_caches()
    files = {name: load_policy(policy) for name, policy in (text.split("=", 1) for text in args.policies)}
    rows = []
    for pursuer, one in files.items():
        for evader, other in files.items():
            rows += [
                {"pursuer": pursuer, "evader": evader, **row} for row in pairing(one, other, args.episodes, args.starts)
            ]
            sys.stderr.write(f"{pursuer} met {evader}\n")
    write_json(args.out, {"command": " ".join(sys.argv), "episodes": args.episodes, "rows": rows, **provenance()})
    for name, file in files.items():
        for seed in file.seeds:
            earned, paid = (mean_over(rows, role, name, seed, other) for role, other in (ROLES, ROLES[::-1]))
            print(f"{name} {seed}: pursuers earn {earned:.1f}, against evaders {paid:.1f}")


if __name__ == "__main__":
    main()
