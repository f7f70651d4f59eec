"""`legoswarm fly`: the paper's experiment on drones, real or simulated, with logs, pictures and statistics."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.deploy.cflib_link import require_cflib
from legoswarm.deploy.fleet import Fleet, Simulation, real_fleet, simulated_fleet
from legoswarm.deploy.flight_statistics import RARE, compare_flights
from legoswarm.deploy.flightlog import read_flight
from legoswarm.deploy.mission import Mission
from legoswarm.deploy.plan import Outcome, in_words
from legoswarm.deploy.runtime import Runtime, load_runtime
from legoswarm.deploy.setting import Setting, draw_start
from legoswarm.files import FileError, finite, write_json
from legoswarm.policies.saved.description import find_policy
from legoswarm.provenance import provenance

FLIGHT_PACKAGES = ("cflib", "crazyflow", "mujoco")  # whose versions matter to flights
OBSTACLES = ((0.75, 0.3), (-0.75, -0.3))  # m
SEEN = ("setpoints", "largest_gap", "stall", "cut_offs")  # of what simulated drones report
Say = Callable[[str], None]


def _to_console(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def fly(
    policy: str,
    setting: Setting,
    out: str | Path,
    *,
    crazyflies: str | Path | None = None,
    simulation: Simulation | None = None,
    trials: int = 3,
    seed: int = 0,
    obstacles: Sequence[tuple[float, float]] = OBSTACLES,
    source: str | None = None,
    gamepad: bool = False,
    command: str = "",
    say: Say = _to_console,
) -> list[Outcome]:
    """Fly some trials and write into `out` a log for each, a picture of all, animations and `summary.json`.

    With the file `crazyflies` the drones are those of the file; without it they are simulated. A mission that ends
    early is raised as its error once its drones have landed and the files are written.
    """
    if trials < 1:
        raise ValueError("at least one trial is needed")
    runtime, setting = prepare(policy, setting.among(np.array(obstacles, float).reshape(-1, 2)))
    simulation = simulation or Simulation()
    Mission(runtime, setting, setting.roles)  # what cannot be flown is refused before anything is written
    if crazyflies is not None or not simulation.dry:
        require_cflib()
    out = Path(out)
    logs = [out / f"trial-{number + 1}.jsonl" for number in range(trials)]
    if taken := [path for path in (*logs, out / "summary.json") if path.exists()]:
        raise FileError(f"{taken[0]} exists: name another folder with --out")
    outcomes: list[Outcome] = []
    rows = []
    for number, path in enumerate(logs):
        if crazyflies is not None:
            ready = contextlib.nullcontext(real_fleet(crazyflies, setting, source=source, gamepad=gamepad))
        else:
            start = draw_start(setting, np.random.default_rng(seed + number))
            track = out / f"trial-{number + 1}-truth.jsonl"
            out.mkdir(parents=True, exist_ok=True)
            ready = simulated_fleet(simulation, setting, start, seed + number, track, gamepad=gamepad)
        with ready as fleet:
            mission = Mission(runtime, setting, fleet.names)
            out.mkdir(parents=True, exist_ok=True)  # what cannot be written is known before anybody flies
            outcome = fleet.fly(
                mission,
                log=path,
                say=lambda words, number=number: say(f"trial {number + 1}: {words}"),
                about={"policy": policy, "sha256": digest(policy), "seed": runtime.seed, "command": command},
            )
            if not outcome.statuses and outcome.error is not None:  # nobody was connected to
                raise outcome.error
            row = describe(outcome, mission, fleet, None if crazyflies is not None else simulation)
        if (gap := row.get("largest_gap")) is not None:
            say(f"trial {number + 1}: the longest wait for a setpoint was {1000 * gap:.0f} ms")
        outcomes.append(outcome)
        rows.append({"log": path.name, **row})
        if outcome.error is not None:
            break
    about = {"command": command, "policy": policy, "policy_seed": runtime.seed}
    write_json(out / "summary.json", {**about, "trials": rows, **provenance(*FLIGHT_PACKAGES)})
    draw([path for path in logs if path.exists()], out, say)
    if (error := outcomes[-1].error) is not None:
        raise error
    return outcomes


def digest(policy: str) -> str:
    """Return the SHA-256 of a policy's weights and description: which policy it was, whatever its name."""
    both = (path.read_bytes() for path in find_policy(policy))
    return hashlib.sha256(b"".join(both)).hexdigest()


def describe(outcome: Outcome, mission: Mission, fleet: Fleet, simulation: Simulation | None) -> dict[str, Any]:
    """Return a row of JSON about one flight; `simulation` is None for real drones.

    `largest_gap` is the longest time, s, that a simulated drone which did not fail waited for a setpoint while the
    mission steered it; `intervals` the longest time between two setpoints that were sent; `stall` the longest time for
    which the machine, and so the simulated world, stood still.
    """
    failure = mission.setting.plan.failure
    how = {"failure": failure, **({} if simulation is None else dataclasses.asdict(simulation))}
    captures = [dataclasses.asdict(capture) for capture in mission.captures]
    return {**how, **outcome.to_json(), "captures": captures, **_seen(outcome, fleet)}


def _seen(outcome: Outcome, fleet: Fleet) -> dict[str, Any]:
    """Return what simulated drones have seen, or why they do not say it; nothing for real drones."""
    if fleet.report is None:
        return {}
    try:
        report = dict(zip(outcome.statuses, fleet.report(), strict=True))
    except (ValueError, RuntimeError) as error:  # a world that has ended
        return {"simulated": in_words(error)}
    steered = [drone["largest_gap"] for name, drone in report.items() if name not in outcome.failures]
    return {
        "largest_gap": max(steered, default=None),
        "simulated": {
            name: {"height": round(drone["position"][2], 3), **{key: drone[key] for key in SEEN if key in drone}}
            for name, drone in report.items()
        },
    }


def prepare(policy: str, setting: Setting) -> tuple[Runtime, Setting]:
    """Load a policy that knows the roles of a setting, and give the setting the protocol of its training."""
    runtime = load_runtime(policy)
    needed, words = {"pursuer", "evader", "obstacle"}, "pursuers and evaders"
    if setting.spreads:
        needed, words = {"agent", "landmark"}, "agents and landmarks"
    if not needed <= set(runtime.roles):
        raise ValueError(f"{policy} cannot fly this: it knows {', '.join(runtime.roles)}, not {words}")
    if private := runtime.description.layout.private:
        raise ValueError(f"{policy} cannot fly this: nobody provides {', '.join(runtime.roles[-private:])}")
    return runtime, dataclasses.replace(setting, protocol=str(runtime.description.task.get("protocol", "paper")))


def draw(logs: Sequence[Path], out: Path, say: Say = _to_console) -> list[Path]:
    """Draw a picture of all flights and an animation of each that has run; say and return what was written."""
    from legoswarm.deploy.picture import animate_flight, draw_flights

    flights = [(path, read_flight(path)) for path in logs]
    flown = [(path, flight) for path, flight in flights if "run" in flight.stage]
    if not flown:
        return []
    written = [out / "trials.png"]
    draw_flights([flight for _, flight in flown], written[0], [path.stem.replace("-", " ") for path, _ in flown])
    for path, flight in flown:
        written.append(out / f"{path.stem}.gif")
        animate_flight(flight, written[-1])
    for path in written:
        say(f"wrote {path}")
    return written


def statistics(
    policy: str,
    setting: Setting,
    out: str | Path,
    *,
    plant: str,
    episodes: int,
    seed: int,
    jobs: int,
    command: str,
    say: Say = _to_console,
) -> dict[str, Any]:
    """Compare flights in process with the plain task and write what comes out, as JSON."""
    out = Path(out)
    if out.suffix != ".json":
        raise ValueError(f"statistics are written into a .json file, not {out}")
    runtime, setting = prepare(policy, setting)
    compared = compare_flights(policy, setting, plant=plant, episodes=episodes, seed=seed, jobs=jobs, say=say)
    result = {
        "command": command,
        "policy": policy,
        "policy_seed": runtime.seed,
        "plant": plant,
        "episodes": episodes,
        "seeds": [seed, seed + episodes - 1],
        "capture_distance": setting.capture_distance,
        **compared,
        "setting": finite(dataclasses.asdict(setting)),
        **provenance(*FLIGHT_PACKAGES),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, result)
    for line in _lines(setting, result):
        say(line)
    say(f"wrote {out}")
    return result


def _lines(setting: Setting, result: dict[str, Any]) -> Iterator[str]:
    """Yield a line of words for each figure that matters."""
    failure = setting.plan.failure != "none"
    captured = "capture share of the remaining pursuer" if failure else "capture share"
    names = {"captured": captured, "capture_time": "steps to the first capture", "pursuer_return": "pursuer return"}
    if result["plain"]["captured"]["mean"] < RARE:
        names["near_time"] = "steps until within 0.3 units"
    for name, words in names.items():
        plain, flown, gap = (result[side][name] for side in ("plain", "flown", "difference"))
        low, high = gap["interval"]
        yield (
            f"{words}: plain {plain['mean']:.3f}, flown {flown['mean']:.3f}, "
            f"difference {gap['mean']:+.3f} [{low:+.3f}, {high:+.3f}]"
        )
