"""Flights in which the types and shapes of every call are checked; other tests of flights leave that out."""

import pytest
from flights import Chaser, Scenario, changed

from legoswarm.deploy.inprocess import Cameras
from legoswarm.deploy.plan import Status


@pytest.mark.parametrize("captured", [False, True], ids=["own estimates", "cameras"])
def test_types_hold_while_drones_fail(captured, tmp_path):
    """The first one climbs and is stopped, the second one is stopped by hand, and the third lands by itself."""
    policy = Chaser()

    def orders():
        return ["cf2"] if policy.step == 4 else []

    class Seen:
        def pose(self, name):
            return cameras.pose(name)

    how = {"log": tmp_path / "log.jsonl", "orders": orders, "positions": Seen() if captured else None}
    scenario = Scenario(policy=policy, plan=changed(rate=20.0, horizon=6), **how)
    cameras = Cameras(scenario.world)
    policy.at[1] = scenario.inject(0, climb=0.8, noise=0.01, latency=0.02)
    outcome = scenario.fly()
    assert outcome.error is None
    assert list(outcome.statuses.values()) == [Status.LOCKED, Status.LOCKED, Status.LANDED]
