"""Measure one decision of a whole swarm in the NumPy runtime, on one core, and draw how it grows with the team.

python tools/decisions.py --out results/speed/decisions.json
python tools/decisions.py                                          # draw docs/figures/decisions.png from that file

Agents and landmarks are as dense as in training, whatever the team; everybody sees what is nearer than 1.2, and looks
at the eight nearest of each role. Time is that of the processor, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.deploy.runtime import load_runtime
from legoswarm.files import read_json, write_bytes, write_json
from legoswarm.policies.policy import POLICIES
from legoswarm.provenance import provenance
from legoswarm.show.draw import GREY
from legoswarm.studies.plots import CLOSE, chart, legend_below, png

POLICY, SENSING, NEAREST = "zoo:spread", 1.2, 8
TEAMS, CALLS = (64, 128, 256, 512, 1024), 15
TICKS = (5, 10, 20, 50, 100)
ROOT = Path(__file__).parent.parent
RESULT, PICTURE = ROOT / "results/speed/decisions.json", ROOT / "docs/figures/decisions.png"


def measure(agents: int) -> dict[str, Any]:
    """Return the milliseconds of one decision, the smallest and the median of some calls after a first one."""
    runtime, rng = load_runtime(POLICY, nearest=NEAREST), np.random.default_rng(0)
    positions = rng.uniform(-0.5, 0.5, (2 * agents, 2)) * np.sqrt(agents)
    velocities, roles = 0.1 * rng.normal(size=positions.shape), ["agent"] * agents + ["landmark"] * agents
    seconds = []
    for _ in range(CALLS + 1):
        begun = time.thread_time()
        runtime.act(positions, velocities, roles, sensing=SENSING)
        seconds.append(time.thread_time() - begun)
    milliseconds = 1e3 * np.array(seconds[1:])
    return {"agents": agents, "median": float(np.median(milliseconds)), "smallest": float(milliseconds.min())}


def draw(rows: list[dict[str, Any]]) -> None:
    """Draw time against team, on logarithmic axes, beside what is proportional to the team."""
    teams, medians = np.array([(row["agents"], row["median"]) for row in rows]).T
    figure, axes = chart("agents", "milliseconds of one decision of all")
    axes.loglog(teams, medians, "o-", color=POLICIES["lego"].colour, label="NumPy runtime, one core")
    axes.loglog(teams, medians[0] * teams / teams[0], ":", color=GREY, label="proportional to the team")
    axes.set_xticks(teams, [f"{team:,.0f}" for team in teams])
    axes.set_yticks(TICKS, map(str, TICKS))
    axes.minorticks_off()
    legend_below(figure, axes)
    write_bytes(PICTURE, png(figure, **CLOSE))


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="measure, and write this file")
    args = parser.parse_args()
    if args.out:
        rows = [measure(agents) for agents in TEAMS]
        first, last = rows[0], rows[-1]
        growth = (last["median"] / first["median"]) / (last["agents"] / first["agents"])
        about = {"command": f"python tools/decisions.py --out {args.out}", "policy": POLICY, "sensing": SENSING}
        write_json(args.out, {**about, "nearest": NEAREST, "rows": rows, "over_linear": growth, **provenance()})
    draw(read_json(args.out or RESULT)["rows"])


if __name__ == "__main__":
    main()
