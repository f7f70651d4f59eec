"""Draw docs/figures/guard.png: what the guard makes of three policies that mean harm.

python -m tools.guard_picture
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np

from legoswarm.deploy.faults import CENTRES, FAULTS, NAMES, PLAN, STARTS, Chaser, Troubled
from legoswarm.deploy.flightlog import read_flight
from legoswarm.deploy.guard import Guard
from legoswarm.deploy.inprocess import World
from legoswarm.deploy.mission import Mission
from legoswarm.deploy.picture import draw_flights
from legoswarm.deploy.plan import Drone
from legoswarm.deploy.setting import Setting
from legoswarm.deploy.sitl.plants import PointMass

OUT = Path("docs/figures/guard.png")
WANTED = {"outwards": "out of the room", "together": "to one point", "obstacle": "into an obstacle"}
HEIGHT = 0.8  # m, of everybody: drones in one layer are held apart sideways

setting = Setting(
    plan=dataclasses.replace(PLAN, pursuer_height=HEIGHT, evader_height=HEIGHT), centres=np.array(CENTRES)
)
with tempfile.TemporaryDirectory() as folder:
    logs = [Path(folder) / f"{wanted}.jsonl" for wanted in WANTED]
    for wanted, log in zip(WANTED, logs, strict=True):
        fault = next(fault for fault in FAULTS if fault.commander == wanted)
        fault = dataclasses.replace(fault, delay=0.0)
        world = World(NAMES, PointMass(np.array(STARTS, float)))
        mission = Mission(Chaser(), setting, NAMES)
        drones = [Drone(*each) for each in zip(world.links, setting.roles, STARTS, strict=True)]
        commander = Troubled(mission, fault, lambda begin: None)
        parts = {"obstacles": setting.obstacles, "limits": setting.limits, "about": mission.about}
        Guard(drones, setting.rules, setting.plan, **parts, log=log, clock=world).fly(commander)
    draw_flights([read_flight(log) for log in logs], OUT, [f"sent {words}" for words in WANTED.values()])
print(OUT)
