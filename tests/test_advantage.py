"""Generalised advantages against a plain loop in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.learn.advantage import generalised_advantages


def loop(reward, value, next_value, terminated, truncated, gamma, lam):
    """The definition, one step and one world after the other."""
    arrays = [np.asarray(x, float).reshape(len(reward), -1) for x in (reward, value, next_value, terminated, truncated)]
    reward, value, next_value, terminated, truncated = arrays
    advantage = np.zeros_like(reward)
    for world in range(reward.shape[1]):
        later = 0.0
        for t in reversed(range(len(reward))):
            bootstrap = 0.0 if terminated[t, world] else next_value[t, world]
            delta = reward[t, world] + gamma * bootstrap - value[t, world]
            ended = terminated[t, world] or truncated[t, world]
            later = delta + (0.0 if ended else gamma * lam * later)
            advantage[t, world] = later
    return advantage


def episode(seed, shape, ends=0.2):
    rng = np.random.default_rng(seed)
    numbers = [rng.normal(0, scale, shape).astype(np.float32) for scale in (1, 5, 5)]
    return *numbers, rng.uniform(size=shape) < ends, rng.uniform(size=shape) < ends


def estimate(reward, value, next_value, terminated, truncated, gamma, lam):
    arrays = (jnp.asarray(x) for x in (reward, value, next_value, terminated, truncated))
    return np.asarray(generalised_advantages(*arrays, gamma=gamma, lam=lam))


@pytest.mark.parametrize("shape", [(1,), (40,), (30, 7), (20, 3, 4)], ids=str)
@pytest.mark.parametrize(("gamma", "lam"), [(0.99, 0.95), (0.9, 0.3), (1.0, 1.0), (0.99, 0.0), (0.0, 0.95)])
def test_equals_the_plain_loop(shape, gamma, lam):
    for seed in range(3):
        batch = episode(seed, shape)
        expected = loop(*batch, gamma, lam).reshape(shape)
        np.testing.assert_allclose(estimate(*batch, gamma, lam), expected, rtol=1e-5, atol=1e-5)


def test_a_time_limit_is_bootstrapped_and_a_termination_is_not():
    reward, value, next_value = (np.full(1, x, np.float32) for x in (1.0, 2.0, 8.0))
    yes, no = np.ones(1, bool), np.zeros(1, bool)
    for terminated, truncated, advantage in [(no, no, 3.0), (no, yes, 3.0), (yes, no, -1.0), (yes, yes, -1.0)]:
        assert estimate(reward, value, next_value, terminated, truncated, 0.5, 0.9) == advantage


@pytest.mark.parametrize("which", [3, 4], ids=["terminated", "truncated"])
def test_nothing_after_the_end_of_an_episode_counts(which):
    batch = list(episode(5, (10,), ends=0.0))
    batch[which][6] = True
    before = estimate(*batch, 0.99, 0.95)
    for numbers in batch[:3]:
        numbers[7:] += 100.0
    after = estimate(*batch, 0.99, 0.95)
    np.testing.assert_array_equal(after[:7], before[:7])
    assert np.abs(after[7:] - before[7:]).min() > 1
    batch[which][6] = False
    assert np.abs(estimate(*batch, 0.99, 0.95)[:7] - before[:7]).min() > 1


def test_limits_of_gamma_and_lambda():
    reward, value, _, no, _ = episode(1, (12,), ends=0.0)
    next_value = np.append(value[1:], np.float32(3.0))
    one_step = reward + 0.9 * next_value - value
    np.testing.assert_allclose(estimate(reward, value, next_value, no, no, 0.9, 0.0), one_step, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(estimate(reward, value, next_value, no, no, 0.0, 0.9), reward - value)
    whole = np.cumsum(reward[::-1], dtype=float)[::-1] + 3.0 - value  # all rewards to come and the last value
    np.testing.assert_allclose(estimate(reward, value, next_value, no, no, 1.0, 1.0), whole, rtol=1e-5, atol=1e-5)
