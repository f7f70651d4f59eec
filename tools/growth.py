"""Draw what `legoswarm bench` measured as the team grows: docs/figures/growth.png from results/speed/growth-*.json.

python tools/growth.py
"""

from pathlib import Path

from matplotlib.figure import Figure

from legoswarm.files import read_json
from legoswarm.policies.policy import POLICIES
from legoswarm.show.draw import GREY, INK, save
from legoswarm.studies.plots import plain

SPEED = Path("results/speed")
SIZES = [3, 6, 12, 24, 48, 96]
PANELS = {
    "one decision of all agents, H200": ("growth-forward.json", ("lego",)),
    "training, H200": ("growth-training-[0-9]*.json", ("lego", "mappo")),
    "training, 2 CPU cores": ("growth-training-cpu.json", ("lego", "mappo")),
}


def seconds(name: str, policy: str) -> dict[int, float]:
    """Return the seconds for each environment step at each team size."""
    rows = [row for path in sorted(SPEED.glob(name)) for row in read_json(path)["rows"]]
    return {
        row["agents"]: row["seconds"] / row["worlds"] if row["kind"] == "forward" else 1 / row["env_steps_per_second"]
        for row in sorted(rows, key=lambda row: row["agents"])
        if row["policy"] == policy
    }


figure = Figure(figsize=(9.2, 3.4), layout="constrained")
panels = figure.subplots(1, 3)
for panel, (title, (files, policies)) in zip(panels, PANELS.items(), strict=True):
    plain(panel, "agents", "seconds for a step of one world" if panel is panels[0] else "")
    for policy in policies:
        points, label = seconds(files, policy), {"lego": "LEGO", "mappo": "MAPPO's MLP"}[policy]
        panel.loglog(points.keys(), points.values(), "o-", color=POLICIES[policy].colour, label=label)
    lego = seconds(files, "lego")
    (first, _), (last, scale) = min(lego.items()), max(lego.items())
    for power, line in ((2, ":"), (3, "--")):
        ends = [scale * (first / last) ** power, scale]
        panel.loglog([first, last], ends, line, color=GREY, lw=1, label=f"proportional to N^{power}")
    panel.set_title(title, fontsize=10, color=INK)
    panel.set_xticks(SIZES, map(str, SIZES))
    panel.minorticks_off()
figure.legend(*panels[1].get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside lower center", ncols=4)
save(figure, Path("docs/figures/growth.png"))
