"""Convert what version 0.1 wrote to the format of today: policy files, run folders, results of studies.

    python tools/convert.py PATH...

A path is a file or a folder, which is searched for JSON files. Weights, metrics and checkpoints need no conversion.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from legoswarm import ALGORITHMS, POLICIES
from legoswarm.configs import to_json
from legoswarm.files import read_json, write_json

OTHERS = ("mappo", "segnn", "segnn-planar")  # whose critic `local` was another network than IPPO has


def new_policy(old: dict[str, Any]) -> dict[str, Any]:
    """Return a policy's options: its name first, only those that it has, and those that were constants."""
    name, values = old["policy"], {**old, **({"critic": "full"} if old["critic"] == "local" else {})}
    known = {field.name: field.default for field in dataclasses.fields(POLICIES[name])} | {"squash": 0.0}
    return {"name": name, **{field: values.get(field, default) for field, default in known.items()}}


def new_training(old: dict[str, Any]) -> dict[str, Any]:
    """Return a training's configuration, wherever it stands, keyed by its algorithm."""
    algorithm = "ippo" if old["policy"]["critic"] == "local" else "mappo"
    values: dict[str, Any] = {}
    for key, value in old.items():
        if key == "policy":
            values[key] = new_policy(value)
        elif key == "mappo":
            values["algorithm"] = {"name": algorithm, **to_json(ALGORITHMS[algorithm](**value))}
        elif key == "steps":
            values |= {key: value, "runaway": 1000.0}
        else:
            values[key] = new_training(value) if key == "start" and isinstance(value, dict) else value
    return values


def converted(values: dict[str, Any]) -> dict[str, Any] | None:
    """Return the new form of a JSON object; None if it is none of those that changed."""
    if values.get("format") == 1:
        return {**values, "format": 2, "policy": new_policy(values["policy"]), "dimension": 2}
    if "mappo" in values and "policy" in values:
        return new_training(values)
    if isinstance(content := values.get("content"), dict):
        policies = [new_training(p) if isinstance(p, dict) and "mappo" in p else p for p in content["policies"]]
        changed = {**values, "content": {**content, "policies": policies}}
        return changed if changed != values else None
    return None


def lost(values: dict[str, Any]) -> bool:
    """Tell whether weights beside a JSON object fit no network of today."""
    policy = values.get("policy")
    return isinstance(policy, dict) and policy.get("critic") == "local" and policy["policy"] in OTHERS


failed = False
for argument in sys.argv[1:]:
    root = Path(argument)
    for path in sorted(root.rglob("*.json")) if root.is_dir() else [root.with_suffix(".json")]:
        values = read_json(path)
        if lost(values):
            failed = True
            print(f"{path} cannot be converted: the critic local was another network; train it again with ippo")
        elif (new := converted(values)) is not None:
            write_json(path, new)
            print(path)
sys.exit(failed)
