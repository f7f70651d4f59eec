"""Measure the references beside zoo:spread, each command once, and print the table of results/references/README.md.

    python tools/references.py

A file that is there is not measured again. Each holds what `legoswarm eval ... --json` prints, and where it was run.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from pathlib import Path

from legoswarm.cli import main
from legoswarm.files import finite, read_json, write_json
from legoswarm.provenance import provenance

OUT = Path(__file__).parent.parent / "results" / "references"
ALL, FEW = "--agents 2 3 4 5 6 7 8 16 32", "--agents 2 3 4 6 8 --episodes 64"
MPE2 = "--agents 2 3 4 5 6"
COMMANDS = {
    "hungarian": f"eval hungarian {ALL}",
    "spread": f"eval zoo:spread {ALL}",
    "hungarian-64": f"eval hungarian {FEW}",
    "spread-64": f"eval zoo:spread {FEW}",
    "planner-64": f"eval planner {FEW}",
    "planner-from-spread-64": f"eval planner --from zoo:spread {FEW}",
    "hungarian-mpe2": f"eval hungarian --protocol mpe2 {MPE2}",
    "spread-mpe2": f"eval zoo:spread-mpe2 {MPE2}",
}

for name, command in COMMANDS.items():
    if not (OUT / f"{name}.json").exists():
        begun, said = time.monotonic(), io.StringIO()
        with contextlib.redirect_stdout(said):
            assert main([*command.split(), "--json"]) == 0
        rows = [json.loads(line) for line in said.getvalue().splitlines()]
        about = {"command": f"legoswarm {command} --json", "seconds": time.monotonic() - begun}
        write_json(OUT / f"{name}.json", finite({**about, **provenance("scipy"), "rows": rows}, 4))
sizes = sorted({row["agents"] for name in COMMANDS for row in read_json(OUT / f"{name}.json")["rows"]})
print(f"| command | episodes | {' | '.join(map(str, sizes))} |\n|{'---|' * (len(sizes) + 2)}")
for name, command in COMMANDS.items():
    rows = {row["agents"]: row for row in read_json(OUT / f"{name}.json")["rows"]}
    cells = [f"{rows[n]['return_2c']:.1f} ± {rows[n]['return_2c_se']:.1f}" if n in rows else "" for n in sizes]
    told = command.split("--agents")[0].strip()
    print(f"| `{told}` | {rows[2]['episodes']} | {' | '.join(cells)} |")
