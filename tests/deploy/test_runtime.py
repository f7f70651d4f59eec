"""The NumPy runtime: it agrees with JAX, needs none of it, is fast, and refuses what JAX refuses."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tracemalloc
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from parity import CASES, SLOTS, case
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from saved import save_small, small_policy

import legoswarm
from legoswarm.configs import named
from legoswarm.deploy import runtime as runtime_module
from legoswarm.deploy.runtime import load_runtime, main
from legoswarm.files import FileError
from legoswarm.policies.lego import LegoPolicy
from legoswarm.policies.saved.act import _mean_actions, size_class
from legoswarm.policies.saved.file import save_policy
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from tests.policies import policy_of

TAG = Tag(pursuers=2, evaders=1, obstacles=2)


@pytest.fixture(scope="module")
def tag(tmp_path_factory):
    return save_small(tmp_path_factory.mktemp("policies") / "tag", TAG)


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    return save_small(tmp_path_factory.mktemp("policies") / "spread", Spread(agents=3), seeds=(3, 5, 4), best=1)


@pytest.fixture
def copy(spread, tmp_path):
    """A copy of the policy to be damaged."""
    return Path(shutil.copytree(spread, tmp_path / "copy"))


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_jax_at_every_team_size(name):
    known = case(name)
    runtime = load_runtime(known.path)
    assert runtime.seed == 5
    found = [runtime.act(*team) for team, _ in known.teams()]
    assert known.agrees(found)
    sizes = {roles.count(runtime.roles[0]) for (_, _, roles, _), _ in known.teams()}
    assert sizes == set(range(1, SLOTS + 1))


def test_no_option_is_forgotten():
    """A new option of policies must be followed in deploy/actor.py, or be one that does not change actions."""
    followed = {"width", "depth", "heads", "encoder", "pooling", "axis", "rest", "slow", "tie", "nearest"}
    followed |= {"leash", "leash_gain", "squash"}
    without_effect = {"critic", "log_std", "precision"}
    assert {field.name for field in dataclasses.fields(LegoPolicy)} == followed | without_effect


def test_the_comparison_can_fail():
    known = case("default")
    runtime = load_runtime(known.path, seed=3)
    found = [runtime.act(*team) for team, _ in known.teams()]
    assert np.median(list(known.errors(found))) > 0.1


def test_entities_in_any_order(tag):
    runtime, rng = load_runtime(tag), np.random.default_rng(1)
    roles = np.array(["pursuer"] * 3 + ["evader"] * 2 + ["obstacle"])
    positions, velocities = rng.uniform(-1, 1, (2, 6, 2))
    visible = rng.uniform(size=(5, 6)) < 0.7
    for _ in range(20):
        order = rng.permutation(6)
        agents = order[order < 5]
        found = runtime.act(positions[order], velocities[order], roles[order].tolist(), visible[agents][:, order])
        expected = runtime.act(positions, velocities, roles.tolist(), visible)[agents]
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_far_from_the_origin(spread):
    """A thousand kilometres away everybody acts as at home: differences are taken before rounding to float32."""
    roles = ["agent"] * 3 + ["landmark"] * 3
    positions, velocities = np.random.default_rng(2).uniform(-1, 1, (2, 6, 2))
    for policy in (load_runtime(spread), legoswarm.load(spread)):
        home = policy.act(positions, velocities, roles)
        np.testing.assert_allclose(policy.act(positions + 1e6, velocities, roles), home, atol=1e-4)


def test_a_whisper_of_a_velocity(tmp_path):
    """At v = 0 the paper's frame is the world's; at any other speed it follows the velocity, be it 1e-30."""
    config = policy_of(width=8, depth=1, heads=2, axis="velocity", rest="global")
    folder = save_small(tmp_path / "paper", Spread(agents=2), config=config)
    policies = load_runtime(folder), legoswarm.load(folder)
    positions = np.array([[0.0, 0.0], [0.5, 0.2], [-0.3, 0.7]])
    roles = ["agent", "agent", "landmark"]
    for speed in (0.0, 1e-30):
        velocities = np.array([[0.0, speed], [0.6, 0.1], [0.0, 0.0]])
        found, expected = (policy.act(positions, velocities, roles) for policy in policies)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_seeds(spread):
    assert load_runtime(spread).seed == 5
    assert load_runtime(spread, seed=4).seed == 4
    with pytest.raises(ValueError, match="no seed 6 in this policy; it has 3, 5, 4"):
        load_runtime(spread, seed=6)


ZEROS = np.zeros((3, 2))
ROLES = ["agent", "agent", "landmark"]


@pytest.mark.parametrize(
    "arguments",
    [
        (ZEROS + np.nan, ZEROS, ROLES),
        (ZEROS, ZEROS - np.inf, ROLES),
        (ZEROS + 1e300, ZEROS, ROLES),
        (np.array([[0, 0], [3e38, 0], [0, 0]]), ZEROS, ROLES),
        (np.zeros(3), ZEROS, ROLES),
        (ZEROS[:2], ZEROS, ROLES),
        (ZEROS, ZEROS, ["agent", "drone", "agent"]),
        (ZEROS, ZEROS, ["landmark"] * 3),
        (ZEROS, ZEROS, ROLES, np.ones((3, 3), bool)),
        (ZEROS, ZEROS, ROLES, np.ones((2, 3))),
    ],
)
def test_nonsense_is_refused_as_by_jax(spread, arguments):
    sentences = set()
    for policy in (load_runtime(spread), legoswarm.load(spread)):
        with pytest.raises(ValueError) as refusal:  # noqa: PT011
            policy.act(*arguments)
        sentences.add(str(refusal.value))
    assert len(sentences) == 1
    assert "\n" not in sentences.pop()


def test_everybody_at_one_place(spread):
    assert np.isfinite(load_runtime(spread).act(ZEROS, ZEROS, ROLES)).all()


# Files


def refused(folder, match):
    with pytest.raises(FileError, match=match) as refusal:
        load_runtime(folder)
    assert "\n" not in str(refusal.value)


def test_damaged_weights(copy):
    path = copy / "policy.safetensors"
    whole = path.read_bytes()
    for cut in np.linspace(0, len(whole) - 1, 10, dtype=int):
        path.write_bytes(whole[:cut])
        refused(copy, "policy.safetensors is damaged")
    path.unlink()
    refused(copy, "holds no policy.safetensors")


NAME = "agent/actor/head/weight"


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda t: t.update({NAME: t[NAME][:, :-1].copy()}), r"'agent/actor/head/weight' is float32\[3, 7, 2\], not"),
        (lambda t: t.update({NAME: t[NAME].astype(np.float64)}), r"is float64\[3, 8, 2\], not float32\[3, 8, 2\]"),
        (lambda t: t.update({NAME: t[NAME] * np.float32(np.nan)}), "holds values that are not finite"),
        (lambda t: t.pop(NAME), "'agent/actor/head/weight' is missing or unknown"),
        (lambda t: t.update({"agent/actor/more": t[NAME]}), "'agent/actor/more' is missing or unknown"),
        (lambda t: t.update({"drone/critic": t[NAME]}), "'drone/critic' is missing or unknown"),
    ],
)
def test_weights_that_do_not_fit(copy, edit, match):
    path = copy / "policy.safetensors"
    tensors = load_tensors(path.read_bytes())
    edit(tensors)
    path.write_bytes(save_tensors(tensors))
    refused(copy, match)


def test_damaged_descriptions(copy):
    path = copy / "policy.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about)[:-5])
    refused(copy, "policy.json is damaged: it is not valid JSON")
    for field, value in (("width", 0), ("axis", "up")):
        path.write_text(json.dumps({**about, "policy": {**about["policy"], field: value}}))
        refused(copy, "policy.json is not a usable policy description")
    path.unlink()
    refused(copy, "policy.json does not exist")


def test_policies_that_need_jax_are_refused_for_that_reason(copy):
    path = copy / "policy.json"
    about = json.loads(path.read_text())
    for change, why in (
        (named(policy_of("mappo")), "describes a mappo policy, but without JAX only lego policies act$"),
        (
            {**about["policy"], "encoder": "own"},
            "names the encoder 'own'; without JAX there are attention, deepsets, jo",
        ),
        ({**about["policy"], "heads": 3}, r"the width \(8\) must be a multiple of the heads \(3\)"),
    ):
        path.write_text(json.dumps({**about, "policy": change}))
        refused(copy, why)
    path.write_text(json.dumps({**about, "dimension": 3}))
    refused(copy, "is of 3 dimensions; without JAX policies act in the plane$")


# The nearest


def test_only_the_nearest_are_encoded():
    """For far less memory; that they are the nearest, tests/test_sight.py shows."""
    many = ["agent"] * 40 + ["landmark"] * 40
    scene = np.random.default_rng(0).uniform(-1, 1, (2, 80, 2))
    peaks = []
    for nearest in (0, 3):
        runtime = load_runtime("zoo:spread", nearest=nearest)
        tracemalloc.start()
        runtime.act(*scene, many)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 0.2 * peaks[0]


@pytest.mark.parametrize("name", ["paper", "sets-max", "joint-max"])
def test_ties_do_not_depend_on_the_order(name):
    """Of eight others at exactly one distance none comes before another, though fewer are to be encoded."""
    runtime = load_runtime(case(name).path)
    corners = [(x, y) for x in (-0.7, 0.7) for y in (-0.2, 0.2)]
    far = (1.5, 1.1)  # so that the centroid is not where the agent is
    positions = np.array([(0.0, 0.0), *corners, *(corner[::-1] for corner in corners), far])
    velocities, roles = np.random.default_rng(0).normal(size=positions.shape), [runtime.roles[0]] * 10
    first = runtime.act(positions, velocities, roles)[0]
    for seed in range(5):
        order = np.r_[0, 1 + np.random.default_rng(seed).permutation(9)]
        found = runtime.act(positions[order], velocities[order], roles)[0]
        np.testing.assert_allclose(found, first, atol=1e-5)


# Speed


def test_three_drones_in_a_millisecond_and_no_stalls(tmp_path):
    """Best of several: others take their share of the machine. A program of its own: tests check types all the time."""
    usual = save_small(tmp_path / "usual", TAG, config=policy_of())
    command = [sys.executable, "-m", "legoswarm.deploy.runtime", usual, "--team", "2", "1", "2", "--calls", "1000"]
    seen = []
    for _ in range(5):
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert said.startswith("2 pursuer, 1 evader, 2 obstacle: 1000 calls")
        median = float(re.search(r"wall clock: median ([\d.]+) ms", said)[1])
        longest = float(re.search(r"processor time: .* longest ([\d.]+) ms", said)[1])
        seen.append((median, longest))
        if median < 1 and longest < 5:
            return
    pytest.fail(f"medians and longest calls of {seen} ms")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["zoo:tag", "--team", "2", "1"], "--team needs a number for each of pursuer, evader, obstacle"),
        (["zoo:tag", "--team", "2", "1", "-1"], "--team needs a number for each of"),
        (["zoo:tag", "--team", "0", "0", "1"], "there is nobody to act for"),
        (["zoo:tag", "--calls", "0"], "--calls at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_sentence(words, why, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["runtime", *words])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.count("\n") == 1
    assert why in said


def test_one_seed_alone(tmp_path):
    file = small_policy(Spread(agents=3), seeds=(3, 5, 4), best=1)
    one = file.only(4)
    assert (one.seeds, one.best, one.figures) == ((4,), 0, {"return_2c": [file.figures["return_2c"][2]]})
    for folder, saved in (("all", file), ("one", one)):
        (tmp_path / folder).mkdir()
        save_policy(tmp_path / folder, saved)
    positions = np.array([[0.1, 0.3], [-0.5, 0.2], [0.7, -0.4]])
    expected = load_runtime(tmp_path / "all", seed=4).act(positions, ZEROS, ROLES)
    np.testing.assert_array_equal(load_runtime(tmp_path / "one").act(positions, ZEROS, ROLES), expected)


def test_rows_of_those_whom_nobody_sees_may_be_anything():
    """A drone that is lost: its row is not a number, and the others act as if it were not there."""
    given = case("default").path
    runtime, swarm = load_runtime(given), legoswarm.load(given)
    rng = np.random.default_rng(2)
    roles = ["pursuer", "pursuer", "pursuer", "evader", "obstacle"]
    positions, velocities = rng.uniform(-1, 1, (2, 5, 2))
    rest = [0, 1, 3, 4]
    expected = runtime.act(positions[rest], velocities[rest], [roles[at] for at in rest])
    positions[2], velocities[2] = np.nan, np.inf
    visible = np.ones((4, 5), bool)
    with pytest.raises(ValueError, match="row 2 is not"):
        runtime.act(positions, velocities, roles, visible)
    visible[:, 2] = False
    for policy in (runtime, swarm):
        found = policy.act(positions, velocities, roles, visible)
        np.testing.assert_allclose(found[[0, 1, 3]], expected, atol=1e-5)


def test_a_team_that_changes_is_not_compiled_for_each_size():
    sizes = [size_class(count) for count in range(0, 200)]
    assert all(count <= size <= max(1.5 * count, 3) for count, size in enumerate(sizes))
    assert len(set(sizes)) < 18
    swarm, programs = legoswarm.load(case("default").path), set()
    for pursuers in (5, 6, 5, 6):
        swarm.act(np.ones((pursuers + 1, 2)), np.ones((pursuers + 1, 2)), ["pursuer"] * pursuers + ["evader"])
        programs.add(_mean_actions._cache_size())
    assert len(programs) == 1


def test_large_teams_keep_to_one_thread(monkeypatch):
    runtime, limits = load_runtime(case("default").path), []
    libraries = SimpleNamespace(limit=lambda **how: limits.append(how) or nullcontext())
    monkeypatch.setattr(runtime_module, "_libraries", lambda: libraries)
    for pursuers in (3, 40):
        runtime.act(np.ones((pursuers, 2)), np.ones((pursuers, 2)), ["pursuer"] * pursuers)
    assert limits == [{"limits": 1, "user_api": "blas"}]
