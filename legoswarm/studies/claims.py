"""The claims of the paper's text, each with a rule that decides it from the results.

A claim holds if all its comparisons say so, and does not hold if one of them says the opposite; else it is not decided.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from legoswarm.evaluate.statistics import holm
from legoswarm.studies import paper, rules
from legoswarm.studies.results import Results

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
LEVEL = 0.05  # of significance, for all tests of a study together


@dataclasses.dataclass(frozen=True)
class Claim:
    """Holds a sentence of the paper and how it is decided."""

    study: str
    text: str
    rule: rules.Rule


def judge(claims: Sequence[Claim], results: Results) -> list[tuple[str, str]]:
    """Return the verdict of each claim and its evidence; studies at a smaller scale than `full` decide nothing."""
    filled, found = results.planar_for_segnn(), find(claims, results)
    return [_verdict(claim, findings, results, filled) for claim, findings in zip(claims, found, strict=True)]


def find(claims: Sequence[Claim], results: Results) -> list[list[rules.Finding]]:
    """Return the findings of each claim, with chances corrected.

    The tests of all claims of one study are a family: each is significant at 5 % after Holm's correction, or it decides
    nothing.
    """
    filled = results.planar_for_segnn()
    found = [claim.rule(filled) for claim in claims]
    for study in {claim.study for claim in claims}:
        places = [(at, i) for at, claim in enumerate(claims) if claim.study == study for i in range(len(found[at]))]
        tests = [(at, i, chance) for at, i in places if (chance := found[at][i].chance) is not None]
        corrected = holm(np.array([chance for *_, chance in tests], float))
        for (at, i, _), p in zip(tests, corrected, strict=True):
            one = found[at][i]
            found[at][i] = dataclasses.replace(one, agrees=one.agrees if p < LEVEL else None, chance=float(p))
    return found


def chance_words(chance: float | None) -> str:
    """Return a corrected p in words; nothing where no test was made."""
    return "" if chance is None else "p < 0.001" if chance < 0.001 else f"p = {chance:.3f}"


def _verdict(claim: Claim, findings: Sequence[rules.Finding], results: Results, filled: Results) -> tuple[str, str]:
    agree = [finding.agrees for finding in findings]
    missing = dict.fromkeys(name for finding in findings for name in finding.missing)
    known = [", ".join(filter(None, (one.evidence, chance_words(one.chance)))) for one in findings if one.evidence]
    evidence = "; ".join([*known, f"not run yet: {', '.join(missing)}"] if missing else known)
    if filled.parts.get(claim.study) != results.parts.get(claim.study) and "segnn" in evidence:
        evidence = f"segnn in its planar form; {evidence}"
    if smaller := sorted({part["scale"] for part in results.study(claim.study)} - {"full"}):
        return OPEN, f"scale {', '.join(smaller)}: too little to decide; {evidence}"
    return FAILS if False in agree else HOLDS if agree and all(agree) else OPEN, evidence


BASELINES = ("mappo", "mappo-local", "mappo-gnn", "pic", "segnn")
AT = {n: {"agents": n} for n in range(2, 9)}
LARGE = [AT[n] for n in (6, 7, 8)]
LEARNED = ("mappo", "mappo-local", "mappo-gnn", "pic")

CLAIMS = (
    Claim("equivariance", "The policy is equivariant to E(2) and to permutations within a role (here: actions of nine"
          " in ten scenes are off by less than 1e-3).", rules.exact()),
    Claim("spread-3", "Three agents: LEGO-MAPPO and SEGNN converge most rapidly.",
          rules.faster("spread-3", ("lego", "segnn"), LEARNED)),
    Claim("spread-3", "Three agents: LEGO-MAPPO achieves the highest final reward.",
          rules.above("spread-3", "lego", BASELINES)),
    Claim("spread-3", "MAPPO-local improves over vanilla MAPPO.", rules.above("spread-3", "mappo-local", ("mappo",))),
    Claim("spread-3", "MAPPO-GNN performs poorly: graphs alone do not give what canonicalization gives.",
          rules.above("spread-3", "mappo-local", ("mappo-gnn",))),
    Claim("spread-6", "Six agents: LEGO-MAPPO converges faster than all baselines.",
          rules.faster("spread-6", ("lego",), BASELINES)),
    Claim("spread-6", "Six agents: LEGO-MAPPO reaches substantially higher reward than all baselines (here: decided"
          " by tests alone).",
          rules.above("spread-6", "lego", BASELINES)),
    Claim("spread-6", "Six agents: PIC is the strongest competitor.",
          rules.above("spread-6", "pic", ("mappo", "mappo-local", "mappo-gnn", "segnn"))),
    Claim("spread-6", "Neither canonicalization nor graphs alone match the two together.",
          rules.both(*(rules.above(f"spread-{n}", "lego", ("mappo-local", "mappo-gnn"), where=[AT[n]])
                       for n in (3, 6)))),
    Claim("tag", "LEGO-MAPPO's reward in Tag increases rapidly (here: seeds reach half of its peak sooner than those of"
          " MAPPO and PIC reach half of theirs).", rules.half_way("lego", ("mappo", "pic"))),
    Claim("tag", "LEGO-MAPPO's reward in Tag peaks near 1e6 interactions (here: 0.5e6 to 2e6) and then decreases.",
          rules.rises_and_falls("lego", 0.5e6, 2e6)),
    Claim("tag", "LEGO-MAPPO's reward in Tag stabilizes in the end (here: it changes by less than a tenth of its peak"
          " over the last fifth of the steps).", rules.settles("lego")),
    Claim("tag", "SEGNN follows a similar trend (here: a peak before 4e6) but reaches lower rewards.",
          rules.both(rules.rises_and_falls("segnn", 0.0, 4e6), rules.peaks_compare("lego", "segnn"))),
    Claim("tag", "PIC improves more gradually (here: its curve peaks later than LEGO's).", rules.later("pic", "lego")),
    Claim("tag", "The remaining baselines stay near zero (here: below a tenth of LEGO's peak).",
          rules.both(*(rules.near_zero(m, "lego") for m in ("mappo", "mappo-local", "mappo-gnn")))),
    Claim("tag", "At 1e6 interactions LEGO's pursuers form a barrier (here: they stand around evaders more evenly than"
          " in independent directions).", rules.surround("lego after 1e6 steps")),
    Claim("tag", "By 5e6 interactions LEGO's evaders use the obstacles (here: they are hidden more often than at 1e6).",
          rules.above("tag", "lego", ("lego after 1e6 steps",), "hidden_share")),
    Claim("tag", "MAPPO shows no comparable coordination after 5e6 interactions (here: its pursuers stand around"
          " evaders less evenly than LEGO's at 1e6).",
          rules.above("tag", "lego after 1e6 steps", ("mappo",), "surround")),
    Claim("head-to-head", "LEGO-MAPPO pursuers attain higher reward against MAPPO evaders than MAPPO's own.",
          rules.above("head-to-head", "lego against mappo", ("mappo against mappo",), "pursuer_return")),
    Claim("head-to-head", "MAPPO pursuers receive lower reward against LEGO-MAPPO evaders than against MAPPO's.",
          rules.above("head-to-head", "mappo against mappo", ("mappo against lego",), "pursuer_return")),
    Claim("head-to-head", "Matches with PIC are closer than those with MAPPO.", rules.closer("lego", "pic", "mappo")),
    Claim("head-to-head", "MAPPO evaders move together; LEGO-MAPPO evaders separate (here: their distance, pursued by"
          " either).",
          rules.both(*(rules.above("head-to-head", f"{m} against lego", (f"{m} against mappo",), "evader_gap")
                 for m in ("lego", "mappo")))),
    Claim("run-time", "LEGO-MAPPO needs moderately more time than MAPPO (here: 1 to 2 times, each with epochs and"
          " width of its own).",
          rules.both(*(rules.ratio(n, "lego", "mappo", 1.0, 2.0) for n in (3, 6)))),
    Claim("run-time", "LEGO-MAPPO needs moderately more time than MAPPO (here: 1 to 2 times, with equal epochs and"
          " width).",
          rules.both(*(rules.ratio(n, "lego", "mappo-equal", 1.0, 2.0) for n in (3, 6)))),
    Claim("run-time", "LEGO-MAPPO's time is on the scale of PIC's (here: at most twice).",
          rules.both(*(rules.ratio(n, "lego", "pic", 0.0, 2.0) for n in (3, 6)))),
    Claim("run-time", "SEGNN is substantially more expensive (here: at least ten times).",
          rules.both(*(rules.ratio(n, "segnn", "lego", 10.0, float("inf")) for n in (3, 6)))),
    Claim("generalization", "At 3, 5 and 6 agents the four-agent LEGO outperforms MAPPO and PIC trained for them.",
          rules.above("generalization", "lego", ("mappo", "pic"), where=[AT[n] for n in (3, 5, 6)])),
    Claim("generalization", "At 4 agents LEGO-MAPPO is the best of all (the table).",
          rules.above("generalization", "lego", ("mappo", "pic", "segnn"), where=[AT[4]])),
    Claim("generalization", "At 2 agents MAPPO and PIC trained for it are ahead (the table).",
          rules.both(*(rules.above("generalization", m, ("lego",), where=[AT[2]]) for m in ("mappo", "pic")))),
    Claim("generalization", "MAPPO and PIC cannot be evaluated at another team size.", rules.refused(("mappo", "pic"))),
    Claim("generalization", "The four-agent SEGNN degrades: below MAPPO trained for the size, at 2, 3, 5 and 6 agents.",
          rules.above("generalization", "mappo", ("segnn",), where=[AT[n] for n in (2, 3, 5, 6)])),
    Claim("curriculum", "The curriculum gives the highest reward at 6, 7 and 8 agents.",
          rules.both(rules.above("curriculum", "lego-curr", ("lego-scl", "lego", "mappo", "segnn-scl"), where=LARGE),
               rules.above("curriculum", "lego-curr", ("segnn-curr",), where=[AT[6]]))),
    Claim("curriculum", "The four-agent policy as it is outperforms training from scratch.",
          rules.above("curriculum", "lego-scl", ("lego",), where=LARGE)),
    Claim("curriculum", "The curriculum improves SEGNN at six agents.",
          rules.above("curriculum", "segnn-curr", ("segnn-scl",), where=[AT[6]])),
    Claim("ood", "LEGO-MAPPO, MAPPO-local and SEGNN do similarly on all starts (here: a loss of at most 25 %).",
          rules.both(*(rules.steady(m) for m in ("lego", "mappo-local", "segnn")))),
    Claim("ood", "MAPPO degrades substantially on the right and anywhere (here: more than 25 %).",
          rules.degrades("mappo")),
    Claim("ood", "MAPPO degrades substantially on the right and anywhere, landmarks on the agents' side too (here: more"
          " than 25 %; the paper does not say where they lie).",
          rules.degrades("mappo, landmarks too")),
    Claim("ood", "LEGO-MAPPO achieves the highest reward for each start.",
          rules.above("ood", "lego", ("mappo-local", "mappo", "segnn"), where=rules.SIDES)),
    Claim("agent-failure", "The remaining pursuer goes on after the failure.", rules.after_failure("kept", None)),
    Claim("agent-failure", "The stationary pursuer still constrains the evader: more captures than if it were removed.",
          rules.after_failure("kept", "removed")),
    Claim("agent-failure", "The active pursuer goes from coordinated blocking to direct pursuit (here: it flies more"
          " directly at the evader than without a failure).", rules.after_failure("kept", "without", "heading_after")),
)  # fmt: skip

GOALS = (
    Claim("generalization", "LEGO is ahead of the paper's LEGO at every team size (return_2c).",
          rules.ahead("generalization", "lego", "return_2c", paper.GENERALIZATION["lego"], "agents")),
    Claim("ood", "LEGO is ahead of the paper's LEGO for every start (return_2c).",
          rules.ahead("ood", "lego", "return_2c", paper.OOD["lego"], "start")),
    Claim("curriculum", "LEGO with a curriculum is ahead of the paper's (return_1c).",
          rules.ahead("curriculum", "lego-curr", "return_1c", paper.CURRICULUM["lego-curr"], "agents")),
)  # fmt: skip
