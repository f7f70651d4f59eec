"""MAPPO and MAPPO-local: MLPs on vectors with a fixed place for everyone; they fit one team size only.

The vector of an observation: the agent's own position in the world (raw observations only) and velocity, then for
each role of the layout in turn, slot by slot, relative position, velocity and a flag. The flag is 1 for who is
there and seen; for the others the whole slot is zero. The other members of the agent's own role stand in cyclic
order: after member i come i + 1, i + 2, ..., the last, the first, ..., i - 1.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from legoswarm.architecture import PolicyConfig
from legoswarm.fast.fused import normalise
from legoswarm.policies.lego import LegoActor, LegoCritic, LegoPolicy
from legoswarm.policies.networks.layers import Linear, Perceptron
from legoswarm.policies.networks.raw import RawActor
from legoswarm.policies.policy import RolePolicy, register_policy
from legoswarm.scene import Entities, Layout, Scene, View, observe


class Mlp(eqx.Module):
    """LayerNorm of the input, then two hidden layers, each with a LayerNorm after its activation."""

    hidden: Perceptron

    def __init__(self, inputs: int, width: int, *, key: PRNGKeyArray):
        self.hidden = Perceptron(inputs, (width, width), key=key)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " width"]:
        """The last hidden layer of one vector."""
        return self.hidden(normalise(x))


class SlotEncoder(eqx.Module):
    """An MLP on the vector of one observation; with `absolute`, the agent's own position is part of it."""

    mlp: Mlp
    absolute: bool = eqx.field(static=True)

    def __init__(self, config: PolicyConfig, layout: Layout, *, absolute: bool = False, key: PRNGKeyArray):
        self.absolute = absolute
        self.mlp = Mlp(vector_size(layout) - 2 * (not absolute), config.width, key=key)

    def __call__(self, view: View) -> Float[Array, " width"]:
        """The features of an observation."""
        vector = to_vector(view)
        return self.mlp(vector if self.absolute else vector[2:])


class TeamCritic(eqx.Module):
    """V_i of the full observations of all members of the role, the agent's own first, then in cyclic order.

    For IPPO, of the agent's observation alone.
    """

    mlp: Mlp
    head: Linear
    config: PolicyConfig = eqx.field(static=True)

    def __init__(self, config: PolicyConfig, layout: Layout, role: str, *, key: PRNGKeyArray):
        key_mlp, key_head = jax.random.split(key)
        members = layout.members(role) if config.critic == "full" else 1
        self.mlp = Mlp(members * vector_size(layout), config.width, key=key_mlp)
        self.head = Linear(config.width, 1, gain=1.0, key=key_head)
        self.config = config

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """The value for one agent."""
        if self.config.critic == "local":
            return self.head(self.mlp(to_vector(observe(scene, role, member))))[0]
        exists = scene.exists[scene.layout.block(role)]
        team = (member + jnp.arange(len(exists))) % len(exists)
        vectors = jax.vmap(lambda m: to_vector(observe(scene, role, m, full=True)))(team)
        vectors = jnp.where(exists[team][:, None], vectors, 0.0)
        return self.head(self.mlp(vectors.reshape(-1)))[0]


def to_vector(view: View) -> Float[Array, " inputs"]:
    """The observation as one vector, everyone at a fixed place."""
    return jnp.concatenate([view.position, view.velocity, slot_rows(view.flat()).reshape(-1)])


def slot_rows(others: Entities) -> Float[Array, "n 5"]:
    """Relative position, velocity and flag of each; zeros for who is not there or not seen."""
    flags = jnp.ones_like(others.position[:, :1])
    rows = jnp.concatenate([others.position, others.velocity, flags], axis=-1)
    return jnp.where(others.mask[:, None], rows, 0.0)


def vector_size(layout: Layout) -> int:
    """How many numbers `to_vector` gives for any agent of a layout."""
    return 4 + 5 * (layout.entities - 1)


def raw_mlp_actor(config: PolicyConfig, layout: Layout, *, key: PRNGKeyArray) -> RawActor:
    """The MLP on the raw observation, which PIC has too."""
    key_encoder, key_head = jax.random.split(key)
    return RawActor(config, SlotEncoder(config, layout, absolute=True, key=key_encoder), key=key_head)


def build_mappo(config: PolicyConfig, layout: Layout, role: str, *, key: PRNGKeyArray) -> RolePolicy:
    """MLPs on raw observations: the agent's own for the actor, all of the team for the critic."""
    key_actor, key_critic = jax.random.split(key)
    return RolePolicy(raw_mlp_actor(config, layout, key=key_actor), TeamCritic(config, layout, role, key=key_critic))


def build_mappo_local(config: PolicyConfig, layout: Layout, role: str, *, key: PRNGKeyArray) -> RolePolicy:
    """The same MLPs in the agent's canonical frame, LEGO's; the critic on the full state in that frame."""
    del role
    key_actor, key_critic = jax.random.split(key)
    return LegoPolicy(
        LegoActor(config, layout, encoder=SlotEncoder, key=key_actor),
        LegoCritic(config, layout, encoder=SlotEncoder, key=key_critic),
    )


register_policy("mappo", build_mappo, one_size=True)
register_policy("mappo-local", build_mappo_local, one_size=True)
