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

A setting of a robot counts before one of its type, and that before one under `all`. `firmware_params` are set before
take-off. `firmware_logging` may ask for the default topics, which are in every flight's log; topics of one's own are
refused. A robot with `motion_capture` enabled needs positions from outside. Other keys are passed over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from legoswarm.files import FileError, read_text

DEEPEST = 100


@dataclasses.dataclass(frozen=True)
class Crazyflie:
    """One drone of the file."""

    name: str
    uri: str
    initial_position: tuple[float, float, float]  # m
    voltage_warning: float | None = None  # V
    voltage_critical: float | None = None  # V
    parameters: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of the firmware


def read_crazyflies(path: str | Path, *, captured: bool = False) -> list[Crazyflie]:
    """Read the drones of a file that are enabled, in its order; `captured` says whether positions come from outside."""
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
        if kind is not None and (not isinstance(kind, str) or kind not in types):
            raise FileError(f"{path}: robot {name} is of type {kind}, which robot_types does not have")
        settings = (robot, _mapping(path, types.get(kind), f"type {kind}"), everyone)
        drones.append(_drone(path, str(name), settings, captured))
    if not drones:
        raise FileError(f"{path} has no robot that is enabled")
    if len({drone.uri.casefold() for drone in drones}) < len(drones):
        raise FileError(f"{path} gives two robots the same uri")
    return drones


def _drone(path: Path, name: str, settings: tuple[Mapping[str, Any], ...], captured: bool) -> Crazyflie:
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
    if _chosen(path, settings, "motion_capture").get("enabled") and not captured:
        raise FileError(f"{path}: robot {name} flies by motion capture, so say where positions come from: --source")
    logging = _chosen(path, settings, "firmware_logging")
    if logging.get("enabled") and logging.get("custom_topics"):
        raise FileError(f"{path}: robot {name} has custom_topics, which are not logged here; only default_topics are")
    x, y, z = map(float, position)
    volts = {which: value and float(value) for which, value in voltages.items()}
    return Crazyflie(name, uri, (x, y, z), **volts, parameters=_parameters(path, name, settings))


def _chosen(path: Path, settings: tuple[Mapping[str, Any], ...], what: str) -> Mapping[str, Any]:
    """Return the settings of one kind, those of the robot before those of its type and of all."""
    return ChainMap(*({**_mapping(path, level.get(what), what)} for level in settings))


def _parameters(path: Path, name: str, settings: tuple[Mapping[str, Any], ...]) -> dict[str, float]:
    """Return the firmware's parameters by their full names, such as stabilizer.estimator."""
    parameters: dict[str, float] = {}
    for level in reversed(settings):
        for group, values in _mapping(path, level.get("firmware_params"), "firmware_params").items():
            for field, value in _mapping(path, values, f"firmware_params of {group}").items():
                if not _is_number(value):
                    raise FileError(f"{path}: {group}.{field} of robot {name} is not a number")
                parameters[f"{group}.{field}"] = float(value)
    return parameters


def _yaml(path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise FileError(f"{path} needs PyYAML to be read: pip install 'legoswarm[fly]'") from None
    text = read_text(path)
    depths = itertools.accumulate((letter in "[{") - (letter in "]}") for letter in text)
    if max(depths, default=0) > DEEPEST:  # PyYAML's time grows with the square of it
        raise FileError(f"{path} is damaged: more than {DEEPEST} brackets are open in it")
    try:
        # What refers to other parts of a file can grow without limit, and what stands twice contradicts itself.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise FileError(f"{path} uses YAML aliases, which are not read here")
        _refuse_doubles(path, yaml.compose(text, yaml.SafeLoader))
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise FileError(f"{path} is damaged: it is not valid YAML") from None


def _refuse_doubles(path: Path, node: Any) -> None:
    """Refuse a mapping that has a key twice, at any depth; YAML would silently take the last one."""
    children = [] if not isinstance(getattr(node, "value", None), list) else node.value
    if children and isinstance(children[0], tuple):
        keys = [key.value for key, _ in children if isinstance(key.value, str)]
        if len(set(keys)) < len(keys):
            double = next(key for key in keys if keys.count(key) > 1)
            raise FileError(f"{path} has the key {double} twice in one place")
        children = [value for _, value in children]
    for child in children:
        _refuse_doubles(path, child)


def _mapping(path: Path, value: Any, what: str) -> Mapping[Any, Any]:
    """Refuse a value of the file that is not a mapping; one that is left out or left empty counts as empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FileError(f"{path} is damaged: {what} is not a mapping")
    return value


def _is_number(value: Any) -> bool:
    with contextlib.suppress(OverflowError):  # an integer of 400 digits
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return False
