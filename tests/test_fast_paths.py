"""Every faster path gives what the plain one gives, forward and backward."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenes import SPREAD, TAG, random_scene, stack

from legoswarm.fast import kernels
from legoswarm.fast.attention import MANY, MOST, attention, plain_attention
from legoswarm.fast.backend import over_seeds
from legoswarm.fast.gather import gather, plain_gather
from legoswarm.fast.normalise import ROWS, normalise, plain_normalise
from legoswarm.fast.products import product
from legoswarm.fast.switches import PATHS, VARIABLE, switch
from legoswarm.learn.algorithms.mappo import Mappo
from legoswarm.learn.train import TrainConfig, make_train
from legoswarm.policies.networks.layers import Linear, orthogonalise
from legoswarm.policies.networks.roles import over_members
from legoswarm.scene import observe
from legoswarm.tasks.spread import Spread
from tests.policies import policy_of
from tests.tiny import FAST, random_policies

WIDTH, HEADS = 32, 2


def random_scenes(layout, count):
    rng = np.random.default_rng(count)
    return stack([random_scene(rng, layout) for _ in range(count)])


def random_set(batch, entities, dtype=jnp.float32):
    """Projections, a gradient from above, and a mask that leaves somebody."""
    keys = jax.random.split(jax.random.key(entities), 3)
    qkv = jax.random.normal(keys[0], (*batch, entities, 3 * WIDTH)).astype(dtype)
    mask = jax.random.bernoulli(keys[1], 0.7, (*batch, entities)).at[..., 0].set(True)
    return qkv, jax.random.normal(keys[2], (*batch, entities, WIDTH)).astype(dtype), mask


def value_and_slope(fun, depth, x, above, *rest):
    """The function of `x` and the rest under `depth` vmaps, and its gradient in `x` through all of them."""
    for _ in range(depth):
        fun = jax.vmap(fun)

    @functools.partial(jax.jit, compiler_options=FAST)
    def both(x, above, *rest):
        out, back = jax.vjp(lambda x: fun(x, *rest), x)
        return out, back(above)[0]

    return both(x, above, *rest)


# One switch


def test_the_switch_takes_the_word_of_each_path(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert switch("kernels", "fused") == "fused"
    monkeypatch.setenv(VARIABLE, "kernels=plain,programs=off")
    assert [switch(path, "on") for path in PATHS] == ["plain", "on", "on", "on", "off"]
    for path, words in PATHS.items():
        for word in words:
            monkeypatch.setenv(VARIABLE, f"{path}={word}")
            assert switch(path, "default") == word


@pytest.mark.parametrize("words", ["kernels=quick", "kernals=plain", "plain", "kernels=", "blocks=on,kernels=Plain"])
def test_the_switch_refuses_unknown_words(words, monkeypatch):
    """Whoever asks first, about whatever path: a misspelt word would change nothing and be measured."""
    monkeypatch.setenv(VARIABLE, words)
    wrong = words.split(",")[-1]
    name, _, value = wrong.partition("=")
    known = "kernels=plain|fused|interpret; blocks=off|on; products=plain|flat; seeds=map|vmap; programs=off|on"
    for ask in (lambda: switch("programs", "on"), lambda: normalise(jnp.ones((2, WIDTH)))):
        with pytest.raises(ValueError, match=f"^{VARIABLE} cannot be ") as refusal:
            ask()
        assert str(refusal.value) == f"{VARIABLE} cannot be {name}={value}; it knows {known}"


# Products of rows with a matrix


def product_and_slopes(multiply, axes, x, weight):
    """Products under two vmaps, the outer one over `axes` of rows and weights; gradients inside it and through it."""

    def one(x, weight):
        out, back = jax.vjp(lambda x, weight: jax.vmap(multiply, (0, None))(x, weight), x, weight)
        return out, back(jnp.cos(out))

    def total(x, weight):
        return jnp.sin(jax.vmap(one, axes)(x, weight)[0]).sum()

    return jax.tree.leaves((jax.vmap(one, axes)(x, weight), jax.grad(total, (0, 1))(x, weight)))


@pytest.mark.parametrize("axes", [(0, None), (2, None), (None, 0), (1, 2)], ids=["rows", "last", "weights", "both"])
def test_products_equal_those_of_plain_matrices(axes, monkeypatch):
    """Rows gain axes; weights are shared, or differ from seed to seed."""
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(7, 3, 4)).astype(np.float32), random.normal(size=(4, 5)).astype(np.float32)
    several = np.stack([weight, -2 * weight])
    x = x if axes[0] is None else np.moveaxis(np.stack([x, x + 1]), 0, axes[0])
    weight = weight if axes[1] is None else np.moveaxis(several, 0, axes[1])
    monkeypatch.setenv(VARIABLE, "products=flat")
    flat = jax.jit(functools.partial(product_and_slopes, product, axes))
    for ours, plain in zip(flat(x, weight), product_and_slopes(jnp.matmul, axes, x, weight), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-5)


def test_the_slope_of_a_shared_weight_is_one_product_of_two_matrices(monkeypatch):
    """However many vmaps there were: of more axes XLA would write a transposed copy."""
    monkeypatch.setenv(VARIABLE, "products=flat")
    rows = jax.vmap(jax.vmap(product, (0, None)), (0, None))
    slope = jax.make_jaxpr(jax.grad(lambda weight, x: rows(x, weight).sum()))(jnp.ones((4, 5)), jnp.ones((2, 3, 4)))
    [sums] = [each.invars for each in slope.eqns if each.primitive.name == "dot_general"]
    assert [variable.aval.shape for variable in sums] == [(4, 6), (6, 5)]


# Kernels: interpreted here, compiled on GPUs


def same(ours, plain, dtype, tolerance):
    for one, two in zip(ours, plain, strict=True):
        assert one.dtype == two.dtype == dtype
        np.testing.assert_allclose(one.astype(jnp.float32), two.astype(jnp.float32), atol=tolerance, rtol=tolerance)


each_batch = pytest.mark.parametrize("batch", [(), (5,), (2, 3, 4), (0,), (2, 0)])  # vmaps, some over nothing
each_dtype = pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])


def check_attention(inputs, depth, dtype=jnp.float32):
    same(
        value_and_slope(lambda qkv, mask: attention(qkv, mask, HEADS), depth, *inputs),
        value_and_slope(lambda qkv, mask: plain_attention(qkv, mask, HEADS), depth, *inputs),
        dtype,
        1e-5 if dtype == jnp.float32 else 2e-2,
    )


@each_dtype
@pytest.mark.parametrize("entities", [1, 3, 6, MOST - 7])
def test_the_kernels_equal_plain_attention(entities, dtype, monkeypatch):
    """21 samples do not fill the last program, and 25 entities not a tile."""
    monkeypatch.setenv(VARIABLE, "kernels=interpret")
    check_attention(random_set((3, 7), entities, dtype), 2, dtype)


@each_batch
def test_the_kernels_equal_plain_attention_under_any_vmaps(batch, monkeypatch):
    monkeypatch.setenv(VARIABLE, "kernels=interpret")
    check_attention(random_set(batch, 2), len(batch))


def check_normalisation(batch, dtype=jnp.float32):
    """Rows of 11."""
    keys = jax.random.split(jax.random.key(0))
    inputs = [3 * jax.random.normal(key, (*batch, 11, WIDTH)).astype(dtype) for key in keys]
    both = (value_and_slope(fun, len(batch), *inputs) for fun in (normalise, plain_normalise))
    same(*both, dtype, 1e-5 if dtype == jnp.float32 else 3e-2)


@each_dtype
def test_the_kernels_equal_plain_normalisation(dtype, monkeypatch):
    """77 rows do not fill the programs of 64."""
    monkeypatch.setenv(VARIABLE, "kernels=interpret")
    check_normalisation((7,), dtype)


@each_batch
def test_the_kernels_equal_plain_normalisation_under_any_vmaps(batch, monkeypatch):
    monkeypatch.setenv(VARIABLE, "kernels=interpret")
    check_normalisation(batch)


def test_a_kernel_under_vmaps_of_some_arguments_and_around_gradients(monkeypatch):
    """One mask for all samples, one sample under many masks, another axis than the first, gradients of each sample."""
    monkeypatch.setenv(VARIABLE, "kernels=interpret")
    qkv, above, mask = random_set((4, 5), 3)

    @functools.partial(jax.jit, static_argnums=0, compiler_options=FAST)
    def results(fun):
        def slope(qkv, mask, above):
            return jax.grad(lambda qkv: (fun(qkv, mask, HEADS) * above).sum())(qkv)

        def one(qkv, mask):
            return fun(qkv, mask, HEADS)

        return (
            jax.vmap(one, in_axes=(0, None))(qkv[0], mask[0, 0]),
            jax.vmap(one, in_axes=(None, 0))(qkv[0, 0], mask[0]),
            jax.vmap(jax.vmap(one, in_axes=(0, None)), in_axes=(1, 0))(qkv, mask[0]),
            jax.vmap(one, in_axes=(2, 1), out_axes=1)(jnp.moveaxis(qkv[0], 0, 2), mask[0].T),
            jax.vmap(jax.vmap(slope))(qkv, mask, above),
            jax.vmap(jax.vmap(slope, in_axes=(0, None, 0)))(qkv, mask[:, 0], above),
        )

    same(results(attention), results(plain_attention), jnp.float32, 1e-5)


def test_vmaps_fold_into_the_rows_of_one_kernel(monkeypatch):
    """Each use is one kernel with as many programs as all samples fill; a batch of kernels would have one for each."""
    monkeypatch.setenv(VARIABLE, "kernels=interpret")
    qkv, _, mask = random_set((2, 3, 4), 3)

    def layers(qkv, mask):
        for _ in range(2):
            mixed = normalise(attention(qkv, mask, HEADS))
            qkv = jnp.concatenate([mixed] * 3, axis=-1)
        return mixed.sum()

    every = jax.vmap(jax.vmap(jax.vmap(jax.value_and_grad(layers))))
    whole = list(equations(jax.make_jaxpr(every)(qkv, mask).jaxpr))
    calls = [each for each in whole if each.primitive.name == "pallas_call"]
    assert ROWS == 64
    # 24 samples, four in a tile, and 72 rows; attention and normalisation, forward and backward, twice
    assert sorted(each.params["grid_mapping"].grid for each in calls) == [(2,)] * 4 + [(6,)] * 4
    assert sum(each.outvars[0].aval.shape == (24, 3, WIDTH) for each in calls) == 2
    assert sum(each.outvars[0].aval.shape == (24, 3, 3 * WIDTH) for each in calls) == 2
    assert sum(each.outvars[0].aval.shape == (128, WIDTH) for each in calls) == 4
    # Uses of the same shape share what was traced: JAX lowers, and XLA compiles, four kernels and not eight.
    assert len({id(each.params["jaxpr"]) for each in whole if each.params.get("name") == "_run"}) == 4
    monkeypatch.setenv(VARIABLE, "kernels=plain")
    monkeypatch.setattr(kernels, "_run", None)
    jax.make_jaxpr(every)(qkv, mask)


def test_kernels_are_for_shapes_that_they_fit(monkeypatch):
    """Few entities and powers of two; whatever else there is goes the plain way."""
    monkeypatch.setenv(VARIABLE, "kernels=interpret")
    monkeypatch.setattr(kernels, "_run", None)
    for entities, width in ((MOST + 1, 32), (0, 32), (3, 16), (3, 24), (3, 512)):
        shapes = jax.ShapeDtypeStruct((entities, 3 * width), jnp.float32), jax.ShapeDtypeStruct((entities,), bool)
        assert jax.eval_shape(lambda qkv, mask: attention(qkv, mask, HEADS), *shapes).shape == (entities, width)
    for width in (8, 24, 512):
        assert jax.eval_shape(normalise, jax.ShapeDtypeStruct((3, width), jnp.float32)).shape == (3, width)


def pair_inputs(seeds, critics, batch, entities, features=12, width=16):
    """Features of pairs with a tie and a receiver without senders, two layers for each seed and critic, a gradient."""
    keys = jax.random.split(jax.random.key(entities), 5)
    x = jax.random.normal(keys[0], (seeds, batch, entities, entities, features))
    x = x.at[..., 1, :].set(x[..., 0, :])
    there = jax.random.bernoulli(keys[1], 0.7, x.shape[:-1]).at[:, :, 0].set(False)

    def layers(inputs, key):
        layer = jax.vmap(jax.vmap(lambda key: Linear(inputs, width, key=key)))(jax.random.split(key, (seeds, critics)))
        return eqx.tree_at(lambda layer: layer.bias, layer, jax.random.normal(key, layer.bias.shape))

    above = jax.random.normal(keys[4], (seeds, critics, batch, entities, 2 * width))
    return x, there, layers(features, keys[2]), layers(width, keys[3]), above


@pytest.mark.parametrize("entities", [3, 11])
def test_the_kernels_equal_plain_gathering(entities, monkeypatch):
    """For seeds with weights of their own, two critics that look at the same pairs, and samples of the same weights.

    Ties share the gradient; 3 x 3 and 3 x 11 receivers do not fill the programs, nor senders and features the tiles.
    """
    monkeypatch.setenv(VARIABLE, "kernels=interpret")
    inputs = pair_inputs(2, 2, 3, entities)

    def results(fun):
        def one(x, there, first, second, above):
            out, back = jax.vjp(lambda *known: fun(known[0], there, *known[1:]), x, first, second)
            return out, back(above)

        critics = jax.vmap(one, in_axes=(None, None, 0, 0, 0))
        whole = jax.jit(jax.vmap(critics), compiler_options=FAST)
        x, there, first, second, above = jax.tree.map(lambda leaf: leaf[0], inputs)
        one_set = [jax.tree.map(lambda leaf: leaf[0], layer) for layer in (first, second)]
        each = jax.jit(jax.vmap(one, in_axes=(0, 0, None, None, 0)), compiler_options=FAST)  # gradients of each sample
        return whole(*inputs), each(x[:, None], there[:, None], *one_set, above[0][:, None])

    for ours, plain in zip(*(jax.tree.leaves(results(fun)) for fun in (gather, plain_gather)), strict=True):
        np.testing.assert_allclose(ours, plain, atol=2e-5 * float(jnp.abs(plain).max()))


def test_critics_share_the_pairs_that_they_look_at(monkeypatch):
    """A vmap over seeds and critics is one kernel forward and one backward; pairs are not copied for each critic."""
    monkeypatch.setenv(VARIABLE, "kernels=interpret")
    x, there, first, second, _ = pair_inputs(2, 2, 64, 4)

    def loss(x, first, second):
        critics = jax.vmap(gather, in_axes=(None, None, 0, 0))
        return jax.vmap(critics)(x, there, first, second).sum()

    program = jax.make_jaxpr(jax.grad(loss, argnums=(0, 1, 2)))(x, first, second)
    calls = [each for each in equations(program.jaxpr) if each.primitive.name == "pallas_call"]
    assert [each.params["grid_mapping"].grid for each in calls] == [(2, 2, 2)] * 2  # programs, critics, seeds
    assert [each.invars[0].aval.shape for each in calls] == [(2, 256, 4, 16)] * 2
    for senders, width in ((17, 16), (4, 24), (4, 256)):
        shapes = jax.eval_shape(lambda n=senders, width=width: pair_inputs(1, 1, 1, n, width=width))
        monkeypatch.setattr("legoswarm.fast.gather._gather", None)
        jax.eval_shape(lambda *each: gather(*jax.tree.map(lambda leaf: leaf[0], each)), *each_set(shapes))


def each_set(shapes):
    """The same inputs for one seed and one critic, as `gather` takes them with the seed's axis in front."""
    x, there, *layers, _ = shapes
    return x, there, *jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), layers)


@pytest.mark.parametrize("encoder", ["attention", "joint"])
def test_a_policy_with_kernels_equals_the_plain_one(encoder, monkeypatch):
    """Actor, critic and the gradients of both, batched as training does; Tag has entities that only the critic sees."""
    config = policy_of(encoder=encoder, width=16, depth=1, heads=2, precision="float32")
    policy = random_policies(config, TAG)[TAG.roles[0]]
    scenes = random_scenes(TAG, 5)

    def results(mode):
        monkeypatch.setenv(VARIABLE, f"kernels={mode}")

        def loss(policy):
            means, values = assess(policy, scenes, TAG.roles[0])
            return (means**2).sum() + (values**2).sum(), (means, values)

        return jax.tree.leaves(jax.jit(jax.grad(loss, has_aux=True), compiler_options=FAST)(policy))

    plain = results("plain")
    jax.clear_caches()  # encoders are traced once in a process
    for one, two in zip(plain, results("interpret"), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4 * float(jnp.abs(one).max()) + 1e-6)
    jax.clear_caches()


def assess(policy, scenes, role):
    """The mean actions and values of all members of a role in many scenes."""

    def one(scene, member):
        return policy.actor(observe(scene, role, member)).mean, policy.critic(scene, role, member)

    return over_members(one, scenes, role)


# Attention among many


def test_blocks_of_queries_equal_all_at_once(monkeypatch):
    """Also where the last block is not full; nothing as large as all pairs of all samples is made."""
    entities, samples = 4 * MANY + 3, 5
    inputs = random_set((samples,), entities)
    monkeypatch.setattr("legoswarm.fast.attention.BLOCK", 8)
    found = []
    for word, fits in (("on", True), ("off", False)):
        monkeypatch.setenv(VARIABLE, f"blocks={word}")
        program = jax.make_jaxpr(jax.vmap(lambda qkv, mask: plain_attention(qkv, mask, HEADS)))(inputs[0], inputs[2])
        assert (largest(program.jaxpr) < samples * HEADS * entities**2) == fits
        found.append(value_and_slope(lambda qkv, mask: plain_attention(qkv, mask, HEADS), 1, *inputs))
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, atol=2e-5)


def equations(jaxpr):
    """All equations of a program, those inside others included; the insides of kernels are not."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values() if equation.primitive.name != "pallas_call" else ():
            for part in value if isinstance(value, tuple | list) else [value]:
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from equations(inner)


def largest(jaxpr):
    """The number of elements of the largest array in a program, loops included."""
    return max((getattr(out.aval, "size", 0) for each in equations(jaxpr) for out in each.outvars), default=0)


@pytest.mark.parametrize(("backend", "critic"), [("cpu", "full"), ("gpu", "full"), ("cpu", "pairs")])
def test_nothing_in_training_grows_with_the_cube_of_the_team(backend, critic, monkeypatch):
    """Twice the agents: each of them sees twice as many, so arrays may be four times as large, but not eight."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    width = {"cpu": 8, "gpu": 16}[backend]  # encoders are traced once in a process
    mappo = Mappo(envs=2, rollout=2, epochs=1, minibatches=1)

    def size(agents):
        policy = policy_of(width=width, depth=1, heads=4, critic=critic)
        program = make_train(TrainConfig(Spread(agents=agents), policy, mappo))
        state = jax.eval_shape(program.init, jax.random.key(0))
        return largest(jax.make_jaxpr(program.advance)(state, jnp.array(1)).jaxpr)

    assert 3.5 < size(256) / size(128) < 4.5


# Seeds, starts, precision


def test_seeds_one_after_the_other_equal_all_side_by_side(monkeypatch):
    def fun(tree):
        return {"sum": tree["a"].sum() * tree["b"], "rows": jnp.sin(tree["a"])}

    trees = {"a": jnp.arange(12.0).reshape(3, 4), "b": jnp.arange(3.0)}
    found = {}
    for word, primitive in (("map", "scan"), ("vmap", None)):
        monkeypatch.setenv(VARIABLE, f"seeds={word}")
        program = jax.make_jaxpr(lambda trees: over_seeds(fun)(trees))(trees)
        assert ("scan" in [each.primitive.name for each in program.jaxpr.eqns]) == (primitive == "scan")
        found[word] = over_seeds(fun)(trees)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-6), found["map"], found["vmap"])


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


def test_bfloat16_stays_close_to_float32():
    scenes = random_scenes(SPREAD, 20)
    found = []
    for precision in ("float32", "bfloat16"):
        policy = random_policies(policy_of(width=32, depth=2, heads=2, precision=precision), SPREAD)["agent"]
        found.append(jax.jit(lambda p, s: assess(p, s, "agent"), compiler_options=FAST)(policy, scenes))
    for exact, short in zip(*found, strict=True):  # actions, values
        assert 1e-5 < np.abs(exact - short).max() / np.abs(exact).max() < 0.03
