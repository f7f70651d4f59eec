"""Policies by name, for tests: the class's defaults, but for the critic."""

from legoswarm.policies.policy import POLICIES


def policy_of(policy="lego", critic="full", **options):
    """Return a policy with its own critic, unless said otherwise."""
    return POLICIES.make(policy, critic=critic, **options)
