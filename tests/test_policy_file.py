"""The policy file: what is saved is loaded, acting with it, and files that are damaged or lie."""

import functools
import json
import math
import pickle
import runpy
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

import legoswarm
from legoswarm.evaluate.policies import trained_task
from legoswarm.files import FileError
from legoswarm.layout import Layout
from legoswarm.limits import Limit
from legoswarm.policies.networks.roles import make_policies
from legoswarm.policies.networks.team import decide, world_actions
from legoswarm.policies.saved import file as policy_file
from legoswarm.policies.saved.file import PolicyFile, load_policy, save_policy
from legoswarm.scene import Scene
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from tests.policies import policy_of
from tests.saved import SMALL, random_weights, save_small, small_policy

SPREAD = Spread(agents=3)
TAG = Tag(pursuers=2, evaders=1, obstacles=1)


@pytest.fixture(scope="module", autouse=True)
def quick_skeletons():
    """Trace each architecture once: this module loads the same one some hundred times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy_file, "_skeleton", functools.cache(policy_file._skeleton))
        yield


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    return save_small(tmp_path_factory.mktemp("policies") / "spread", SPREAD, seeds=(3, 5, 4), best=1)


@pytest.fixture(scope="module")
def tag(tmp_path_factory):
    return save_small(tmp_path_factory.mktemp("policies") / "tag", TAG)


@pytest.fixture(scope="module")
def tag_swarm(tag):
    return legoswarm.load(tag)


@pytest.fixture
def copy(spread, tmp_path):
    """A copy of the policy to be damaged."""
    return Path(shutil.copytree(spread, tmp_path / "copy"))


def random_team(roles, seed=0, still=()):
    rng = np.random.default_rng(seed)
    positions, velocities = rng.uniform(-1, 1, (2, len(roles), 2))
    velocities[[role in still for role in roles]] = 0
    return positions, velocities


# What is saved is loaded


def test_round_trip(tmp_path, spread):
    saved, loaded = small_policy(SPREAD, seeds=(3, 5, 4), best=1), load_policy(spread)
    jax.tree.map(np.testing.assert_array_equal, loaded.policies, saved.policies)
    for field in ("config", "layout", "limit", "task", "seeds", "figures", "best", "notes"):
        assert getattr(loaded, field) == getattr(saved, field)
    assert trained_task(loaded) == SPREAD
    assert trained_task(loaded, agents=5) == Spread(agents=5)
    save_policy(tmp_path, loaded)
    for name in ("policy.json", "policy.safetensors"):
        assert (tmp_path / name).read_bytes() == (spread / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.json", "policy.safetensors"]


def test_notes_are_kept(copy):
    edit_json(copy, lambda about: about.update(steps=[1, 2, 3], versions={"jax": "0"}))
    assert load_policy(copy).notes == {"steps": [1, 2, 3], "versions": {"jax": "0"}}


def test_the_best_seed_is_the_default(spread):
    assert legoswarm.load(spread).seed == 5
    roles = ["agent"] * 2 + ["landmark"] * 2
    team = random_team(roles)
    default = legoswarm.load(spread).act(*team, roles)
    np.testing.assert_array_equal(legoswarm.load(spread, seed=5).act(*team, roles), default)
    for seed in (3, 4):
        assert legoswarm.load(spread, seed=seed).seed == seed
        assert not np.allclose(legoswarm.load(spread, seed=seed).act(*team, roles), default)
    with pytest.raises(ValueError, match="no seed 6 in this policy; it has 3, 5, 4"):
        legoswarm.load(spread, seed=6)


def test_names_of_policies(tmp_path, spread):
    """A folder, a path as text, or the weights' file with its description beside it under any name."""
    save_policy(tmp_path, small_policy(SPREAD), stem="mine")
    for name in (spread, str(spread), spread / "policy.safetensors", tmp_path / "mine.safetensors"):
        assert load_policy(name).config == SMALL
    for name, match in (
        (tmp_path, "holds no policy.safetensors"),
        (tmp_path / "nothing", "does not exist"),
        (tmp_path / ("x" * 300), "does not exist"),
        ("zoo:nothing", "there is no zoo:nothing in the zoo"),
    ):
        with pytest.raises(FileError, match=match):
            load_policy(name)


def test_importing_the_package_leaves_jax_alone():
    code = """
import sys, legoswarm, legoswarm.cli, legoswarm.files
dir(legoswarm)
try: legoswarm.cli.main(["--help"])
except SystemExit: pass
assert "jax" not in sys.modules and "matplotlib" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    assert "load" in dir(legoswarm)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = legoswarm.nothing


# Acting


@jax.jit
def mean_actions(actors, scene):
    decisions = decide(actors, scene)
    return world_actions(scene.layout, decisions, {role: d.mode for role, d in decisions.items()})


def jax_side(swarm, positions, velocities, roles, visible=None):
    """The same through decide and world_actions, for entities that already stand role by role."""
    layout = Layout(swarm.roles, tuple(roles.count(role) for role in swarm.roles), swarm.file.layout.controlled)
    visible = np.ones((layout.agents, layout.entities), bool) if visible is None else visible
    arrays = (jnp.asarray(x, jnp.float32) for x in (positions, velocities))
    scene = Scene(*arrays, jnp.ones(layout.entities, bool), jnp.asarray(visible), layout)
    return swarm.file.limit(mean_actions(swarm.actors, scene))


@pytest.mark.parametrize(("agents", "landmarks"), [(1, 1), (2, 0), (6, 4)])
def test_any_team_size_acts_as_in_training(spread, agents, landmarks):
    swarm = legoswarm.load(spread)
    assert (swarm.roles, swarm.controlled_roles) == (("agent", "landmark"), ("agent",))
    roles = ["agent"] * agents + ["landmark"] * landmarks
    team = random_team(roles, still=("landmark",))
    actions = swarm.act(*team, roles)
    assert actions.shape == (agents, 2)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, jax_side(swarm, *team, roles), atol=1e-5)


def test_both_sides_of_tag(tag_swarm):
    swarm = tag_swarm
    assert swarm.controlled_roles == ("pursuer", "evader")
    roles = ["pursuer"] * 3 + ["evader"] * 2 + ["obstacle"]
    team, visible = random_team(roles), np.random.default_rng(1).uniform(size=(5, 6)) < 0.6
    for mask in (None, visible):
        np.testing.assert_allclose(swarm.act(*team, roles, mask), jax_side(swarm, *team, roles, mask), atol=1e-5)
    alone = ["pursuer"] * 3
    actions = swarm.act(*random_team(alone), alone)
    assert actions.shape == (3, 2)
    assert np.ptp(actions) > 0.01


@given(seed=st.integers(0, 2**32 - 1))
def test_entities_in_any_order(tag_swarm, seed):
    """Rows follow the controlled agents in the order given, whatever stands between them."""
    swarm, rng = tag_swarm, np.random.default_rng(seed)
    roles = ["pursuer"] * 3 + ["evader"] * 2 + ["obstacle"]
    positions, velocities = random_team(roles, seed)
    visible = rng.uniform(size=(5, 6)) < 0.8
    order = rng.permutation(6)
    agents = order[order < 5]
    shuffled = swarm.act(positions[order], velocities[order], [roles[at] for at in order], visible[agents][:, order])
    np.testing.assert_allclose(shuffled, swarm.act(positions, velocities, roles, visible)[agents], atol=2e-5)


def test_hidden_entities_are_not_there(spread):
    """Hiding is the same as taking away, for the agent that does not see; its own column means nothing."""
    swarm, roles = legoswarm.load(spread), ["agent", "landmark", "agent", "landmark"]
    positions, velocities = random_team(roles)
    everything = swarm.act(positions, velocities, roles)
    visible = np.ones((2, 4), bool)
    visible[1, 0] = False
    hidden = swarm.act(positions, velocities, roles, visible=visible)
    np.testing.assert_array_equal(hidden[0], everything[0])
    assert not np.allclose(hidden[1], everything[1])
    alone = swarm.act(positions[1:], velocities[1:], roles[1:])
    np.testing.assert_allclose(hidden[1], alone[0], atol=1e-6)
    positions[0] += 0.3
    np.testing.assert_allclose(swarm.act(positions, velocities, roles, visible)[1], hidden[1], atol=1e-6)
    visible[1, 2] = False
    np.testing.assert_allclose(swarm.act(positions, velocities, roles, visible)[1], hidden[1], atol=1e-6)


@pytest.mark.parametrize(("limit", "size"), [("disc:0.1", 0.1), ("box:0.1", 0.1 * math.sqrt(2)), ("none", math.inf)])
def test_actions_are_limited_as_in_training(tmp_path, limit, size):
    roles = ["agent"] * 2 + ["landmark"] * 2
    positions, velocities = random_team(roles)
    swarm = legoswarm.load(save_small(tmp_path / "limited", Spread(limit=limit)))
    free = legoswarm.load(save_small(tmp_path / "free", Spread(limit="none"))).act(positions, velocities, roles)
    actions = swarm.act(positions, velocities, roles)
    np.testing.assert_allclose(actions, Limit.parse(limit)(free), rtol=1e-5)
    assert np.linalg.norm(free, axis=1).max() > 0.2
    assert np.linalg.norm(actions, axis=1).max() <= size * (1 + 1e-5)


def test_act_leaves_its_arguments_alone(spread):
    swarm, roles = legoswarm.load(spread), ["landmark", "agent", "agent", "landmark"]
    positions, velocities = random_team(roles)
    visible = np.ones((2, 4), bool)
    before = [x.copy() for x in (positions, velocities, visible)]
    swarm.act(positions, velocities, roles, visible)
    for now, then in zip((positions, velocities, visible), before, strict=True):
        np.testing.assert_array_equal(now, then)


def with_value(array, value):
    array = np.array(array, float)
    array[1, 0] = value
    return array


ZEROS = np.zeros((3, 2))
ROLES = ["agent", "agent", "landmark"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((with_value(ZEROS, np.nan), ZEROS, ROLES), "positions must be finite; row 1 is not"),
        ((ZEROS, with_value(ZEROS, -np.inf), ROLES), "velocities must be finite; row 1 is not"),
        ((with_value(ZEROS, 1e300), ZEROS, ROLES), "positions must be finite; row 1 is not"),
        ((with_value(ZEROS, 3e38), ZEROS, ROLES), "positions or velocities are too large"),
        ((np.zeros(3), ZEROS, ROLES), r"positions must have the shape \(entities, 2\), not \(3,\)"),
        ((ZEROS, np.zeros((3, 3)), ROLES), r"velocities must have the shape \(entities, 2\), not \(3, 3\)"),
        ((ZEROS[:2], ZEROS, ROLES), "2 positions, 3 velocities and 3 roles do not belong together"),
        ((ZEROS, ZEROS, ROLES[:2]), "3 positions, 3 velocities and 2 roles do not belong together"),
        ((ZEROS, ZEROS, ["agent", "drone", "agent"]), "does not know the role 'drone'; it knows agent, landmark"),
        ((ZEROS, ZEROS, ["landmark"] * 3), "nobody to act for: no entity is agent"),
        ((ZEROS[:0], ZEROS[:0], []), "nobody to act for"),
        ((ZEROS, ZEROS, ROLES, np.ones((3, 3), bool)), r"bool of shape \(2, 3\), not bool of \(3, 3\)"),
        ((ZEROS, ZEROS, ROLES, np.ones((2, 3))), r"bool of shape \(2, 3\), not float64 of \(2, 3\)"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(spread, arguments, match):
    with pytest.raises(ValueError, match=match) as refusal:
        legoswarm.load(spread).act(*arguments)
    assert "\n" not in str(refusal.value)


def test_entities_at_one_place_and_far_away_are_fine(spread):
    """Nothing is divided by a distance of zero, and a swarm need not be near the origin."""
    swarm = legoswarm.load(spread)
    assert np.isfinite(swarm.act(ZEROS, ZEROS, ROLES)).all()
    assert np.isfinite(swarm.act(ZEROS + 1e6, ZEROS, ROLES)).all()


def test_without_a_critic(tmp_path):
    """An algorithm with critics of its own leaves the policy's out; a squash bounds actions in the agent's frame."""
    config = policy_of(width=8, depth=1, heads=2, critic="none", squash=0.05)
    folder = save_small(tmp_path / "run", Spread(limit="none"), config=config)
    assert not [name for name in load_tensors((folder / "policy.safetensors").read_bytes()) if "critic" in name]
    swarm, team = legoswarm.load(folder), random_team(ROLES)
    assert swarm.file.config == config
    size = np.linalg.norm(swarm.act(*team, ROLES), axis=1)
    assert (size <= 0.05 * math.sqrt(2) + 1e-6).all()
    assert (size > 0.02).all()


def test_the_nearest_alone(spread, tmp_path):
    """Of each role; policies that look at everybody have no such option."""
    roles = ["agent", "landmark", "landmark", "landmark", "agent"]
    positions, velocities = random_team(roles)
    distance = np.linalg.norm(positions - positions[0], axis=1)
    distance[np.array(roles) != "landmark"] = np.inf
    near = [0, int(distance.argmin()), 4]
    alone = legoswarm.load(spread).act(positions[near], velocities[near], [roles[at] for at in near])
    chosen = legoswarm.load(spread, nearest=1).act(positions, velocities, roles)
    np.testing.assert_allclose(chosen[0], alone[0], atol=1e-6)
    assert np.abs(chosen[0] - legoswarm.load(spread).act(positions, velocities, roles)[0]).max() > 1e-3
    mappo = save_small(tmp_path / "mappo", SPREAD, config=policy_of("mappo", width=8))
    with pytest.raises(ValueError, match="mappo looks at everybody: it cannot look at the nearest alone"):
        legoswarm.load(mappo, nearest=1)


def test_the_dimension_of_space_is_the_layouts(tmp_path):
    """It stands in the description and decides the weights' shapes and what `act` takes."""
    layout, config = Layout(("agent", "landmark"), (2, 1), dimension=3), policy_of("mappo", width=8)
    policies = jax.tree.map(lambda leaf: leaf[None], random_weights(functools.partial(make_policies, config, layout)))
    save_policy(tmp_path, PolicyFile(config, layout, Limit(), {"name": "spread"}, (0,), {}, 0, policies=policies))
    swarm = legoswarm.load(tmp_path)
    assert swarm.file.layout == layout
    assert swarm.file.policies["agent"].actor.head.weight.shape == (1, 8, 3)
    with pytest.raises(ValueError, match=r"positions must have the shape \(entities, 3\), not \(3, 2\)"):
        swarm.act(ZEROS, ZEROS, ROLES)


# What version 0.1 wrote

CONSTANTS = ("leash_gain", "slow", "squash", "tie")  # no options then
OLD = {"depth": 2, "heads": 4, "encoder": "attention", "pooling": "mean", "axis": "velocity", "rest": "equivariant"}
OLD |= {"hands": 1, "nearest": 0}  # every policy had them


def to_version_01(folder, **changes):
    """Write the description as version 0.1 did."""

    def edit(about):
        own = {name: value for name, value in about["policy"].items() if name not in ("name", *CONSTANTS)}
        about.update(format=1, policy={"policy": about["policy"]["name"], **OLD, **own, **changes})
        del about["dimension"]

    edit_json(folder, edit)


@pytest.fixture
def convert(monkeypatch, capsys):
    """Run `python tools/convert.py PATH`; gives the exit code and what it said."""

    def run(path):
        monkeypatch.setattr(sys, "argv", ["convert.py", str(path)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(Path(__file__).parents[1] / "tools" / "convert.py"))
        return int(end.value.code), capsys.readouterr().out

    return run


def test_what_version_01_wrote_is_refused_and_can_be_converted(copy, convert):
    team, before = random_team(ROLES), contents(copy)
    expected = legoswarm.load(copy).act(*team, ROLES)
    to_version_01(copy)
    refused(
        copy,
        f"^{copy}/policy.json is not a usable policy description: it was written by version 0.1; convert it: "
        f"python tools/convert.py {copy}/policy.json$",
    )
    assert convert(copy) == (0, f"{copy}/policy.json\n")
    assert load_policy(copy).config == SMALL
    np.testing.assert_array_equal(legoswarm.load(copy).act(*team, ROLES), expected)
    after = contents(copy)
    assert json.loads(after[Path("policy.json")]) == json.loads(before[Path("policy.json")])
    assert convert(copy / "policy.json") == (0, "")  # nothing is left to do
    assert contents(copy) == after


@pytest.mark.parametrize("name", ["mappo", "mappo-local", "mappo-gnn", "pic", "segnn-planar"])
def test_a_converted_policy_keeps_the_options_that_it_has(name, tmp_path, convert):
    config = policy_of(name, width=16)
    folder = save_small(tmp_path / name, SPREAD, config=config)
    to_version_01(folder)
    assert convert(folder / "policy.safetensors")[0] == 0
    assert load_policy(folder).config == config


def test_policies_of_ippo_are_converted_where_their_critic_is_the_same(copy, tmp_path, convert):
    to_version_01(copy, critic="local")
    assert convert(copy)[0] == 0
    assert load_policy(copy).config == SMALL
    other = save_small(tmp_path / "mappo", SPREAD, config=policy_of("mappo", width=8))
    to_version_01(other, critic="local")
    before = contents(other)
    code, said = convert(other)
    assert code == 1
    assert "cannot be converted" in said
    assert contents(other) == before
    refused(other, "written by version 0.1")


# Damaged files


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder, match=""):
    """Loading is refused in one sentence, soon, and writes nothing."""
    before, started = contents(folder), time.monotonic()
    with pytest.raises(FileError, match=match) as refusal:
        load_policy(folder)
    assert time.monotonic() - started < 10
    message = str(refusal.value)
    assert "\n" not in message
    assert str(folder) in message
    assert len(message) < 1000
    assert contents(folder) == before


def loads_or_is_refused(folder):
    """None, or the one sentence that says why not."""
    message = None
    try:
        load_policy(folder)
    except FileError as error:
        message = str(error)
    assert message is None or "\n" not in message
    return message


def edit_json(folder, edit):
    path = folder / "policy.json"
    about = json.loads(path.read_text())
    edit(about)
    path.write_text(json.dumps(about))


def edit_tensors(folder, edit):
    path = folder / "policy.safetensors"
    tensors = load_tensors(path.read_bytes())
    edit(tensors)
    path.write_bytes(save_tensors(tensors))


def test_missing_files(copy):
    (copy / "policy.json").rename(copy / "elsewhere.json")
    refused(copy, "policy.json does not exist")
    (copy / "policy.safetensors").unlink()
    refused(copy, "holds no policy.safetensors")


def test_folders_instead_of_files(copy, spread):
    for name in ("policy.json", "policy.safetensors"):
        (copy / name).unlink()
        (copy / name).mkdir()
    refused(copy, "policy.json is not a plain file")
    (copy / "policy.json").rmdir()
    shutil.copy(spread / "policy.json", copy)
    refused(copy, "policy.safetensors is not a plain file")


def test_weights_cut_short(copy):
    path = copy / "policy.safetensors"
    whole = path.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    cuts = {0, 1, 7, 8, 9, header - 1, header, header + 1, len(whole) - 1}
    cuts |= set(np.linspace(0, len(whole) - 1, 22, dtype=int).tolist())
    assert len(cuts) >= 28
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        refused(copy, "policy.safetensors is damaged")
    path.write_bytes(whole + b"more")
    refused(copy, "policy.safetensors is damaged")


def test_description_cut_short(copy):
    path = copy / "policy.json"
    whole = path.read_bytes().rstrip()
    for cut in np.linspace(0, len(whole) - 1, 30, dtype=int):
        path.write_bytes(whole[:cut])
        refused(copy, "policy.json is damaged: it is not valid JSON")


def test_bytes_flipped_in_the_header(copy):
    """A flip is noticed, unless it exchanges arrays of one shape or hits a space."""
    path = copy / "policy.safetensors"
    whole = path.read_bytes()
    good = load_policy(copy).policies
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    for at in [*range(8), *np.linspace(8, header - 1, 60, dtype=int)]:
        for flip in (0x01, 0x20, 0x80):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            message = loads_or_is_refused(copy)
            if message is None:
                policies = load_policy(copy).policies
                assert jax.tree.map(jnp.shape, policies) == jax.tree.map(jnp.shape, good)


NAME = "agent/actor/head/weight"


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda t: t.update({NAME: t[NAME][:, :-1].copy()}), r"'agent/actor/head/weight' is float32\[3, 7, 2\]"),
        (lambda t: t.update({NAME: t[NAME][:2].copy()}), "does not fit the architecture"),
        (lambda t: t.update({NAME: t[NAME].astype(np.float64)}), r"is float64\[3, 8, 2\], not float32\[3, 8, 2\]"),
        (lambda t: t.update({NAME: t[NAME].astype(np.int32)}), "does not fit the architecture"),
        (lambda t: t.pop(NAME), "'agent/actor/head/weight' is missing or unknown"),
        (lambda t: t.update(more=np.zeros(3, np.float32)), "'more' is missing or unknown"),
        (lambda t: t.update({"a\nb": np.zeros(3, np.float32)}), "is missing or unknown"),
        (lambda t: t.clear(), "is missing or unknown"),
        (
            lambda t: t[NAME].__setitem__((2, 0, 1), np.nan),
            "'agent/actor/head/weight' holds values that are not finite",
        ),
        (lambda t: t[NAME].__setitem__((0, 0, 0), -np.inf), "holds values that are not finite"),
    ],
)
def test_weights_that_do_not_fit(copy, edit, match):
    def apply(tensors):
        tensors[NAME] = tensors[NAME].copy()
        edit(tensors)

    edit_tensors(copy, apply)
    refused(copy, match)


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E5M2", "F4", "F6_E2M3", "C64", "X1"])
def test_number_types_that_numpy_lacks(copy, dtype):
    header = json.dumps({NAME: {"dtype": dtype, "shape": [8], "data_offsets": [0, 8]}}).encode()
    for size in (4, 6, 8, 16, 64):
        header = json.dumps({NAME: {"dtype": dtype, "shape": [8], "data_offsets": [0, size]}}).encode()
        (copy / "policy.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
        refused(copy, "policy.safetensors")


class Trap:
    """Unpickling this writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_pickles_are_not_opened(copy, tmp_path):
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    pickle.loads(trap).close()
    (tmp_path / "sprung").unlink()
    good = (copy / "policy.safetensors").read_bytes()
    (copy / "policy.safetensors").write_bytes(trap)
    refused(copy, "policy.safetensors is damaged")
    (copy / "policy.safetensors").write_bytes(good)
    (copy / "policy.json").write_bytes(trap)
    refused(copy, "policy.json is damaged")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "3",
        '"text"',
        "{",
        "{}}",
        "{'format': 1}",
        "\ufeff{}",
        "\xff\xfe",
        "{}",
        "1" * 10_000,
        "[" * 100_000 + "]" * 100_000,
        '{"policy": ' * 50_000 + "1" + "}" * 50_000,
    ],
    ids=range(14),
)
def test_descriptions_that_are_no_object(copy, text):
    (copy / "policy.json").write_bytes(text.encode("latin-1" if "\xff" in text else "utf-8"))
    refused(copy, "policy.json")


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


FIELDS = ["format", "policy", "dimension", "roles", "slots", "controlled", "limit", "task", "seeds", "figures", "best"]
WRONG = [None, True, -1, 0.5, 10**30, math.inf, math.nan, "text", "", [], [[]], ["text"], [None], {}, {"a": 1}]
WRONG += [nested(400), {"name": nested(400)}]
FITTING = {("task", 16), ("figures", 13)}  # an object's inside is the task's matter; no figures are known


@pytest.mark.parametrize("field", FIELDS)
def test_fields_of_the_wrong_kind(copy, field):
    for number, value in enumerate(WRONG):
        if (field, number) not in FITTING:
            edit_json(copy, lambda about, value=value: about.update({field: value}))
            refused(copy, "policy.json is not a usable policy description|does not fit the architecture")
    edit_json(copy, lambda about: about.pop(field))
    refused(copy, f"field '{field}' is missing")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("width", 10**9),
        ("width", 0),
        ("width", "8"),
        ("width", 8.0),
        ("width", True),
        ("width", None),
        ("width", nested(400)),
        ("depth", 10**9),
        ("depth", -1),
        ("heads", 10**9),
        ("heads", 3),
        ("name", "nothing"),
        ("name", "os.system"),
        ("name", "mappo"),
        ("name", None),
        ("encoder", "nothing"),
        ("pooling", "sum"),
        ("axis", "up"),
        ("rest", 1),
        ("tie", 0.0),
        ("critic", ["full"]),
        ("critic", "local"),
        ("slow", -1.0),
        ("leash_gain", "8"),
        ("squash", -1.0),
        ("log_std", math.nan),
        ("log_std", math.inf),
        pytest.param("log_std", 10**400, id="log_std-huge"),
        ("colour", "blue"),
    ],
)
def test_architectures_that_cannot_be(copy, field, value):
    edit_json(copy, lambda about: about["policy"].update({field: value}))
    refused(copy, "policy.json is not a usable policy description")


@pytest.mark.parametrize(
    "changes",
    [
        {"roles": [f"role{n}" for n in range(100_000)], "slots": [1] * 100_000},
        {"roles": [f"role{n}" for n in range(32)], "slots": [1] * 32, "controlled": 32},
        {"roles": [f"role{n}" for n in range(33)], "slots": [1] * 33},
        {"roles": ["agent", "agent"]},
        {"roles": "agent"},
        {"slots": [10**9, 3]},
        {"slots": [-1, 3]},
        {"slots": [3]},
        {"controlled": 0},
        {"controlled": 3},
        {"controlled": 10**9},
        {"seeds": list(range(100_000))},
        {"seeds": []},
        {"seeds": [1, 1, 2]},
        {"best": 3},
        {"best": -1},
        {"format": 3},
        {"dimension": 0},
        {"dimension": -2},
        {"dimension": 17},
        {"dimension": 10**9},
        {"limit": "disc"},
        {"limit": "disc:-1"},
        {"limit": "disc:nan"},
        {"limit": "sphere:1"},
        {"task": {"agents": 3}},
        {"figures": {"return_2c": [1, 2]}},
        {"figures": {"return_2c": 1}},
        {"figures": {"return_2c": [1, 2, "3"]}},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_claims_that_cannot_be(copy, changes):
    edit_json(copy, lambda about: about.update(changes))
    refused(copy, "policy.json is not a usable policy description")


def test_other_claims_than_the_weights_have(copy):
    edit_json(copy, lambda about: about.update(controlled=2))
    refused(copy, "policy.safetensors does not fit the architecture it claims")
    edit_json(copy, lambda about: about.update(controlled=1, roles=["drone", "landmark"]))
    refused(copy, "policy.safetensors does not fit the architecture it claims")
    edit_json(copy, lambda about: about.update(roles=["agent", "landmark"], dimension=3))
    refused(copy, "policy.safetensors does not fit the architecture it claims")
    edit_json(copy, lambda about: about["policy"].update(critic="none") or about.update(dimension=2))
    refused(copy, "'agent/critic/.*' is missing or unknown")


def test_an_unknown_task_only_matters_when_it_is_needed(copy):
    """A policy acts without the code of its task; making the task says what is missing."""
    edit_json(copy, lambda about: about["task"].update(name="nothing"))
    roles = ["agent", "agent", "landmark"]
    assert legoswarm.load(copy).act(*random_team(roles), roles).shape == (2, 2)
    with pytest.raises(ValueError, match="unknown task 'nothing'; known: "):
        trained_task(load_policy(copy))
    edit_json(copy, lambda about: about["task"].update(name="spread", agents=0))
    with pytest.raises(ValueError, match="at least one agent"):
        trained_task(load_policy(copy))
    edit_json(copy, lambda about: about["task"].update(agents="3"))
    with pytest.raises(ValueError, match="field 'agents' cannot be '3'"):
        trained_task(load_policy(copy))


# Fuzzing


edits = st.lists(
    st.tuples(st.sampled_from(["set", "insert", "delete"]), st.integers(0, 10**6), st.binary(min_size=1, max_size=4)),
    min_size=1,
    max_size=5,
)


@given(edits=edits, name=st.sampled_from(["policy.json", "policy.safetensors"]), front=st.booleans())
def test_random_edits_of_bytes(spread, tmp_path_factory, edits, name, front):
    data = bytearray((spread / name).read_bytes())
    for kind, at, new in edits:
        at %= min(len(data), 2000) if front else len(data)
        stop = at if kind == "insert" else at + len(new)
        data[at:stop] = b"" if kind == "delete" else new
    folder = tmp_path_factory.mktemp("edited")
    for file in spread.iterdir():
        shutil.copy(file, folder)
    (folder / name).write_bytes(data)
    loads_or_is_refused(folder)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(FIELDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(field=st.sampled_from(FIELDS), inside=st.none() | st.integers(0, 10), value=json_values)
def test_random_values_in_the_description(spread, tmp_path_factory, field, inside, value):
    about = json.loads((spread / "policy.json").read_text())
    target, key = about, field
    if inside is not None and isinstance(about[field], dict | list):
        target = about[field]
        key = list(target)[inside % len(target)] if isinstance(target, dict) else inside % len(target)
    target[key] = value
    folder = tmp_path_factory.mktemp("edited")
    shutil.copy(spread / "policy.safetensors", folder)
    (folder / "policy.json").write_text(json.dumps(about))
    loads_or_is_refused(folder)
