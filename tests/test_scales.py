"""Means and deviations of returns: debiased, bounded, and each team size on its own."""

import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.learn.scales import ValueNorm

MEMBERS = 3


def teams(*sizes):
    """Masks of worlds of these sizes."""
    return jnp.asarray(np.arange(MEMBERS) < np.array(sizes)[:, None])


def statistics(norm, size, floor=0.01):
    return [float(each[0, 0]) for each in norm.statistics(teams(size), floor)]


class TestValueNorm:
    def test_nothing_seen_yet(self):
        assert statistics(ValueNorm.fresh(MEMBERS), MEMBERS) == [0.0, 1.0]

    @pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
    def test_statistics_are_debiased(self, decay):
        rng = np.random.default_rng(0)
        batches = rng.normal(3, 2, (5, 40, MEMBERS))
        norm = ValueNorm.fresh(MEMBERS)
        for at, batch in enumerate(batches, 1):
            norm = norm.update(jnp.asarray(batch, jnp.float32), teams(*[MEMBERS] * 40), decay)
            weight = decay ** np.arange(at)[::-1]
            weight = weight / weight.sum()
            mean = weight @ batches[:at].mean((1, 2))
            deviation = np.sqrt(weight @ (batches[:at] ** 2).mean((1, 2)) - mean**2)
            np.testing.assert_allclose(statistics(norm, MEMBERS), [mean, deviation], rtol=2e-4)

    @pytest.mark.parametrize("floor", [0.01, 4.0])
    def test_the_variance_has_a_floor(self, floor):
        norm = ValueNorm.fresh(MEMBERS).update(jnp.full((2, MEMBERS), 7.0), teams(MEMBERS, MEMBERS), 0.99)
        np.testing.assert_allclose(statistics(norm, MEMBERS, floor), [7.0, np.sqrt(floor)], rtol=1e-5)

    def test_every_team_size_has_its_own(self):
        """Mean and deviation of what each saw; a batch without a size leaves it as it was."""
        values = np.random.default_rng(0).normal(0, 1, (6, MEMBERS)).astype(np.float32)
        values[3:] = 100 * values[3:] - 500
        norm = ValueNorm.fresh(MEMBERS).update(jnp.asarray(values), teams(1, 1, 1, 2, 2, 2), 0.9)
        for size, seen in ((1, values[:3, :1]), (2, values[3:, :2])):
            np.testing.assert_allclose(statistics(norm, size), [seen.mean(), seen.std()], rtol=1e-3)
        assert statistics(norm, MEMBERS) == [0.0, 1.0]
        later = norm.update(jnp.asarray(values[:1]), teams(1), 0.9)
        assert statistics(later, 2) == statistics(norm, 2)
        assert statistics(later, 1) != statistics(norm, 1)
