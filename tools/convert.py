"""Convert what version 0.1 wrote to the format of today: policy files, run folders, results of studies.

    python tools/convert.py PATH...

A path is a file or a folder, which is searched for JSON files. Metrics and checkpoints need no conversion, and weights
only where a critic of what one agent sees had a shape of its own: it is left out, since acting needs no critic.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from legoswarm import ALGORITHMS, POLICIES
from legoswarm.configs import to_json
from legoswarm.files import read_arrays, read_json, write_arrays, write_json

OWN_LOCAL_CRITIC = ("mappo", "segnn", "segnn-planar")


def new_policy(old: dict[str, Any]) -> dict[str, Any]:
    """Return a policy's options: its name first, only those that it has, and those that were constants."""
    name, values = old["policy"], {**old, **({"critic": "full"} if old["critic"] == "local" else {})}
    known = {field.name: field.default for field in dataclasses.fields(POLICIES[name])}
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


def leaves_critic(values: dict[str, Any]) -> bool:
    """Tell whether a policy file of version 0.1 has a critic that no policy has today."""
    old = values.get("policy", {})
    return values.get("format") == 1 and old["critic"] == "local" and old["policy"] in OWN_LOCAL_CRITIC


def converted(values: dict[str, Any]) -> dict[str, Any] | None:
    """Return the new form of a JSON object; None if it is none of those that changed."""
    if values.get("format") == 1:
        policy = {**new_policy(values["policy"]), **({"critic": "none"} if leaves_critic(values) else {})}
        return {**values, "format": 2, "policy": policy, "dimension": 2}
    if "mappo" in values and "policy" in values:
        return new_training(values)
    if isinstance(content := values.get("content"), dict):
        policies = [new_training(p) if isinstance(p, dict) and "mappo" in p else p for p in content["policies"]]
        changed = {**values, "content": {**content, "policies": policies}}
        return changed if changed != values else None
    return None


for argument in sys.argv[1:]:
    root = Path(argument)
    for path in sorted(root.rglob("*.json")) if root.is_dir() else [root.with_suffix(".json")]:
        if (new := converted(old := read_json(path))) is not None:
            if leaves_critic(old):
                arrays = read_arrays(weights := path.with_suffix(".safetensors"))
                write_arrays(weights, {name: array for name, array in arrays.items() if "/critic/" not in name})
            write_json(path, new)
            print(path)
