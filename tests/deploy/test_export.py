"""Export: a policy of one seed, ONNX files that agree with JAX, and what is refused."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from parity import CASES, case
from saved import save_small

import legoswarm
from legoswarm.cli import main
from legoswarm.configs import named
from legoswarm.deploy import export
from legoswarm.deploy.runtime import Runtime, load_runtime
from legoswarm.policies.mappo import MappoPolicy
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag

DOCS = Path(__file__).parents[2] / "docs/export.md"


@pytest.fixture(scope="module")
def tag(tmp_path_factory):
    """A policy of three seeds for the paper's three drones."""
    task = Tag(pursuers=2, evaders=1, obstacles=2)
    return save_small(tmp_path_factory.mktemp("policies") / "tag", task, seeds=(3, 5, 4), best=1)


@pytest.fixture(scope="module")
def exported(tag):
    folder = tag.parent / "exported"
    assert main(["export", str(tag), "--out", str(folder), "--seed", "4"]) == 0
    return folder


def act(sessions, roles, positions, velocities, names, visible):
    """The actions of a team whose controlled agents stand first."""
    kinds = np.array([roles.index(name) for name in names])
    actions = np.full((len(visible), 2), np.nan)
    for own, session in enumerate(sessions):
        agents = np.flatnonzero(kinds == own)
        if len(agents):
            scene = {"positions": positions, "velocities": velocities, "roles": kinds, "agents": agents}
            actions[agents] = session.run(["actions"], {**scene, "visible": visible[agents]})[0]
    return actions


@pytest.mark.parametrize("name", CASES)
def test_onnx_agrees_with_jax_at_every_team_size(name):
    known = case(name)
    runtime = load_runtime(known.path)
    sessions = [onnxruntime.InferenceSession(model) for model in export.record_all(runtime).values()]
    found = [act(sessions, runtime.roles, *team) for team, _ in known.teams()]
    assert known.agrees(found)


def test_what_is_written(exported, tag):
    names = ["evader.onnx", "policy.json", "policy.safetensors", "pursuer.onnx"]
    assert sorted(path.name for path in exported.iterdir()) == names
    assert (exported / "policy.safetensors").stat().st_size < (tag / "policy.safetensors").stat().st_size / 2
    roles = ["pursuer"] * 3 + ["evader"] * 2 + ["obstacle"]
    positions, velocities = np.random.default_rng(0).uniform(-1, 1, (2, 6, 2))
    expected = load_runtime(tag, seed=4).act(positions, velocities, roles)
    for load in (load_runtime, legoswarm.load):
        policy = load(exported)
        assert policy.seed == 4
        np.testing.assert_allclose(policy.act(positions, velocities, roles), expected, rtol=1e-5, atol=1e-5)


def test_what_an_onnx_file_says(exported):
    session = onnxruntime.InferenceSession(exported / "evader.onnx")
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["roles"]) == ["pursuer", "evader", "obstacle"]
    assert (facts["role"], facts["limit"], facts["seed"]) == ("evader", "disc:8", "4")
    assert json.loads(facts["task"])["name"] == "tag"
    shapes = {part.name: part.shape for part in (*session.get_inputs(), *session.get_outputs())}
    table = dict(re.findall(r"^\| `(\w+)` \| \w+ \(([\w, ]+)\)", DOCS.read_text(), re.MULTILINE))
    assert {name: ", ".join(map(str, shape)) for name, shape in shapes.items()} == table
    onnx.checker.check_model(exported / "evader.onnx", full_check=True)


def test_one_agent_for_itself(exported):
    """A row does not depend on who else is asked for, nor on what the agent's own column says."""
    session, rng = onnxruntime.InferenceSession(exported / "pursuer.onnx"), np.random.default_rng(0)
    positions, velocities = rng.uniform(-1, 1, (2, 6, 2))
    scene = {"positions": positions, "velocities": velocities, "roles": np.array([2, 0, 1, 0, 1, 0])}
    agents, visible = np.array([1, 3, 5]), rng.uniform(size=(3, 6)) < 0.8
    team = session.run(None, {**scene, "agents": agents, "visible": visible})[0]
    for at in range(3):
        alone = visible[at : at + 1].copy()
        alone[0, agents[at]] ^= True
        row = session.run(None, {**scene, "agents": agents[at : at + 1], "visible": alone})[0]
        np.testing.assert_allclose(row, team[at : at + 1], atol=1e-6)


def test_the_check_finds_other_weights(tag):
    models = export.record_all(load_runtime(tag, seed=3))
    with pytest.raises(ValueError, match=r"the ONNX file for evader differs from JAX by .*; nothing was written"):
        export.check(models["evader"], "evader", legoswarm.load(tag))


def test_the_documented_example(tmp_path):
    """As printed, in a program that has neither legoswarm nor JAX."""
    folder = save_small(tmp_path / "spread", Spread(agents=3))
    assert main(["export", str(folder), "--out", str(tmp_path / "exported")]) == 0
    example = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[-1]
    example += "np.savez('seen.npz', actions=actions, **scene)\nimport sys\nassert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", example], check=True, cwd=tmp_path)
    seen = np.load(tmp_path / "seen.npz")
    names = ["agent"] * 5 + ["landmark"] * 5
    expected = load_runtime(folder).act(seen["positions"], seen["velocities"], names)
    np.testing.assert_allclose(seen["actions"], expected, rtol=1e-5, atol=1e-5)


def test_without_onnx(tag, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    out = tmp_path / "out"
    assert main(["export", str(tag), "--out", str(out)]) == 2
    assert "pip install 'legoswarm[onnx]'" in capsys.readouterr().err
    assert not out.exists()
    assert main(["export", str(tag), "--out", str(out), "--no-onnx"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["policy.json", "policy.safetensors"]
    assert load_runtime(out).seed == 5


@pytest.mark.parametrize(
    ("edit", "options", "match"),
    [
        (lambda about: about.update(policy=named(MappoPolicy())), [], "a mappo policy, but without JAX only lego"),
        (lambda about: about["policy"].update(encoder="own"), [], "names the encoder 'own'"),
        (lambda about: about.update(limit="sphere"), [], "policy.json is not a usable policy description"),
        (None, ["--seed", "6"], "no seed 6 in this policy"),
        (None, ["--out", "."], "exists and is not an empty folder"),
    ],
)
def test_refusals(tmp_path, monkeypatch, capsys, edit, options, match):
    monkeypatch.chdir(tmp_path)
    save_small(Path("policy"), Tag())
    if edit:
        about = json.loads(Path("policy/policy.json").read_text())
        edit(about)
        Path("policy/policy.json").write_text(json.dumps(about))
    before = sorted(Path().rglob("*"))
    assert main(["export", "policy", "--out", "out", *options]) == 2
    said = capsys.readouterr().err
    assert match in said
    assert said.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


def test_roles_that_are_no_file_names(tag):
    runtime = load_runtime(tag)
    layout = dataclasses.replace(runtime.description.layout, roles=("../pursuer", "evader", "obstacle"))
    description = dataclasses.replace(runtime.description, layout=layout)
    with pytest.raises(ValueError, match=r"'\.\./pursuer' cannot be the name of an ONNX file"):
        export.record_all(Runtime(description, runtime.actors, 5))
