"""Rules that decide claims: intervals that are disjoint, and peaks that lie where they were said to lie."""

import numpy as np
import pytest

from legoswarm.studies.results import Results
from legoswarm.studies.rules import compared, rises_and_falls

NOISE = np.array([-1.0, 0.0, 1.0])  # the 95 % interval of a mean of these three is 2.5 to each side
STEPS = [1e6, 2e6, 3e6, 4e6]


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [(5.2, True), (4.8, None), (0.5, None), (0.0, None), (-0.5, None), (-4.8, None), (-5.2, False)],
)
def test_a_comparison_is_decided_where_intervals_are_disjoint(gap, verdict):
    """Three seeds each: half an interval is t(2, 0.975) / sqrt(3) = 4.303 / 1.732 = 2.48."""
    finding = compared(10 + gap + NOISE, 10 + NOISE, ("one", "other"))
    assert finding.agrees is verdict
    assert finding.evidence.startswith(f"one {10 + gap:.1f} [")
    assert finding.evidence.endswith("against other 10.0 [7.5, 12.5]")


def test_one_seed_or_none_decides_nothing():
    assert compared(np.array([100.0]), NOISE, ("one", "other")).agrees is None
    missing = compared(np.zeros(0), NOISE, ("one", "other"))
    assert (missing.agrees, missing.missing) == (None, ("one",))


def tag(*means, noise=NOISE):
    """Results of a training in Tag whose learning curve has these means."""
    curve = {"figure": "pursuer_return", "steps": STEPS, "values": [[float(m + n) for n in noise] for m in means]}
    return Results({"tag": {"lego": {"label": "lego", "scale": "full", "curve": curve}}})


@pytest.mark.parametrize(
    ("means", "inside"),
    [((90, 50, 40, 30), False), ((50, 90, 40, 30), True), ((40, 50, 90, 30), True), ((30, 40, 50, 90), False)],
    ids=["too early", "at the first step", "at the last step", "too late"],
)
def test_the_peak_lies_in_the_window(means, inside):
    place, _ = rises_and_falls("lego", 2e6, 3e6)(tag(*means))
    assert place.agrees is inside
    assert f"peaks at {STEPS[int(np.argmax(means))]:.2g} steps" in place.evidence


def test_the_end_is_below_the_peak():
    rule = rises_and_falls("lego", 2e6, 3e6)
    assert rule(tag(50, 90, 40, 30))[1].agrees is True
    assert rule(tag(50, 90, 40, 88))[1].agrees is None
    assert rule(Results({}))[0].missing == ("lego",)
