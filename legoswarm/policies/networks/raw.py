"""Actor and critic on the raw observation: the world's axes, and the agent's own position in the world."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.frames.canonical import make_frame
from legoswarm.policies.encoders.encoder import ViewEncoder
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.layers import Linear
from legoswarm.policies.networks.leash import pull_back
from legoswarm.policies.policy import Policy
from legoswarm.scene import Layout, Scene, View, observe


class RawActor(eqx.Module):
    """a ~ N(head(encoder(O_i)), sigma^2) in the world's axes, the mean on the same leash as LEGO's."""

    encoder: ViewEncoder
    head: Linear
    log_std: Float[Array, " dim"]
    config: Policy = eqx.field(static=True)

    def __init__(self, config: Policy, layout: Layout, encoder: ViewEncoder, *, key: PRNGKeyArray):
        self.encoder = encoder
        self.head = Linear(config.width, layout.dimension, gain=0.01, key=key)
        self.log_std = jnp.full(layout.dimension, config.log_std)
        self.config = config

    def __call__(self, view: View) -> Decision:
        """Decide from one agent's observation."""
        mean = self.head(self.encoder(view)) + pull_back(view, self.config)
        return Decision(mean, self.log_std, make_frame(view, "none"), self.config.squash)


class RawCritic(eqx.Module):
    """V_i of the full state relative to the agent, in the world's axes."""

    encoder: ViewEncoder
    head: Linear

    def __init__(self, config: Policy, encoder: ViewEncoder, *, key: PRNGKeyArray):
        self.encoder = encoder
        self.head = Linear(config.width, 1, gain=1.0, key=key)

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """Return the value for one agent."""
        return self.head(self.encoder(observe(scene, role, member, full=True)))[0]
