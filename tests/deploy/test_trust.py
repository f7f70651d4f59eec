"""The trust monitor on a simulated clock: which positions are believed, how old they are, what must land a drone."""

import numpy as np
import pytest

from legoswarm.deploy.link import Echoes, Pose, Quality, Stamps
from legoswarm.deploy.trust import Limits, Trust

TICK = 0.02


class Watched:
    """A drone that flies along x with 0.3 m/s, as it is told; what is seen of it can be changed."""

    def __init__(self):
        self.trust, self.now, self.place, self.told = Trust(Limits()), 100.0, 0.0, 0.3
        self.rng = np.random.default_rng(0)

    def fly(self, seconds, *, see=None, delay=0.0, **judged):
        """Let time pass; `see` changes a pose before it is looked at, `delay` is how late it comes."""
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            self.place += TICK * self.told
            where = np.array([self.place, 0.0, 0.6]) + 1e-3 * self.rng.standard_normal(3)
            late = delay(self.now) if callable(delay) else delay
            behind = np.array([late * self.told, 0.0, 0.0])
            pose = Pose(self.now, where - behind, np.array([self.told, 0, 0]), stamp=self.now - late - 50.0)
            self.trust.look(pose if see is None else see(pose), judged.get("trip"), self.now)
            quality = Quality(judged.get("trip"))
            order = judged.get("order", np.array([0.3, 0.0, 0.6]))
            self.trust.judge(order, judged.get("own"), judged.get("variance", 0.0), quality, self.now)
        return self.trust.trouble(self.now)


def changed(pose, **fields):
    return Pose(**{**vars(pose), **fields})


def test_a_drone_that_flies_as_it_is_told_is_trusted():
    drone = Watched()
    assert drone.fly(5.0) is None
    assert drone.trust.age == pytest.approx(0.0, abs=0.001)
    assert drone.trust.rate == pytest.approx(50, abs=2)
    assert not drone.trust.doubtful


def test_age_is_that_of_the_position_and_not_of_the_packet():
    """A queue that grows: packets keep coming, and hold ever older positions."""
    drone = Watched()
    drone.fly(1.0)
    begun = drone.now
    why = drone.fly(1.0, delay=lambda now: 0.5 * (now - begun))
    assert drone.trust.age == pytest.approx(0.5, abs=0.03)
    assert why == "its position is older than 0.4 s"


def test_half_of_the_round_trip_counts_and_clocks_may_drift():
    drone = Watched()
    drone.fly(1.0, trip=0.1)
    assert drone.trust.age == pytest.approx(0.05, abs=0.001)
    begun = drone.now
    assert drone.fly(20.0, trip=0.1, delay=lambda now: 5e-5 * (now - begun)) is None
    assert drone.trust.age == pytest.approx(0.05, abs=0.002)


def test_one_bad_sample_is_passed_over_and_a_run_of_them_lands():
    drone = Watched()
    drone.fly(1.0)
    place = drone.trust.position.copy()

    def away(pose):
        return changed(pose, position=pose.position + np.array([1.0, 0.0, 0.0]))

    assert drone.fly(TICK, see=away) is None
    assert drone.trust.doubtful
    np.testing.assert_array_equal(drone.trust.position, place)
    assert drone.fly(1.0) is None
    assert not drone.trust.doubtful
    assert drone.fly(0.3, see=away) == "its position jumped by 1.00 m"


def test_one_velocity_and_one_stamp_that_are_wrong_are_passed_over():
    """Neither a velocity that carries the drone away nor a date in the future spoils the samples after it."""
    drone = Watched()
    drone.fly(1.0)
    assert drone.fly(TICK, see=lambda pose: changed(pose, velocity=np.array([6.0, 0.0, 0.0]))) is None
    assert drone.fly(1.0) is None
    assert not drone.trust.doubtful
    assert drone.fly(TICK, see=lambda pose: changed(pose, stamp=pose.stamp + 1.0)) is None
    assert drone.trust.doubtful  # it is refused
    assert drone.fly(1.0) is None
    assert drone.trust.age == pytest.approx(0.0, abs=0.001)
    assert not drone.trust.doubtful


def test_a_clock_that_was_set_ahead_is_believed_when_it_stays_so():
    drone = Watched()
    drone.fly(1.0)
    for _ in range(20):
        assert drone.fly(0.1, see=lambda pose: changed(pose, stamp=pose.stamp + 5.0)) is None
    assert drone.trust.age == pytest.approx(0.0, abs=0.001)


def test_positions_from_the_future_and_clocks_that_go_back_are_refused():
    drone = Watched()
    drone.fly(1.0)

    def ahead(pose):
        return changed(pose, received=pose.received + 0.5, stamp=None)

    assert drone.fly(0.4, see=ahead) == "its position comes from 0.50 s in the future"
    drone = Watched()
    drone.fly(1.0)
    stamps = iter(np.linspace(45.0, 30.0, 100))
    assert "ran backwards" in drone.fly(0.4, see=lambda pose: changed(pose, stamp=next(stamps)))


def test_a_frozen_position_lands_and_a_silent_drone_is_not_called_frozen():
    drone = Watched()
    drone.fly(1.0)
    held = drone.trust.position.copy()
    assert drone.fly(0.2, see=lambda pose: changed(pose, position=held)) is None
    assert drone.trust.doubtful  # it stands by now
    assert drone.fly(0.3, see=lambda pose: changed(pose, position=held)) == "its position is frozen"
    drone = Watched()
    drone.fly(1.0)
    assert drone.fly(0.5, see=lambda pose: None) == "its position is older than 0.4 s"


@pytest.mark.parametrize("told", [0.0, -0.3], ids=["stands", "turns back"])
def test_a_drone_that_does_not_do_what_it_is_told_lands(told):
    drone = Watched()
    drone.fly(2.0)
    drone.told = told
    assert drone.fly(1.3).startswith("it does not do what it is told")


def test_height_variance_latency_and_two_estimates():
    def high(pose):
        return changed(pose, position=pose.position + np.array([0, 0, 0.4 * (pose.received > 101)]))

    assert "higher than it was told" in Watched().fly(1.7, see=high)
    low = Watched()
    low.fly(1.0)
    sink = iter(np.linspace(0, 0.5, 50))
    assert "lower than it was told" in low.fly(1.0, see=lambda p: changed(p, position=p.position - [0, 0, next(sink)]))
    assert "variance 0.5" in Watched().fly(1.0, variance=0.5)
    assert "does not say how sure it is" in Watched().fly(1.0, variance=np.inf)
    assert "a round trip to it takes 0.30 s" in Watched().fly(1.0, trip=0.3)
    elsewhere = Pose(0.0, np.array([3.0, 0.0, 0.6]), np.zeros(3))
    assert "away from where it is seen" in Watched().fly(1.0, own=elsewhere)


def test_round_trips():
    echoes = Echoes()
    assert echoes.quality(0.0) == Quality(None, 1.0)
    unanswered = Echoes()
    for at in range(4):  # nothing has ever come back: that is a slow link too
        unanswered.next(at / 10)
    assert unanswered.quality(0.4).latency == pytest.approx(0.3)
    for at in range(10):
        number = echoes.next(at / 10)
        assert echoes.next(at / 10 + 0.05) is None
        echoes.back(number, at / 10 + 0.03)
    assert echoes.quality(1.0).latency == pytest.approx(0.03)
    for at in range(10, 45):  # nothing comes back any more
        echoes.next(at / 10)
    assert echoes.quality(4.5).latency == pytest.approx(1.9, abs=0.15)
    assert echoes.quality(4.5).answered < 0.5


def test_stamps_go_on_after_24_bits():
    stamps = Stamps()
    assert stamps.seconds(2**24 - 10) == pytest.approx(16777.206)
    assert stamps.seconds(10) == pytest.approx(16777.226)


def test_limits_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="run < frozen"):
        Limits(run=0.5)
