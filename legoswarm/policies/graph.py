"""MAPPO-GNN: LEGO's role-aware encoders and pooling on the raw observation, the graph-only ablation of the paper."""

from __future__ import annotations

import jax
from jaxtyping import PRNGKeyArray

from legoswarm.architecture import PolicyConfig
from legoswarm.policies.lego import make_view_encoder
from legoswarm.policies.networks.raw import RawActor, RawCritic
from legoswarm.policies.policy import RolePolicy, register_policy
from legoswarm.scene import Layout


def build_gnn(config: PolicyConfig, layout: Layout, role: str, *, key: PRNGKeyArray) -> RolePolicy:
    """LEGO without the frame: the self branch sees the agent's position and velocity in the world."""
    del role
    key_actor, key_critic, key_head, key_value = jax.random.split(key, 4)
    encoders = [make_view_encoder(config, layout, absolute=True, key=k) for k in (key_actor, key_critic)]
    return RolePolicy(RawActor(config, encoders[0], key=key_head), RawCritic(config, encoders[1], key=key_value))


register_policy("mappo-gnn", build_gnn)
