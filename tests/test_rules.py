"""Rules that decide claims: tests corrected for their number, and peaks that lie where they were said to lie."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from legoswarm.evaluate.statistics import holm, rank_test, welch
from legoswarm.studies import rules
from legoswarm.studies.claims import FAILS, HOLDS, OPEN, Claim, judge
from legoswarm.studies.failure import SEVERAL
from legoswarm.studies.results import Results
from legoswarm.studies.rules import above, compared, faster, refused, rises_and_falls

NOISE = np.array([-1.0, 0.0, 1.0])
STEPS = [1e6, 2e6, 3.5e6, 4e6]


def test_welch_by_hand():
    """Variances of 1 and 4, three values each: t = 4 / sqrt(5 / 3) = 3.098 with 2.94 degrees of freedom."""
    assert welch(10 + NOISE, 6 + 2 * NOISE) == pytest.approx(0.0551, abs=1e-3)
    assert welch(np.array([1.0]), NOISE) is None
    assert welch(np.ones(3), np.ones(3)) == 1
    assert welch(np.ones(3), np.zeros(3)) == 0


def test_ranks_by_hand():
    """Of 20 ways to choose three of six ranks one in twenty is as extreme on either side; never is the last rank."""
    assert rank_test(np.array([1.0, 2.0, 3.0]), np.array([4.0, math.inf, 9.0])) == pytest.approx(0.1)
    assert rank_test(np.full(3, math.inf), np.full(3, math.inf)) == 1


def test_the_direction_is_that_of_the_ranks():
    """On a grid of evaluations medians tie although nearly every seed of one method is sooner."""
    sooner, later = np.array([1.0] * 4 + [2.0] * 6), np.array([2.0] * 6 + [3.0] * 4)
    assert np.median(sooner) == np.median(later)
    assert rank_test(sooner, later) < 0.01
    assert rules.ranks_lower(sooner, later)
    assert not rules.ranks_lower(later, sooner)


def test_holms_correction():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.5, 0.6])), [1.0, 1.0])
    assert len(holm(np.zeros(0))) == 0


def test_a_comparison_has_a_direction_and_a_chance():
    finding = compared(15 + NOISE, 10 + NOISE, ("one", "other"))
    assert (finding.agrees, finding.chance) == (True, pytest.approx(0.0036, abs=1e-4))
    assert compared(10 + NOISE, 15 + NOISE, ("one", "other")).agrees is False
    assert finding.evidence == "one 15.0 [12.5, 17.5] versus other 10.0 [7.5, 12.5]"
    assert compared(np.array([100.0]), NOISE, ("one", "other")).agrees is None
    missing = compared(np.zeros(0), NOISE, ("one", "other"))
    assert (missing.agrees, missing.missing) == (None, ("one",))


def part(label, values, **more):
    rows = [{"seed": seed, "return_2c": float(value), **more} for seed, value in enumerate(values)]
    return {"label": label, "scale": "full", "rows": rows}


def verdict(rule, results, others=(), study="spread-3"):
    claims = [Claim(study, "a sentence", rule), *(Claim(study, f"sentence {n}", r) for n, r in enumerate(others))]
    return judge(claims, results)[0]


@pytest.mark.parametrize(("gap", "decided"), [(3.5, HOLDS), (1.0, OPEN), (0.0, OPEN), (-1.0, OPEN), (-3.5, FAILS)])
def test_above(gap, decided):
    results = Results({"spread-3": {"a": part("a", 10 + gap + NOISE), "b": part("b", 10 + NOISE)}})
    found, evidence = verdict(above("spread-3", "a", ("b",)), results)
    assert found == decided
    assert ", p = " in evidence


def test_many_tests_of_a_study_need_smaller_chances():
    """What one test alone decides it does not beside seven others that find nothing; other studies do not count."""
    means = {"a": 13.5, "b": 10.0, "c": 10.0}
    results = Results({"spread-3": {name: part(name, mean + NOISE) for name, mean in means.items()}})
    rule, idle = above("spread-3", "a", ("b",)), above("spread-3", "b", ("c",))
    assert verdict(rule, results)[0] == HOLDS
    assert verdict(rule, results, [idle] * 7)[0] == OPEN
    assert judge([Claim("spread-3", "x", rule), *[Claim("spread-6", "y", idle)] * 7], results)[0][0] == HOLDS


def curves(**means):
    def one(label, values):
        points = [[float(m + n) for n in np.linspace(-1, 1, 8)] for m in values]
        curve = {"figure": "return_2c", "steps": STEPS, "values": points}
        return {"label": label, "scale": "full", "curve": curve}

    return Results({"spread-3": {label: one(label, values) for label, values in means.items()}})


@pytest.mark.parametrize(
    ("one", "other", "decided"),
    [
        ((5, 60, 70, 80), (5, 10, 20, 60), HOLDS),
        ((5, 10, 20, 60), (5, 60, 70, 80), FAILS),
        ((5, 10, 20, 60), (5, 10, 20, 60), OPEN),
        ((5, 10, 70, 90), (5, 10, 70, 70), OPEN),  # both are there at the same evaluation
    ],
)
def test_speed_is_the_time_to_where_the_worse_one_ends(one, other, decided):
    found, evidence = verdict(faster("spread-3", ("a",), ("b",)), curves(a=one, b=other))
    assert found == decided, evidence


def test_speed_of_what_was_not_run():
    assert verdict(faster("spread-3", ("a",), ("b",)), curves(a=(1, 2, 3, 4))) == (OPEN, "not run yet: b")


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
    place, *_ = rises_and_falls("lego", 2e6, 3.5e6)(tag(*means))
    assert place.agrees is inside
    assert f"peaks at {STEPS[int(np.argmax(means))]:.2g} steps" in place.evidence


def test_it_rises_and_falls():
    rule = rises_and_falls("lego", 1e6, 3e6)
    assert verdict(rule, tag(50, 90, 40, 30), study="tag")[0] == HOLDS
    assert verdict(rule, tag(89, 90, 40, 30), study="tag")[0] == OPEN  # no rise
    assert verdict(rule, tag(50, 90, 40, 89), study="tag")[0] == OPEN  # no fall
    assert verdict(rule, tag(30, 40, 50, 90), study="tag")[0] == FAILS
    found, evidence = verdict(rule, tag(90, 50, 40, 30), study="tag")
    assert found == OPEN
    assert "no rise is seen" in evidence
    assert rule(Results({}))[0].missing == ("lego",)


def test_the_point_is_chosen_by_other_seeds_than_those_that_are_tested_there():
    """Where the first ones are lucky is no peak of the others."""
    values = np.full((4, 4), 50.0)
    values[1, :2], values[2, 2:], values[0], values[-1] = 90.0, 80.0, 20.0, 30.0
    results = tag(0)
    results.parts["tag"]["lego"]["curve"] |= {"steps": STEPS, "values": values.tolist()}
    assert rules.chosen_by_others(results, "lego").tolist() == [[50.0, 50.0], [20.0, 20.0], [30.0, 30.0]]


def test_a_peak_before_the_first_evaluation_decides_nothing():
    """A shorter run, evaluated earlier, is above the peak there."""
    results = tag(50, 90, 40, 30)
    early = {
        "label": "lego after 1e6 steps",
        "scale": "full",
        "curve": {"steps": [1e4, 1e6], "values": [[500.0], [40.0]]},
    }
    results.parts["tag"]["lego-1e6"] = early
    found, evidence = verdict(rises_and_falls("lego", 1e6, 3e6), results, study="tag")
    assert found == OPEN
    assert evidence.startswith("lego after 1e6 steps has 500.0 at 1e+04 steps, before the evaluations begin; ")
    early["curve"]["values"] = [[80.0], [40.0]]
    assert verdict(rises_and_falls("lego", 1e6, 3e6), results, study="tag")[0] == HOLDS


# Every other rule, with results for which the claim holds, does not hold, and is not decided.


def tags(**means):
    """Results of methods in Tag whose learning curves have these means."""
    parts = {name: {**tag(*values).parts["tag"]["lego"], "label": name} for name, values in means.items()}
    return {"tag": parts}


def rows(study, **labels):
    """Results of a study: for each label, figures of three seeds around a mean, at one place or several."""

    def made(label, places):
        found = [{**place, figure: float(mean + noise * 0.01)} for place, figure, mean in places for noise in NOISE]
        return {"label": label, "scale": "full", "rows": found}

    return {study: {label: made(label.replace("_", " "), places) for label, places in labels.items()}}


def starts(left, right, anywhere):
    return rows(
        "ood", a=[({"start": s}, "return_2c", m) for s, m in (("left", left), ("right", right), ("uniform", anywhere))]
    )


def met(far, near):
    meetings = {"a_against_far": far, "far_against_a": 0, "a_against_near": near, "near_against_a": 0}
    return rows("head-to-head", **{name: [({}, "pursuer_return", gain)] for name, gain in meetings.items()})


def timed(one, other):
    parts = {
        name: {"label": name[0], "scale": "full", "steps": 100, "steps_per_second": 100 / s}
        for name, s in (("a-3", one), ("b-3", other))
    }
    return {"run-time": parts}


def failing(kept, removed):
    found = rows(
        "agent-failure",
        several=[({"failure": k}, "survivors_captures", m) for k, m in (("kept", kept), ("removed", removed))],
    )
    found["agent-failure"]["several"]["label"] = SEVERAL
    return found


def errors(error):
    return {"equivariance": {"lego": {"label": "lego", "scale": "full", "errors": {"moved": {"quantile": error}}}}}


def around(value, **more):
    return rows("tag", a=[({}, "surround", value)], **more)


def sized(mean):
    return rows("generalization", a=[({"agents": 3}, "return_2c", mean)])


PRINTED = {3: (-10.0, 1.0)}
SAME, UP = (1, 50, 1, 1), (1, 90, 1, 1)
CASES = {  # rule: its words, then results that speak for it, against it, and that decide nothing
    rules.peaks_compare: (("a", "b"), tags(a=UP, b=SAME), tags(a=SAME, b=UP), tags(a=SAME, b=SAME)),
    rules.half_way: (("a", ("b",)), tags(a=UP, b=(0, 0, 60, 90)), tags(a=(0, 0, 60, 90), b=UP), tags(a=UP, b=UP)),
    rules.settles: (("a",), tags(a=(0, 90, 50, 50)), tags(a=(0, 90, 50, 90)), {}),
    rules.surround: (("a",), around(0.8), around(0.2), around(0.475)),
    rules.later: (("a", "b"), tags(a=(1, 1, 9, 1), b=UP), tags(a=(9, 1, 1, 1), b=UP), tags(a=UP, b=SAME)),
    rules.near_zero: (("a", "b"), tags(a=(0, 2, 1, 1), b=UP), tags(a=(0, 20, 1, 1), b=UP), tags(a=(0, 2, 1, 1))),
    rules.closer: (("a", "near", "far"), met(9, 5), met(5, 9), met(5, 5)),
    rules.ratio: ((3, "a", "b", 1.0, 2.0), timed(15, 10), timed(30, 10), {}),
    rules.steady: (("a",), starts(-10, -11, -9), starts(-10, -20, -9), {}),
    rules.degrades: (("a",), starts(-10, -14, -20), starts(-10, -11, -20), {}),
    rules.exact: ((), errors(1e-6), errors(1e-2), {}),
    rules.after_failure: (("kept", "removed"), failing(3, 1), failing(1, 3), failing(2, 2)),
    rules.ahead: (("generalization", "a", "return_2c", PRINTED, "agents"), sized(-5), sized(-15), {}),
}


@pytest.mark.parametrize("rule", CASES, ids=lambda rule: rule.__name__)
def test_each_rule_can_say_all_three(rule):
    words, *results = CASES[rule]
    study = next(iter(results[0]))
    assert [verdict(rule(*words), Results(parts), study=study)[0] for parts in results] == [HOLDS, FAILS, OPEN]


def test_no_rule_is_left_out():
    tested = {rule.__name__ for rule in (above, faster, rises_and_falls, refused, *CASES)}
    assert set(re.findall(r"^@rule\ndef (\w+)", Path(rules.__file__).read_text(), re.MULTILINE)) == tested


def test_one_policy_decides_nothing():
    row = {"failure": "kept", "survivors_captures": 2.0, "survivors_captures_se": 0.1}
    one = Results({"agent-failure": {"lego": {"label": "lego", "scale": "full", "rows": [row]}}})
    said = "one policy, survivors_captures, kept: 2.00 +- 0.20 over episodes; not run yet: agent-failure/lego-seeds"
    assert verdict(rules.after_failure("kept", None), one, study="agent-failure") == (OPEN, said)
    assert verdict(rules.after_failure("kept", None), Results(failing(3, 1)), study="agent-failure")[0] == HOLDS


def test_independent_directions_are_those_of_chance():
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, (100_000, 3))
    one_sided = np.abs(np.exp(1j * angles).mean(1)).mean()
    assert rules.INDEPENDENT[3] == pytest.approx(1 - one_sided, abs=2e-3)


def test_policies_of_one_size():
    def trained(agents, evaluated):
        content = {"policies": [{"task": {"agents": agents}}]}
        return {**part("mappo", NOISE, agents=evaluated), "content": content}

    rule = refused(("mappo",))
    assert verdict(rule, Results({"generalization": {"mappo-4": trained(4, 4)}}), study="generalization")[0] == HOLDS
    assert verdict(rule, Results({"generalization": {"mappo-4": trained(4, 5)}}), study="generalization")[0] == FAILS
    assert verdict(rule, Results({}), study="generalization") == (OPEN, "not run yet: mappo")
