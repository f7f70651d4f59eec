"""Compiled programs kept between runs: found again only where nothing that decides them has changed."""

import dataclasses
import hashlib
import threading
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from legoswarm.fast import kept as keeping
from legoswarm.fast.kept import FOLDER, kept
from legoswarm.learn import programs
from legoswarm.learn.algorithms.algorithm import ALGORITHMS
from legoswarm.learn.algorithms.mappo import Mappo
from legoswarm.learn.programs import Programs
from legoswarm.learn.train import TrainConfig, make_train
from legoswarm.policies.encoders.encoder import ENCODERS, register_view_encoder
from legoswarm.policies.encoders.role_wise import DeepSets, register_encoder
from legoswarm.policies.policy import POLICIES
from legoswarm.tasks.spread import Spread
from tests.policies import policy_of
from tests.tiny import Yard

MAPPO = Mappo(envs=4, rollout=5, epochs=1, minibatches=1)
CONFIG = TrainConfig(Spread(agents=2), policy_of("mappo", width=8), MAPPO, steps=200)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    return tmp_path / "kept"


def files(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} if folder.exists() else {}


# A whole run


def outcome():
    """Two iterations and a measurement."""
    run = Programs(CONFIG, (3, 5), episodes=2)
    state = run.first_state()
    run.compile(state)
    state, metrics = run.advance(state, 2)
    leaves = (
        jax.tree.map(jax.random.key_data, state.key),
        state.learners,
        metrics,
        run.measure(state, 1),
    )
    return [np.asarray(leaf) for leaf in jax.tree.leaves(leaves)]


def test_found_again_and_the_same(folder, monkeypatch):
    first = outcome()
    before = files(folder)
    assert len(before) == 3  # beginning, advancing, measuring

    def refuse(*_):
        raise AssertionError("traced again")

    monkeypatch.setattr(
        programs, "make_train", lambda config: make_train(config)._replace(advance=refuse, evaluate=refuse)
    )
    for one, two in zip(first, outcome(), strict=True):
        np.testing.assert_array_equal(one, two)
    assert files(folder) == before


def test_settings_of_the_thread_hold_for_both_programs(monkeypatch):
    threads = []

    def noted(config):
        real = make_train(config)

        def noting(fun):
            return lambda *args: threads.append(threading.current_thread()) or fun(*args)

        return real._replace(advance=noting(real.advance), evaluate=noting(real.evaluate))

    monkeypatch.setattr(programs, "make_train", noted)
    outcome()
    assert threads
    assert set(threads) == {threading.current_thread()}


# One function


class Tripled:
    """A function that counts how often it is traced."""

    __name__ = "tripled"

    def __init__(self):
        self.traced = 0

    def __call__(self, x):
        self.traced += 1
        return 3 * x


def tripled(decides="all"):
    """Three times (1, 2), perhaps from a file: how often it had to be traced."""
    function, x = Tripled(), jnp.array([1.0, 2.0])
    assert jax.jit(kept(function, (x,), decides))(x).tolist() == [3.0, 6.0]
    return function.traced


def test_traced_once(folder):
    assert [tripled(), tripled()] == [1, 0]
    assert len(files(folder)) == 1


def cut(data):
    return data[:100]


def flip(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_file_is_made_anew(folder, damage):
    tripled()
    [path] = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert tripled() == 1
    assert path.read_bytes()[:32] == hashlib.sha256(path.read_bytes()[32:]).digest()
    assert tripled() == 0


def test_what_was_changed_under_way_is_not_kept(folder, monkeypatch):
    """The source on disk is no longer what was imported: later processes would take the old program for the new."""
    monkeypatch.setattr(keeping, "_source", lambda: "edited meanwhile")
    tripled()
    assert files(folder) == {}


@pytest.mark.parametrize("error", [ImportError, OSError, ValueError])
def test_what_cannot_be_kept_runs_all_the_same(folder, monkeypatch, error):
    def refuse(self):
        raise error("no")

    monkeypatch.setattr(export.Exported, "serialize", refuse)
    assert tripled() > 0
    assert files(folder) == {}


def test_what_nobody_can_name_is_not_kept(folder):
    assert kept(tripled, [jnp.zeros(3)], None) is tripled
    assert files(folder) == {}


def test_switched_off_nothing_is_kept(folder, monkeypatch):
    monkeypatch.setenv("LEGOSWARM_FAST", "programs=off")
    assert [tripled(), tripled()] == [1, 1]
    assert files(folder) == {}


def test_nothing_is_kept_unless_asked(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, "")
    monkeypatch.chdir(tmp_path)
    assert [tripled(), tripled()] == [1, 1]
    assert list(tmp_path.iterdir()) == []


# What a program's name says


def other(**changes):
    return lambda monkeypatch: dataclasses.replace(CONFIG, **changes)


def other_source(monkeypatch):
    monkeypatch.setattr(keeping, "_surroundings", lambda: ["another source"])
    return CONFIG


def other_environment(name, value):
    def change(monkeypatch):
        monkeypatch.setenv(name, value)
        return CONFIG

    return change


@pytest.mark.parametrize(
    "change",
    [
        other_source,
        other_environment("LEGOSWARM_FAST", "kernels=interpret"),
        other_environment("XLA_FLAGS", "--xla_cpu_enable_fast_math=false"),
        other(task=Spread(agents=2, start="left")),
        other(policy=policy_of("mappo", width=16)),
        other(algorithm=dataclasses.replace(MAPPO, gamma=0.5)),
    ],
)
def test_what_decides_a_program_is_in_its_name(folder, monkeypatch, change):
    def name(config):
        return keeping._file("_advance", [jnp.zeros(3)], Programs(config, (0,))._decides())

    before = name(CONFIG)
    assert name(CONFIG) == before
    assert name(change(monkeypatch)) != before


def test_shapes_are_in_its_name(folder):
    names = {keeping._file("_advance", [jnp.zeros(n, t)], []) for n in (2, 3) for t in ("float32", "int32")}
    assert len(names) == 4


def test_precision_around_a_run_is_in_its_name(folder):
    before = keeping._file("_advance", [], [])
    with jax.default_matmul_precision("highest"):
        assert keeping._file("_advance", [], []) != before


def own_task():
    return dataclasses.replace(CONFIG, task=Yard())


def own_policy():
    @POLICIES.register
    @dataclasses.dataclass(frozen=True)
    class Own(type(CONFIG.policy)):
        name: ClassVar[str] = "own"

    return dataclasses.replace(CONFIG, policy=Own(width=8))


def own_policy_of_a_known_name():
    @POLICIES.register
    @dataclasses.dataclass(frozen=True)
    class Own(type(CONFIG.policy)):
        pass

    return dataclasses.replace(CONFIG, policy=Own(width=8))


def own_algorithm():
    @ALGORITHMS.register
    @dataclasses.dataclass(frozen=True)
    class Own(Mappo):
        name: ClassVar[str] = "own"

    return dataclasses.replace(CONFIG, algorithm=Own(**dataclasses.asdict(MAPPO)))


def own_encoder():
    register_view_encoder("own", lambda *args, **settings: ENCODERS["joint"](*args, **settings))
    return dataclasses.replace(CONFIG, policy=policy_of(width=8, encoder="own"))


def own_set_encoder():
    register_encoder("own", lambda *args, **settings: DeepSets(*args, **settings))
    return dataclasses.replace(CONFIG, policy=policy_of(width=8, encoder="own"))


OWN = [own_task, own_policy, own_policy_of_a_known_name, own_algorithm, own_encoder, own_set_encoder]


@pytest.mark.parametrize("own", OWN, ids=lambda own: own.__name__)
def test_the_users_own_are_not_kept(monkeypatch, own):
    """They may change while nothing that names a program does."""
    for registry in (POLICIES, ALGORITHMS, ENCODERS):
        registry.names()  # the package's own first
        for part in ("_things", "_homes"):
            monkeypatch.setattr(registry, part, dict(getattr(registry, part)))
    assert Programs(CONFIG, (0,))._decides() is not None
    assert Programs(own(), (0,))._decides() is None


@pytest.mark.parametrize("change", [{"lr": 0.5}, {"entropy": 0.5}, {"clip": 0.5}, {"steps": 400}], ids=str)
def test_learning_rate_entropy_clipping_and_steps_are_arguments(folder, monkeypatch, change):
    """Another value takes the program that is there, and makes a difference."""
    algorithm = {name: value for name, value in change.items() if name != "steps"}
    steps = change.get("steps", CONFIG.steps)
    changed = dataclasses.replace(CONFIG, algorithm=dataclasses.replace(MAPPO, epochs=2, **algorithm), steps=steps)
    plain = dataclasses.replace(CONFIG, algorithm=dataclasses.replace(MAPPO, epochs=2))
    names = {keeping._file("_advance", [jnp.zeros(3)], Programs(each, (0,))._decides()) for each in (plain, changed)}
    assert len(names) == 1
    weights = []
    compiled: dict = {}
    for config in (plain, changed):
        run = Programs(config, (3,), episodes=2)
        run._made = compiled  # the other's, as if found again
        state, metrics = run.advance(run.first_state(), 3)
        weights.append(
            np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(run.config.algorithm.policies(state.learners))])
        )
        if "lr" in change and config is changed:
            np.testing.assert_allclose(metrics["agent/learning_rate"], 0.5 * (1 - (0 + 2 + 4) / 3 / 20), rtol=1e-5)
    assert not np.array_equal(*weights)
