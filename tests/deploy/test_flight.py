"""Missions through the real cflib, over UDP and over its radio driver: how they end, asserted at the simulated drones.

The drones' waits are measured on the clock of their world, which stands still when the machine does. What stalls this
process alone is measured by a metronome and allowed for.
"""

import contextlib
import dataclasses
import gc
import os
import signal

import numpy as np
import pytest
from flights import LANDED, OBSTACLES, STARTS, Chaser, changed
from test_link import Metronome

from legoswarm.deploy.cflib_link import CflibLink
from legoswarm.deploy.mission import Mission
from legoswarm.deploy.plan import Drone, MissionError, Status
from legoswarm.deploy.setting import Setting
from legoswarm.deploy.sitl.dongle import radio
from legoswarm.deploy.sitl.endpoint import Endpoint
from legoswarm.deploy.sitl.process import EndpointProcess

SETTING = Setting(centres=OBSTACLES)
QUICK = {"horizon": 6, "fail_at": 2, "take_off_seconds": 1.0, "land_seconds": 1.0, "rate": 50.0, "poses": "absolute"}
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Of the tables that cflib reads over the radio."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@contextlib.contextmanager
def simulated(loss):
    """Drones and their URIs: over UDP, or over a radio that loses some of the packets."""
    if loss is None:
        with EndpointProcess(STARTS) as drones:
            yield drones, drones.uris
    else:
        with Endpoint(STARTS) as drones, radio(drones, loss) as uris:
            yield drones, uris


class Flight:
    """A flight that is over; `at` says what happens at a step, to the drones."""

    def __init__(self, loss=None, at=None, **plan):
        with simulated(loss) as (drones, uris), Metronome() as metronome:
            actions = {step: lambda act=act: act(drones) for step, act in (at or {}).items()}
            links = [CflibLink(name, uri) for name, uri in zip(LANDED, uris, strict=True)]
            mission = Mission(
                [Drone(*each) for each in zip(links, SETTING.roles, STARTS, strict=True)],
                Chaser(actions),
                dataclasses.replace(SETTING, plan=changed(**{**QUICK, **plan})),
            )
            self.outcome = mission.fly()
            self.report = drones.report()
        self.stall = metronome.stall
        # What the air loses comes later: with a loss of 20 % each way, one in 450 packets fails six times in a row.
        self.patience = 0.1 + self.stall + (0.05 if loss else 0.0)  # s

    def assert_safe(self, motors_stopped=None):
        """Everybody stands and nobody's motors were stopped in the air, but as said; nobody waited for a setpoint."""
        for at, drone in enumerate(self.report):
            assert drone["position"][2] < 0.05
            causes = [cut["cause"] for cut in drone["cut_offs"] if cut["height"] > 0.1]
            assert causes == (motors_stopped or {}).get(at, [])
            assert drone["setpoints"] > 20
            assert causes or drone["largest_gap"] < self.patience


def fly(*how, **plan):
    """A flight; and again, twice at most, if the machine stood still, or setpoints were late.

    Then the mission may have been right to give drones up. One that waits for a drone does so in every flight.
    """
    for _ in range(3):
        flight = Flight(*how, **plan)
        landed = [name for name, status in flight.outcome.statuses.items() if status == LANDED[name]]
        if flight.stall < 0.2 and all(flight.outcome.intervals[name] < flight.patience for name in landed):
            break
    return flight


@pytest.mark.parametrize(
    ("failure", "loss"),
    [("land", None), ("hover", None), ("motors_off", None), ("land", 0.0), ("hover", 0.1), ("motors_off", 0.2)],
)
def test_one_fails_and_the_others_do_not_wait(failure, loss):
    flight = fly(loss, failure=failure)
    assert (flight.outcome.error, flight.outcome.statuses) == (None, LANDED)
    assert flight.outcome.failures == {"cf1": "scheduled"}
    flight.assert_safe({0: ["stop setpoint"]} if failure == "motors_off" else None)
    assert all(0.02 < seconds < flight.patience for seconds in flight.outcome.intervals.values())
    failed, steered, _ = (drone["setpoints"] for drone in flight.report)
    assert (failed < 0.7 * steered) == (failure != "hover")


@pytest.mark.parametrize("loss", [None, 0.1], ids=["udp", "radio"])
def test_a_drone_that_falls_silent_keeps_nobody_waiting(loss):
    """Over UDP it still hears that it is to land; over a radio that has let go, its own watchdog stops its motors."""
    flight = fly(loss, {2: lambda drones: drones.inject(2, mute=True)}, failure="none", horizon=8)
    assert flight.outcome.error is None
    assert flight.outcome.statuses == {**LANDED, "cf3": Status.FAILED}
    assert list(flight.outcome.failures) == ["cf3"]
    flight.assert_safe(None if loss is None else {2: ["watchdog"]})


def interrupt(drones):
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("happens", "error"),
    [(lambda drones: np.nan, MissionError), (lambda drones: 1 / 0, ZeroDivisionError), (interrupt, KeyboardInterrupt)],
    ids=["nan", "exception", "SIGINT"],
)
def test_what_concerns_everybody_lands_everybody(happens, error):
    collects = []
    flight = fly(at={1: lambda drones: collects.append(gc.isenabled()), 2: happens}, failure="none")
    assert isinstance(flight.outcome.error, error)
    assert flight.outcome.statuses == LANDED
    flight.assert_safe()
    assert set(collects) == {False}
    assert gc.isenabled()
