"""Training: seeds side by side, iterations in any portions, divergence, mixed team sizes, and that it learns."""

import contextlib
import io
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.cli import main
from legoswarm.fast.backend import over_seeds
from legoswarm.learn.algorithms.mappo import Mappo
from legoswarm.learn.folder import RunConfig, RunFolder
from legoswarm.learn.loop import evaluation_points, resume_run, start_run
from legoswarm.learn.train import TrainConfig, make_train
from legoswarm.policies.saved.file import load_policy
from legoswarm.policies.saved.trees import named_leaves
from legoswarm.tasks.spread import Spread
from tests.policies import policy_of
from tests.tiny import FAST, TINY, Yard, compiled, random_policies

SEEDS = (0, 1, 2, 3, 4, 6)
TRAIN = TrainConfig(
    Yard(mines=0.01, cliffs=0.01), TINY, Mappo(envs=4, rollout=5, epochs=2, minibatches=1, lr=1e-2), steps=2000
)


def pick(tree, at):
    return jax.tree.map(lambda leaf: leaf[at], tree)


def assert_equal(one, two):
    """Every array of two trees, to the bit."""
    one, two = named_leaves(one), named_leaves(two)
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name], err_msg=name)


def side_by_side(seeds, over=over_seeds):
    """Initial states of several seeds, and the compiled program that advances them."""
    program = make_train(TRAIN)
    keys = jax.vmap(jax.random.key)(jnp.array(seeds))
    state = compiled(jax.vmap(program.init), keys)(keys)

    def advance(state, count):
        return over(lambda one: program.advance(one, count))(state)

    return state, compiled(advance, state, jnp.array(1))


# LEGO learns: the longest test comes first, so that no worker is left alone with it at the end


@pytest.mark.slow
def test_it_learns():
    """Twenty thousand steps of two agents. Doing nothing and a fresh policy earn about -69, a trained one -16."""
    mappo = Mappo(envs=32, rollout=25, epochs=5, minibatches=1, lr=3e-3)
    program = make_train(TrainConfig(Spread(agents=2), policy_of(width=16, depth=1, heads=2), mappo, steps=20_000))
    key = jax.random.key(0)
    state = compiled(program.init, key)(key)
    score = jax.jit(lambda state: program.evaluate(state, jax.random.key(1), 200), compiler_options=FAST)
    before = score(state)
    state, _ = compiled(program.advance, state, jnp.array(1))(state, jnp.array(25))
    after = score(state)
    assert float(before["return_2c"]) < -55
    assert float(after["return_2c"]) > -69 / 2
    assert float(after["distance"]) < 0.5 * float(before["distance"])


# The program


@pytest.fixture(scope="module")
def yard():
    """The states of six seeds before and after each of 12 iterations, and the program."""
    state, advance = side_by_side(SEEDS)
    states, metrics = [state], []
    for _ in range(12):
        state, info = advance(state, jnp.array(1))
        states.append(state)
        metrics.append(info)
    return states, metrics, advance


def test_some_seeds_diverge_and_some_do_not(yard):
    """What the tests below stand on: both causes, after different iterations, and seeds that stay healthy."""
    states = yard[0]
    last = states[-1]
    healthy, iteration = np.asarray(last.healthy), np.asarray(last.iteration)
    assert 2 <= healthy.sum() <= len(SEEDS) - 2
    assert set(np.asarray(last.cause)[~healthy].tolist()) == {1, 2}
    assert not np.asarray(last.cause)[healthy].any()
    assert (iteration[healthy] == 12).all()
    assert len(set(iteration[~healthy].tolist())) > 1
    assert iteration[~healthy].max() < 12


def test_a_diverged_seed_stays_at_its_last_good_state(yard):
    states = yard[0]
    last = states[-1]
    for at in np.flatnonzero(~np.asarray(last.healthy)):
        frozen = pick(last, at)
        good = pick(states[int(frozen.iteration)], at)
        assert good.healthy
        restored = eqx.tree_at(lambda s: (s.healthy, s.cause), frozen, (good.healthy, good.cause))
        assert_equal(restored, good)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves((frozen.learners, frozen.worlds)))


def test_the_cause_is_told(yard):
    """Mines make rewards, and so parameters, not finite; cliffs throw agents out of the world."""
    states, metrics, _ = yard
    last = states[-1]
    for at in np.flatnonzero(~np.asarray(last.healthy)):
        info = {name: float(values[at]) for name, values in metrics[int(last.iteration[at])].items()}
        assert np.isnan(info["agent/return"]) == (int(last.cause[at]) == 1)
        assert info["agent/return"] < -1e9 or int(last.cause[at]) == 1


@pytest.mark.parametrize("place", [jnp.nan, 1e9])
def test_worlds_beyond_the_horizon_are_noticed_at_once(yard, place):
    """One seed's worlds are thrown away by hand: this seed stops, the others go on as if nothing had happened."""
    states, _, advance = yard
    at = int(np.flatnonzero(np.asarray(states[-1].healthy))[0])
    broken = eqx.tree_at(lambda s: s.worlds.position, states[0], states[0].worlds.position.at[at].set(place))
    after, _ = advance(broken, jnp.array(3))
    assert not after.healthy[at]
    assert int(after.iteration[at]) == 0
    assert_equal(pick(after.learners, at), pick(states[0].learners, at))
    others = np.delete(np.arange(len(SEEDS)), at)
    assert_equal(pick(after, others), pick(states[3], others))


def test_parameters_that_are_not_finite_are_noticed_at_once(yard):
    states, _, advance = yard
    at = int(np.flatnonzero(np.asarray(states[-1].healthy))[0])
    weight = states[0].learners["agent"].policy.critic.weight.at[at, 0].set(jnp.inf)
    broken = eqx.tree_at(lambda s: s.learners["agent"].policy.critic.weight, states[0], weight)
    after, _ = advance(broken, jnp.array(3))
    assert (bool(after.healthy[at]), int(after.cause[at]), int(after.iteration[at])) == (False, 1, 0)
    others = np.delete(np.arange(len(SEEDS)), at)
    assert_equal(pick(after, others), pick(states[3], others))


def test_iterations_in_any_portions(yard):
    states, metrics, advance = yard
    state, total = advance(states[0], jnp.array(12))
    assert_equal(state, states[-1])
    half, _ = advance(states[0], jnp.array(5))
    rest, _ = advance(half, jnp.array(7))
    assert_equal(rest, states[-1])
    for name, values in total.items():
        mean = np.mean([np.asarray(info[name]) for info in metrics], axis=0)
        np.testing.assert_allclose(values, mean, rtol=1e-4, atol=1e-6)
    nothing, zero = advance(states[4], jnp.array(0))
    assert_equal(nothing, states[4])
    assert not any(np.asarray(values).any() for values in zero.values())


def test_a_seed_does_not_depend_on_those_beside_it(yard):
    """To the bit where seeds run one after the other; alone or in batches, up to the order of float32 sums."""
    states = yard[0]
    at = int(np.flatnonzero(np.asarray(states[-1].healthy))[-1])
    others = (SEEDS[at], 77)
    state, advance = side_by_side(others, one_by_one)
    assert_equal(pick(state, 0), pick(states[0], at))
    assert_equal(pick(advance(state, jnp.array(12))[0], 0), pick(states[-1], at))
    for seeds, over in ((others, jax.vmap), (SEEDS[at : at + 1], one_by_one)):
        state, advance = side_by_side(seeds, over)
        for before, after in ((0, 1), (3, 4), (0, 6)):
            start = jax.tree.map(lambda own, other: own.at[0].set(other), state, pick(states[before], at))
            one, many = named_leaves(pick(advance(start, jnp.array(after - before))[0], 0)), named_leaves(states[after])
            assert one["iteration"] == after
            for name, array in one.items():
                np.testing.assert_allclose(array, many[name][at], rtol=1e-3, atol=1e-5, err_msg=name)


def one_by_one(fun):
    return lambda trees: jax.lax.map(fun, trees)


def test_seeds_and_iterations_differ(yard):
    states = yard[0]
    first, last = states[0], states[-1]
    keys = np.concatenate([jax.random.key_data(state.key)[np.asarray(last.healthy)] for state in states])
    assert len(np.unique(keys, axis=0)) == len(keys)
    for state in (first, last):
        for name in ("weight", "place"):
            values = np.asarray(getattr(state.learners["agent"].policy.critic, name))
            assert len(np.unique(values[:, 0])) == len(SEEDS)
    assert len(np.unique(np.asarray(first.worlds.position)[:, 0, 0, 0])) == len(SEEDS)


def test_one_compilation_serves_the_whole_run():
    """What `init`, `advance` and a checkpoint give has the same types: none of them makes `advance` compile again."""
    program = make_train(TRAIN)
    fresh = jax.eval_shape(program.init, jax.random.key(0))
    later = jax.eval_shape(program.advance, fresh, jnp.array(1))[0]

    def types(tree):
        leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
        return {jax.tree_util.keystr(path): (leaf.shape, leaf.dtype, leaf.weak_type) for path, leaf in leaves}

    assert types(fresh) == types(later)
    assert not any(weak for *_, weak in types(fresh).values())


# The loop around the program


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    """A run that goes on until its last seed has diverged: its folder and what it said."""
    train = TrainConfig(Yard(mines=0.01, cliffs=0.01), TINY, TRAIN.algorithm, steps=20_000)
    out = tmp_path_factory.mktemp("diverged") / "[red]run"  # the name is no markup
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        start_run(RunConfig(train, seeds=(3, 5, 8), evaluations=5, eval_episodes=4), out)
    return RunFolder(out), said.getvalue()


def test_every_seed_is_named_with_its_cause(diverged):
    folder, said = diverged
    lines = [line for line in said.splitlines() if "diverged after step" in line]
    causes = ("parameters that are not finite", "positions beyond 1000")
    steps = load_policy(folder.path).notes["steps"]
    assert len(lines) == 3
    for seed, step in zip((3, 5, 8), steps, strict=True):
        words = [f"seed {seed} diverged after step {step:,}: {cause}; its last good state is kept" for cause in causes]
        assert sum(line in words for line in lines) == 1
    assert said.count("every seed has diverged: training stops here") == 1


def test_a_run_stops_when_all_seeds_have_diverged(diverged):
    folder, _ = diverged
    rows = folder.read_metrics()
    file = load_policy(folder.path)
    assert rows[-1]["iteration"] < 1000
    assert [row["iteration"] for row in rows] == list(range(10, rows[-1]["iteration"] + 1, 10))
    assert rows[-1]["iteration"] - 10 <= max(file.notes["steps"]) / 20 < rows[-1]["iteration"]
    assert file.notes["diverged"] == [3, 5, 8]
    assert "eval" in rows[-1]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(file.policies))


def test_a_diverged_run_does_not_go_on(diverged, capsys):
    folder, _ = diverged
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    resume_run(folder.path)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
    assert f"resumed {folder.path} at step" in capsys.readouterr().err
    assert main(["train", "--resume", str(folder.path)]) == 2
    assert "every seed has diverged; their last good state is in" in capsys.readouterr().err


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("evaluations", [1, 3, 7, 40])
def test_as_many_evaluations_as_asked(evaluations, tmp_path):
    """Denser at the beginning, the last one at the end; at most one for each iteration."""
    train = TrainConfig(Yard(), TINY, TRAIN.algorithm, steps=20 * 11)
    folder = start_run(RunConfig(train, evaluations=evaluations, eval_episodes=2), tmp_path / "run", quiet=True)
    evaluated = [row["iteration"] for row in folder.read_metrics() if "eval" in row]
    assert len(evaluated) == min(evaluations, 11)
    assert evaluated[-1] == 11
    assert evaluated[0] == (11 if evaluations == 1 else 1)
    assert min(np.diff(evaluated, 2), default=0) >= 0
    assert evaluation_points(1562, 50) >= {1, 2, 6, 1562}  # a study of Tag: after 3,200, 6,400, 19,200 steps
    assert len(evaluation_points(1562, 50)) == 50


def test_metrics_are_numbers_or_null(diverged):
    folder, _ = diverged
    text = (folder.path / "metrics.jsonl").read_text()
    assert "NaN" not in text
    assert "null" in text
    names = {"iteration", "steps", "seconds", "steps_per_second", "eval"}
    for line in text.splitlines():
        row = json.loads(line)
        assert row["steps"] == 20 * row["iteration"]
        assert all(len(row[name]) == 3 for name in set(row) - names)


# LEGO


@pytest.mark.slow
def test_mixed_team_sizes_train():
    mappo = Mappo(envs=8, rollout=5, epochs=2, minibatches=2, lr=1e-2)
    policy = policy_of(width=8, depth=0, encoder="deepsets")
    task = Spread(agents=3, sizes=(2, 3), horizon=5)
    program = make_train(TrainConfig(task, policy, mappo, steps=400))
    start = jax.random.key(0), random_policies(policy, task.layout)
    state = compiled(program.init, *start)(*start)
    after, metrics = compiled(program.advance, state, jnp.array(1))(state, jnp.array(4))
    for worlds in (state.worlds, after.worlds):
        assert set(np.asarray(worlds.exists)[:, :3].sum(-1).tolist()) == {2, 3}
    assert after.healthy
    assert all(np.isfinite(value) for value in metrics.values())
    for one, two in zip(*(jax.tree.leaves(s.learners["agent"].policy) for s in (state, after)), strict=True):
        assert np.isfinite(two).all()
        assert (np.asarray(one) != np.asarray(two)).any()
