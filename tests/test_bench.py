import json
import tempfile

import pytest

from legoswarm.cli import main
from legoswarm.learn.algorithms.mappo import Mappo
from legoswarm.learn.train import TrainConfig
from legoswarm.studies import bench
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from tests.tiny import TINY as LINEAR
from tests.tiny import Yard


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    """What is timed would wait for every other run on this machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


TINY = Mappo(envs=4, rollout=5, epochs=1, minibatches=1)


def test_training_counts_what_it_ran():
    row = bench.training_speed(TrainConfig(Yard(), LINEAR, TINY, 40), seeds=2)
    assert row["steps"] == 40
    assert row["env_steps_per_second"] == pytest.approx(2 * 40 / row["run_seconds"])
    assert row["agent_steps_per_second"] == pytest.approx(2 * row["env_steps_per_second"])
    assert row["actor_parameters"] == 4 * 2 + 2
    assert min(row["compile_cached_seconds"], row["compile_cold_seconds"]) > 0
    assert row["peak_megabytes"] > 10


def test_each_policy_has_a_row_at_each_size(monkeypatch):
    def speed(config, seeds, devices):
        row = {"policy": config.policy.name, "width": config.policy.width, "agents": config.task.layout.agents}
        assert (config.policy.critic, config.algorithm.name, config.algorithm.lr) == ("pairs", "ippo", 0.5)
        return row

    monkeypatch.setattr(bench, "training_speed", speed)
    kept = []
    report = bench.bench(
        policies=["lego", "mappo"], agents=[2, 3], seeds=[1], steps=10_000, algorithm="ippo",
        options={"critic": "pairs", "lr": 0.5}, keep=lambda report: kept.append(len(report["rows"])),
    )  # fmt: skip
    assert kept == [1, 2, 3, 4]  # a killed one has what it measured
    sizes = [(row["policy"], row["width"], row["agents"]) for row in report["rows"]]
    assert sizes == [(p, w, n) for n in (2, 3) for p, w in (("lego", 64), ("mappo", 128))]


def test_the_command_prints_and_writes_its_rows(capsys, monkeypatch, tmp_path):
    def speed(config, seeds, devices):
        return {"policy": config.policy.name, "seeds": seeds}

    monkeypatch.setattr(bench, "training_speed", speed)
    assert main(["bench", "--policies", "mappo", "--width", "8", "--json", "--out", str(tmp_path / "b.json")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == [{"policy": "mappo", "seeds": 1}]
    assert json.loads((tmp_path / "b.json").read_text()) == report


def test_stops_where_the_return_is_reached_and_says_when_it_is_not():
    config = TrainConfig(Yard(), LINEAR, TINY, 40)
    reached = bench.seconds_to_return(config, 1, target=-1e9, chunk=1, episodes=2)
    assert reached["steps"] == 20
    assert reached["seconds"] == reached["curve"][0]["seconds"]
    missed = bench.seconds_to_return(config, 1, target=1e9, chunk=1, episodes=2)
    assert missed["seconds"] is None
    assert [point["steps"] for point in missed["curve"]] == [20, 40]


@pytest.mark.parametrize("task", [Spread(agents=2), Tag(pursuers=1, evaders=1, obstacles=1)])
def test_worlds_alone(task):
    row = bench.world_speed(task, worlds=8, steps=10)
    assert row["agents"] == 2
    assert row["env_steps_per_second"] > 100


def test_the_command_writes_a_report(tmp_path, capsys):
    out = tmp_path / "worlds.json"
    assert main(["bench", "--worlds", "8", "--agents", "2", "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert report["command"].startswith("legoswarm bench --worlds 8")
    assert report["rows"][0]["worlds"] == 8
    assert set(report) >= {"versions", "hardware", "date"}
    table = capsys.readouterr().out
    assert "env_steps_per_second" in table
    assert "jax" in table


def test_acting_among_many_and_among_the_nearest():
    rows = [bench.acting_time("zoo:spread", 40, nearest, calls=8) for nearest in (0, 4)]
    assert [row["nearest"] for row in rows] == [0, 4]
    assert all(0 < row["median_milliseconds"] <= row["largest_milliseconds"] for row in rows)


def test_a_device_that_is_not_there(capsys):
    assert main(["bench", "--device", "gpu"]) == 2
    assert "does not find a GPU" in capsys.readouterr().err
    assert main(["bench", "--device", "cpu", "--worlds", "4", "--agents", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hardware"]["device"].startswith("cpu")
