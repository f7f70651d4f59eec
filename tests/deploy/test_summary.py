"""The summary of a flight counts the waits of drones that did not fail."""

import pytest
from flights import Chaser

from legoswarm.deploy.fleet import Fleet, Simulation
from legoswarm.deploy.fly import describe
from legoswarm.deploy.mission import Mission
from legoswarm.deploy.plan import Outcome, Plan, Stage, Status
from legoswarm.deploy.setting import Setting

NAMES = ["cf1", "cf2", "cf3"]
OUTCOME = Outcome(
    Stage.RUN, None, dict.fromkeys(NAMES, Status.LANDED), {"cf1": "scheduled"}, dict.fromkeys(NAMES, 0.02)
)
MISSION = Mission(Chaser(), Setting(plan=Plan(failure="hover")), NAMES)


def fleet(report=None):
    return Fleet(NAMES, lambda: OUTCOME, report)


def test_the_wait_of_a_drone_that_failed_does_not_count():
    seen = [{"position": [0, 0, 0], "largest_gap": gap, "setpoints": 9, "cut_offs": []} for gap in (3.0, 0.05, 0.04)]
    row = describe(OUTCOME, MISSION, fleet(lambda: seen), Simulation(radio=0.1))
    assert (row["failure"], row["radio"], row["largest_gap"]) == ("hover", 0.1, 0.05)
    assert row["simulated"]["cf1"] == {"height": 0, "setpoints": 9, "largest_gap": 3.0, "cut_offs": []}
    assert row["intervals"] == dict.fromkeys(NAMES, 0.02)


@pytest.mark.parametrize("error", [ValueError("it has ended"), RuntimeError("it has stopped")])
def test_a_world_that_has_ended_leaves_the_rest(error):
    def report():
        raise error

    row = describe(OUTCOME, MISSION, fleet(report), Simulation())
    assert str(error) in row["simulated"]
    assert "largest_gap" not in row
    assert row["statuses"] == dict.fromkeys(NAMES, "landed")


def test_real_drones_say_nothing_of_what_they_saw():
    row = describe(OUTCOME, MISSION, fleet(), None)
    assert not {"simulated", "largest_gap", "radio"} & set(row)
