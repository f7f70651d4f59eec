"""Policies by name, for tests: the class's defaults, but as MAPPO trains them and with the paper's encoder."""

from legoswarm.policies.policy import POLICIES


def policy_of(policy="lego", critic="full", squash=0.0, **options):
    """Return a policy with its own critic and without a bound on actions, unless said otherwise."""
    paper = {"encoder": "attention"} if policy == "lego" else {}
    return POLICIES.make(policy, **{**paper, "critic": critic, "squash": squash, **options})
