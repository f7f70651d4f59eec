"""The leash: nothing within it, and beyond it a pull straight towards the others that grows with the distance."""

import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.policies.networks.leash import pull_back
from legoswarm.scene import Entities, View
from tests.policies import policy_of

LEASH = 1.5
AWAY = np.array([0.6, -0.8])  # from the agent to the centroid of itself and the others


def pull(distance, leash=LEASH, **options):
    """The pull on an agent that is so far from the centroid of itself and two others, of whom a third is hidden."""
    others = np.array([1.5 * distance * AWAY + (0.1, 0.2), 1.5 * distance * AWAY - (0.1, 0.2), (-90.0, 90.0)])
    seen = Entities(jnp.asarray(others, jnp.float32), jnp.zeros((3, 2)), jnp.array([True, True, False]))
    return np.asarray(
        pull_back(View(jnp.array([7.0, -3.0]), jnp.array([0.5, 0.5]), (seen,)), policy_of(leash=leash, **options)),
        float,
    )


@pytest.mark.parametrize("distance", [0.0, 0.7, 1.49])
def test_within_the_leash_there_is_no_pull(distance):
    assert not pull(distance).any()


@pytest.mark.parametrize("distance", [1.6, 3.0, 40.0])
def test_beyond_it_the_pull_is_towards_the_others(distance):
    force = pull(distance)
    assert force @ AWAY > 0
    np.testing.assert_allclose(force, (force @ AWAY) * AWAY, rtol=1e-3)


def test_the_pull_grows_by_the_same_for_each_step_away():
    sizes = [np.linalg.norm(pull(distance)) for distance in (LEASH, 2.5, 3.5, 4.5)]
    np.testing.assert_allclose(np.diff(sizes), sizes[1] - sizes[0], rtol=1e-4)
    assert sizes[1] > 0.1


def test_the_gain_is_how_much_it_grows():
    """It is an option of every policy, and so part of what a run's configuration says."""
    for gain in (0.0, 3.0, 8.0):
        force = pull(4.5, leash_gain=gain)
        np.testing.assert_allclose(force, gain * (4.5 - LEASH) * AWAY, rtol=1e-4)
    np.testing.assert_array_equal(pull(4.5), force)


def test_a_leash_of_zero_is_none():
    assert not pull(40.0, leash=0.0).any()
