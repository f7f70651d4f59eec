"""The layout: where the entities of each role stand, and the order in which a role's members are listed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.layout import Layout, in_turn
from legoswarm.policies.saved.look import look
from legoswarm.scene import observe
from tests.scenes import TAG, make_scene


def test_roles_stand_one_after_the_other():
    layout = Layout(("pursuer", "evader", "obstacle"), (4, 3, 2), controlled=2)
    assert (layout.agents, layout.entities, layout.dimension) == (7, 9, 2)
    assert layout.controlled_roles == ("pursuer", "evader")
    assert [layout.members(role) for role in layout.roles] == [4, 3, 2]
    places = [np.arange(9)[layout.block(role)].tolist() for role in layout.roles]
    assert places == [[0, 1, 2, 3], [4, 5, 6], [7, 8]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((("agent",), (1, 2)), "one number of slots for each distinct role"),
        ((("agent", "agent"), (1, 2)), "one number of slots for each distinct role"),
        ((("agent",), (1,), 0), "at least one controlled role"),
        ((("agent",), (1,), 2), "at least one controlled role"),
        ((("agent", "landmark"), (1, -1)), "no negative slots"),
        ((("agent",), (1,), 1, 0), "at least one dimension, not 0"),
    ],
)
def test_layouts_that_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        Layout(*arguments)


def test_members_in_turn():
    assert in_turn(np.arange(3), 3).tolist() == [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    assert in_turn(np.array(3), 4).tolist() == [3, 0, 1, 2]
    assert in_turn(np.arange(0), 0).shape == (0, 0)
    traced = jax.jit(jax.vmap(lambda member: in_turn(member, 2)))(jnp.array([1, 0]))
    assert traced.tolist() == [[1, 0], [0, 1]]


def test_training_and_acting_list_the_own_role_in_this_order():
    """Both give everybody but the agent itself, for every member of every role; positions name the entities."""
    position = np.repeat(np.arange(TAG.entities, dtype=float)[:, None], 2, axis=1)
    scene = make_scene(TAG, position, np.zeros_like(position))
    roles = [role for role, n in zip(TAG.roles, TAG.slots, strict=True) for _ in range(n)]
    seen, _ = look(TAG, position, np.zeros_like(position), roles)
    for own, role in enumerate(TAG.controlled_roles):
        start, n = TAG.block(role).start, TAG.members(role)
        for member in range(n):
            expected = start + in_turn(np.array(member), n)[1:]
            others = observe(scene, role, member).others[own].position[:, 0] + start + member
            np.testing.assert_array_equal(others, expected)
            acting = seen.others_position[own, own, member][seen.mask[own, own, member]][:, 0] + start + member
            np.testing.assert_array_equal(acting, expected)
