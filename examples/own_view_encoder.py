"""An encoder of whole observations of one's own: the agent looks at everybody once, whatever their roles.

python examples/own_view_encoder.py train spread --encoder glance --steps 1e6 --out runs/glance
python examples/own_view_encoder.py eval runs/glance --agents 3 6
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

import legoswarm
from legoswarm.layout import Layout
from legoswarm.policies.networks.layers import Linear, Perceptron
from legoswarm.policies.networks.pooling import entity_features
from legoswarm.policies.policy import Attentive
from legoswarm.scene import View


class Glance(eqx.Module):
    """Attention of the agent to each role in turn: scores from the agent's velocity and the others' features.

    An encoder of observations must not depend on the order of the entities of a role and must ignore masked ones.
    """

    query: Linear
    keys: tuple[Linear, ...]
    values: tuple[Linear, ...]
    fuse: Perceptron
    absolute: bool = eqx.field(static=True)

    def __init__(self, policy: Attentive, layout: Layout, *, absolute: bool = False, key: PRNGKeyArray):
        key_query, key_fuse, *keys = jax.random.split(key, 2 + 2 * len(layout.roles))
        width, size = policy.width, layout.dimension
        self.absolute = absolute  # whether it sees the agent's position in the world too, as MAPPO-GNN does
        self.query = Linear((1 + absolute) * size, width, key=key_query)
        self.keys = tuple(Linear(2 * size, width, key=k) for k in keys[::2])
        self.values = tuple(Linear(2 * size, width, key=k) for k in keys[1::2])
        self.fuse = Perceptron((1 + len(layout.roles)) * width, (width,), key=key_fuse)

    def __call__(self, view: View) -> Float[Array, " width"]:
        """Return the summary of an observation."""
        own = self.query(jnp.concatenate([view.position, view.velocity]) if self.absolute else view.velocity)
        parts = [own]
        for to_key, to_value, others in zip(self.keys, self.values, view.others, strict=True):
            rows = entity_features(others)
            scores = jax.vmap(to_key)(rows) @ own / len(own) ** 0.5
            weights = jnp.where(others.mask, jnp.exp(jnp.tanh(scores)), 0.0)
            looked = (weights[:, None] * jax.vmap(to_value)(rows)).sum(0)
            parts.append(looked / jnp.maximum(weights.sum(), 1e-6))
        return self.fuse(jnp.concatenate(parts))


legoswarm.register_view_encoder("glance", Glance)

if __name__ == "__main__":
    from legoswarm.cli import main

    raise SystemExit(main())
