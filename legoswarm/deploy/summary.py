"""The summary of a flight: how it ended, who failed, who caught whom, and how long drones waited for setpoints."""

from __future__ import annotations

import dataclasses
from typing import Any

from legoswarm.deploy.fleet import Fleet, Simulation
from legoswarm.deploy.plan import Outcome, Plan, in_words

SEEN = ("setpoints", "largest_gap", "stall", "cut_offs")


def describe(outcome: Outcome, fleet: Fleet, plan: Plan, simulation: Simulation | None) -> dict[str, Any]:
    """Return a row of JSON about one flight; `simulation` is None for real drones.

    `largest_gap` is the longest time, s, that a simulated drone which did not fail waited for a setpoint while the
    mission steered it; `intervals` the longest time between two setpoints that were sent; `stall` the longest time for
    which the machine, and so the simulated world, stood still.
    """
    how = {"failure": plan.failure, **({} if simulation is None else dataclasses.asdict(simulation))}
    return {**how, **outcome.to_json(), **_seen(outcome, fleet)}


def _seen(outcome: Outcome, fleet: Fleet) -> dict[str, Any]:
    """Return what simulated drones have seen, or why they do not say it; nothing for real drones."""
    if fleet.report is None:
        return {}
    try:
        report = dict(zip(outcome.statuses, fleet.report(), strict=True))
    except (ValueError, RuntimeError) as error:  # a world that has ended
        return {"simulated": in_words(error)}
    steered = [drone["largest_gap"] for name, drone in report.items() if name not in outcome.failures]
    return {
        "largest_gap": max(steered, default=None),
        "simulated": {
            name: {"height": round(drone["position"][2], 3), **{key: drone[key] for key in SEEN if key in drone}}
            for name, drone in report.items()
        },
    }
