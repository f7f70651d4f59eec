"""Algorithms: how a policy is improved by what it has collected."""
