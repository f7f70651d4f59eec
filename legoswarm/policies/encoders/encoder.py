"""Encoders of observations, by name.

An encoder is a module with `__call__(view) -> (width,)`, built by `build(policy, layout, *, absolute, key)`. It must
not depend on the order of the entities of a role, and must ignore those that are masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float, PRNGKeyArray

from legoswarm.configs import Registry
from legoswarm.policies.policy import Attentive
from legoswarm.scene import Layout, View

ViewEncoder = Callable[[View], Float[Array, " width"]]
ENCODERS: Registry[Callable[..., ViewEncoder]] = Registry("encoder", "legoswarm.policies.encoders")


def register_view_encoder(name: str, build: Any) -> None:
    """Make `build(policy, layout, *, absolute, key)` known as `--encoder name`."""
    ENCODERS.register(build, name)


def make_view_encoder(policy: Attentive, layout: Layout, *, absolute: bool = False, key: PRNGKeyArray) -> ViewEncoder:
    """Build the encoder that the policy names; with `absolute` it sees the agent's position in the world too."""
    return ENCODERS[policy.encoder](policy, layout, absolute=absolute, key=key)
