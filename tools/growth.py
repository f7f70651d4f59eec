"""Draw what `legoswarm bench` measured as the team grows: docs/figures/growth.png from results/speed/growth-*.json.

python tools/growth.py
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

SPEED = Path("results/speed")
SIZES = [3, 6, 12, 24, 48, 96]


def seconds(name: str, policy: str) -> dict[int, float]:
    """Seconds for each environment step at each team size."""
    rows = [row for path in sorted(SPEED.glob(name)) for row in json.loads(path.read_text())["rows"]]
    return {
        row["agents"]: row["seconds"] / row["worlds"] if row["kind"] == "forward" else 1 / row["env_steps_per_second"]
        for row in sorted(rows, key=lambda row: row["agents"])
        if row["policy"] == policy
    }


figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
titles = {
    "one decision of all agents, H200": ("growth-forward.json", ("lego",)),
    "training, H200": ("growth-training-[0-9]*.json", ("lego", "mappo")),
    "training, 2 CPU cores": ("growth-training-cpu.json", ("lego", "mappo")),
}
for panel, (title, (files, policies)) in zip(panels, titles.items(), strict=True):
    for policy in policies:
        points = seconds(files, policy)
        panel.loglog(list(points), list(points.values()), "o-", label={"lego": "LEGO", "mappo": "MLP"}[policy])
    first, last = min(points), max(points)
    scale = seconds(files, "lego")[last]
    for power, style in ((2, ":"), (3, "--")):
        ends = [scale * (first / last) ** power, scale]
        panel.loglog([first, last], ends, style, color="grey", lw=1, label=f"N^{power}")
    panel.set(title=title, xlabel="agents", xticks=SIZES, xticklabels=map(str, SIZES))
    panel.minorticks_off()
    panel.legend(frameon=False)
panels[0].set_ylabel("seconds for a step of one world")
figure.savefig("docs/figures/growth.png", dpi=110)
