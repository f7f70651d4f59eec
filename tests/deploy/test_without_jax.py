"""Flying needs no JAX: all of `deploy` is used in a process in which importing JAX fails."""

import json
import subprocess
import sys

import numpy as np

import legoswarm

# Modules of `deploy` that import JAX inside of functions, and why.
EXCEPTIONS = {
    "legoswarm.deploy.export": "compares ONNX files with what JAX computes",
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
from legoswarm.deploy import fly
from legoswarm.deploy.fleet import Simulation
from legoswarm.deploy.plan import Plan
from legoswarm.deploy.setting import Setting

plan = Plan(horizon=2, take_off_seconds=1.0, settle_seconds=0.2, land_seconds=1.0)
(outcome,) = fly.fly("zoo:tag-2v1", Setting(plan=plan), sys.argv[1], simulation=Simulation(dry=True), trials=1)
print(json.dumps(outcome.reached.value))
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


def test_a_dry_run_flies_and_says_where(tmp_path):
    assert without_jax(FLYING, tmp_path) == "run"
    hardware = json.loads((tmp_path / "summary.json").read_text())["hardware"]
    assert hardware["device"] == "cpu"
    assert hardware["cpu"]
