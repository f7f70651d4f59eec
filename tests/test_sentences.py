"""Sentences about tables: what they say, figures and verbs, changes with the results."""

import copy
from pathlib import Path

import numpy as np
import pytest

from legoswarm.studies.results import Results
from legoswarm.studies.sentences import failed_seed, findings, listed, paragraphs, stands

NOISE = np.array([-1.0, 0.0, 1.0])
COMMITTED = Results.read(Path(__file__).parent.parent / "results" / "studies")


def changed(study, part, change, figure="return_2c"):
    """The committed results with other values of a part."""
    parts = copy.deepcopy(COMMITTED.parts)
    for row in parts[study][part]["rows"]:
        if figure in row:
            row[figure] = change(row)
    return Results(parts)


@pytest.mark.parametrize(
    ("one", "word"),
    [(20 + NOISE, "ahead of"), (10 + NOISE, "behind"), (15 + NOISE, "not clearly apart from"), ([9.0], None)],
)
def test_how_two_means_stand(one, word):
    assert stands(np.array(one), 15.5 + NOISE) == word


def test_words_are_listed():
    assert [listed("a"), listed("ab"), listed("abc")] == ["a", "a and b", "a, b and c"]


def test_who_is_ahead_follows_from_the_results():
    said = paragraphs(COMMITTED, "generalization")[0]
    assert said == (
        "LEGO-MAPPO (pair critic) is behind MAPPO (own critic) and PIC (own critic), trained for each size, at 2 agents"
        " and ahead of them at 3, 4, 5 and 6 agents."
    )
    better = changed("generalization", "pic-4", lambda row: row["return_2c"] + 100)
    said = paragraphs(better, "generalization")[0]
    assert "is behind PIC (own critic), trained for each size, at 2 and 4 agents and ahead of it at 3, 5 and 6" in said
    assert "ahead of it at 3, 4, 5 and 6 agents" in said  # of MAPPO


@pytest.mark.parametrize(
    ("part", "change", "name"),
    [
        (("generalization", "lego"), lambda row: row["return_2c"] - 50, "generalization"),
        (("spread-6", "pic"), lambda row: row["return_2c"] + 200, "trained"),
        (("beyond", "segnn-pairs"), lambda row: row["return_2c"] - 50, "trained"),
        (("algorithms", "mappo-masac"), lambda row: row["return_2c"] - 50, "algorithms"),
        (("algorithms", "lego-joint-masac-4"), lambda row: row["return_2c"] - 500, "algorithms-sizes"),
        (("curriculum", "lego-curr-8"), lambda row: row["return_2c"] - 50, "curriculum"),
        (("ood", "mappo"), lambda row: row["return_2c"] * (1 + (row["start"] == "right")), "ood"),
        (("ood", "lego-landmarks"), lambda row: row["return_2c"] * (1 + (row["start"] == "right")), "ood-landmarks"),
        (("head-to-head", "lego-mappo"), lambda row: 0.0, "head-to-head"),
    ],
)
def test_other_results_make_other_sentences(part, change, name):
    figure = "pursuer_return" if name == "head-to-head" else "return_2c"
    assert paragraphs(changed(*part, change, figure), name) != paragraphs(COMMITTED, name)


def test_a_seed_that_failed_is_named():
    assert failed_seed(COMMITTED).startswith("One seed of LEGO as published failed: seed 4 has -88.3 with four agents")
    mended = changed("beyond", "paper-setup", lambda row: -30.0 - row["seed"] / 10)
    assert failed_seed(mended) == (
        "No seed of LEGO as published failed: the worst, seed 9, has -30.9 with four agents, where the other nine have"
        " -30.4 on average."
    )


def test_findings_without_results_are_left_out():
    assert findings(Results({})) == "- Of 41 claims of the paper 0 hold here, 0 do not and 41 are not decided."
    assert findings(COMMITTED).count("\n") == 4
