"""A set encoder of one's own: entities that are near count for more, and how much more is learnt.

python examples/own_encoder.py train spread --encoder nearby --steps 1e6 --out runs/nearby
python examples/own_encoder.py eval runs/nearby --agents 3 6
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

import legoswarm
from legoswarm.policies.networks.layers import Linear
from legoswarm.policies.policy import Attentive


class Nearby(eqx.Module):
    """The mean of what each entity's features become, weighted by exp(-sharpness * distance).

    An encoder must not depend on the order of the entities, must ignore masked ones and must give zero for an
    empty set. Then the policy around it acts in teams of any size, whatever their order.
    """

    embed: Linear
    sharpness: Float[Array, ""]

    def __init__(self, policy: Attentive, features: int, *, key: PRNGKeyArray):
        self.embed = Linear(features, policy.width, key=key)
        self.sharpness = jnp.array(1.0)

    def __call__(self, features: Float[Array, "n features"], mask: Bool[Array, " n"]) -> Float[Array, " width"]:
        """Summarise positions relative to the agent and velocities, both in the agent's frame."""
        position, _ = jnp.split(features, 2, axis=-1)
        distance = jnp.sqrt((position**2).sum(-1) + 1e-12)
        weight = jnp.where(mask, jnp.exp(-self.sharpness * distance), 0.0)
        embedded = jax.nn.relu(jax.vmap(self.embed)(features))
        return (weight[:, None] * embedded).sum(0) / jnp.maximum(weight.sum(), 1e-6)


legoswarm.register_encoder("nearby", Nearby)

if __name__ == "__main__":
    from legoswarm.cli import main

    raise SystemExit(main())
