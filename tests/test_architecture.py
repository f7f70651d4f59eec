"""The rooms of the package and who may import whom; see the docstring of each room."""

import ast
import graphlib
from pathlib import Path

import legoswarm

PACKAGE = Path(legoswarm.__file__).parent
BASE = {"arrays", "configs", "files", "layout", "limits", "own", "provenance"}
# Each room may import itself, the base and these.
ALLOWED = {
    **{name: set() for name in BASE},
    "scene": set(),
    "fast": set(),
    "frames": {"scene"},
    "tasks": {"scene"},
    "policies": {"scene", "frames", "fast"},
    "evaluate": {"scene", "fast", "tasks", "policies"},
    "learn": {"scene", "fast", "tasks", "policies", "evaluate"},
    "show": {"scene", "tasks", "policies", "evaluate"},
    "deploy": {"frames", "tasks", "policies", "show"},
    "studies": {"scene", "fast", "tasks", "policies", "evaluate", "learn", "show"},
    "cli": {"fast", "tasks", "policies", "evaluate", "learn", "show", "deploy", "studies"},
}


def modules():
    """Every module by its dotted name below the package."""
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path, *, inside_functions):
    """The modules of the package that a file imports, below the package's name."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if inside_functions else tree.body
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("legoswarm"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}".removeprefix("legoswarm").strip(".")
                known = full in NAMES
                yield full if known else (node.module or "").removeprefix("legoswarm").strip(".")
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("legoswarm.") for a in node.names if a.name.startswith("legoswarm."))


NAMES = {name for name, _ in modules()}


def test_every_edge_follows_the_order_of_rooms():
    against = []
    for name, path in modules():
        room = name.split(".")[0]
        for target in imports(path, inside_functions=True):
            other = target.split(".")[0]
            if name and other and other != room and other not in BASE | ALLOWED[room]:
                against.append(f"{name} imports {target}")
    assert against == []


def test_no_module_imports_itself_through_others():
    edges = {name: {t for t in imports(path, inside_functions=False) if t != name} for name, path in modules() if name}
    graphlib.TopologicalSorter(edges).prepare()


def test_deploy_and_the_policies_themselves_import_no_jax():
    """Among their own imports; tests/deploy/test_without_jax.py runs them in a process that has none."""
    for name, path in modules():
        direct = name.startswith("policies.") and name.count(".") == 1
        if direct or name in BASE or name.startswith("deploy"):
            for node in ast.parse(path.read_text()).body:
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not any(n.split(".")[0] in ("jax", "equinox", "optax") for n in names), name
