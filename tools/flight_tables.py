"""Write the tables of docs/flights.md from results/flight: faults, damaged files, missions and statistics.

    python tools/flight_tables.py

Each file of results/flight names the command that has measured it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs/flights.md", ROOT / "results/flight"
MISSIONS = ("udp", "udp-crazyflow", "radio-0", "radio-0.2")
COMPARED = {
    "captured": "share of episodes with a capture",
    "capture_time": "steps to the first capture",
    "pursuer_return": "return of the pursuers",
}


def read(name: str) -> dict[str, Any]:
    """Read a file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def faults() -> Iterator[str]:
    """Yield the table of faults, and what it adds up to."""
    result = read("faults")
    unsafe, bare = result["unsafe"], result["unsafe_without_excuse"]
    rest = f"; {bare} of them could have been prevented" if bare else ""
    yield f"Of {result['faults']} faults {unsafe} ended unsafe{rest}."
    yield "Where no software on the ground can prevent that, the last column says why."
    yield f"Of {result['missions']} missions in a row with random faults {result['unsafe_missions']} ended unsafe;"
    lucky = result["excused_missions"] - result["unsafe_excused_missions"]
    yield f"of {result['excused_missions']} with faults that no software on the ground can prevent {lucky}"
    yield "happened to end safely."
    yield f"Apart from such faults nobody was more than {result['largest_beyond']:.2f} m outside the fence or above"
    yield f"the ceiling; {result['margin']:g} m are allowed for. (`{result['command']}`)"
    yield ""
    yield "| fault | transport | what the guard saw | how they ended | beyond, m | closest, m | safe |"
    yield "|---|---|---|---|---|---|---|"
    for row in result["rows"]:
        seen = "; ".join(sorted({_short(reason) for reason in row["reasons"]})) or "nothing: flown to the end"
        ends = ", ".join(dict.fromkeys(row["statuses"].values())) or "unknown"
        closest = "" if row["closest"] is None else f"{row['closest']:.2f}"
        safe = "yes" if row["safe"] else f"no: {'; '.join(row['contacts']) or 'it flew away'}; {row['excuse']}"
        yield f"| {row['fault']} | {row['transport']} | {seen} | {ends} | {row['beyond']:.2f} | {closest} | {safe} |"


def _short(reason: str) -> str:
    return reason.replace("it does not do what it is told: its way", "its way").replace("|", " ")


def files() -> Iterator[str]:
    """Yield what became of damaged files, killed runs and full disks."""
    damaged, killed, full = read("files"), read("kills"), read("disks")
    yield f"`{damaged['command']}`"
    yield ""
    yield "| damaged files | read all the same | refused in one sentence | anything else |"
    yield "|---|---|---|---|"
    for kind, counts in damaged["files"].items():
        rest = sum(counts.values()) - counts.get("read", 0) - counts.get("refused", 0)
        yield f"| {kind} | {counts.get('read', 0):,} | {counts.get('refused', 0):,} | {rest:,} |"
    yield from _counts(killed["command"], "kills", killed["kills"])
    disks = full["full disks"]
    low, high = disks["KB"]
    for what in ("trainings", "flights"):
        title = f"{disks['disks']} {what}, each on a disk of {low} to {high} KB"
        yield from _counts(full["command"], title, disks[what])


def _counts(command: str, title: str, counts: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"`{command}`", "", f"| {title} | |", "|---|---|")
    for name, count in counts.items():
        many = count.items() if isinstance(count, dict) else [("", count)]
        yield from (f"| {name}{': ' * bool(what)}{what} | {number} |" for what, number in many)


def missions() -> Iterator[str]:
    """Yield a row for each way to fly whole missions through the real cflib."""
    yield "| command | how they ended | captures | longest wait for a setpoint, ms | longest between two sends, ms |"
    yield "|---|---|---|---|---|"
    for name in MISSIONS:
        result = read(f"mission-{name}")
        trials = result["trials"]
        ends = sorted({status for trial in trials for status in trial["statuses"].values()})
        captures = ", ".join(str(len(trial["captures"])) for trial in trials)
        waits = ", ".join(f"{1000 * trial['largest_gap']:.0f}" for trial in trials)
        sends = ", ".join(f"{1000 * max(trial['intervals'].values()):.0f}" for trial in trials)
        command = re.sub(r" --out \S+", "", result["command"])
        yield f"| `{command}` | {', '.join(ends)} | {captures} | {waits} | {sends} |"


def statistics() -> Iterator[str]:
    """Yield how flights differ from the plain task."""
    result = read("failure-land")
    yield f"`{result['command']}`"
    yield ""
    yield f"| {result['episodes']} flights in which a pursuer fails | plain task | flown | difference, 95 % interval |"
    yield "|---|---|---|---|"
    for figure, words in COMPARED.items():
        plain, flown, gap = (result[side][figure] for side in ("plain", "flown", "difference"))
        low, high = gap["interval"]
        between = f"{gap['mean']:+.3g}, {low:.2g} to {high:.2g}"
        yield f"| {words} | {plain['mean']:.3g} | {flown['mean']:.3g} | {between} |"


def page(text: str) -> str:
    """Return the page with each table put between its two marks."""
    for table in (faults, files, missions, statistics):
        name = table.__name__
        begin, end = f"<!-- {name}: written by tools/flight_tables.py -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise SystemExit(f"{PAGE} has no place for {name}")
        text = "\n".join([before + begin, "", *"\n".join(table()).strip().splitlines(), "", end]) + after
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
