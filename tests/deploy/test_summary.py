"""The summary of a flight counts the waits of drones that did not fail."""

import numpy as np
import pytest

from legoswarm.deploy.fleet import Fleet, Simulation
from legoswarm.deploy.fly import describe
from legoswarm.deploy.plan import Outcome, Plan, Stage, Status, WallClock

OUTCOME = Outcome(
    Stage.RUN,
    None,
    dict.fromkeys(("cf1", "cf2"), Status.LANDED),
    {"cf1": "scheduled"},
    (),
    np.zeros((0, 2, 2)),
    {"cf1": 0.02, "cf2": 0.03},
)


def test_the_wait_of_a_drone_that_failed_does_not_count():
    seen = [{"position": [0, 0, 0], "largest_gap": gap, "setpoints": 9, "cut_offs": []} for gap in (3.0, 0.05)]
    row = describe(OUTCOME, Fleet([], WallClock(), lambda: seen), Plan(failure="hover"), Simulation(radio=0.1))
    assert (row["failure"], row["radio"], row["largest_gap"]) == ("hover", 0.1, 0.05)
    assert row["simulated"]["cf1"] == {"height": 0, "setpoints": 9, "largest_gap": 3.0, "cut_offs": []}
    assert row["intervals"] == {"cf1": 0.02, "cf2": 0.03}


@pytest.mark.parametrize("error", [ValueError("it has ended"), RuntimeError("it has stopped")])
def test_a_world_that_has_ended_leaves_the_rest(error):
    def report():
        raise error

    row = describe(OUTCOME, Fleet([], WallClock(), report), Plan(), Simulation())
    assert str(error) in row["simulated"]
    assert "largest_gap" not in row
    assert row["statuses"] == {"cf1": "landed", "cf2": "landed"}


def test_real_drones_say_nothing_of_what_they_saw():
    row = describe(OUTCOME, Fleet([], WallClock()), Plan(), None)
    assert not {"simulated", "largest_gap", "radio"} & set(row)
