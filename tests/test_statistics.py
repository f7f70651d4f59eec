"""Statistics over seeds: worked by hand."""

import math

import numpy as np
import pytest

from legoswarm.evaluate.statistics import (
    area_under_curve,
    deviation,
    interquartile_mean,
    iqm_interval,
    mean_interval,
    steps_to,
)


def test_interquartile_mean_of_four_is_the_mean_of_the_middle_two():
    assert interquartile_mean(np.array([100.0, 2.0, 4.0, -50.0])) == 3.0


def test_interquartile_mean_counts_edges_in_part():
    # Of three values each is a third wide: the middle half takes 1/12, 4/12, 1/12 of them.
    assert interquartile_mean(np.array([0.0, 3.0, 12.0])) == pytest.approx((0 + 4 * 3 + 12) / 6)


def test_interquartile_mean_works_along_the_last_axis():
    rows = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 7.0, 9.0, 90.0]])
    assert interquartile_mean(rows) == pytest.approx([2.5, 8.0])


def test_deviation_divides_by_one_less():
    assert deviation(np.array([1.0, 3.0])) == pytest.approx(math.sqrt(2))
    assert deviation(np.array([5.0])) == 0.0


def test_interval_of_the_mean_is_students():
    # n = 4, mean 5, standard deviation 2, t(3, 0.975) = 3.1824.
    values = np.array([5 - math.sqrt(3), 5 - math.sqrt(3), 5 + math.sqrt(3), 5 + math.sqrt(3)])
    assert mean_interval(values) == pytest.approx((5 - 3.1824, 5 + 3.1824), abs=1e-4)


def test_one_value_decides_nothing():
    assert mean_interval(np.array([5.0])) == iqm_interval(np.array([5.0])) == (-math.inf, math.inf)


def test_bootstrap_interval_is_repeatable_and_holds_the_figure():
    values = np.random.default_rng(1).normal(size=10)
    low, high = iqm_interval(values)
    assert low < interquartile_mean(values) < high
    assert (low, high) == iqm_interval(values)
    assert iqm_interval(np.full(5, 3.0)) == (3.0, 3.0)


def test_area_is_the_mean_height():
    steps = np.array([0.0, 1.0, 3.0])
    values = np.array([[0.0, 1.0], [2.0, 1.0], [2.0, 1.0]])
    assert area_under_curve(steps, values) == pytest.approx([(1 + 4) / 3, 1.0])


def test_area_of_one_point_is_its_height():
    assert area_under_curve(np.array([5.0]), np.array([[2.0, 3.0]])) == pytest.approx([2.0, 3.0])


def test_steps_to_a_threshold():
    curve = np.array([[-9.0, -9.0, -1.0], [-4.0, -9.0, -9.0], [-3.0, -9.0, -9.0]])
    assert steps_to(np.array([10.0, 20.0, 30.0]), curve, -4.0).tolist() == [20.0, math.inf, 10.0]
