"""Compiled programs kept between runs: found again only where nothing that decides them has changed."""

import dataclasses
import functools
import hashlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from tiny import Yard

from legoswarm.fast.kept import FOLDER
from legoswarm.learn import programs
from legoswarm.learn.algorithms.mappo import Mappo
from legoswarm.learn.programs import Programs
from legoswarm.learn.train import TrainConfig, make_train
from legoswarm.policies import policy
from legoswarm.tasks.spread import Spread
from tests.policies import policy_of

MAPPO = Mappo(envs=4, rollout=5, epochs=1, minibatches=1)
CONFIG = TrainConfig(Spread(agents=2), policy_of("mappo", width=8), MAPPO, steps=200)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    return tmp_path / "kept"


def outcome(config=CONFIG, seeds=(3, 5)):
    """Two iterations and a measurement."""
    run = Programs(config, seeds, episodes=2)
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


def kept(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} if folder.exists() else {}


def test_found_again_and_the_same(folder, monkeypatch):
    first = outcome()
    files = kept(folder)
    assert len(files) == 3  # beginning, advancing, measuring

    def refuse(*_):
        raise AssertionError("traced again")

    monkeypatch.setattr(
        programs, "make_train", lambda config: make_train(config)._replace(advance=refuse, evaluate=refuse)
    )
    for one, two in zip(first, outcome(), strict=True):
        np.testing.assert_array_equal(one, two)
    assert kept(folder) == files


def cut(data):
    return data[:100]


def flip(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_file_is_made_anew(folder, damage):
    first = outcome()
    for path in folder.iterdir():
        path.write_bytes(damage(path.read_bytes()))
    for one, two in zip(first, outcome(), strict=True):
        np.testing.assert_array_equal(one, two)
    for path in folder.iterdir():
        data = path.read_bytes()
        assert hashlib.sha256(data[32:]).digest() == data[:32]


def test_what_was_changed_under_way_is_not_kept(folder, monkeypatch):
    """The source on disk is no longer what was imported: later processes would take the old program for the new."""
    monkeypatch.setattr(programs, "_source", lambda: "edited meanwhile")
    outcome()
    assert kept(folder) == {}


@pytest.mark.parametrize("error", [ImportError, OSError, ValueError])
def test_what_cannot_be_kept_runs_all_the_same(folder, monkeypatch, error):
    def refuse(self):
        raise error("no")

    first = outcome()
    for path in folder.iterdir():
        path.unlink()
    monkeypatch.setattr(export.Exported, "serialize", refuse)
    for one, two in zip(first, outcome(), strict=True):
        np.testing.assert_array_equal(one, two)
    assert kept(folder) == {}


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


def other(**changes):
    return lambda monkeypatch: dataclasses.replace(CONFIG, **changes)


def other_source(monkeypatch):
    monkeypatch.setattr(programs, "_surroundings", lambda: ["another source"])
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
        other_environment("LEGOSWARM_KERNELS", "interpret"),
        other_environment("XLA_FLAGS", "--xla_cpu_enable_fast_math=false"),
        other(steps=400),
        other(task=Spread(agents=2, start="left")),
        other(policy=policy_of("mappo", width=16)),
        other(mappo=dataclasses.replace(MAPPO, lr=1e-3)),
    ],
)
def test_what_decides_a_program_is_in_its_name(folder, monkeypatch, change):
    def name(config):
        return Programs(config, (0,))._file("_advance", [jnp.zeros(3)])

    before = name(CONFIG)
    assert name(CONFIG) == before
    assert name(change(monkeypatch)) != before


def test_shapes_are_in_its_name(folder):
    names = {Programs(CONFIG, (0,))._file("_advance", [jnp.zeros(n, t)]) for n in (2, 3) for t in ("float32", "int32")}
    assert len(names) == 4


def test_precision_around_a_run_is_in_its_name(folder):
    run = Programs(CONFIG, (0,))
    before = run._file("_advance", [])
    with jax.default_matmul_precision("highest"):
        assert run._file("_advance", []) != before


def test_the_users_own_are_not_kept(folder, monkeypatch):
    outcome(dataclasses.replace(CONFIG, task=Yard()))
    assert kept(folder) == {}
    build = policy._BUILDERS["mappo"]

    @functools.wraps(build)
    def own(*args, key):
        return build(*args, key=key)

    for name in ("own", "mappo"):
        monkeypatch.setitem(policy._BUILDERS, name, own)
        outcome(dataclasses.replace(CONFIG, policy=policy_of(name, width=8)))
        assert kept(folder) == {}
    monkeypatch.undo()
    assert policy.own_policy("mappo")


def test_nothing_is_kept_unless_asked(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, "")
    monkeypatch.chdir(tmp_path)
    outcome()
    assert list(tmp_path.iterdir()) == []
