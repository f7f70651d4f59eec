"""The command `legoswarm fly`: dry runs, replays, statistics, and short flights through the real cflib."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from flights import STARTS, Chaser
from PIL import Image
from saved import save_small
from test_crazyflies import MERGE_BOMB
from test_link import Metronome

from legoswarm.cli import main
from legoswarm.deploy import flight_statistics
from legoswarm.deploy.flightlog import read_flight
from legoswarm.deploy.plan import Plan
from legoswarm.deploy.setting import Setting, draw_obstacles, draw_start
from legoswarm.deploy.sitl.process import EndpointProcess
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag

pytestmark = pytest.mark.usefixtures("unchecked")
QUICK = ["--take-off-seconds", "1", "--settle-seconds", "0.2", "--land-seconds", "1", "--rate", "25"]


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A policy for Tag with random weights."""
    return str(save_small(tmp_path_factory.mktemp("policies") / "tag", Tag(pursuers=2, evaders=1, obstacles=2)))


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*words):
    return main(["fly", *map(str, words)])


def test_a_dry_run_writes_logs_pictures_and_a_summary(policy, tmp_path, capsys):
    words = ["--policy", policy, "--dry-run", "--horizon", 4, "--fail-at", 2, *QUICK]
    assert run(*words, "--trials", 2, "--seed", 3, "--out", "out") == 0
    names = ["summary.json", "trial-1.gif", "trial-1.jsonl", "trial-2.gif", "trial-2.jsonl", "trials.png"]
    assert sorted(os.listdir("out")) == names
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert [trial["error"] for trial in summary["trials"]] == [None, None]
    assert [trial["failures"] for trial in summary["trials"]] == [{"cf1": "scheduled"}] * 2
    assert set(summary["trials"][0]["statuses"].values()) == {"landed"}
    for trial in summary["trials"]:
        assert (trial["failure"], trial["dry"], trial["radio"], trial["plant"]) == ("land", True, None, "point")
        assert list(trial["simulated"]) == list(trial["intervals"]) == ["cf1", "cf2", "cf3"]
        assert 0 < trial["largest_gap"] < 0.1
        assert trial["simulated"]["cf1"]["setpoints"] < trial["simulated"]["cf2"]["setpoints"]
    assert summary["command"].startswith("legoswarm fly --policy")
    assert {"versions", "hardware", "revision", "policy", "policy_seed"} <= set(summary)
    assert (tmp_path / "out/summary.json").stat().st_size < 20_000
    flights = [read_flight(tmp_path / f"out/trial-{number}.jsonl") for number in (1, 2)]
    assert flights[0].about["starts"] != flights[1].about["starts"]
    assert flights[0].about["plan"]["fail_at"] == 2
    with Image.open("out/trial-1.gif") as gif:
        assert gif.n_frames == 4
    said = capsys.readouterr().err
    assert "trial 2: step 0 of 4" in said
    assert said.splitlines()[-1].endswith(" out/trials.png")  # how to open it

    assert run(*words, "--out", "out") == 2
    assert "exists: name another folder" in capsys.readouterr().err

    before = (tmp_path / "out/trials.png").read_bytes()
    assert run("--replay", "out/trial-1.jsonl", "out/trial-2.jsonl", "--out", "again") == 0
    assert (tmp_path / "again/trials.png").read_bytes() == before
    assert sorted(os.listdir("again")) == ["trial-1.gif", "trial-2.gif", "trials.png"]


# Files that nobody ever writes into, or that have no end.
NEVER_ENDING = [
    [*words, name]
    for name in ("pipe", "/dev/zero")
    for words in ([], ["--replay"], ["--dry-run", "--landmarks"], ["--dry-run", "--policy"])
    if words[1:] != ["--policy"] or name == "pipe"
]


@pytest.fixture(scope="module")
def cabinet(policy, tmp_path_factory):
    """A folder of files that cannot be flown."""
    folder = tmp_path_factory.mktemp("cabinet")
    damaged = shutil.copytree(policy, folder / "damaged")
    (damaged / "policy.safetensors").write_bytes((damaged / "policy.safetensors").read_bytes()[:-100])
    save_small(folder / "spread", Spread())
    robot = "{uri: radio://0/80/2M/E7E7E7E701, initial_position: [0, 0, 0]}"
    (folder / "three.yaml").write_text(f"fileversion: 3\nrobots: {{cf1: {robot}}}\n")
    (folder / "bomb.yaml").write_text(MERGE_BOMB)
    (folder / "far.txt").write_text("0 0\n3, 0\n")
    shutil.copy(damaged / "policy.json", folder / "pipe.json")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "name a crazyflies.yaml, or choose one of"),
        (["--dry-run", "--horizon", 2**70], "a horizon has at most 1,000,000 steps"),
        (["--dry-run", "--failure", "explode"], "failure must be land, hover, motors_off or none"),
        (["--dry-run", "--policy", "nowhere"], "nowhere does not exist"),
        (["--dry-run", "--policy", "damaged"], "is damaged"),
        (["--dry-run", "--policy", "spread"], "it knows agent, landmark, not pursuers and evaders"),
        (["--dry-run", "--obstacles", "1", "2", "3"], "two numbers for each obstacle"),
        (["--dry-run", "--gain", "5"], "the gain of the safety rules"),
        (["--dry-run", "--stretch", "2"], "more than 0.5"),
        (["--dry-run", "--pursuers", "0"], "at least one pursuer"),
        (["--dry-run", "--trials", "0"], "at least one trial"),
        (["--dry-run", "--radio", "0.1"], "a dry run has no radio"),
        (["--sitl", "--radio", "1.5"], "between 0 and 1, not at 1.5"),
        (["--dry-run", "--out", "three.yaml/out"], "Not a directory"),
        (["--replay", "nothing.jsonl"], "nothing.jsonl does not exist"),
        (["--replay", "damaged/policy.json"], "is not a flight log"),
        (["--statistics", "--out", "figures.txt"], "written into a .json file"),
        (["three.yaml"], "three.yaml has 1 robots that are enabled, but this needs 2 pursuers and 1 evaders"),
        (["three.yaml", "--trials", "2"], "real drones fly one trial at a time"),
        (["none.yaml"], "none.yaml does not exist"),
        (["bomb.yaml"], "bomb.yaml uses YAML aliases"),
        (["--dry-run", "--landmarks", "three.yaml"], "does not have two numbers, x and y in metres, in each line"),
        (["--dry-run", "--landmarks", "far.txt"], "Spread needs landmarks within 1.8 m of the room's centre"),
        *((words, "is not a plain file") for words in NEVER_ENDING),
    ],
)
def test_what_cannot_be_flown_is_refused_in_one_sentence(words, why, policy, cabinet, monkeypatch, capsys):
    monkeypatch.chdir(cabinet)
    before = sorted(cabinet.rglob("*"))
    default = [] if "--policy" in words else ["--policy", policy]
    assert run(*words, *default) == 2
    error = capsys.readouterr().err
    assert error.startswith("legoswarm fly: ")
    assert error.count("\n") == 1
    assert why in error
    assert sorted(cabinet.rglob("*")) == before


def test_spread_covers_the_landmarks_of_a_file(tmp_path):
    Path("places.txt").write_text("0.9 0.9\n\n-0.9, 0.6\n0 -1\n")
    words = ["--policy", "zoo:spread", "--landmarks", "places.txt", "--dry-run", "--trials", 1, "--horizon", 16]
    assert run(*words, "--failure", "none", *QUICK, "--out", "out") == 0
    flight = read_flight(tmp_path / "out/trial-1.jsonl")
    places = np.array([[0.9, 0.9], [-0.9, 0.6], [0, -1]])
    np.testing.assert_array_equal(flight.about["landmarks"], places)
    assert (flight.about["roles"], flight.about["obstacles"]) == (["agent"] * 3, [])
    track = flight.position[flight.during("run")]
    away = np.linalg.norm(track[:, :, None, :2] - places, axis=-1).min(1)  # from each landmark to the nearest drone
    assert away[-1].max() < 0.3 < away[0].max()
    assert set(flight.end["statuses"].values()) == {"landed"}
    assert (tmp_path / "out/trials.png").exists()


@pytest.mark.slow
def test_the_papers_experiment_through_the_real_cflib(policy, tmp_path):
    """A pursuer fails on the way; the drones, in a process of their own, say how they were treated."""
    words = ["--policy", policy, "--sitl", "--trials", 1, "--horizon", 6, "--fail-at", 2, "--failure", "motors_off"]
    with Metronome() as metronome:
        assert run(*words, *QUICK, "--out", "out") == 0
    (trial,) = json.loads((tmp_path / "out/summary.json").read_text())["trials"]
    assert trial["statuses"] == {"cf1": "fell", "cf2": "landed", "cf3": "landed"}
    fallen, *others = trial["simulated"].values()
    assert [cut["cause"] for cut in fallen["cut_offs"]] == ["stop setpoint"]
    for drone in others:
        assert drone["cut_offs"] == []
        assert drone["height"] < 0.05
        assert drone["setpoints"] > 80
        assert drone["largest_gap"] <= trial["largest_gap"] < 0.1 + metronome.stall


def write_crazyflies(uris):
    """A crazyflies.yaml with simulated drones."""
    lines = [
        f"  cf{at + 1}: {{uri: '{uri}', initial_position: {list(start)}}}"
        for at, (uri, start) in enumerate(zip(uris, STARTS, strict=True))
    ]
    Path("crazyflies.yaml").write_text("\n".join(["fileversion: 3", "robots:", *lines]))


def test_drones_that_are_not_fit_are_refused_in_one_sentence(policy, tmp_path, capsys):
    why = "cf1 has stabilizer.controller 2, but this needs 1"
    with EndpointProcess([start[:2] for start in STARTS]) as drones:
        write_crazyflies(drones.uris)
        drones.inject(0, controller=2)
        assert run("crazyflies.yaml", "--policy", policy, "--out", "out") == 2
        assert all(drone["position"][2] == 0 and not drone["cut_offs"] for drone in drones.report())
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"legoswarm fly: {why}")
    (trial,) = json.loads((tmp_path / "out/summary.json").read_text())["trials"]
    assert why in trial["error"]
    assert trial["reached"] in ("connect", "preflight")


@pytest.mark.parametrize("how", [[], ["--radio", "0"]], ids=["udp", "radio"])
def test_flying_without_cflib_is_refused_in_one_sentence(how, policy, tmp_path, monkeypatch, capsys):
    """Nothing is written either: the same command must fly once cflib is there."""
    monkeypatch.setitem(sys.modules, "cflib.crazyflie", None)
    monkeypatch.setitem(sys.modules, "cflib.crtp.radiodriver", None)
    assert run("--sitl", *how, "--policy", policy, "--out", tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("pip install 'legoswarm[fly]'")
    assert not (tmp_path / "out").exists()


def test_a_simulated_world_that_ends_is_told_in_the_summary(policy, tmp_path, monkeypatch, capsys):
    def end(process):
        process._process.kill()
        process._process.wait()
        return process._ask({})

    monkeypatch.setattr(EndpointProcess, "report", end)
    assert run("--sitl", "--policy", policy, "--trials", 1, "--battery-full", 5, "--out", "out") == 2
    assert "5 V are needed" in capsys.readouterr().err.splitlines()[-1]
    (trial,) = json.loads((tmp_path / "out/summary.json").read_text())["trials"]
    assert "the simulated drones have ended" in trial["simulated"]


@pytest.mark.slow
def test_ctrl_c_lands_the_drones_of_a_file(policy, tmp_path):
    """A flight that is interrupted."""
    with EndpointProcess([start[:2] for start in STARTS]) as drones:
        write_crazyflies(drones.uris)
        words = ["fly", "crazyflies.yaml", "--policy", policy, *QUICK, "--out", "out"]
        flight = subprocess.Popen([sys.executable, "-m", "legoswarm.cli", *words], stderr=subprocess.PIPE, text=True)
        for line in flight.stderr:
            if "step 0" in line:
                break
        time.sleep(0.5)
        assert all(drone["position"][2] > 0.4 for drone in drones.report())
        flight.send_signal(signal.SIGINT)
        _, rest = flight.communicate(timeout=60)
        assert flight.returncode == 130
        assert "interrupted" in rest
        for drone in drones.report():
            assert drone["cut_offs"] == []
            assert drone["position"][2] < 0.05
    (trial,) = json.loads((tmp_path / "out/summary.json").read_text())["trials"]
    assert trial["error"] == "interrupted"
    assert set(trial["statuses"].values()) == {"landed"}
    assert (tmp_path / "out/trials.png").exists()


def test_statistics_compare_flights_with_the_plain_task(policy, tmp_path, capsys):
    words = ["--policy", policy, "--statistics", "--episodes", 2, "--horizon", 6, "--fail-at", 2, "--seed", 5]
    assert run(*words, *QUICK, "--out", "figures/a.json") == 0
    result = json.loads((tmp_path / "figures/a.json").read_text())
    assert result["episodes"] == 2
    assert result["command"].startswith("legoswarm fly --policy")
    assert {"versions", "hardware", "revision", "setting"} <= set(result)
    assert set(result["plain"]) == set(result["flown"]) == set(result["difference"])
    assert result["difference"]["captured"]["interval"][0] <= result["difference"]["captured"]["interval"][1]
    said = capsys.readouterr().err
    assert "capture share of the remaining pursuer: plain" in said
    assert said.splitlines()[-1] == "Read it: python3 -m json.tool figures/a.json"


def test_a_flight_without_failure_is_close_to_the_plain_task():
    setting = Setting(plan=Plan(failure="none", horizon=12, take_off_seconds=1.0, settle_seconds=0.2))
    rng = np.random.default_rng(7)
    setting = setting.among(draw_obstacles(setting, 2, rng))
    start = draw_start(setting, rng)
    plain = flight_statistics.play_plain_task(Chaser(), setting, start)
    flown = flight_statistics.fly_in_process(Chaser(), setting, start)
    assert plain.shape == flown.shape == (13, 3, 2)
    assert np.linalg.norm(plain[-1] - plain[0], axis=-1).max() > 0.5
    assert np.linalg.norm(plain - flown, axis=-1).max() < 0.2


def test_what_is_measured():
    setting = Setting(plan=Plan(failure="land", fail_at=2, horizon=4))
    track = np.zeros((5, 3, 2))
    track[:, 0] = [0.0, 0.1]  # touches all the time, but has failed by then
    track[:, 1, 0] = [1.5, 1.5, 1.5, -1.5, -1.5]  # passes the evader between two steps
    figures = flight_statistics.measure_episode(setting, track)
    assert (figures["captured"], figures["capture_time"], figures["near_time"]) == (1.0, 1.0, 1.0)
    assert figures["pursuer_return"] == 40.0
    assert figures["evader_return"] == -40.0
    track[:, 1, 0] = 1.5
    figures = flight_statistics.measure_episode(setting, track)
    assert (figures["captured"], figures["capture_time"]) == (0.0, 3.0)
    track[:, 2] = [1.5, 1.5]  # at the arena's edge, 1 in both directions
    assert flight_statistics.measure_episode(setting, track)["evader_return"] == pytest.approx(-4 * 2.0)


def test_starts_are_such_as_a_mission_accepts():
    setting = Setting()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        obstacles = draw_obstacles(setting, 2, rng)
        start = draw_start(setting.among(obstacles), rng)
        gaps = np.linalg.norm(start[:, None] - start[None], axis=-1)[np.triu_indices(3, 1)]
        assert gaps.min() > setting.rules.separation
        assert np.linalg.norm(start[:, None] - obstacles[None], axis=-1).min() > 0.2
    crowded = Setting(roles=("pursuer",) * 25 + ("evader",))
    with pytest.raises(ValueError, match="no room"):
        draw_start(crowded, np.random.default_rng(0))
