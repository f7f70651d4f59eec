"""Nobody is left unattended: drones that hover, drones with a wrong height, links that are lost, orders in a hurry."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flights import Chaser, Scenario, changed

from legoswarm.cli import main
from legoswarm.deploy import cflib_link
from legoswarm.deploy.link import DroneState, Health
from legoswarm.deploy.panel import Panel
from legoswarm.deploy.plan import Status

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"climb": 0.5}, "higher than it was told"),
        ({"battery": 3.1}, "its battery is low (3.10 V)"),
        ({"variance": 5.0}, "its estimator is not sure"),
    ],
)
def test_a_failed_drone_that_hovers_is_watched(fault, why):
    policy = Chaser()
    scenario = Scenario(policy=policy, plan=changed(horizon=16, failure="hover", fail_at=3, failing=0, rate=20.0))
    policy.at[6] = scenario.inject(0, **fault)
    outcome = scenario.fly()
    assert why in outcome.failures["cf1"]
    assert scenario.links[0].height < 0.05
    assert scenario.air.top < 2.3


def test_a_drone_that_says_that_it_is_low_and_flies_is_not_taken_for_landed():
    scenario = Scenario(plan=changed(rate=20.0))
    drone, wish, rng = scenario.world.drones[0], scenario.mission.wish, np.random.default_rng(0)
    measure = drone._measurements

    def begin(report):
        if report.stage == "takeoff" and drone._measurements is not low:
            drone.inject(climb=0.5)
            drone._measurements = low
        return wish(report)

    def low(now):
        return {**measure(now), "stateEstimate.z": 0.03 + 1e-3 * rng.standard_normal(), "stateEstimate.vz": 0.0}

    scenario.mission.wish = begin
    outcome = scenario.fly()
    assert "lower than it was told" in outcome.failures["cf1"]
    assert outcome.statuses["cf1"] is Status.LOCKED
    scenario.world.sleep_until(scenario.world.now() + 2.0)
    assert scenario.links[0].height < 0.05


def test_to_land_twice_is_to_land():
    landed = Scenario(plan=changed(horizon=12), orders=lambda: ["land"] * (landed.policy.step > 3))
    outcome = landed.fly()
    assert isinstance(outcome.error, KeyboardInterrupt)
    assert set(outcome.statuses.values()) == {Status.LANDED}


@pytest.mark.slow
def test_requests_to_end_land_everybody_however_many_there_are(tmp_path):
    """As `systemctl stop` does: SIGTERM to the policy's process and to the guard's."""
    quick = ["--poses", "absolute", "--take-off-seconds", "1", "--settle-seconds", "0.2"]
    words = ["fly", "--sitl", "--trials", "1", *quick, "--out", str(tmp_path / "o")]
    flight = subprocess.Popen([sys.executable, "-m", "legoswarm.cli", *words], stderr=subprocess.PIPE, text=True)
    for line in flight.stderr:
        if "step 0" in line:
            break
    children = Path(f"/proc/{flight.pid}/task/{flight.pid}/children").read_text().split()
    [guard] = [int(child) for child in children if "guard_process" in Path(f"/proc/{child}/cmdline").read_text()]
    for pid in (flight.pid, guard, flight.pid):
        os.kill(pid, signal.SIGTERM)
    _, said = flight.communicate(timeout=60)
    assert "landed" in (tmp_path / "o/summary.json").read_text(), said
    assert "locked" not in (tmp_path / "o/summary.json").read_text()


def test_an_error_while_everybody_lands_keeps_nobody_from_stopping_drones():
    scenario = Scenario(plan=changed(rate=20.0), orders=lambda: ["stop"] * (scenario.guard._stage.value == "land"))
    look = scenario.guard.squad.look

    def fail():
        if scenario.guard._stage.value == "land":
            raise OSError("the cameras are gone")
        look()

    scenario.guard.squad.look = fail
    scenario.fly()
    causes = [cut.cause for drone in scenario.world.drones for cut in drone.commander.cut_offs]
    assert causes == ["emergency stop"] * 3


def test_a_lost_link_still_carries_an_emergency_stop(monkeypatch):
    """Of a guard that stood still for more than two seconds: the radio may be well."""
    monkeypatch.setattr(cflib_link, "LAND_AFTER", 0.2)
    sent = []

    def note(name):
        return lambda *given, **more: sent.append(name)

    def connect():
        commander = SimpleNamespace(send_hover_setpoint=note("hover"), send_notify_setpoint_stop=note("notify"))
        link._cf = SimpleNamespace(
            commander=commander, high_level_commander=SimpleNamespace(land=note("land")), link=None,
            supervisor=SimpleNamespace(send_emergency_stop=note("stop")), close_link=note("closed"),
            incoming=SimpleNamespace(is_alive=lambda: False),
        )  # fmt: skip
        place, health = np.array([0.0, 0.0, 0.6]), Health.FLYING | Health.CAN_FLY
        link._state = DroneState(time.monotonic(), place, np.zeros(3), 0.0, 4.0, health, stamp=0.0)
        link._answered.set()

    link = cflib_link.CflibLink("cf1", "udp://127.0.0.1:1")
    link._connect, link._echo = connect, lambda: None
    link.open(2)
    link.hover(np.zeros(2), 0.6)
    deadline = time.monotonic() + 10
    while link.lost() is None or "land" not in sent:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    link.emergency_stop()
    while "stop" not in sent:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    link._let_go()
    assert sent[-1] == "closed"


def test_a_pad_that_is_unplugged_lands_and_its_sticks_fill_no_queue(monkeypatch):
    waiting = [[3, 3], [3, 1], [2]]

    class Pygame:
        JOYBUTTONDOWN, JOYDEVICEREMOVED, JOYAXISMOTION = 1, 2, 3
        event = SimpleNamespace(get=lambda: [SimpleNamespace(type=kind) for kind in waiting.pop(0)])

    monkeypatch.setattr("legoswarm.deploy.panel._start_gamepads", lambda: Pygame)
    pad = Panel(["a"], None, None, gamepad=True)
    assert [pad(), pad(), pad()] == [[], ["stop"], ["land"]]


def test_keys_that_send_several_characters_stop_nobody():
    read, write = os.pipe()
    panel = Panel(["a", "b", "c"], None, read)
    for keys in (b"\x1b[3~", b"\x1b[15~", b"\x1b[A", b"12"):  # Delete, F5, an arrow, a paste
        os.write(write, keys)
        assert panel() == []
    for keys, orders in ((b"3", ["c"]), (b"9", []), (b"ll", ["land", "land"]), (b"  ", ["stop", "stop"])):
        os.write(write, keys)
        assert panel() == orders
    os.close(write)
    os.close(read)


def test_what_is_typed_after_the_policys_process_was_stopped_is_for_the_shell():
    """Ctrl-Z gives the terminal back to the shell, and there somebody types `kill -9 %1`."""
    read, write = os.pipe()
    code = "import sys, time; from legoswarm.deploy.panel import Panel; panel = Panel(['a'], None, 0)\n"
    code += "print('up', flush=True)\nwhile not (said := panel()) and panel._sources: time.sleep(0.02)\nprint(said)"
    shell = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    with subprocess.Popen([sys.executable, "-c", shell], stdin=read, stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"up\n"
        parent.send_signal(signal.SIGSTOP)
        os.waitpid(parent.pid, os.WUNTRACED)  # a signal takes its time
        try:
            os.write(write, b"kill -9 %1")
            assert parent.stdout.readline() == b"[]\n"
        finally:
            parent.send_signal(signal.SIGCONT)
    os.close(read)
    os.close(write)


def test_positions_from_outside_are_for_drones_of_a_file(capsys):
    assert main(["fly", "--dry-run", "--source", "udp:5000"]) == 2
    assert "--source needs a crazyflies.yaml" in capsys.readouterr().err
