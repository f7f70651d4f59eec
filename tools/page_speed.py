"""Measure the live page in Chromium: frames and steps a second for several team sizes.

python -m tools.page_speed --out results/speed/page.json
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from legoswarm.deploy.page import write_page
from legoswarm.files import write_json
from legoswarm.provenance import provenance
from tests.chromium import Chromium

TEAMS = (6, 32, 100, 1024)
SEEN = """(() => {
  const { world, agents, policy } = app.panels[0], lists = policy.roles.map(() => new Seen(world.count));
  const counts = agents.map(me => (look(world, app.sight(policy), policy.controlled, me, lists),
    lists.reduce((total, list) => total + list.count, 0)));
  return counts.reduce((a, b) => a + b) / agents.length;
})()"""


def measure(browser: Chromium, page: Path, agents: int, everything: bool, seconds: float) -> dict[str, Any]:
    """Run a team in real time for some seconds after as many to warm up."""
    browser.open(page)
    browser.until("app.world.time > 1")
    browser.click(f"#sizes button[value='{agents}']")
    browser.until(f"app.panels[0].agents.length === {agents}")
    if everything:
        browser.run("app.radius = Infinity")
    time.sleep(seconds)
    count = "[app.world.time, window.frames_drawn, performance.now() / 1000]"
    browser.run("window.frames_drawn = 0; (function next() { window.frames_drawn++; requestAnimationFrame(next); })()")
    start = [*browser.run(count), browser.processor_time()]
    time.sleep(seconds)
    end = [*browser.run(count), browser.processor_time()]
    steps, frames, passed, computed = (after - before for before, after in zip(start, end, strict=True))
    return {
        "agents": agents,
        "sensing_radius": browser.run("Number.isFinite(app.radius) ? app.radius : null"),
        "entities_seen": round(browser.run(SEEN), 1),
        "frames_per_second": round(frames / passed, 1),
        "steps_per_second": round(steps / passed, 2),
        "seconds_per_step": round(browser.run("app.thinking"), 5),
        "cores_used": round(computed / passed, 2),
        "workers": browser.run("app.team.workers.length"),
        "load_average": round(os.getloadavg()[0], 1),  # of the whole machine
    }


def main() -> None:
    """Measure all teams and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="zoo:spread")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        page = write_page([args.policy], Path(folder) / "page.html")
        browser = Chromium(Path(folder) / "profile")
        for agents, everything in [*((agents, False) for agents in TEAMS), (32, True), (100, True)]:
            rows.append(measure(browser, page, agents, everything, args.seconds))
            print(json.dumps(rows[-1]), flush=True)
        product = browser.call("Browser.getVersion")["product"]
        browser.close()
    command = f"python -m tools.page_speed --policy {args.policy} --seconds {args.seconds:g} --out {args.out}"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    write_json(args.out, {"command": command, "date": date, "browser": product, "rows": rows, **provenance()})


if __name__ == "__main__":
    main()
