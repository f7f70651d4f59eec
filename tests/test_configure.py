"""Configurations: the same words give the same run from Python and from the command line, and config.json says all."""

import dataclasses
import functools
import itertools
import json
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import legoswarm
from legoswarm import ALGORITHMS, POLICIES, TASKS, FileError, RunConfig, Spread, TrainConfig, configure
from legoswarm.cli import main
from legoswarm.cli.train import Train
from legoswarm.configs import named
from legoswarm.files import read_arrays
from legoswarm.learn import loop
from legoswarm.learn.folder import CHECKPOINT, RunFolder, read_train, train_json
from legoswarm.policies.lego import LegoPolicy
from legoswarm.tasks.navigation import Navigation
from tests.policies import policy_of

CONVERT = Path(__file__).parent.parent / "tools" / "convert.py"


def own(registry):
    """The names of what comes with the package."""
    return [name for name in registry.names() if registry.own(name)]


COMBINATIONS = list(itertools.product(own(TASKS), own(POLICIES), own(ALGORITHMS)))


def names(kind):
    return {field.name for field in dataclasses.fields(kind)}


# The same words


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """What `legoswarm train` writes about the training that the words ask for, before it trains."""

    class Interrupted(loop._Run):
        def __init__(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_Run", Interrupted)

    def train(words):
        assert main(["train", *words.split(), "--out", str(tmp_path / "run")]) == 130
        return json.loads((tmp_path / "run" / "config.json").read_text())

    return train


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("spread", lambda: TrainConfig(Spread())),
        ("spread", lambda: configure("spread")),
        ("navigation --agents 4", lambda: TrainConfig(Navigation(agents=4))),
        ("navigation --algorithm mappo", lambda: configure("navigation", algorithm="mappo")),
        ("spread --policy mappo --envs 64", lambda: configure("spread", policy="mappo", envs=64)),
        ("spread --agents 4 --no-anneal", lambda: configure(Spread(agents=4), LegoPolicy(), anneal=False)),
        (
            "tag --policy mappo-gnn --algorithm ippo --pursuers 2 --steps 2e5 --runaway 50",
            lambda: configure("tag", "mappo-gnn", "ippo", pursuers=2, steps=200_000, runaway=50.0),
        ),
        ("spread --algorithm masac --tau 0.1", lambda: configure("spread", algorithm="masac", tau=0.1)),
    ],
)
def test_python_and_the_command_line(trained, words, same):
    values, train = trained(words), same()
    assert read_train(values) == train
    assert {name: values[name] for name in train_json(train)} == train_json(train)


def test_what_was_found_for_a_policy_is_its_default():
    """Also for IPPO, which is a kind of MAPPO; what is given wins, and another algorithm has its own."""
    found = POLICIES["mappo-gnn"].tuned["mappo"]
    for algorithm in ("mappo", "ippo"):
        train = configure("spread", "mappo-gnn", algorithm, entropy=0.5)
        assert {name: getattr(train.algorithm, name) for name in found} == {**found, "entropy": 0.5}
    assert configure("spread", "mappo-gnn", "masac").algorithm == ALGORITHMS["masac"]()
    assert TrainConfig(Spread(), POLICIES["mappo-gnn"]()) == configure("spread", "mappo-gnn")


def test_what_was_found_for_a_task_is_its_default():
    """Before what was found for the policy; what is given wins, and a policy takes what it has."""
    train = configure("navigation", gamma=0.95)
    found = {**Navigation.suits["masac"], "gamma": 0.95}
    assert LegoPolicy.tuned["masac"]["lr"] != found["lr"]
    assert {**vars(train.policy), **vars(train.algorithm)}.items() >= found.items()
    assert train.policy.squash == 1 == TrainConfig(Navigation()).policy.squash  # the world's own limit
    assert configure("navigation", leash=1.0).policy.leash == 1
    assert configure("navigation", "mappo", "masac").algorithm == configure("navigation").algorithm
    assert configure("spread").policy == LegoPolicy()


@pytest.mark.parametrize(
    ("policy", "algorithm", "option"),
    [
        ("lego", "mappo", "colour"),
        ("mappo", "mappo", "heads"),
        ("mappo", "mappo", "slow"),
        ("lego", "mappo", "capacity"),
        ("lego", "masac", "epochs"),
        ("lego", "mappo", "pursuers"),
    ],
)
def test_an_option_that_nobody_has_is_refused_by_name(policy, algorithm, option, tmp_path, capsys):
    with pytest.raises(ValueError, match=f"neither the task spread nor .* {policy} nor {algorithm} has '{option}'"):
        configure("spread", policy, algorithm, **{option: 3})
    words = f"train spread --policy {policy} --algorithm {algorithm} --{option} 3 --out {tmp_path / 'run'}"
    try:
        code = main(words.split())
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"--{option}" in err
    assert list(tmp_path.iterdir()) == []


def test_a_class_refuses_what_it_does_not_have():
    for registry, name in ((TASKS, "spread"), (POLICIES, "mappo"), (ALGORITHMS, "mappo")):
        with pytest.raises(ValueError, match=f"the {registry.kind} {name} has no option 'colour'"):
            registry.make(name, colour="red")
        with pytest.raises(ValueError, match=f"unknown {registry.kind} 'nobody'; known: .*{name}"):
            registry.make("nobody")


@pytest.mark.parametrize("combination", COMBINATIONS, ids="-".join)
def test_a_name_means_one_thing(combination):
    """No field is in two of task, policy and algorithm, or an option of `train` too: one word would set both."""
    parts = [registry[name] for registry, name in zip((TASKS, POLICIES, ALGORITHMS), combination, strict=True)]
    for one, other in itertools.combinations([*parts, TrainConfig, Train], 2):
        assert names(one) & names(other) <= {"task", "policy", "algorithm"}, (one, other)


# config.json


@pytest.mark.parametrize("combination", COMBINATIONS, ids="-".join)
def test_a_training_survives_json(combination):
    train = configure(*combination, leash=1.25, steps=3_000_000, runaway=77.0)
    assert read_train(json.loads(json.dumps(train_json(train)))) == train


def test_what_decides_results_stands_in_it(tmp_path):
    constants = {"noise_ceiling": 2.5, "value_floor": 0.5, "leash_gain": 3.0, "slow": 0.25, "runaway": 99.0}
    train = configure("spread", algorithm="mappo", **constants)
    RunFolder(tmp_path / "run").create(RunConfig(train), "")
    values = json.loads((tmp_path / "run" / "config.json").read_text())
    found = {**values["policy"], **values["algorithm"], **values}
    assert {name: found[name] for name in constants} == constants
    assert RunFolder(tmp_path / "run").read_config().train == train


def test_every_field_stands_in_it():
    train = configure("tag", "segnn", "masac")
    values = train_json(train)
    for part in ("task", "policy", "algorithm"):
        assert set(values[part]) == {"name", *names(type(getattr(train, part)))}
    assert set(values) == names(TrainConfig)


# Version 0.1


def as_version_0_1(folder, critic="full"):
    """Write a run of MAPPO's MLPs as version 0.1 did: nothing but the JSON files was different."""
    policy = {
        "policy": "mappo", "width": 8, "depth": 2, "heads": 4, "encoder": "attention", "pooling": "mean",
        "axis": "velocity", "rest": "equivariant", "hands": 1, "leash": 1.5, "critic": critic, "nearest": 0,
        "log_std": 0.0, "precision": "auto",
    }  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    new = ("name", "noise_ceiling", "value_floor")
    mappo = {name: value for name, value in config.pop("algorithm").items() if name not in new}
    del config["runaway"]
    (folder / "config.json").write_text(json.dumps({**config, "policy": policy, "mappo": mappo}))
    about = json.loads((folder / "policy.json").read_text())
    del about["dimension"]
    (folder / "policy.json").write_text(json.dumps({**about, "format": 1, "policy": policy}))


def convert(path, monkeypatch):
    """Run the tool; its exit code."""
    monkeypatch.setattr(sys, "argv", ["convert.py", str(path)])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(CONVERT))
    return int(stop.value.code)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run from beginning to end, and the same one interrupted in the middle."""
    folder = tmp_path_factory.mktemp("runs")
    train = configure(
        Spread(agents=2), policy_of("mappo", width=8), envs=4, rollout=5, epochs=1, minibatches=1, steps=80
    )
    config = RunConfig(train, evaluations=1, eval_episodes=2)
    append = RunFolder.append_metrics

    def interrupt(run, row):
        append(run, row)
        if row["iteration"] == 3:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "Programs", functools.cache(loop.Programs))
        legoswarm.start_run(config, folder / "whole", quiet=True)
        patch.setattr(RunFolder, "append_metrics", interrupt)
        with pytest.raises(KeyboardInterrupt):
            legoswarm.start_run(config, folder / "half", quiet=True)
    return folder


def test_a_run_of_version_0_1_is_refused_and_says_how_to_convert_it(runs, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    shutil.copytree(runs / "half", run)
    as_version_0_1(run)
    assert main(["train", "--resume", str(run)]) == 2
    assert main(["eval", str(run)]) == 2
    first, second, nothing = capsys.readouterr().err.split("\n")
    assert first.endswith(f"config.json was written by version 0.1; convert it: python tools/convert.py {run}")
    assert "version 0.1; convert it: python tools/convert.py" in second
    assert nothing == ""
    with pytest.raises(FileError, match=r"tools/convert\.py"):
        legoswarm.load(run)

    assert convert(run, monkeypatch) == 0
    for name in ("config.json", "policy.json"):
        assert json.loads((run / name).read_text()) == json.loads((runs / "half" / name).read_text())
    legoswarm.load(run)
    legoswarm.resume_run(run, quiet=True)
    one, two = (read_arrays(folder / CHECKPOINT) for folder in (run, runs / "whole"))
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name], err_msg=name)


def test_ippo_of_version_0_1(runs, tmp_path, monkeypatch, capsys):
    """It was a critic's name; that of MLPs and SEGNN was another network, whose weights fit nothing of today."""
    run = tmp_path / "run"
    shutil.copytree(runs / "half", run)
    as_version_0_1(run, critic="local")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert convert(run, monkeypatch) == 1
    assert capsys.readouterr().out.count("cannot be converted: the critic local was another network") == 2
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before

    values = json.loads((run / "config.json").read_text())
    values["policy"]["policy"] = "lego"
    (run / "config.json").write_text(json.dumps(values))
    assert convert(run / "config.json", monkeypatch) == 0
    train = RunFolder(run).read_config().train
    assert (train.algorithm.name, train.policy) == ("ippo", policy_of(width=8))
    assert named(train.algorithm).keys() >= values["mappo"].keys()
