"""Evaluations that are compared with each other begin alike: whoever acts, whichever seed."""

import dataclasses

from legoswarm.evaluate.policies import evaluate_policy
from tests.policies import policy_of
from tests.saved import save_small
from tests.tiny import TINY, Yard

MLP = policy_of("mappo", width=8)


def test_all_methods_and_seeds_are_evaluated_on_the_same_starts(tmp_path, monkeypatch):
    """Nobody moves, so that the score says where the agents began."""
    monkeypatch.setattr(Yard, "step", lambda self, state, _: dataclasses.replace(state, time=state.time + 1))
    rows = []
    for name, config in (("tiny", TINY), ("mappo", MLP)):
        run = save_small(tmp_path / name, Yard(horizon=2), seeds=(0, 1), config=config)
        rows += evaluate_policy(str(run), episodes=3)
    assert len(rows) == 4
    assert len({(row["score"], row["score_se"]) for row in rows}) == 1
    assert rows[0]["score_se"] > 0  # starts differ among each other
    assert next(iter(evaluate_policy(str(run), episodes=3, episode_seed=1)))["score"] != rows[0]["score"]
