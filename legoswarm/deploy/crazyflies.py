"""crazyflies.yaml, in Crazyswarm2's format: which drones there are and where they stand.

fileversion: 3
robots:
  cf1:
    enabled: true
    uri: radio://0/80/2M/E7E7E7E701
    initial_position: [0.0, 0.0, 0.0]
    type: cf21
robot_types:
  cf21:
    battery: {voltage_warning: 3.8, voltage_critical: 3.7}

A setting of a robot counts before one of its type, and that before one under `all`. Keys that are not used here are
passed over.
"""

from __future__ import annotations

import dataclasses
import math
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from legoswarm.files import FileError


@dataclasses.dataclass(frozen=True)
class Crazyflie:
    """One drone of the file."""

    name: str
    uri: str
    initial_position: tuple[float, float, float]  # m
    voltage_warning: float | None = None  # V
    voltage_critical: float | None = None  # V


def read_crazyflies(path: str | Path) -> list[Crazyflie]:
    """Read the drones of a file that are enabled, in its order."""
    path = Path(path)
    content = _mapping(path, _yaml(path), "the file")
    if content.get("fileversion") != 3:
        raise FileError(f"{path} is not a crazyflies.yaml of fileversion 3")
    types = _mapping(path, content.get("robot_types"), "robot_types")
    everyone = _mapping(path, content.get("all"), "all")
    drones = []
    for name, entry in _mapping(path, content.get("robots"), "robots").items():
        robot = _mapping(path, entry, f"robot {name}")
        if not robot.get("enabled", True):
            continue
        kind = robot.get("type")
        if kind is not None and kind not in types:
            raise FileError(f"{path}: robot {name} is of type {kind}, which robot_types does not have")
        settings = (robot, _mapping(path, types.get(kind), f"type {kind}"), everyone)
        drones.append(_drone(path, str(name), settings))
    if not drones:
        raise FileError(f"{path} has no robot that is enabled")
    if len({drone.uri for drone in drones}) < len(drones):
        raise FileError(f"{path} gives two robots the same uri")
    return drones


def _drone(path: Path, name: str, settings: tuple[Mapping[str, Any], ...]) -> Crazyflie:
    """Read one drone from the settings of itself, of its type and of all drones, of which the first count most."""
    uri = settings[0].get("uri")
    if not isinstance(uri, str) or "://" not in uri:
        raise FileError(f"{path}: robot {name} needs a uri such as radio://0/80/2M/E7E7E7E701")
    position = settings[0].get("initial_position")
    if not isinstance(position, list) or len(position) != 3 or not all(map(_is_number, position)):
        raise FileError(f"{path}: robot {name} needs an initial_position [x, y, z] in metres")
    battery = ChainMap(*({**_mapping(path, level.get("battery"), "battery")} for level in settings))
    voltages = {which: battery.get(which) for which in ("voltage_warning", "voltage_critical")}
    if odd := [which for which, value in voltages.items() if value is not None and not _is_number(value)]:
        raise FileError(f"{path}: {odd[0]} of robot {name} is not a number")
    x, y, z = map(float, position)
    return Crazyflie(name, uri, (x, y, z), **{which: value and float(value) for which, value in voltages.items()})


def _yaml(path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise FileError(f"{path} needs PyYAML to be read: pip install 'legoswarm[fly]'") from None
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"{path} does not exist") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise FileError(f"{path} is damaged: it is not valid YAML") from None


def _mapping(path: Path, value: Any, what: str) -> Mapping[Any, Any]:
    """Refuse a value of the file that is not a mapping; one that is left out or left empty counts as empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FileError(f"{path} is damaged: {what} is not a mapping")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
