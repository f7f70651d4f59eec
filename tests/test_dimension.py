"""The dimension of space comes from the layout: everything but canonical frames and tasks works in three of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.layout import Layout
from legoswarm.limits import Limit
from legoswarm.policies.networks.team import decide, world_actions
from legoswarm.policies.saved.description import Description
from legoswarm.policies.saved.file import PolicyFile, load_policy, save_policy
from legoswarm.policies.saved.look import look
from legoswarm.scene import Scene
from legoswarm.tasks.worlds.particles import Bodies, advance
from tests.policies import policy_of
from tests.tiny import compiled, random_policies

SPACE = Layout(("agent", "landmark"), (3, 2), dimension=3)


def scene_of(rng):
    position, velocity = (jnp.asarray(rng.normal(size=(5, 3)), jnp.float32) for _ in range(2))
    return Scene(position, velocity, jnp.ones(5, bool), jnp.ones((3, 5), bool), SPACE)


@pytest.mark.parametrize("name", ["mappo", "mappo-gnn", "pic"])
@pytest.mark.parametrize("critic", ["full", "pairs"])
def test_policies_without_a_frame_act_and_value_in_space(name, critic):
    if (name, critic) == ("pic", "pairs"):
        with pytest.raises(ValueError, match="critic"):
            policy_of(name, critic=critic)
        return
    small = {"heads": 2, "depth": 1} if name == "mappo-gnn" else {}
    policies = random_policies(policy_of(name, critic=critic, width=8, **small), SPACE)

    def act(scene):
        decisions = decide({role: policy.actor for role, policy in policies.items()}, scene)
        value = policies["agent"].critic(scene, "agent", jnp.array(1))
        return world_actions(SPACE, decisions, {role: d.mode for role, d in decisions.items()}), value

    scene = scene_of(np.random.default_rng(0))
    actions, value = compiled(act, scene)(scene)
    assert actions.shape == (3, 3)
    assert np.isfinite(value)
    assert (np.abs(np.asarray(actions)).max(0) > 1e-3).all()  # every axis is used


def test_the_critic_of_pairs_follows_no_rotation_of_space():
    rng = np.random.default_rng(1)
    critic = random_policies(policy_of("mappo", critic="pairs", width=8), SPACE)["agent"].critic
    scene = scene_of(rng)
    turn = jnp.asarray(np.linalg.qr(rng.normal(size=(3, 3)))[0], jnp.float32)
    turned = Scene(scene.position @ turn.T + 1, scene.velocity @ turn.T, scene.exists, scene.visible, SPACE)
    values = [critic(each, "agent", jnp.array(0)) for each in (scene, turned)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-4)


def test_files_say_how_many_dimensions_they_have(tmp_path):
    config = policy_of("mappo", width=8)
    policies = jax.tree.map(lambda leaf: leaf[None], random_policies(config, SPACE))
    about = config, SPACE, Limit("disc", 1.0), {"name": "none"}, (0,), {}, 0
    save_policy(tmp_path, PolicyFile(*about, policies=policies))
    assert load_policy(tmp_path).layout == SPACE
    assert Description(*about).to_json()["dimension"] == 3


def test_worlds_limits_and_looks_take_any_dimension():
    bodies = Bodies((0.1,) * 3, acceleration=(1.0,) * 3, max_speed=(1.0,) * 3, solid=3)
    position, velocity = np.zeros((3, 3)), np.zeros((3, 3))
    position[:, 2] = [0.0, 0.05, 9.0]
    after, speed = advance(position, velocity, np.ones(3, bool), np.eye(3), bodies, velocity_first=True)
    assert after.shape == speed.shape == (3, 3)
    assert speed[1, 2] > 0 > speed[0, 2]  # the first two touch, one above the other
    np.testing.assert_allclose(Limit("disc", 1.0)(np.array([[3.0, 0.0, 4.0]])), [[0.6, 0.0, 0.8]])
    seen, _ = look(SPACE, np.zeros((2, 3)), np.ones((2, 3)), ["agent", "landmark"])
    assert seen.others_position.shape[-1] == 3
    with pytest.raises(ValueError, match="\\(entities, 3\\)"):
        look(SPACE, np.zeros((2, 2)), np.ones((2, 2)), ["agent", "landmark"])
