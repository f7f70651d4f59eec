"""Every faster path gives what the plain one gives, forward and backward."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenes import SPREAD, TAG, random_scene, stack

from legoswarm.fast.attention import MANY, attention, plain_attention
from legoswarm.fast.normalise import normalise, plain_normalise
from legoswarm.learn.algorithms.mappo import Mappo
from legoswarm.learn.train import TrainConfig, make_train
from legoswarm.policies import fused
from legoswarm.policies.networks.layers import Linear, orthogonalise
from legoswarm.policies.networks.pooling import nearest
from legoswarm.policies.networks.roles import RolePolicy, make_policies
from legoswarm.scene import Entities
from legoswarm.tasks.spread import Spread
from tests.policies import policy_of

WIDTH, HEADS = 32, 2


def random_scenes(layout, count):
    rng = np.random.default_rng(count)
    return stack([random_scene(rng, layout) for _ in range(count)])


def random_set(batch, entities, dtype=jnp.float32):
    """Projections, a mask that leaves somebody, and a gradient from above."""
    keys = jax.random.split(jax.random.key(entities), 3)
    qkv = jax.random.normal(keys[0], (*batch, entities, 3 * WIDTH)).astype(dtype)
    mask = jax.random.bernoulli(keys[1], 0.7, (*batch, entities)).at[..., 0].set(True)
    return qkv, mask, jax.random.normal(keys[2], (*batch, entities, WIDTH)).astype(dtype)


def value_and_slope(fun, depth, qkv, mask, above):
    """The function under `depth` vmaps, and its gradient through all of them."""
    for _ in range(depth):
        fun = jax.vmap(fun)
    out, back = jax.vjp(lambda qkv: fun(qkv, mask), qkv)
    return out, back(above)[0]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("entities", [1, 3, 6])
def test_the_kernels_equal_plain_attention(entities, dtype, monkeypatch):
    """21 samples do not fill the programs of 16; the kernels run interpreted here, compiled on GPUs."""
    monkeypatch.setenv("LEGOSWARM_KERNELS", "interpret")
    inputs = random_set((3, 7), entities, dtype)
    ours = value_and_slope(lambda qkv, mask: attention(qkv, mask, HEADS), 2, *inputs)
    plain = value_and_slope(lambda qkv, mask: plain_attention(qkv, mask, HEADS), 2, *inputs)
    for one, two in zip(ours, plain, strict=True):
        assert one.dtype == dtype
        tolerance = 1e-5 if dtype == jnp.float32 else 2e-2
        np.testing.assert_allclose(one.astype(jnp.float32), two.astype(jnp.float32), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_kernels_equal_plain_normalisation(dtype, monkeypatch):
    """77 rows do not fill the programs of 64."""
    monkeypatch.setenv("LEGOSWARM_KERNELS", "interpret")
    x, above = (3 * jax.random.normal(key, (7, 11, WIDTH)).astype(dtype) for key in jax.random.split(jax.random.key(0)))
    results = []
    for fun in (normalise, plain_normalise):
        out, back = jax.vjp(jax.vmap(fun), x)
        results.append((out, back(above)[0]))
    for one, two in zip(*results, strict=True):
        assert one.dtype == dtype
        tolerance = 1e-5 if dtype == jnp.float32 else 3e-2
        np.testing.assert_allclose(one.astype(jnp.float32), two.astype(jnp.float32), atol=tolerance, rtol=tolerance)


def test_a_program_traces_each_kernel_once(monkeypatch):
    """However many vmaps there are around it and however often it is asked: a start would take twice as long."""
    monkeypatch.setenv("LEGOSWARM_KERNELS", "interpret")
    traced = []
    run = fused._run
    monkeypatch.setattr(fused, "_run", lambda kernel, *rest: traced.append(kernel) or run(kernel, *rest))
    qkv, mask, _ = random_set((2, 3, 4), 3)

    def layers(qkv, mask):
        for _ in range(3):
            mixed = normalise(attention(qkv, mask, HEADS))
            qkv = jnp.concatenate([mixed] * 3, axis=-1)
        return mixed.sum()

    every = jax.vmap(jax.vmap(jax.vmap(jax.value_and_grad(layers))))
    program = jax.jit(every).trace(qkv, mask)
    assert not traced
    program.lower()
    assert len(traced) == 4  # attention and normalisation, forward and backward
    traced.clear()
    monkeypatch.setenv("LEGOSWARM_KERNELS", "plain")
    jax.jit(lambda *inputs: every(*inputs)).lower(qkv, mask)
    assert not traced


def test_an_unknown_kind_of_kernel(monkeypatch):
    qkv, mask, _ = random_set((4,), 3)
    monkeypatch.setenv("LEGOSWARM_KERNELS", "quick")
    with pytest.raises(ValueError, match="plain, fused or interpret, not 'quick'"):
        attention(qkv[0], mask[0], HEADS)


def test_blocks_of_queries_equal_all_at_once(monkeypatch):
    """Also where the last block is not full; nothing as large as all pairs of all samples is made."""
    entities, samples = 4 * MANY + 3, 5
    inputs = random_set((samples,), entities)
    monkeypatch.setattr("legoswarm.fast.fused.BLOCK", 8)
    blocks = value_and_slope(lambda qkv, mask: plain_attention(qkv, mask, HEADS), 1, *inputs)
    pairs = samples * HEADS * entities**2
    program = jax.make_jaxpr(jax.vmap(lambda qkv, mask: plain_attention(qkv, mask, HEADS)))(*inputs[:2])
    assert largest(program.jaxpr) < pairs
    monkeypatch.setattr("legoswarm.fast.fused.MANY", entities)
    whole = value_and_slope(lambda qkv, mask: plain_attention(qkv, mask, HEADS), 1, *inputs)
    for one, two in zip(blocks, whole, strict=True):
        np.testing.assert_allclose(one, two, atol=2e-5)


def largest(jaxpr):
    """The number of elements of the largest array in a program, loops included."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [getattr(out.aval, "size", 0) for out in equation.outvars]
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                sizes.append(largest(inner))
    return max(sizes)


@pytest.mark.parametrize(("backend", "critic"), [("cpu", "full"), ("gpu", "full"), ("cpu", "pairs")])
def test_nothing_in_training_grows_with_the_cube_of_the_team(backend, critic, monkeypatch):
    """Twice the agents: each of them sees twice as many, so arrays may be four times as large, but not eight."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    mappo = Mappo(envs=2, rollout=2, epochs=1, minibatches=1)

    def size(agents):
        policy = policy_of(width=8, heads=4, critic=critic)
        program = make_train(TrainConfig(Spread(agents=agents), policy, mappo))
        state = jax.eval_shape(program.init, jax.random.key(0))
        return largest(jax.make_jaxpr(program.advance)(state, jnp.array(1)).jaxpr)

    assert 3.5 < size(256) / size(128) < 4.5


@pytest.mark.parametrize(
    ("policy", "encoder"), [("lego", "attention"), ("lego", "joint"), ("mappo-local", "attention")]
)
@pytest.mark.parametrize("layout", [SPREAD, TAG], ids=["spread", "tag"])
def test_actor_and_critic_side_by_side_equal_one_after_the_other(policy, encoder, layout, monkeypatch):
    """What GPUs do: one program for both networks; Tag has hidden entities that only the critic sees."""
    config = policy_of(policy, encoder=encoder, width=16, depth=1, heads=2, precision="float32")
    policies = make_policies(config, layout, key=jax.random.key(0))
    scenes = random_scenes(layout, 12)
    role = layout.controlled_roles[0]

    def loss(policy, assess):
        decisions, values = assess(policy, scenes, role)
        return (decisions.mean**2).sum() + (values**2).sum(), (decisions.mean, values)

    def results(assess):
        return jax.jit(jax.grad(lambda p: loss(p, assess), has_aux=True))(policies[role])

    plain = results(RolePolicy.assess)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setenv("LEGOSWARM_KERNELS", "plain")
    fast = results(type(policies[role]).assess)
    assert type(policies[role]).assess is not RolePolicy.assess
    for one, two in zip(*map(jax.tree.leaves, (plain, fast)), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4 * float(jnp.abs(one).max()) + 1e-6)


def test_orthogonal_to_start_with():
    linears = (Linear(4, 16, key=jax.random.key(0)), [Linear(16, 4, gain=0.01, key=jax.random.key(1))])
    wide, [tall] = orthogonalise(linears, key=jax.random.key(2))
    np.testing.assert_allclose(wide.weight @ wide.weight.T, 2 * np.eye(4), atol=1e-5)
    np.testing.assert_allclose(tall.weight.T @ tall.weight, 1e-4 * np.eye(4), atol=1e-8)
    assert not np.allclose(wide.weight[:, :4], wide.weight[:, 4:8])


def test_a_run_starts_without_lapack():
    """Programs that call it hang now and then on CPUs (jax 0.10.1): one start in a hundred never ended."""
    program = make_train(TrainConfig(Spread(agents=2), policy_of(width=8, heads=2)))
    text = jax.jit(lambda key: program.init(key)).lower(jax.random.key(0)).as_text()
    assert "stablehlo.custom_call" not in text


def test_the_nearest_are_the_nearest():
    position = jnp.array([[3.0, 0.0], [0.0, 1.0], [0.1, 0.0], [0.0, 2.0]])
    seen = jnp.array([True, True, False, True])
    kept = nearest(Entities(position, 10 * position, seen), 2)
    assert kept.position.tolist() == [[0.0, 1.0], [0.0, 2.0]]
    assert kept.velocity.tolist() == [[0.0, 10.0], [0.0, 20.0]]
    assert kept.mask.all()
    everybody = Entities(position, position, seen)
    assert nearest(everybody, 0) is everybody
    assert nearest(everybody, 4) is everybody
    lonely = nearest(Entities(position, position, jnp.array([False, True, False, False])), 2)
    assert lonely.mask.tolist() == [True, False]


def test_bfloat16_stays_close_to_float32():
    config = policy_of(width=32, depth=2, heads=2)
    scenes = random_scenes(SPREAD, 20)
    means = []
    for precision in ("float32", "bfloat16"):
        policy = make_policies(dataclasses.replace(config, precision=precision), SPREAD, key=jax.random.key(0))["agent"]
        decisions, values = jax.jit(lambda s, p=policy: p.assess(s, "agent"))(scenes)
        means.append(np.concatenate([100 * decisions.mean.reshape(-1), values.reshape(-1)]))
    gap = np.abs(means[0] - means[1]).max() / np.abs(means[0]).max()
    assert 1e-5 < gap < 0.03
