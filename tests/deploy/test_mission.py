"""Missions on simulated drones and a simulated clock: how they go, and that every fault ends on the ground."""

import dataclasses
import json
import os
import signal

import numpy as np
import pytest
from flights import LANDED, STARTS, TICK, Chaser, Scenario, assert_safe, changed

from legoswarm.deploy import flightlog
from legoswarm.deploy.flightlog import read_flight
from legoswarm.deploy.link import LinkError, Pose
from legoswarm.deploy.plan import MissionError, Plan, Stage, Status
from legoswarm.deploy.safety import Reason, Rules
from legoswarm.deploy.setting import Setting

pytestmark = pytest.mark.usefixtures("unchecked")


def test_a_mission_from_take_off_to_landing(tmp_path):
    said = []
    scenario = Scenario(log=tmp_path / "log.jsonl", say=said.append, about={"policy": "chaser"})
    outcome = scenario.fly()
    assert (outcome.reached, outcome.error, outcome.statuses, outcome.failures) == (Stage.RUN, None, LANDED, {})
    assert scenario.mission.track.shape == (9, 3, 2)
    assert_safe(scenario)
    assert [word for word in said if word in {stage.value for stage in Stage}] == [stage.value for stage in Stage]

    flight = read_flight(tmp_path / "log.jsonl")
    assert flight.about["policy"] == "chaser"
    assert flight.about["rules"] == dataclasses.asdict(Rules())
    assert flight.end["statuses"] == dict.fromkeys(LANDED, "landed")
    run = flight.during("run")
    assert len(flight.steps) == 8
    assert run.stop - run.start == 8 * 5
    np.testing.assert_allclose(flight.position[run][-1, :, 2], [0.6, 0.6, 1.2], atol=0.05)
    np.testing.assert_allclose(flight.position[run][-1, :, :2], scenario.mission.track[-1], atol=1e-3)
    speed = np.linalg.norm(flight.setpoint, axis=-1)
    assert 0.3 < speed.max() <= 0.5 + 1e-3
    assert (flight.reasons[run] & Reason.ACCELERATION).any()


def test_the_policy_is_followed():
    scenario = Scenario(plan=changed(horizon=15))
    scenario.fly()
    gap = np.linalg.norm(scenario.mission.track[:, :2] - scenario.mission.track[:, 2:], axis=-1).min(1)
    assert gap[-1] < gap[0] - 0.3
    assert scenario.mission.captures == [] or scenario.mission.captures[0].evader == "cf3"


@pytest.mark.parametrize("failure", ["land", "hover", "motors_off"])
def test_one_fails_and_the_others_fly_on(failure, tmp_path):
    scenario = Scenario(plan=changed(failure=failure, horizon=15, fail_at=3, rate=20.0), log=tmp_path / "log.jsonl")
    outcome = scenario.fly()
    fell = {"cf1": Status.FELL} if failure == "motors_off" else {}
    assert (outcome.error, outcome.statuses) == (None, {**LANDED, **fell})
    # In simulated time, so on any machine: the others never wait.
    assert [drone["largest_gap"] for drone in scenario.world.report()[1:]] == [pytest.approx(TICK)] * 2
    assert [outcome.intervals[name] for name in ("cf2", "cf3")] == [pytest.approx(TICK)] * 2
    assert outcome.failures == {"cf1": "scheduled"}
    assert_safe(scenario, falls=(0,) if failure == "motors_off" else ())
    # It stays in the scene, where it failed; the others move.
    place, roles = scenario.policy.shown[-1]
    assert roles == ["pursuer", "pursuer", "evader", "obstacle", "obstacle"]
    np.testing.assert_allclose(place[0] * 1.5, scenario.mission.track[3, 0], atol=0.15)
    assert np.linalg.norm(np.diff(scenario.mission.track[4:, 1:], axis=0), axis=-1).sum(0).min() > 0.5
    flight = read_flight(tmp_path / "log.jsonl")
    height = flight.position[flight.during("run")][-1, 0, 2]
    assert height == pytest.approx(0.6 if failure == "hover" else 0.0, abs=0.05)
    assert [event["failure"] for event in flight.events if "failure" in event] == [failure]


def test_a_failed_drone_can_be_dropped_from_the_scene():
    scenario = Scenario(plan=changed(failure="land", drop_failed=True))
    scenario.fly()
    assert scenario.policy.shown[2][1].count("pursuer") == 2
    assert scenario.policy.shown[3][1].count("pursuer") == 1
    assert_safe(scenario)


@pytest.mark.parametrize(
    ("faults", "why", "end"),
    [
        ({"mute": True}, "its position is older than 0.4 s", Status.UNKNOWN),
        ({"battery": 3.2}, "its battery is low (3.20 V)", Status.LANDED),
        ({"battery": 3.4}, "its battery is low (3.40 V)", Status.LANDED),
        ({"tumble": True}, "it does not fly any more (TUMBLED|CRASHED)", Status.FELL),
        ({"drift": (0.0, 3.0, 0.0)}, "it goes astray", Status.LOCKED),
    ],
    ids=["mute", "empty", "low", "tumbled", "outside"],
)
def test_real_failures(faults, why, end):
    policy = Chaser()
    scenario = Scenario(policy=policy, plan=changed(horizon=14))
    policy.at[2] = scenario.inject(2, **faults)
    outcome = scenario.fly()
    assert outcome.error is None
    assert list(outcome.failures) == ["cf3"]
    assert outcome.failures["cf3"].startswith(why)
    assert outcome.statuses == {**LANDED, "cf3": end}
    assert len(scenario.mission.track) == 15
    if end in (Status.LANDED, Status.UNKNOWN):
        assert_safe(scenario)


@pytest.mark.parametrize("answer", [np.nan, np.inf], ids=["nan", "inf"])
def test_an_action_that_is_not_a_number_lands_everybody(answer):
    scenario = Scenario(policy=Chaser({4: lambda: answer}))
    outcome = scenario.fly()
    assert isinstance(outcome.error, MissionError)
    assert "not a number" in str(outcome.error)
    assert outcome.statuses == LANDED
    assert len(scenario.mission.track) == 5
    assert_safe(scenario)


def test_an_error_in_the_loop_lands_everybody():
    def fail():
        raise ZeroDivisionError("oh")

    scenario = Scenario(policy=Chaser({4: fail}))
    outcome = scenario.fly()
    assert isinstance(outcome.error, ZeroDivisionError)
    assert outcome.statuses == LANDED
    assert_safe(scenario)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_land_everybody(number):
    before = signal.getsignal(number)
    scenario = Scenario(policy=Chaser({4: lambda: os.kill(os.getpid(), number)}))
    outcome = scenario.fly()
    assert isinstance(outcome.error, KeyboardInterrupt)
    assert outcome.statuses == LANDED
    assert_safe(scenario)
    assert signal.getsignal(number) is before


def test_interrupts_while_landing_do_not_disturb_it():
    """But they are told: nobody is to take off for another trial."""
    scenario = Scenario()
    land = scenario.links[1].land

    def interrupt(seconds):
        os.kill(os.getpid(), signal.SIGINT)
        land(seconds)

    scenario.links[1].land = interrupt
    outcome = scenario.fly()
    assert isinstance(outcome.error, KeyboardInterrupt)
    assert (outcome.reached, outcome.statuses) == (Stage.RUN, LANDED)
    assert len(scenario.mission.track) == 9
    assert_safe(scenario)


def test_a_link_that_fails_to_land_keeps_nobody_else_in_the_air():
    scenario = Scenario(policy=Chaser({3: lambda: np.nan}))
    tries, land = [], scenario.links[0].land

    def stubborn(seconds):
        tries.append(seconds)
        if len(tries) == 1:
            raise LinkError("the radio is busy")
        land(seconds)

    scenario.links[0].land = stubborn
    assert scenario.fly().statuses == LANDED
    assert len(tries) == 2
    assert_safe(scenario)


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        ({"controller": 2}, "cf2 has stabilizer.controller 2, but this needs 1: the PID controller"),
        ({"battery": 3.7}, "the battery of cf2 has 3.70 V, 3.8 V are needed"),
        ({"tumble": True}, "cf2 says that it cannot fly"),
        ({"hang": True}, "cf2 cannot be reached: it was not connected within 2 s"),
        ({"mute": True}, "cf2 cannot be reached: it was not connected within 2 s"),
    ],
    ids=["controller", "battery", "tumbled", "hang", "mute"],
)
def test_preflight_refuses(faults, why):
    scenario = Scenario(faults={1: faults})
    scenario.world.sleep_until(0.1)
    outcome = scenario.fly()
    assert why in str(outcome.error)
    assert outcome.reached in (Stage.CONNECT, Stage.PREFLIGHT)
    assert scenario.world.plant.position[:, 2].max() == 0
    assert scenario.policy.shown == []


def test_preflight_refuses_another_estimator():
    scenario = Scenario()
    scenario.world.drones[2].parameters.values["stabilizer.estimator"] = 1
    assert "cf3 has stabilizer.estimator 1" in str(scenario.fly().error)


def test_drones_that_know_where_they_are_must_stand_where_the_file_says():
    scenario = Scenario(plan=changed(poses="absolute"))
    scenario.world.plant.position[1, :2] += [0.5, 0.0]
    assert "cf2 is 0.50 m away" in str(scenario.fly().error)
    assert scenario.world.plant.position[:, 2].max() == 0


@pytest.mark.parametrize(
    ("start", "why"),
    [
        ((3.0, 0.0, 0.0), "cf1 stands outside the fence"),
        ((0.75, 0.35, 0.0), "cf1 stands closer than 0.2 m to an obstacle"),
        ((1.0, -0.6, 0.0), "cf2 stands closer than 0.35 m to cf1"),
    ],
)
def test_bad_starts_are_refused(start, why):
    with pytest.raises(MissionError, match=why):
        Scenario(starts=(start, *STARTS[1:]))


def test_a_chase_that_is_too_fast_is_refused():
    with pytest.raises(ValueError, match=r"0\.65 m/s, more than 0\.5"):
        Scenario(setting=Setting(stretch=3.0))


@pytest.mark.parametrize(
    "fields", [{"failure": "explode"}, {"poses": "guessed"}, {"horizon": 0}, {"land_seconds": 0.0}]
)
def test_impossible_plans_are_refused(fields):
    with pytest.raises(ValueError, match=r"failure|poses|horizon|positive"):
        Plan(**fields)


def test_a_drone_that_does_not_rise_lands_everybody():
    scenario = Scenario(faults={2: {"dead": True}})
    outcome = scenario.fly()
    assert "cf3 failed before the run: it is" in str(outcome.error)
    assert outcome.reached is Stage.TAKEOFF
    assert outcome.statuses == LANDED
    assert_safe(scenario)


def test_a_failure_before_the_run_ends_the_mission():
    scenario = Scenario()
    hover = scenario.links[1].hover

    def rise_and_fall_silent(velocity, height):
        hover(velocity, height)
        scenario.world.drones[1].inject(mute=height > 0.3)

    scenario.links[1].hover = rise_and_fall_silent
    outcome = scenario.fly()
    assert "cf2 failed before the run" in str(outcome.error)
    assert outcome.statuses["cf1"] is outcome.statuses["cf3"] is Status.LANDED
    assert scenario.world.plant.position[:, 2].max() < 0.05


def test_drones_above_each_other_move_apart_before_they_land():
    class Follow(Chaser):
        def act(self, positions, velocities, roles, visible=None):
            self.shown.append((positions, roles))
            gap = positions[2] - positions[1]
            return np.array([[0.0, 0.0], 3 * gap, [0.0, 0.0]])

    setting = Setting(rules=dataclasses.replace(Rules(), pause=0.05, resume=0.06))
    starts = (STARTS[0], (0.6, -0.6, 0.0), (0.2, -0.6, 0.0))
    scenario = Scenario(policy=Follow(), starts=starts, setting=setting, plan=changed(horizon=10))
    lows = []
    land = scenario.links[2].land
    scenario.links[2].land = lambda seconds: (lows.append(scenario.world.plant.position.copy()), land(seconds))
    scenario.fly()
    assert np.linalg.norm(scenario.mission.track[-1, 1] - scenario.mission.track[-1, 2]) < 0.3
    assert np.linalg.norm(lows[0][1, :2] - lows[0][2, :2]) > 0.4
    assert_safe(scenario)


def test_a_drone_that_falls_silent_while_it_lands_has_failed():
    scenario = Scenario()
    land = scenario.links[1].land
    scenario.links[1].land = lambda seconds: (land(seconds), scenario.world.drones[1].inject(mute=True))
    outcome = scenario.fly()
    assert (outcome.error, outcome.statuses) == (None, {**LANDED, "cf2": Status.UNKNOWN})
    assert outcome.failures == {"cf2": "it was not seen to land"}
    assert_safe(scenario)


def test_positions_may_come_from_elsewhere():
    """Motion capture: drones whose own estimates drift away fly where they are seen."""

    class MotionCapture:
        def pose(self, name):
            plant, at = scenario.world.plant, int(name[2:]) - 1
            return Pose(scenario.world.now(), plant.position[at].copy(), plant.velocity[at].copy())

    faults = {at: {"drift": (0.02, -0.02, 0.0)} for at in range(3)}
    scenario = Scenario(positions=MotionCapture(), faults=faults, plan=changed(poses="absolute", settle_seconds=3.0))
    outcome = scenario.fly()
    assert (outcome.error, outcome.statuses) == (None, LANDED)
    np.testing.assert_allclose(scenario.mission.track[0], np.array(STARTS)[:, :2], atol=0.05)
    own = scenario.world.drones[0].estimate.position[:2]
    assert np.linalg.norm(own - scenario.world.plant.position[0, :2]) < 0.01  # they were told


def test_a_source_of_positions_that_breaks_down_lands_everybody():
    class Broken:
        def pose(self, name):
            if len(scenario.policy.shown) > 3:
                raise OSError("the cameras are gone")
            plant, at = scenario.world.plant, int(name[2:]) - 1
            return Pose(scenario.world.now(), plant.position[at].copy(), plant.velocity[at].copy())

    scenario = Scenario(positions=Broken())
    outcome = scenario.fly()
    assert set(outcome.failures.values()) == {"its position is older than 0.4 s"}
    assert_safe(scenario)


def test_a_position_that_is_not_a_number_is_passed_over():
    class Flickering:
        def pose(self, name):
            world, at = scenario.world, int(name[2:]) - 1
            place = world.plant.position[at] * (np.nan if round(world.now() / TICK) % 3 == at else 1)
            return Pose(world.now(), place, world.plant.velocity[at].copy())

    scenario = Scenario(positions=Flickering())
    outcome = scenario.fly()
    assert (outcome.error, outcome.statuses) == (None, LANDED)
    assert np.isfinite(scenario.mission.track).all()
    assert_safe(scenario)


def test_a_full_disk_and_a_console_that_has_gone_do_not_end_a_flight(tmp_path, monkeypatch):
    monkeypatch.setattr(flightlog, "open", lambda *_, **how: open("/dev/full", "w", **how), raising=False)  # noqa: SIM115

    def gone(words):
        raise BrokenPipeError

    scenario = Scenario(log=tmp_path / "log.jsonl", say=gone)
    outcome = scenario.fly()
    assert (outcome.error, outcome.statuses) == (None, LANDED)
    assert_safe(scenario)


def test_noise_and_latency_do_not_stop_a_mission():
    faults = {at: {"noise": 0.01, "latency": 0.04, "loss": 0.1} for at in range(3)}
    scenario = Scenario(faults=faults, plan=changed(horizon=12))
    outcome = scenario.fly()
    assert (outcome.error, outcome.statuses) == (None, LANDED)
    assert_safe(scenario)


def test_a_capture_is_noted_once_until_they_part():
    starts = ((-0.5, -0.6, 0.0), (1.3, -1.3, 0.0), (0.1, -0.6, 0.0))

    class Stand(Chaser):
        def act(self, positions, velocities, roles, visible=None):
            return np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])

    scenario = Scenario(policy=Stand(), starts=starts, plan=changed(horizon=8))
    scenario.fly()
    assert [(capture.pursuer, capture.evader) for capture in scenario.mission.captures] == [("cf1", "cf3")]
    assert 0 < scenario.mission.captures[0].step < 8
    assert scenario.mission.captures[0].time == pytest.approx(scenario.mission.captures[0].step * 0.5, abs=0.6)


def test_the_log_is_whole_at_every_moment(tmp_path):
    """A kill leaves all lines up to the last one; half a line is passed over."""
    path = tmp_path / "log.jsonl"
    seen = []
    policy = Chaser({4: lambda: seen.append(read_flight(path))})
    Scenario(policy=policy, log=path).fly()
    assert len(seen[0].steps) == 4
    assert seen[0].end is None
    text = path.read_text()
    assert all(json.loads(line) for line in text.splitlines())
    path.write_text(text[:-20])
    assert read_flight(path).end is None


def test_the_log_says_why_drones_did_not_do_as_their_policy_wanted(tmp_path):
    away = Chaser(dict.fromkeys(range(12), lambda: 1.0))
    Scenario(log=tmp_path / "log.jsonl", policy=away, plan=changed(horizon=12)).fly()
    flight = read_flight(tmp_path / "log.jsonl")
    run = flight.during("run")
    held = (flight.reasons[run] & Reason.FENCE) > 0
    assert held[:, 2].any()
    assert not held[:, 0].any()
    assert (flight.reasons[run] & Reason.ACCELERATION).any()
    assert np.abs(flight.position[..., :2]).max() < Rules().soft_fence + 0.1
