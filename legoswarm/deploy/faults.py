"""The table of faults: what can go wrong in a flight, injected one by one, and how each flight ended.

Most faults are flown in process on a simulated clock; those that concern processes are flown in real time, by
`legoswarm fly --sitl` over the real cflib, while the simulated world, in a process of its own, goes on whatever becomes
of the flight.
A flight is safe if everybody stands or was stopped, nobody touched anything, and nobody was farther outside the fence
or above the ceiling than the margin. A fault that software on the ground cannot prevent says why in `excuse`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.deploy.guard import Guard
from legoswarm.deploy.inprocess import Cameras, World
from legoswarm.deploy.mission import Mission
from legoswarm.deploy.plan import Drone, Plan, Report, Wish
from legoswarm.deploy.safety import Rules
from legoswarm.deploy.setting import Setting, draw_start
from legoswarm.deploy.sitl.drone import Airspace
from legoswarm.deploy.sitl.plants import PointMass
from legoswarm.files import finite, write_json
from legoswarm.provenance import provenance

STARTS = ((-1.0, -0.8, 0.0), (1.0, -0.8, 0.0), (0.0, 1.0, 0.0))
CENTRES = ((0.75, 0.3), (-0.75, -0.3))
NAMES = ("cf1", "cf2", "cf3")
PLAN = Plan(horizon=24, failure="none", take_off_seconds=2.0, settle_seconds=0.5, land_seconds=2.5)
MARGIN = 0.6  # m beyond fence or ceiling: blind flight until a doubt has lasted, braking, and a fall


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    drones: Mapping[int, Mapping[str, Any]] = dataclasses.field(default_factory=dict)  # faults of drones
    cameras: Mapping[str, Any] | None = None  # faults of motion capture; None: there is none
    at: str = "run"  # the stage in which it happens: start, takeoff, settle, run or land
    commander: str | None = None  # what the policy does from then on
    excuse: str | None = None  # why software on the ground cannot prevent the worst
    setting: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    delay: float = 1.5  # s into the stage
    lasts: float | None = None  # s after which drones and cameras are well again
    process: tuple[str, ...] = ()  # a fault of processes, flown in real time: a signal, and to whom it is sent


def _only(at: int, **faults: Any) -> dict[int, dict[str, Any]]:
    return {at: faults}


def _all(**faults: Any) -> dict[int, dict[str, Any]]:
    return dict.fromkeys(range(3), faults)


def _table() -> list[Fault]:
    """Return all faults, in the order of the table."""
    one, two, three = (functools.partial(_only, at) for at in range(3))
    rows = [Fault("nothing")]
    deaf = "nothing that is sent reaches a drone that hears nothing; its own watchdog stops it after 2 s"
    own = "its own estimate does as it was told, be it at once or after a jolt: only a position from outside can tell"
    for at, faults in (("cf1", one), ("cf3", three)):
        rows += [
            Fault(f"reported position of {at} freezes", faults(freeze=True)),
            Fault(f"estimate of {at} is stuck on board", faults(stuck=True)),
            Fault(f"estimate of {at} jumps by 1 m", faults(jump=(1.0, 0.0, 0.0))),
            Fault(f"estimate of {at} jumps by 0.3 m in height", faults(jump=(0.0, 0.0, 0.3))),
            Fault(f"estimate of {at} drifts, 0.4 m/s", faults(drift=(0.4, 0.0, 0.0)), excuse=own),
            Fault(f"estimate of {at} drifts, 1 m/s", faults(drift=(0.0, 1.0, 0.0)), excuse=own),
            Fault(f"estimate of {at} drifts, 3 m/s", faults(drift=(0.0, 3.0, 0.0))),
            Fault(f"{at} climbs, 0.5 m/s", faults(climb=0.5)),
            Fault(f"{at} climbs, 1.5 m/s", faults(climb=1.5)),
            Fault(f"{at} ignores what it is told", faults(ignore=True)),
            Fault(f"variance of {at} grows", faults(variance=0.5)),
            Fault(f"{at} falls silent", faults(mute=True)),
            Fault(f"{at} hears nothing", faults(deaf=True), excuse=deaf),
            Fault(f"{at} hears and says nothing", faults(mute=True, deaf=True), excuse=deaf),
            Fault(f"motors of {at} stop", faults(dead=True)),
            Fault(f"{at} turns over", faults(tumble=True)),
            Fault(f"battery of {at} is low, 3.4 V", faults(battery=3.4)),
            Fault(f"battery of {at} is empty, 2.9 V", faults(battery=2.9)),
            Fault(f"clock of {at} jumps ahead by 5 s", faults(clock=5.0)),
            Fault(f"clock of {at} begins again", faults(clock=-5.0)),
            Fault(f"link to {at}: 300 ms each way", faults(latency=0.3)),
            Fault(f"link to {at}: 100 ms each way", faults(latency=0.1)),
            Fault(f"link to {at}: a backlog, 30 packets a second", faults(backlog=30.0)),
            Fault(f"link to {at}: half of the packets lost", faults(loss=0.5)),
            Fault(f"link to {at}: 90 % of the packets lost", faults(loss=0.9)),
        ]
    rows += [
        Fault("all links: 300 ms each way", _all(latency=0.3)),
        Fault("all links: 300 ms each way from the start", _all(latency=0.3), at="start"),
        Fault("all links: 60 ms each way", _all(latency=0.06)),
        Fault("all links: a slow dongle, 35 packets a second", _all(backlog=35.0)),
        Fault("all links: a slow dongle, 10 packets a second", _all(backlog=10.0)),
        Fault("all links: half of the packets lost", _all(loss=0.5)),
        Fault("all links: 60 % of the packets lost", _all(loss=0.6)),
        Fault("all positions are noisy, 2 cm", _all(noise=0.02)),
        Fault("all positions are noisy, 20 cm", _all(noise=0.2)),
        Fault("all fall silent", _all(mute=True)),
        Fault("all hear nothing", _all(deaf=True), excuse=deaf),
        Fault("reported positions of all freeze", _all(freeze=True)),
        Fault("a position of cf1 freezes for 0.2 s", one(freeze=True), lasts=0.2),
        Fault("cf1 is silent for 0.3 s", one(mute=True), lasts=0.3),
        Fault("cf1 is silent for 1 s", one(mute=True), lasts=1.0),
        Fault("cf2 climbs while it lands", two(climb=0.5), at="land", delay=0.3),
        Fault("cf2 ignores that it is to land", two(ignore=True), at="land", delay=0.0),
        Fault("cf2 falls silent while it lands", two(mute=True), at="land", delay=0.3),
        Fault("cf2 falls silent in take-off", two(mute=True), at="takeoff", delay=0.8),
        Fault("cf2 climbs in take-off", two(climb=0.8), at="takeoff", delay=0.8),
        Fault("reported position of cf2 freezes in take-off", two(freeze=True), at="takeoff", delay=0.8),
        Fault("motors of cf2 stop in take-off", two(dead=True), at="takeoff", delay=0.8),
        Fault("variance of cf2 grows before take-off", two(variance=0.5), at="start"),
        Fault("battery of cf2 is low before take-off", two(battery=3.6), at="start"),
        Fault("cf2 has another controller", two(controller=2), at="start"),
        Fault("cf2 is brushless and waits to be armed", two(brushless=True), at="start"),
        Fault("cameras: all well", cameras={}),
        Fault("cameras: labels of cf1 and cf2 swapped", cameras={"swap": (0, 1)}),
        Fault("cameras: labels of cf1 and cf3 swapped", cameras={"swap": (0, 2)}),
        Fault("cameras: last pose of cf1 is repeated", cameras={"hold": (0,)}),
        Fault("cameras: last poses of all are repeated", cameras={"hold": (0, 1, 2)}),
        Fault("cameras: dark", cameras={"dark": True}),
        Fault("cameras: dark for 0.2 s", cameras={"dark": True}, lasts=0.2),
        Fault("cameras: origin shifted by 1 m", cameras={"offset": (1.0, 0.0, 0.0)}),
        Fault("cameras: poses 0.5 s late", cameras={"late": 0.5}),
        Fault("cameras: poses from the future", cameras={"future": 0.5}),
        Fault("cameras: well, and cf1 drifts", one(drift=(0.4, 0.0, 0.0)), cameras={}),
        Fault("the policy says nothing for 2 s", commander="stall", lasts=2.0),
        Fault("the policy says nothing for 0.5 s", commander="stall", lasts=0.5),
        Fault("the policy says nothing any more, in take-off", commander="stall", at="takeoff", delay=0.5),
        Fault("the policy wants what is not a number", commander="nan"),
        Fault("the policy breaks down", commander="error"),
        Fault("the policy flies everybody out of the room", commander="outwards"),
        Fault("the policy flies everybody to one point", commander="together"),
        Fault("the policy flies everybody into an obstacle", commander="obstacle"),
        Fault("the policy wants 5 m/s, a new direction every tick", commander="shake"),
        Fault("the policy wants a height of 10 m", commander="high"),
        Fault("the policy wants a height of -1 m", commander="low"),
    ]
    for number in ("SIGKILL", "SIGSTOP", "SIGTSTP", "SIGQUIT"):
        for stage in ("takeoff", "run"):
            rows.append(Fault(f"{number} to the policy's process in {stage}", process=(number, "policy"), at=stage))
    rows += [
        Fault("SIGINT once", process=("SIGINT", "policy")),
        Fault("SIGINT twice: all motors stop", process=("SIGINT", "policy", "SIGINT")),
        Fault("SIGTERM to the guard", process=("SIGTERM", "guard")),
        Fault(
            "SIGKILL to the guard",
            process=("SIGKILL", "guard"),
            excuse="the firmware's watchdog levels drones out after 0.5 s and stops their motors after 2 s",
        ),
    ]
    return rows


FAULTS = _table()


class Troubled:
    """A commander that something happens to; it tells the world of the fault when its time has come."""

    def __init__(self, mission: Mission, fault: Fault, inject: Callable[[bool], None]):
        self.mission, self.fault, self._inject = mission, fault, inject
        self._random = np.random.default_rng(0)
        self._since: dict[str, float] = {}
        self.state = "before"

    def tell(self, stage: str, now: float) -> None:
        """Have the fault begin or end, if it is time."""
        passed = now - self._since.setdefault(stage, now)
        if self.state == "before" and stage == self.fault.at and passed >= self.fault.delay:
            self.state, self._begun = "during", now
            self._inject(True)
        lasts = self.fault.lasts
        if self.state == "during" and lasts is not None and now - self._begun >= lasts:
            self.state = "after"
            self._inject(False)

    def wish(self, report: Report) -> Wish | None:
        """Return the mission's wish, or what the fault makes of it."""
        self.tell(report.stage, report.time)
        wish, place, how = self.mission.wish(report), report.position[:, :2], self.fault.commander
        if how is None or self.state != "during":
            return wish
        match how:
            case "stall":
                return None
            case "error":
                raise ZeroDivisionError("a bug in the policy")
            case "high" | "low":
                return dataclasses.replace(wish, height=np.full(len(place), 10.0 if how == "high" else -1.0))
        wanted = {
            "nan": lambda: np.full_like(place, np.nan),
            "outwards": lambda: 2 * place,
            "together": lambda: 3 * (place.mean(0) - place),
            "obstacle": lambda: 3 * (np.array(CENTRES[0]) - place),
            "shake": lambda: self._random.uniform(-5, 5, place.shape),
        }[how]()
        return dataclasses.replace(wish, velocity=wanted)


class Chaser:
    """A policy of a few lines: pursuers fly at the evader, which flies from them."""

    roles = ("pursuer", "evader", "obstacle")

    def act(
        self, positions: np.ndarray, velocities: np.ndarray, roles: Sequence[str], visible: np.ndarray | None = None
    ) -> np.ndarray:
        """Return a force for each pursuer and evader."""
        kinds = [role for role in roles if role != "obstacle"]
        actions = []
        for at, role in enumerate(kinds):
            gaps = [positions[other] - positions[at] for other, kind in enumerate(kinds) if kind != role]
            nearest = min(gaps, key=np.linalg.norm)
            away = nearest / max(np.linalg.norm(nearest), 1e-6)
            actions.append(away if role == "pursuer" else 0.5 * np.array([-away[1], away[0]]) - 0.5 * away)
        return np.array(actions)


def fly_fault(fault: Fault, seed: int = 0, starts: Sequence[Any] = STARTS, plan: Plan = PLAN) -> dict[str, Any]:
    """Fly with a fault in process; return a row of the table."""
    setting = Setting(plan=plan, centres=np.array(CENTRES), **fault.setting)
    airspace = Airspace(setting.centres, setting.obstacle_radius)
    world = World(NAMES, PointMass(np.array(starts, float)), seed=seed, airspace=airspace)
    cameras = None if fault.cameras is None else Cameras(world)

    def inject(begin: bool) -> None:
        for at, faults in fault.drones.items():
            well = {
                name: False if value is True else 0.0 if name != "backlog" else None for name, value in faults.items()
            }
            world.drones[at].inject(**(faults if begin else well))
        for name, value in (fault.cameras or {}).items():
            setattr(cameras, name, value if begin else getattr(Cameras, name))

    mission = Mission(Chaser(), setting, NAMES)
    commander = Troubled(mission, fault, inject)
    if fault.at == "start":
        inject(True)
    drones = [Drone(*each) for each in zip(world.links, setting.roles, starts, strict=True)]
    clock = _Told(world, commander)
    parts = {"obstacles": setting.obstacles, "limits": setting.limits, "positions": cameras, "clock": clock}
    guard = Guard(drones, setting.rules, plan, **parts, say=clock.hear)
    outcome = guard.fly(commander)
    world.sleep_until(world.now() + 3.0)  # what falls comes to rest, what hovers does not
    height = float(world.plant.position[:, 2].max())
    return _row(fault, "in process", outcome.to_json(), airspace.report(), height, setting.rules)


class _Told:
    """The world's clock; it has faults begin while drones land, when no commander is asked any more."""

    def __init__(self, world: World, commander: Troubled):
        self._world, self._commander, self._lands = world, commander, False

    def hear(self, words: str) -> None:
        """Hear which stage it is."""
        self._lands = self._lands or words == "land"

    def now(self) -> float:
        """Return the seconds since the world began."""
        return self._world.now()

    def sleep_until(self, time: float) -> None:
        """Let the world move on until that time."""
        self._world.sleep_until(time)
        if self._lands:
            self._commander.tell("land", self.now())


def fly_process_fault(fault: Fault, radio: bool = False) -> dict[str, Any]:
    """Fly with a fault of processes, in real time through the real cflib; return a row of the table."""
    quick = ["--poses", "absolute", "--take-off-seconds", "2", "--settle-seconds", "0.5", "--trials", "1"]
    poles = [str(number) for centre in CENTRES for number in centre]
    words = [*quick, "--horizon", "30", "--failure", "none", "--obstacles", *poles]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "flight"
        how = ["--radio", "0"] if radio else []
        command = [sys.executable, "-m", "legoswarm.cli", "fly", "--sitl", *how, *words, "--out", str(out)]
        for number in (signal.SIGQUIT, signal.SIGTSTP):  # which a shell may have told its background jobs to ignore
            signal.signal(number, signal.SIG_DFL)
        flight = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
        assert flight.stderr is not None
        for line in flight.stderr:
            if line.rstrip().endswith(f": {fault.at}"):
                break
        time.sleep(fault.delay)
        _send(fault.process, flight.pid)
        truth, log, room, height = out / "trial-1-truth.jsonl", out / "trial-1.jsonl", {}, math.inf
        begun = time.monotonic()
        low = False
        while not low and time.monotonic() - begun < 25:
            time.sleep(0.5)
            rows = [json.loads(line) for line in truth.read_text().splitlines(keepends=True) if line.endswith("\n")]
            heights = [max(place[2] for place in row["places"]) for row in rows]
            room, height = rows[-1]["room"], heights[-1]
            since = 2.0 if flight.poll() is None else 0.0  # s: what has landed stays there
            low = all(z < 0.02 for z, row in zip(heights, rows, strict=True) if row["t"] >= rows[-1]["t"] - since)
        if flight.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(flight.pid, signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                flight.wait(20)
            flight.kill()
        flight.wait()
        flight.stderr.close()
        ends, deadline = [], time.monotonic() + 5  # a guard whose policy was killed may still be writing
        while not ends and time.monotonic() < deadline:
            time.sleep(0.1)
            lines = log.read_text().splitlines(keepends=True)
            ends = [json.loads(line) for line in lines if '"kind":"end"' in line and line.endswith("\n")]
        outcome = ends[-1] if ends else {"error": "the log breaks off"}
        return _row(fault, "radio" if radio else "UDP", outcome, room, height, Rules())


def _send(orders: Sequence[str], flight: int) -> None:
    """Send signals to the process of the flight, or to the guard that it has started."""
    number, whom, *more = orders
    pid = flight
    if whom == "guard":
        children = Path(f"/proc/{flight}/task/{flight}/children").read_text().split()
        texts = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
        pid = next(int(child) for child, text in texts.items() if b"guard_process" in text)
    os.kill(pid, getattr(signal, number))
    for name in more:
        time.sleep(0.3)
        os.kill(pid, getattr(signal, name))


def _row(
    fault: Fault, transport: str, outcome: Mapping[str, Any], room: Mapping[str, Any], height: float, rules: Rules
) -> dict[str, Any]:
    beyond = max(room["reach"] - rules.fence, room["top"] - rules.ceiling, 0.0)
    reasons = sorted({*outcome.get("failures", {}).values()}) or [outcome.get("error") or ""]
    return {
        "fault": fault.name,
        "transport": transport,
        "safe": height < 0.1 and not room["contacts"] and beyond <= MARGIN,
        "statuses": outcome.get("statuses", {}),
        "reasons": reasons,
        "reach": room["reach"],
        "top": room["top"],
        "beyond": round(beyond, 3),
        "closest": room["closest"],
        "contacts": [words for _, words in room["contacts"]],
        "excuse": fault.excuse,
    }


def random_fault(rng: np.random.Generator, excused: bool = False) -> Fault:
    """Draw one of the faults in process, at a random moment of a random stage, sometimes only for a while.

    It is one that software on the ground can prevent, unless `excused` asks for the others.
    """
    able = [fault for fault in FAULTS if not fault.process and bool(fault.excuse) == excused and fault.at != "start"]
    fault = able[rng.integers(len(able))]
    stage = "run" if fault.commander else str(rng.choice(["takeoff", "run", "run", "run", "land"]))
    lasts = float(rng.uniform(0.1, 3.0)) if rng.random() < 0.3 else fault.lasts
    return dataclasses.replace(
        fault, at=stage, delay=float(rng.uniform(0.0, {"run": 9.0}.get(stage, 1.5))), lasts=lasts
    )


def fly_random(seed: int, excused: bool = False) -> dict[str, Any]:
    """Fly a mission from a random start with a random fault; return a row."""
    rng = np.random.default_rng(seed)
    fault = random_fault(rng, excused)
    setting = Setting(centres=np.array(CENTRES))
    starts = [(x, y, 0.0) for x, y in draw_start(setting, rng).tolist()]
    row = fly_fault(fault, seed, starts)
    return {"seed": seed, "stage": fault.at, "delay": round(fault.delay, 2), "lasts": fault.lasts, **row}


def fly_faults(
    out: Path, say: Callable[[str], None], *, missions: int = 100, jobs: int = 1, command: str = ""
) -> dict[str, Any]:
    """Fly all faults and some missions with random ones; write and return the table."""
    if out.suffix != ".json":
        raise ValueError(f"the table of faults is written into a .json file, not {out}")
    rows, calm = [], [fault for fault in FAULTS if not fault.process]
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        spread = pool.map if jobs > 1 else map
        for row in spread(fly_fault, calm):
            rows.append(row)
            say(_words(row))
        missions_rows = []
        for row in spread(fly_random, range(missions)):
            missions_rows.append(row)
            if not row["safe"]:
                say(_words(row))
        excused = list(spread(functools.partial(fly_random, excused=True), range(missions // 2)))
    for fault in FAULTS:
        if fault.process:
            rows.append(fly_process_fault(fault, radio="takeoff" in fault.at))
            say(_words(rows[-1]))
    unsafe = [row for row in rows if not row["safe"]]
    result = {
        "command": command,
        "faults": len(rows),
        "unsafe": len(unsafe),
        "unsafe_without_excuse": sum(row["excuse"] is None for row in unsafe),
        "missions": len(missions_rows),
        "unsafe_missions": sum(not row["safe"] for row in missions_rows),
        "excused_missions": len(excused),
        "unsafe_excused_missions": sum(not row["safe"] for row in excused),
        "largest_beyond": max((row["beyond"] for row in [*missions_rows, *rows] if not row["excuse"]), default=None),
        "margin": MARGIN,
        "rows": rows,
        "random": missions_rows,
        "random_excused": excused,
        **provenance("cflib"),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, finite(result))
    say(f"{len(rows)} faults, {len(unsafe)} unsafe, {result['unsafe_without_excuse']} of them without an excuse")
    say(f"{len(missions_rows)} missions with random faults, {result['unsafe_missions']} unsafe")
    say(f"wrote {out}")
    return result


def _words(row: Mapping[str, Any]) -> str:
    ends = ", ".join(f"{name} {status}" for name, status in row["statuses"].items())
    reasons = "; ".join(row["reasons"]) or "flown to the end"
    return f"{'safe' if row['safe'] else 'UNSAFE'}: {row['fault']} ({reasons}; {ends})"
