"""The guard: a sample of the table of faults, the mailbox between processes, emergency stops, sources of positions."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flights import Chaser, Scenario, changed
from saved import save_small

from legoswarm.cli import main
from legoswarm.deploy import faults
from legoswarm.deploy.faults import FAULTS, fly_fault, fly_process_fault, fly_random
from legoswarm.deploy.guard import Guard
from legoswarm.deploy.guard_process import Lines, Mailbox
from legoswarm.deploy.inprocess import World
from legoswarm.deploy.panel import Panel
from legoswarm.deploy.plan import Drone, MissionError, Report, Status, Wish
from legoswarm.deploy.sitl.drone import Airspace
from legoswarm.deploy.sitl.plants import PointMass
from legoswarm.deploy.sitl.process import EndpointProcess
from legoswarm.deploy.sources import UdpSource, open_source
from legoswarm.tasks.tag import Tag

EXAMPLE = Path(__file__).parents[2] / "examples/flight.py"
SAMPLE = [
    ("reported position of cf1 freezes", "its position is frozen", "landed"),
    ("estimate of cf3 jumps by 1 m", "its position jumped by 1", "landed"),
    ("cf1 climbs, 0.5 m/s", "higher than it was told", "locked"),
    ("cf1 ignores what it is told", "it is about to hit an obstacle", "locked"),
    ("motors of cf1 stop", "lower than it was told", "fell"),
    ("estimate of cf1 jumps by 0.3 m in height", "", "landed"),
    ("estimate of cf3 drifts, 1 m/s", "its way differs", "landed"),
    ("variance of cf1 grows", "its estimator is not sure", "landed"),
    ("link to cf3: a backlog, 30 packets a second", "its position is older than 0.4 s", None),
    ("link to cf1: 300 ms each way", "older than 0.4 s", "landed"),
    ("cameras: labels of cf1 and cf2 swapped", "its position jumped", "landed"),
    ("cameras: last pose of cf1 is repeated", "its position is frozen", "landed"),
    ("the policy says nothing for 2 s", "the policy has said nothing for 1.0 s", "landed"),
]

pytestmark = pytest.mark.usefixtures("unchecked")


def named(name):
    return next(fault for fault in FAULTS if fault.name == name)


@pytest.mark.parametrize(("name", "why", "end"), SAMPLE, ids=[name for name, _, _ in SAMPLE])
def test_a_fault_ends_safely_and_the_reason_is_named(name, why, end):
    row = fly_fault(named(name), plan=faults.dataclasses.replace(faults.PLAN, horizon=10))
    assert row["safe"], row
    assert why in row["reasons"][0]
    who = "cf3" if "cf3" in name else "cf1"
    assert end is None or row["statuses"][who] == end


def test_the_table_is_long_and_a_random_mission_can_be_flown_again():
    assert len(FAULTS) >= 80
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert fly_random(3) == fly_random(3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["SIGKILL to the policy's process in run", "SIGSTOP to the policy's process in takeoff"]
)
def test_a_policy_that_is_killed_or_stopped_leaves_nobody_in_the_air(name):
    row = fly_process_fault(named(name))
    assert row["safe"], row
    assert set(row["statuses"].values()) == {"landed"}


@pytest.fixture
def policy(tmp_path):
    return str(save_small(tmp_path / "tag", Tag(pursuers=2, evaders=1, obstacles=2)))


@pytest.mark.slow
def test_a_second_ctrl_c_stops_all_motors(policy, tmp_path):
    quick = ["--poses", "absolute", "--take-off-seconds", "1", "--settle-seconds", "0.2"]
    words = ["fly", "--sitl", "--policy", policy, "--trials", "1", *quick, "--out", str(tmp_path / "o")]
    flight = subprocess.Popen([sys.executable, "-m", "legoswarm.cli", *words], stderr=subprocess.PIPE, text=True)
    for line in flight.stderr:
        if "step 0" in line:
            break
    flight.send_signal(signal.SIGINT)
    time.sleep(0.3)
    flight.send_signal(signal.SIGINT)
    flight.communicate(timeout=60)
    (trial,) = json.loads((tmp_path / "o/summary.json").read_text())["trials"]
    assert set(trial["statuses"].values()) == {"locked"}
    assert {cut["cause"] for drone in trial["simulated"].values() for cut in drone["cut_offs"]} == {"emergency stop"}
    log = [json.loads(line) for line in (tmp_path / "o/trial-1.jsonl").read_text().splitlines()]
    assert len(log[0]["sha256"]) == 64
    assert {"battery", "latency", "variance", "age"} <= set(next(row for row in log if row["kind"] == "tick"))


def test_the_emergency_stop_latches_for_all_or_for_one():
    pressed = {4: ["cf2"], 6: ["stop"]}
    scenario = Scenario(plan=changed(horizon=12), orders=lambda: pressed.pop(scenario.policy.step, []))
    outcome = scenario.fly()
    assert str(outcome.error) == "emergency stop"
    assert set(outcome.statuses.values()) == {Status.LOCKED}
    assert set(outcome.failures.values()) == {"emergency stop"}
    for drone in scenario.world.drones:
        assert [cut.cause for cut in drone.commander.cut_offs] == ["emergency stop"]
    cuts = [drone.commander.cut_offs[0].time for drone in scenario.world.drones]
    assert cuts[1] < cuts[0] - 0.5


def test_a_drone_that_does_not_fall_is_told_to_stop_again():
    scenario = Scenario(plan=changed(horizon=6), orders=lambda: ["cf1"] * (scenario.policy.step == 3))
    send, lost = scenario.links[0]._send, []
    scenario.links[0]._send = lambda port, *rest: (
        lost.append(rest) if port == 9 and len(lost) < 3 else send(port, *rest)
    )
    assert scenario.fly().statuses["cf1"] is Status.LOCKED
    assert len(lost) == 3


def test_others_keep_away_from_a_drone_that_does_not_do_what_it_is_told():
    policy = Chaser()
    scenario = Scenario(policy=policy, plan=changed(horizon=14, rate=20.0))
    policy.at[3] = scenario.inject(2, climb=0.1)
    near = []
    policy.act, act = (
        (lambda *given, **more: near.append(scenario.world.plant.position.copy()) or act(*given, **more)),
        policy.act,
    )
    scenario.fly()
    late = np.array(near[8:])
    gaps = np.linalg.norm(late[:, :2, :2] - late[:, 2:, :2], axis=-1)[late[:, 2, 2] > 0.1]
    assert scenario.outcome.failures["cf3"].endswith("higher than it was told")
    assert not len(gaps) or gaps.min() > 0.5


def test_the_panel_reads_keys():
    read, write = os.pipe()
    keys = Panel(["a", "b"], None, read)
    assert keys() == []
    os.write(write, b"x")
    assert keys() == []
    os.write(write, b"2")
    assert keys() == ["b"]
    os.write(write, b"l ")
    assert keys() == ["land", "stop"]
    os.close(write)
    assert keys() == []

    os.close(read)


def test_without_a_gamepad_nobody_flies():
    with pytest.raises(ValueError, match="there is no gamepad"):
        Panel(["a"], None, None, gamepad=True)


def test_the_mailbox_takes_the_newest_wish_and_loses_no_order():
    come, theirs = os.pipe()
    ours, go = os.pipe()
    report = Report(1.0, "run", np.zeros((2, 3)), np.zeros((2, 2)), np.ones(2, bool))
    mailbox = Mailbox(Lines(come, go))
    assert mailbox.wish(report) is None
    first = Wish(np.zeros((2, 2)), fail={1: "land"}, stop=("cf2",), notes=({"kind": "say", "words": "a"},))
    for wish in (first, Wish(np.ones((2, 2)), done=True), Wish(np.ones((2, 2)))):
        os.write(theirs, (json.dumps(wish.to_json()) + "\n").encode())
    got = mailbox.wish(report)
    np.testing.assert_array_equal(got.velocity, np.ones((2, 2)))
    assert (got.fail, got.stop, len(got.notes), got.done) == ({1: "land"}, ("cf2",), 1, True)
    for _ in range(2000):  # nobody reads the reports: nobody waits for that
        mailbox.wish(report)
    assert Report.from_json(json.loads(os.read(ours, 1 << 16).split(b"\n")[0])["report"]).stage == "run"
    os.close(theirs)
    assert mailbox.wish(report).land == "the process of the policy has ended"
    for end in (come, ours, go):
        os.close(end)


def test_poses_over_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        port = 20000 + os.getpid() % 20000
        with open_source(f"udp:{port}") as source:
            assert source.pose("cf1") is None
            for text in (
                b"\xff",
                b"[]",
                b'{"time": 1, "poses": [["cf1", 1]]}',
                b'{"time": 1, "poses": [["cf1", NaN, 1, 1]]}',
                b'{"time": 1, "poses": [["cf1", 1, 1, 1' + b"0" * 400 + b"]]}",
                b"[" * 50_000,
                b'{"time": 1, "poses": [["cf1", [1, 2], [3, 4], [5, 6]]]}',
            ):
                sender.sendto(text, ("127.0.0.1", port))
            for at in range(3):
                poses = [["cf1", 0.1 * at, 0.0, 0.5], ["cf2", 1, 2, 3, 4, 5, 6, 0, 0, 0, 1]]
                sender.sendto(json.dumps({"time": 7 + 0.1 * at, "poses": poses}).encode(), ("127.0.0.1", port))
            pose = source.pose("cf1")
            assert (pose.stamp, pose.attitude) == (pytest.approx(7.2), None)
            np.testing.assert_allclose(pose.position, [0.2, 0.0, 0.5])
            assert 0.4 < pose.velocity[0] < 1.0  # from differences
            np.testing.assert_allclose(source.pose("cf2").velocity, [4, 5, 6])
            np.testing.assert_allclose(source.pose("cf2").attitude, [0, 0, 0, 1])
            with pytest.raises(ValueError, match="is not free"):
                UdpSource(port)


def test_poses_from_cameras(monkeypatch):
    """Of the package `motioncapture`, which names bodies as the drones are named."""
    frames = iter(np.linspace(0.0, 1.0, 5))

    class System:
        def waitForNextFrame(self):
            time.sleep(0.01)
            place = np.array([next(frames, np.nan), 2.0, 3.0])
            turn = SimpleNamespace(x=0.0, y=0.0, z=1.0, w=0.0)
            self.rigidBodies = {"cf1": SimpleNamespace(position=place, rotation=turn)}

    asked = []
    module = SimpleNamespace(connect=lambda kind, how: asked.append((kind, how)) or System())
    monkeypatch.setitem(sys.modules, "motioncapture", module)
    with open_source("motioncapture:vicon@lab") as source:
        deadline = time.monotonic() + 10
        while (pose := source.pose("cf1")) is None or pose.position[0] < 1:
            assert time.monotonic() < deadline
        np.testing.assert_array_equal(pose.position, [1, 2, 3])
        np.testing.assert_array_equal(pose.attitude, [0, 0, 1, 0])
        assert pose.velocity[0] > 1
        assert source.pose("cf2") is None
    assert asked == [("vicon", {"hostname": "lab"})]
    monkeypatch.setitem(sys.modules, "motioncapture", None)
    with pytest.raises(ValueError, match=r"pip install 'legoswarm\[mocap\]'"), open_source("motioncapture:vicon@lab"):
        pass


def test_the_documented_flight_of_ones_own():
    """Two drones change places by a commander of a few lines; its own estimates come in over UDP."""
    spec = importlib.util.spec_from_file_location("flight", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    starts = np.array(example.STARTS)
    world = World(["cf1", "cf2"], PointMass(starts), airspace=Airspace())
    drones = [Drone(link, "drone", start) for link, start in zip(world.links, example.STARTS, strict=True)]
    outcome = Guard(drones, plan=changed(rate=25.0), clock=world).fly(example.ChangePlaces())
    assert (outcome.error, set(outcome.statuses.values())) == (None, {Status.LANDED})
    np.testing.assert_allclose(world.plant.position, starts[::-1], atol=0.15)
    assert world.airspace.closest > 0.24
    with open_source(f"udp:{example.PORT}") as source:
        example.send_estimate(["cf1", "cf2"], [(0.0, 0.0, 0.5), (1.0, 2.0, 3.0)], 7.0)
        np.testing.assert_array_equal(source.pose("cf2").position, [1, 2, 3])
    assert f"is {len(EXAMPLE.read_text().splitlines())} lines" in (EXAMPLE.parents[1] / "docs/deploy.md").read_text()


@pytest.mark.parametrize("words", ["udp:0", "udp:x", "vicon", "motioncapture:vicon"])
def test_sources_that_are_none(words):
    with pytest.raises(ValueError, match="positions come from udp:PORT or"), open_source(words):
        pass


@pytest.mark.slow
def test_a_drone_is_checked_with_positions_from_outside(tmp_path, capsys):
    port = 20001 + os.getpid() % 20000
    with EndpointProcess([[0.2, 0.3]], cameras=port) as world:
        robot = f"{{uri: '{world.uris[0]}', initial_position: [0.2, 0.3, 0]}}"
        (tmp_path / "one.yaml").write_text(f"fileversion: 3\nrobots: {{cf1: {robot}}}")
        words = ["--check", "--source", f"udp:{port}", "--settle-seconds", "0.2", "--take-off-seconds", "1"]
        assert main(["fly", str(tmp_path / "one.yaml"), *words]) == 0
        (drone,) = world.report()
        assert drone["cut_offs"] == []
        assert drone["room"]["top"] == pytest.approx(0.4, abs=0.05)
    said = capsys.readouterr().err
    assert "decks bcFlow2" in said
    assert "cf1 is fit to fly" in said


def test_heights_and_starts_outside_the_arena_are_refused():
    with pytest.raises(MissionError, match=r"cf3 would fly at 1\.9 m, but the rules allow 0\.2 to 1\.7 m"):
        Scenario(plan=changed(evader_height=1.9))
    with pytest.raises(MissionError, match="cf1 stands at a height of 1 m, not on the ground"):
        Scenario(starts=((-1.0, -0.8, 1.0), (1.0, -0.8, 0.0), (0.0, 1.0, 0.0)))


def test_a_brushless_drone_is_armed_and_firmware_parameters_are_set():
    scenario = Scenario(faults={1: {"brushless": True}})
    scenario.guard.drones[0].parameters = {"stabilizer.controller": 2.0}
    assert "cf1 has stabilizer.controller 2" in str(scenario.fly().error)
    assert Scenario(faults={1: {"brushless": True}}).fly().error is None


def test_a_drone_without_a_deck_to_know_its_position_by_is_refused():
    scenario = Scenario()
    scenario.world.drones[1].parameters.values["deck.bcFlow2"] = 0
    assert "cf2 needs a deck to know its position by" in str(scenario.fly().error)


def test_voltage_critical_lands_a_drone():
    scenario = Scenario(plan=changed(horizon=10))
    scenario.guard.squad.members[0].critical = 3.89
    assert scenario.fly().failures["cf1"].startswith("its battery is low (3.8")
