"""Print the tables of results/core from the evaluations there.

python tools/core_table.py
"""

from __future__ import annotations

import collections
import json
import statistics
from pathlib import Path

CORE = Path(__file__).parent.parent / "results" / "core"
PAPER = {2: -10.6, 3: -23.8, 4: -44.0, 5: -79.8, 6: -114.6}
HUNGARIAN = {2: -17.4, 3: -36.3, 4: -54.8, 5: -92.8, 6: -121.3}  # in mpe2; a reference from outside this repository


def returns(path: Path) -> dict[int, list[float]]:
    """return_2c of every seed, by team size."""
    by_size = collections.defaultdict(list)
    for line in path.read_text().splitlines():
        row = json.loads(line)
        by_size[row["agents"]].append(row["return_2c"])
    return dict(by_size)


def cells(path: Path) -> str:
    """Mean, deviation and worst over seeds for each size."""
    sizes = returns(path)
    texts = [
        f"{statistics.mean(v):.1f} +- {statistics.stdev(v):.1f} ({min(v):.1f})" if len(v) > 1 else f"{v[0]:.1f}"
        for _, v in sorted(sizes.items())
    ]
    return " | ".join(texts)


def main() -> None:
    """Both protocols, two encoders, then one policy inside mpe2."""
    sizes = " | ".join(map(str, PAPER))
    for title, names in (
        ("Protocol `paper`", ("default", "default-none", "velocity", "global", "position", "position-none")),
        ("Protocol `mpe2`", ("mpe2", "mpe2-position")),
        ("Two encoders, trained with three agents on a CPU", ("cpu-attention", "cpu-joint")),
    ):
        print(f"\n{title}, return_2c: mean +- deviation over seeds (worst)\n")
        print(f"| run | seeds | steps | N = {sizes} |\n|{'---|' * 8}")
        for name in names:
            config = json.loads((CORE / name / "config.json").read_text())
            seeds = config["seeds"]
            print(f"| `{name}` | {len(seeds)} | {config['steps']:,} | {cells(CORE / name / 'eval.jsonl')} |")
        if "default" in names:
            print(f"| the paper's LEGO | | 2,000,000 | {' | '.join(map(str, PAPER.values()))} |")
    inside = {size: values[0] for size, values in returns(CORE / "inside-mpe2.jsonl").items()}
    print("\nInside the real mpe2, one seed (`zoo:spread-mpe2`)\n")
    print(f"| | N = {sizes} |\n|{'---|' * 6}")
    print(f"| `zoo:spread-mpe2` | {' | '.join(f'{v:.1f}' for v in inside.values())} |")
    print(f"| Hungarian controller | {' | '.join(map(str, HUNGARIAN.values()))} |")
    print(f"| ratio | {' | '.join(f'{v / HUNGARIAN[n]:.2f}' for n, v in inside.items())} |")


if __name__ == "__main__":
    main()
