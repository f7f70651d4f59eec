"""The command line: impossible wishes are refused in one sentence, possible ones are done."""

import dataclasses
import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import legoswarm
from legoswarm import own
from legoswarm.cli import main
from legoswarm.cli.options import REQUIRED, Group, argument, number, of, parse, whole
from legoswarm.configs import field_kinds, from_json, named, option, to_json
from legoswarm.evaluate.policies import evaluate_policy, format_table
from legoswarm.learn.algorithms.mappo import Mappo
from legoswarm.learn.algorithms.masac import Masac
from legoswarm.learn.folder import RunConfig, RunFolder
from legoswarm.learn.train import TrainConfig
from legoswarm.policies.lego import LegoPolicy
from legoswarm.policies.saved.file import load_policy
from legoswarm.studies import demo
from legoswarm.studies.paper import GENERALIZATION
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from tests.saved import save_small

FIGURES = {
    "spread": ["return_2c", "return_1c", "distance", "collisions", "frame_flips"],
    "tag": [
        "pursuer_return",
        "evader_return",
        "captures",
        "capture_share",
        "hidden_share",
        "evader_gap",
        "surround",
        "frame_flips",
    ],
}
TINY = ["--width", "8", "--depth", "0", "--heads", "2"]
TINY += ["--algorithm", "mappo", "--envs", "4", "--rollout", "5", "--epochs", "1"]


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    """A folder with small policies: spread, mpe2 (Spread in mpe2's protocol), tag, other (Tag, one seed)."""
    folder = tmp_path_factory.mktemp("policies")
    save_small(folder / "spread", Spread(agents=3), seeds=(7, 8), best=1)
    save_small(folder / "mpe2", Spread(agents=2, protocol="mpe2"), seeds=(0, 1))
    save_small(folder / "wide", Spread(agents=2, protocol="mpe2", limit="disc:8"))
    save_small(folder / "mixed", Spread(agents=3, sizes=(2, 3, 2)), seeds=(7, 8))
    short = {"pursuers": 2, "evaders": 1, "obstacles": 1, "horizon": 20}
    save_small(folder / "tag", Tag(**short), seeds=(0, 1))
    save_small(folder / "other", Tag(**short), seeds=(5,))
    save_small(folder / "open", Tag(**short, occlusion=False))
    save_small(folder / "same", Tag(**{**short, "limit": "disc:8"}))
    (folder / "damaged").mkdir()
    (folder / "damaged" / "policy.safetensors").write_bytes(b"nothing")
    (folder / "damaged" / "policy.json").write_text("{}")
    return folder


@pytest.fixture
def cli(capsys, policies, tmp_path, monkeypatch):
    """Run a command line in an empty folder; @NAME stands for a small policy. Gives exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(line):
        words = line.split() if isinstance(line, str) else line
        words = [str(policies / word[1:]) if word.startswith("@") else word for word in words]
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


# Refusals

REFUSED = {
    # commands and options that do not exist
    "": "arguments are required: COMMAND",
    "fly-away": "invalid choice: 'fly-away'",
    "--quiet": "arguments are required: COMMAND",
    "train spread --colour blue": "unrecognized arguments: --colour blue",
    "train spread --seed": "--seed: expected one argument",
    "train spread --wid 8": "unrecognized arguments: --wid 8",
    "eval": "required: POLICY",
    "eval @spread --engine physx": "invalid choice: 'physx'",
    "demo spread": "unrecognized arguments: spread",
    "watch --agents 3": "name a policy to animate",
    # tasks
    "train": "name a task to train on, or a run to --resume",
    "train chess": "unknown task 'chess'; known: ",
    "train chess --board 8": "unknown task 'chess'; known: ",
    "train tag --agents 3": "the task tag has no option --agents",
    "train spread --pursuers 3": "the task spread has no option --pursuers",
    "train --agents 3": "unrecognized arguments: --agents",
    "train spread tag": "unrecognized arguments: tag",
    # impossible values
    "train spread --agents 0": "at least one agent",
    "train spread --agents -2": "at least one agent",
    "train spread --agents 2.5": "'2.5' is not a whole number",
    "train spread --agents three": "'three' is not a number",
    "train spread --agents inf": "'inf' is not a whole number",
    "train spread --agents 1e5": "a role has between 0 and 65,536 entities, not 100000",
    "train spread --landmarks 0": "one landmark",
    "train spread --sizes 2 9": "team sizes must lie between 1 and the 3 agents",
    "train spread --protocol mine": "protocol must be paper or mpe2, not 'mine'",
    "train spread --start above": "a start must be one of",
    "train spread --horizon 0": "at least 1 step",
    f"train spread --horizon {2**70}": "less than 2^31",
    f"train tag --horizon {2**70}": "less than 2^31",
    "train tag --evaders 0": "one evader",
    "train tag --obstacles -1": "no negative number of obstacles",
    "train spread --limit disc:-1": "must be positive, not -1",
    "train spread --limit box": "none, disc:SIZE or box:SIZE, not 'box'",
    "train spread --limit disc:far": "must be a number, not 'far'",
    "train tag --limit sphere:1": "none, disc:SIZE or box:SIZE, not 'sphere'",
    "train spread --steps 100": "100 steps are not one to 2^31 batches of 256 envs x 1 steps",
    "train spread --steps 0": "0 steps are not one to 2^31 batches",
    "train spread --steps 1e18": "1000000000000000000 steps are not one to 2^31 batches",
    "train spread --steps 1e6.5": "'1e6.5' is not a number",
    "train spread --envs 0": "must be at least 1",
    "train spread --algorithm mappo --minibatches 7": "cannot be split into 7 minibatches",
    "train spread --lr 0": "must be positive",
    "train spread --lr nan": "'nan' is not a number",
    "train spread --gamma 1.5": "gamma must be between 0 and 0.9999, not 1.5",
    "train spread --seeds 0": "seeds must be one or more",
    "train spread --seeds -1": "seeds must be one or more",
    "train spread --seeds 1e12": "at most 10,000 seeds",
    "train spread --seed -1": "a seed lies between 0 and 2147483647",
    "train spread --seed 1e12": "a seed lies between 0 and 2147483647",
    "train spread --evaluations 0": "at least 1",
    "train spread --eval-episodes 0": "at least 1",
    "train spread --policy nothing": "unknown policy 'nothing'; known: ",
    "train spread --policy": "--policy: expected one argument",
    "train spread --algorithm nothing": "unknown algorithm 'nothing'; known: ",
    "bench --policies nothing": "unknown policy 'nothing'; known: ",
    "train spread --encoder nothing": "unknown encoder 'nothing'; known: ",
    "train spread --axis up": "axis must be velocity, position or none, not 'up'",
    "train spread --rest sideways": "rest must be equivariant or global, not 'sideways'",
    "train spread --pooling sum": "pooling must be mean or max, not 'sum'",
    "train spread --tie 0": "tie must be positive",
    "train spread --critic local": "critic must be full, pairs or none, not 'local'",
    "train spread --algorithm mappo --critic none": "mappo needs a critic: lego has the critic none",
    "train spread --width 0": "width must be between 1 and 4096, not 0",
    "train spread --width 1e9": "width must be between 1 and 4096",
    "train spread --depth 1e9": "depth must be between 0 and 32",
    "train spread --width 10 --heads 4": "must be a multiple of the heads",
    # runs and policies that are not there, or are something else
    "train --resume nowhere": "nowhere is not a run folder",
    "train --resume @spread": "config.json does not exist",
    "train spread --resume nowhere": "leave spread out",
    "train --resume nowhere --steps 1e6": "nowhere is not a run folder",
    "train --resume nowhere --lr 1": "leave --lr out (see legoswarm train --help)",
    "train spread --steps 1e11": "2^31 gradient steps or more",
    "train spread --steps 1e12": "1000000000000 steps are not one to 2^31 batches",
    "train spread --lr inf": "lr must be a finite number, not inf",
    "train spread --checkpoint-seconds -1": "checkpoint_seconds must be a finite number from 0 on",
    "train spread --import": "--import needs the name of a file",
    "train --resume nowhere --eval-episodes 3": "leave --eval-episodes out",
    "train --resume nowhere --from @spread": "leave --from out",
    "train spread --from nowhere": "nowhere does not exist",
    "train spread --start left --from nowhere": "nowhere does not exist",
    "train spread --from @damaged": "policy.json is not a usable policy description",
    "train tag --from @spread": "knows the roles ('agent', 'landmark'), the task has others",
    "train spread --from @spread --width 16": "has another architecture than this run: width ",
    "train spread --out @spread": "exists and is not an empty folder",
    "eval nowhere": "nowhere does not exist",
    "eval zoo:nothing": "there is no zoo:nothing in the zoo",
    "eval @damaged": "policy.json is not a usable policy description",
    "eval @": "holds no policy.safetensors",
    # evaluation
    "eval @spread --agents 0": "at least one agent",
    "eval @spread --agents 3 0 --json": "at least one agent",
    "eval @spread --agents 1e5": "a role has between 0 and 65,536 entities",
    "eval @tag --teams 3v70001": "a role has between 0 and 65,536 entities",
    "eval @spread --agents": "expected at least one argument",
    "eval @spread --agents 2.5": "'2.5' is not a whole number",
    "eval @spread --episodes 0": "at least one episode",
    "eval @spread --teams 3v2": "spread has no pursuers and evaders; use --agents",
    "eval @spread --agents 2 --teams 3v2": "spread has no pursuers and evaders; use --agents",
    "eval @tag --agents 3": "tag has no single number of agents; use --teams",
    "eval @tag --agents 3 --teams 3v2": "tag has no single number of agents; use --teams",
    "eval @tag --teams 3": "'3' is not a team size such as 3v2",
    "eval @tag --teams 3v2 3vx": "'3vx' is not a team size",
    "eval @tag --teams 0v2": "at least one pursuer",
    "eval @tag --start left": "the task tag has no start",
    "eval @spread --start above": "a start must be one of",
    "eval @spread --limit disc:-1": "must be positive",
    "eval @spread --seed 0": "no seed 0 in this policy; it has 7, 8",
    "eval @spread --seed -1": "no seed -1 in this policy",
    "eval @spread --eval-seed -1": "a seed lies between 0 and",
    # references
    "eval planner --from @tag": "planner plays Spread alone, and ",
    "eval planner --from nowhere": "nowhere does not exist",
    "eval planner --from @spread --seed 3": "no seed 3 here: planner has 7, 8",
    "eval planner --episodes 0": "at least one episode",
    "eval hungarian --from @spread": "only the planner starts from a policy (--from), not hungarian",
    "eval @spread --from @spread": "only the planner starts from a policy (--from), not ",
    "eval hungarian --engine mpe2": "hungarian knows neither the engine mpe2 nor --nearest",
    "eval planner --nearest 3": "planner knows neither the engine mpe2 nor --nearest",
    "eval hungarian --teams 3v2": "spread has no pursuers and evaders; use --agents",
    "eval hungarian --pursuers @tag --evaders @tag": "needs a task's name (",
    "eval hungarian --protocol mine": "protocol must be paper or mpe2, not 'mine'",
    "eval hungarian --agents 3 0": "at least one agent",
    # mpe2
    "eval @spread --engine mpe2": "runs Spread in the protocol mpe2",
    "eval @tag --engine mpe2": "runs Spread in the protocol mpe2",
    "eval @wide --engine mpe2": "mpe2 clips actions to box:1, which the limit disc:8 exceeds",
    "eval @mpe2 --engine mpe2 --limit none": "which the limit none exceeds",
    "eval @mpe2 --engine mpe2 --start left": "all of them start anywhere",
    "eval tag --pursuers @tag --evaders @tag --engine mpe2": "not head to head",
    # head to head
    "eval tag": "needs a policy for --pursuers and --evaders",
    "eval tag --pursuers @tag": "needs a policy for --pursuers and --evaders",
    "eval tag --evaders @tag": "needs a policy for --pursuers and --evaders",
    "eval @tag --pursuers @tag --evaders @tag": "needs a task's name (",
    "eval spread": "spread has nobody to meet",
    "eval spread --pursuers @tag --evaders @tag": "spread has nobody to meet",
    "eval tag --pursuers @spread --evaders @tag": "spread was trained on spread, not on tag",
    "eval tag --pursuers @tag --evaders @spread": "spread was trained on spread, not on tag",
    "eval tag --pursuers @tag --evaders @open": "they live in different worlds: occlusion True and False",
    "eval tag --pursuers @tag --evaders nowhere": "nowhere does not exist",
    "eval tag --pursuers @tag --evaders @tag --agents 3": "use --teams",
    "eval tag --pursuers @tag --evaders @other --seed 1": "no seed 1 in this policy; it has 5",
    # watching
    "watch nowhere": "nowhere does not exist",
    "watch @spread --out film.avi": "film.avi does not end in one of .gif",
    "watch @spread --out film": "film does not end in one of .gif",
    "watch @spread --teams 3v2": "spread has no pursuers and evaders",
    "watch @tag --agents 3": "tag has no single number of agents",
    "watch @spread --agents 0": "at least one agent",
    "watch @spread --seed 3": "no seed 3 in this policy",
    "watch @spread --episode -1": "a seed lies between 0 and",
    "page nowhere": "nowhere does not exist",
    "page @spread @damaged": "is not a usable policy description",
    "page @spread --seed 3": "no seed 3 in this policy",
    "page @spread --out missing/swarm.html": "missing",
}


@pytest.mark.parametrize("line", REFUSED)
def test_impossible_wishes_are_refused_in_one_sentence(cli, tmp_path, policies, line):
    before = sorted(policies.rglob("*"))
    code, out, err = cli(line)
    assert REFUSED[line] in err
    assert (code, out) == (2, "")
    assert err.startswith("legoswarm")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert list(tmp_path.iterdir()) == []
    assert sorted(policies.rglob("*")) == before


def test_files_in_the_way(cli, tmp_path):
    (tmp_path / "file").write_text("mine")
    for line in (
        "train spread --out file",
        f"train spread --out {tmp_path}",
        "train spread --out file/below",
        "watch @spread --out file/below.gif",
    ):
        code, out, err = cli(line)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "file" in err or str(tmp_path) in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_line_breaks_in_words_do_not_break_the_sentence(cli):
    for words in (["train", "chess\nboxing"], ["eval", "no\nwhere"], ["eval", "x", "--agents", "1\n2"]):
        code, _, err = cli(words)
        assert (code, err.count("\n")) == (2, 1)


def test_interruptions(cli, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("legoswarm.evaluate.policies.evaluate_policy", interrupt)
    assert cli("eval @spread") == (130, "", "legoswarm eval: interrupted\n")


def test_too_little_memory(cli, monkeypatch):
    def fail_with(error):
        def fail(*_, **__):
            raise error

        monkeypatch.setattr("legoswarm.evaluate.policies.evaluate_policy", fail)

    for error in (MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 1 byte")):
        fail_with(error)
        assert cli("eval @spread") == (2, "", "legoswarm eval: there is not enough memory for this\n")
    fail_with(RuntimeError("a mistake of ours"))
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        cli("eval @spread")


def test_a_reader_that_goes_away():
    """`legoswarm eval ... | head -1` ends quietly."""
    code = """
import legoswarm
from legoswarm.cli import main
from legoswarm.cli.evaluate import Eval
Eval.run = lambda *_: [print("x" * 65536, flush=True) for _ in range(100)]
raise SystemExit(main(["eval", "x"]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


# Help


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--help", ["demo", "train", "eval", "watch"]),
        ("demo --help", ["--out"]),
        (
            "train --help",
            ["--resume", "--width", "--lr", "spread, tag", "policy lego:", "algorithm masac:"],
        ),
        ("train spread --help", ["--agents", "--sizes", "number of agents (default: 3)"]),
        ("train tag --help", ["--pursuers", "--no-occlusion"]),
        ("eval --help", ["--teams", "--engine", "--json"]),
        ("watch --help", ["--axes", "--out"]),
        ("page --help", ["POLICIES", "--out", "zoo:spread"]),
        ("--version", ["legoswarm "]),
    ],
)
def test_help(cli, line, words):
    code, out, err = cli(line)
    assert (code, err) == (0, "")
    for word in words:
        assert word in out


def test_train_help_says_only_the_tasks_own_options(cli):
    assert "--pursuers" not in cli("train spread --help")[1]
    assert "--agents" not in cli("train tag --help")[1]


@pytest.mark.parametrize(
    ("cls", "words"),
    [(LegoPolicy, "spread"), (Mappo, "spread --algorithm mappo"), (Masac, "spread"), (Spread, "spread"), (Tag, "tag")],
)
def test_every_option_has_help(cls, words, cli):
    out = cli(f"train {words} --help")[1]
    for field in cls.__dataclass_fields__.values():
        if field.name in field_kinds(cls):
            assert f"--{field.name.replace('_', '-')}" in out
            assert field.metadata["help"]


def test_an_option_of_another_policy_task_or_algorithm_is_refused_by_name(cli):
    for line, why, help in (
        ("train spread --policy mappo --heads 4", "the policy mappo has no option --heads", "spread --policy mappo"),
        ("train --heads=4 spread --policy=mappo", "the policy mappo has no option --heads=4", "spread --policy mappo"),
        ("train tag --agents 3", "the task tag has no option --agents", "tag"),
        ("train tag --algorithm masac --lam 1", "the algorithm masac has no option --lam", "tag --algorithm masac"),
        ("bench --policies pic lego --rest global", "the policy pic has no option --rest", "--policies pic"),
        ("train spread --colour blue", "unrecognized arguments: --colour blue", "spread"),
    ):
        command = line.split()[0]
        assert cli(line) == (2, "", f"legoswarm {command}: {why} (see legoswarm {command} {help} --help)\n")


def test_help_shows_what_the_chosen_ones_have(cli):
    """Defaults are those that the run would have: the class's, what was found for the policy, the run to start from."""
    assert "features of every layer (default: 64)" in cli("train spread --help")[1]
    out = cli("train spread --policy mappo --help")[1]
    assert "features of every layer (default: 128)" in out
    assert "passes over each rollout (default: 5)" in out
    assert "--heads" not in out
    assert "features of every layer (default: 8)" in cli("train spread --from @spread --help")[1]


def test_help_of_most_commands_leaves_jax_alone():
    code = """
import contextlib, sys
from legoswarm.cli import COMMANDS, main
for name in COMMANDS:
    if name not in ("train", "sweep", "bench"):
        with contextlib.suppress(SystemExit):
            main([name, "--help"])
assert not {"jax", "matplotlib"} & set(sys.modules), set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_debug_shows_where_an_error_comes_from(cli):
    code, out, err = cli("eval nowhere --debug")
    assert (code, out) == (2, "")
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].endswith("nowhere does not exist")


# Options from dataclasses


@dataclasses.dataclass(frozen=True)
class Rich:
    """The dataclass that can more."""

    fast: bool = option(True, "quickly")
    shape: str = option("round", "100 % of them")


@dataclasses.dataclass(frozen=True)
class Plain:
    fast: bool = option(False, "quickly")
    inner: Rich | None = None


@dataclasses.dataclass(frozen=True)
class Fake:
    """Do nothing."""

    word: str = argument(REQUIRED, "a word", positional=True)
    out: Path = argument(REQUIRED, "a file")
    more: Sequence[int] = argument((1, 2), "numbers")
    kind: str | None = argument(None, "a kind", choices=("a", "b"), flag="--sort")
    loud: bool = argument(False, "loudly")

    @staticmethod
    def groups(words):
        return [Group("thing rich", Rich(shape="square")) if "rich" in words else Group("thing plain", Plain, [Rich])]


def test_options_from_dataclasses(capsys):
    def read(line):
        return parse(Fake, "fake", line.split())

    assert read("x --out y") == {"word": "x", "out": Path("y")}
    line = "x --out y --more 3 2e1 --sort a --loud --fast --debug"
    given = {"word": "x", "out": Path("y"), "more": (3, 20), "kind": "a", "loud": True, "fast": True}
    assert read(line) == given
    assert {**of(Fake, given), **of(Plain, given)} == given
    assert read("rich --out y --no-fast --shape=x=y") == {
        "word": "rich",
        "out": Path("y"),
        "fast": False,
        "shape": "x=y",
    }
    for line, why in (
        ("x", "the following arguments are required: --out (see fake --help)"),
        ("x --out y --inner z", "unrecognized arguments: --inner z (see fake --help)"),
        ("x --out y --shape z", "the thing plain has no option --shape (see fake --help)"),
        ("rich --out y --more z", "argument --more: 'z' is not a number (see fake rich --help)"),
        ("x --out y --sort c", "argument --sort: invalid choice: 'c' (choose from "),
    ):
        with pytest.raises(SystemExit, match="2"):
            read(line)
        assert capsys.readouterr().err.startswith(f"fake: {why}")
    with pytest.raises(SystemExit, match="0"):
        read("rich --help")
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "Do nothing.", "WORD a word", "--out PATH a file", "--more N [N ...] numbers (default: 1 2)",
        "--sort {a,b} a kind", "--loud loudly", "thing rich: --fast, --no-fast quickly (default: True)",
        "--shape NAME 100 % of them (default: square)",
    ):  # fmt: skip
        assert words in text


# Numbers and configurations


def test_numbers():
    assert [whole(text) for text in ("3", "2e6", "-1", "1_000")] == [3, 2_000_000, -1, 1000]
    assert [number(text) for text in ("3", "1e-4", "inf")] == [3.0, 1e-4, math.inf]


def test_configurations_from_json():
    task = Spread(agents=4, sizes=(2, 4), limit="disc:2")
    assert from_json(Spread, json.loads(json.dumps(to_json(task))), "task") == task
    assert from_json(Mappo, {"lr": 1}, "mappo").lr == 1.0
    for values, match in (
        ([], "task is not an object"),
        ({"agents": True}, "field 'agents' cannot be True"),
        ({"agents": None}, "field 'agents' cannot be None"),
        ({"sizes": 3}, "field 'sizes' cannot be 3"),
        ({"sizes": [1.5]}, "field 'sizes' cannot be"),
        ({"limit": 3}, "field 'limit' cannot be 3"),
        ({"speed": 3}, "unknown field 'speed'"),
        ({"agents": 0}, "at least one agent"),
    ):
        with pytest.raises(ValueError, match=match):
            from_json(Spread, values, "task")


# Evaluating


def read_rows(out):
    return [json.loads(line) for line in out.splitlines()]


def check_figures(row, names):
    for name in names:
        assert math.isfinite(row[name])
        assert row[f"{name}_se"] >= 0


@pytest.mark.slow
def test_eval_spread(cli):
    """One object for each team size and seed; the numbers are those of the library."""
    line = "eval @spread --agents 2 3 --episodes 6"
    code, out, err = cli(line + " --json")
    assert (code, err) == (0, "")
    rows = read_rows(out)
    assert [(row["agents"], row["seed"], row["episodes"]) for row in rows] == [
        (2, 7, 6),
        (2, 8, 6),
        (3, 7, 6),
        (3, 8, 6),
    ]
    for row in rows:
        check_figures(row, FIGURES["spread"])
        n, d, c = row["agents"], row["distance"], row["collisions"]
        assert row["return_2c"] == pytest.approx(-n * d - 2 * c, rel=1e-5)
        assert row["return_1c"] == pytest.approx(-n * d - c, rel=1e-5)
        assert 0 <= row["frame_flips"] <= 1
        assert next(name for name in row if name + "_se" in row) == "return_2c"
    assert rows[0]["return_2c"] != rows[1]["return_2c"]
    code, table, err = cli(line)
    assert (code, err) == (0, "")
    header, two, three, legend = table.splitlines()
    assert header.split()[:6] == ["agents", "landmarks", "seeds", "episodes", "return_2c", "worst"]
    assert "standard deviation over seeds" in legend
    assert len(header) == len(two) == len(three)
    for line, group in ((two, rows[:2]), (three, rows[2:])):
        mine = [row["return_2c"] for row in group]
        words = line.split()
        assert words[:4] == [str(group[0]["agents"])] * 2 + ["2", "6"]
        assert words[4:8] == [f"{np.mean(mine):.2f}", "+-", f"{np.std(mine, ddof=1):.2f}", f"{min(mine):.2f}"]


def test_eval_one_seed_and_other_starts(cli, policies):
    one = read_rows(cli("eval @spread --seed 8 --agents 2 --episodes 6 --eval-seed 3 --json")[1])
    assert [row["seed"] for row in one] == [8]
    same, usual = (
        list(evaluate_policy(str(policies / "spread"), agents=[2], episodes=6, episode_seed=seed))[1]
        for seed in (3, None)
    )
    # Programs of one and of two seeds round differently, and episodes of random weights make more of it.
    assert one[0]["return_2c"] == pytest.approx(same["return_2c"], rel=2e-3)
    assert one[0]["return_2c"] != pytest.approx(usual["return_2c"], rel=2e-3)


def test_mixed_sizes_are_evaluated_one_by_one(cli):
    rows = read_rows(cli("eval @mixed --episodes 6 --json")[1])
    assert [(row["agents"], row["landmarks"], row["seed"]) for row in rows] == [
        (2, 2, 7),
        (2, 2, 8),
        (3, 3, 7),
        (3, 3, 8),
    ]


@pytest.mark.slow
def test_eval_tag_and_head_to_head(cli):
    """A policy against itself is what it does alone; another opponent gives other numbers."""
    alone = read_rows(cli("eval @tag --teams 1v2 --episodes 4 --json")[1])
    for row in alone:
        assert (row["pursuers"], row["evaders"], row["obstacles"]) == (1, 2, 1)
        check_figures(row, FIGURES["tag"])
        assert row["pursuer_return"] == pytest.approx(10 * row["captures"])
        assert 0 <= row["capture_share"] <= 1
    itself = read_rows(cli("eval tag --teams 1v2 --pursuers @tag --evaders @tag --episodes 4 --json")[1])
    assert itself == alone
    code, out, err = cli("eval tag --teams 1v2 --pursuers @tag --evaders @other --episodes 4 --json")
    assert (code, err) == (0, "")
    meeting = read_rows(out)
    assert [row["seed"] for row in meeting] == [0, 1]
    assert (
        cli("eval tag --teams 1v2 --pursuers @tag --evaders @same --episodes 1")[0] == 0
    )  # the default limit, in words
    assert meeting[0]["evader_return"] != alone[0]["evader_return"]


def test_the_policy_inside_the_real_mpe2(cli):
    """Other starts, the same law: the figures agree within their errors."""
    mine = read_rows(cli("eval @mpe2 --episodes 300 --json")[1])
    code, out, err = cli("eval @mpe2 --episodes 25 --engine mpe2 --json")
    assert (code, err) == (0, "")
    inside = read_rows(out)
    assert [(row["seed"], row["agents"], row["engine"]) for row in inside] == [(0, 2, "mpe2"), (1, 2, "mpe2")]
    for a, b in zip(mine, inside, strict=True):
        check_figures(b, FIGURES["spread"][:-1])
        for name in FIGURES["spread"][:-1]:
            assert abs(a[name] - b[name]) <= 4 * math.hypot(a[f"{name}_se"], b[f"{name}_se"])
        # mpe2 pays each agent half of the distance and half of its own collisions
        assert b["agents"] * b["return"] == pytest.approx(-b["agents"] * b["distance"] / 2 - b["collisions"], rel=1e-4)


def test_another_limit_inside_mpe2(cli):
    """Actions that do nothing leave the agents where mpe2 puts them, whatever the policy."""
    line = "eval @wide --episodes 3 --engine mpe2 --json --limit disc:1e-9 --seed 0"
    rows = read_rows(cli(line)[1]) + read_rows(cli(line.replace("wide", "mpe2"))[1])
    assert rows[0]["distance"] == pytest.approx(rows[1]["distance"], abs=1e-4)


def test_numbers_that_are_not_finite_are_null(cli, monkeypatch):
    row = {"agents": 2, "seed": 0, "episodes": 1, "return_2c": math.nan, "return_2c_se": math.inf}
    monkeypatch.setattr("legoswarm.evaluate.policies.evaluate_policy", lambda *_, **__: iter([row]))
    _, out, _ = cli("eval @spread --json")
    assert json.loads(out) == {**row, "return_2c": None, "return_2c_se": None}
    assert "nan" in cli("eval @spread")[1]


def test_a_table_of_one_seed_shows_the_standard_error():
    rows = [
        {"agents": n, "seed": 0, "episodes": 9, "gain": -1.25 * n, "gain_se": 0.5, "cost": 0.125, "cost_se": 0.0}
        for n in (2, 10)
    ]
    assert format_table(rows).splitlines() == [
        "agents  seeds  episodes             gain   cost",
        "     2      1         9   -2.50 +- 0.500  0.125",
        "    10      1         9  -12.50 +- 0.500  0.125",
        "+- is the standard error over episodes",
    ]


# Watching and training


def test_watch(cli, tmp_path):
    code, out, err = cli("watch @spread --agents 2 --out film.gif")
    assert (code, out) == (0, "film.gif\n")
    assert re.fullmatch(r"Look at it: \S+ film.gif\n", err)
    assert (tmp_path / "film.gif").read_bytes().startswith(b"GIF8")
    assert [path.name for path in tmp_path.iterdir()] == ["film.gif"]


@pytest.mark.slow
def test_demo(cli, tmp_path, monkeypatch):
    """It says what it does, sets its figures beside the paper's, and names files that are there."""
    monkeypatch.setattr(demo, "OPTIONS", {**demo.OPTIONS, "steps": 60, "width": 8, "envs": 2, "minibatches": 1})
    code, out, err = cli("demo")
    assert code == 0, err
    assert out.startswith("legoswarm trains one policy with three agents")
    rows = [line.split() for line in out.splitlines() if re.match(r" +[2-6] ", line)]
    papers = [str(mean) for mean, _ in GENERALIZATION["lego"].values()]
    assert [(row[0], row[-2]) for row in rows] == list(zip("23456", papers, strict=True))
    (measured,) = legoswarm.evaluate(tmp_path / "demo", agents=[4], episodes=200)
    assert rows[2][1] == f"{measured['return_2c']:.1f}"
    for name in ("spread-3.gif", "spread-5.gif", "swarm.html"):
        assert f"{Path('demo') / name} " in out
        assert (tmp_path / "demo" / name).stat().st_size > 10_000
    lines = re.findall(r"^  legoswarm (.*?)(?:  |$)", out, re.MULTILINE)  # what to try next: commands that exist
    assert len(lines) == 4
    for line in lines:
        assert cli(f"{line.split()[0]} --help")[0] == 0
    monkeypatch.setattr(demo, "evaluate_policy", lambda *args, **how: [])
    monkeypatch.setattr(demo, "watch", lambda run, path, **how: path)
    again = cli("demo")[1]
    assert "demo holds a trained policy, which is used (remove the folder to train anew)" in again
    assert "trained in" not in again


def test_commands_to_try_work_as_they_are_typed(monkeypatch):
    """By the path that the command was called by, where its folder is not on the shell's path."""
    monkeypatch.setattr("sys.argv", [".venv/bin/legoswarm", "demo"])
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert own.command("eval", "a run") == ".venv/bin/legoswarm eval 'a run'"
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/legoswarm")
    assert own.command("eval") == "legoswarm eval"


@pytest.mark.slow
def test_train(cli, tmp_path):
    """A tiny run from the first to the last step; then it is evaluated, resumed and built upon."""
    words = ["train", "spread", "--agents", "2", *TINY, "--no-anneal", "--seeds", "2", "--eval-episodes", "3"]
    code, out, err = cli([*words, "--steps", "60", "--evaluations", "2", "--seed", "4", "--out", "run"])
    assert (code, out) == (0, "")
    assert "the policy is in run" in err
    names = ["checkpoint.safetensors", "config.json", "metrics.jsonl", "policy.json", "policy.safetensors"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == names
    config = RunFolder(tmp_path / "run").read_config()
    policy = LegoPolicy(width=8, depth=0, heads=2, critic="pairs", squash=0.0)
    mappo = Mappo(envs=4, rollout=5, epochs=1, anneal=False)
    assert config == RunConfig(TrainConfig(Spread(agents=2), policy, mappo, 60), (4, 5), 2, 3)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["command"].startswith("legoswarm train spread")
    file = load_policy(tmp_path / "run")
    assert (file.seeds, file.task, file.notes["steps"]) == ((4, 5), named(Spread(agents=2)), [60, 60])
    before = (tmp_path / "run" / "policy.safetensors").read_bytes()
    assert cli("train --resume run")[0] == 0
    assert (tmp_path / "run" / "policy.safetensors").read_bytes() == before
    code, _, err = cli([*words, "--out", "run"])
    assert (code, err.count("\n")) == (2, 1)
    assert "use --resume" in err
    code, _, err = cli([*words, "--steps", "20", "--from", "run"])
    assert code == 0, err
    assert RunFolder(tmp_path / "runs" / "spread-lego").read_config().start == "run"
    assert load_policy(tmp_path / "runs" / "spread-lego").seeds == (0, 1)
    assert [row["seed"] for row in read_rows(cli("eval run --episodes 3 --json")[1])] == [4, 5]


def test_rows_say_how_few_were_looked_at(tmp_path, capsys):
    policy = str(save_small(tmp_path / "p", Spread(agents=3)))
    rows = []
    for words in ([], ["--nearest", "1"]):
        assert main(["eval", policy, "--episodes", "2", "--json", *words]) == 0
        rows.append(json.loads(capsys.readouterr().out.splitlines()[0]))
    assert [row.get("nearest") for row in rows] == [None, 1]
    assert rows[0]["return_2c"] != rows[1]["return_2c"]
