"""Flying needs no JAX: all of `deploy` is used in a process in which importing JAX fails."""

import json
import subprocess
import sys

import numpy as np

import legoswarm

# Modules of `deploy` that import JAX inside of functions, and why.
EXCEPTIONS = {
    "legoswarm.deploy.export": "compares ONNX files with what JAX computes",
    "legoswarm.deploy.picture": "draws with legoswarm.show.draw, which draws trajectories of JAX too",
    "legoswarm.deploy.sitl.crazyflow": "Crazyflow is written in JAX",
}

NO_JAX = """
import importlib.abc, json, sys

class NoJax(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "equinox"):
            raise ImportError(f"{name} is not there", name="jax")

sys.meta_path.insert(0, NoJax())
"""

IMPORTS = """
import ast, importlib, pkgutil
from pathlib import Path
import legoswarm.deploy

def imported(module):
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)

def needs_jax(name):
    try:
        importlib.import_module(name)
    except ImportError as error:
        return error.name == "jax"  # another one may be an extra that is not installed
    return False

names = [found.name for found in pkgutil.walk_packages(legoswarm.deploy.__path__, "legoswarm.deploy.")]
modules = [importlib.import_module(name) for name in names]
needing = [module.__name__ for module in modules if any(map(needs_jax, imported(module)))]
print(json.dumps([names, needing]))
"""

ACTING = """
import numpy as np
from legoswarm.deploy.runtime import load_runtime

positions = np.arange(10.0).reshape(5, 2) % 3
roles = ["pursuer", "obstacle", "evader", "pursuer", "pursuer"]
print(json.dumps(load_runtime("zoo:tag").act(positions, 0 * positions, roles).tolist()))
"""

FLYING = """
from pathlib import Path
import numpy as np
from legoswarm.deploy.fleet import Simulation, simulated_fleet
from legoswarm.deploy.flightlog import FlightLog, read_flight
from legoswarm.deploy.fly import FLIGHT_PACKAGES, load_tag
from legoswarm.deploy.mission import Mission
from legoswarm.deploy.plan import Plan
from legoswarm.deploy.setting import Setting
from legoswarm.deploy.summary import describe
from legoswarm.provenance import provenance

setting, simulation = Setting(plan=Plan(horizon=2, fail_at=1, take_off_seconds=1.0)), Simulation(dry=True)
obstacles, log = np.array([[0.75, 0.3]]), Path(sys.argv[1])
places = [(-1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (1.0, 1.0, 0.0)]
with simulated_fleet(simulation, setting.roles, places, 0) as fleet, FlightLog(log) as file:
    parts = setting.chase(obstacles), setting.physical(obstacles)
    mission = Mission(fleet.drones, load_tag("zoo:tag-2v1"), *parts, plan=setting.plan, clock=fleet.clock, log=file)
    row = describe(mission.fly(), fleet, setting.plan, simulation)
assert read_flight(log).end["error"] is None
print(json.dumps([row["statuses"], provenance(*FLIGHT_PACKAGES)["hardware"]]))
"""


def without_jax(program, *arguments):
    """What a program prints in a process that cannot import JAX, and has not tried to when it ends."""
    clean = 'assert not {name.split(".")[0] for name in sys.modules} & {"jax", "jaxlib", "equinox"}'
    words = [sys.executable, "-c", NO_JAX + program + clean, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_no_module_needs_jax_but_those_that_say_why():
    names, needing = without_jax(IMPORTS)
    assert {"legoswarm.deploy.runtime", "legoswarm.deploy.sitl.endpoint", *EXCEPTIONS} <= set(names)
    assert set(needing) == set(EXCEPTIONS)


def test_a_policy_acts_as_with_jax():
    positions = np.arange(10.0).reshape(5, 2) % 3
    roles = ["pursuer", "obstacle", "evader", "pursuer", "pursuer"]
    expected = legoswarm.load("zoo:tag").act(positions, 0 * positions, roles)
    np.testing.assert_allclose(without_jax(ACTING), expected, rtol=1e-5, atol=1e-5)


def test_a_dry_run_flies(tmp_path):
    statuses, hardware = without_jax(FLYING, tmp_path / "log.jsonl")
    assert set(statuses.values()) == {"landed"}
    assert hardware["device"] == "cpu"
    assert hardware["cpu"]
