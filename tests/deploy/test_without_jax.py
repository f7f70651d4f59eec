"""Flying needs no JAX: all of `deploy` is used in a process in which importing JAX fails."""

import json
import subprocess
import sys

import numpy as np
import pytest

import legoswarm

# Modules of `deploy` that import JAX inside of functions, and why.
EXCEPTIONS = {
    "legoswarm.deploy.export": "compares ONNX files with what JAX computes",
    "legoswarm.deploy.page": "asks the task for the constants of its world",
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

positions = np.random.default_rng(0).uniform(-1, 1, (5, 2))
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


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    return tmp_path_factory.mktemp("flights")


@pytest.fixture(scope="module")
def said(flights):
    """What all three programs print in a process that cannot import JAX, and has not tried to when it ends."""
    clean = 'assert not {name.split(".")[0] for name in sys.modules} & {"jax", "jaxlib", "equinox"}'
    program = "\n".join([NO_JAX, ACTING, FLYING, IMPORTS, clean])
    done = subprocess.run([sys.executable, "-c", program, str(flights)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_no_module_needs_jax_but_those_that_say_why(said):
    names, needing = said[2]
    assert {"legoswarm.deploy.runtime", "legoswarm.deploy.sitl.endpoint", *EXCEPTIONS} <= set(names)
    assert set(needing) == set(EXCEPTIONS)


def test_a_policy_acts_as_with_jax(said):
    positions = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    roles = ["pursuer", "obstacle", "evader", "pursuer", "pursuer"]
    expected = legoswarm.load("zoo:tag").act(positions, 0 * positions, roles)
    np.testing.assert_allclose(said[0], expected, rtol=1e-5, atol=1e-5)


def test_a_dry_run_flies_and_says_where(said, flights):
    assert said[1] == "run"
    hardware = json.loads((flights / "summary.json").read_text())["hardware"]
    assert hardware["device"] == "cpu"
    assert hardware["cpu"]
