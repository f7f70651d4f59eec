"""SEGNN's networks: steerable message passing for actor and critic (Chen and Zhang 2023; Brandstetter et al. 2022).

`segnn` has the weights of the O(3) network, `segnn-planar` those of an O(2) network that contains it; the rest is
the same. See docs/baselines.md.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from legoswarm.frames.canonical import make_frame
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.leash import pull_back
from legoswarm.policies.networks.roles import RolePolicy
from legoswarm.policies.networks.steerable import (
    EdgeMap,
    Features,
    Irreps,
    NodeMap,
    PlanarWeights,
    SphericalWeights,
    Turn,
    activate,
    balanced,
    randomise,
    turn_of,
)
from legoswarm.policies.policy import Graph as GraphPolicy
from legoswarm.scene import Layout, Scene, View

RESIDUAL_GAIN = 0.2  # of updates at the start: messages are summed, and features would grow from layer to layer
Weights = Callable[..., PlanarWeights | SphericalWeights]  # draws those of an edge map


class Graph(eqx.Module):
    """Nodes of several kinds; the first ones receive messages, the last ones send them."""

    velocity: Float[Array, "nodes 2"]
    exists: Bool[Array, " nodes"]
    offset: Float[Array, "receivers senders 2"]  # from the receiver to the sender
    edge: Bool[Array, "receivers senders"]
    kinds: tuple[int, ...] = eqx.field(static=True)  # of each node


def star(view: View) -> Graph:
    """Return what one agent sees: everybody sends to the agent, a kind of its own."""
    others = view.flat()
    kinds = (0, *(kind for kind, role in enumerate(view.others, 1) for _ in range(len(role.mask))))
    return Graph(
        jnp.concatenate([view.velocity[None], others.velocity]),
        jnp.concatenate([jnp.array([True]), others.mask]),
        others.position[None],
        others.mask[None],
        kinds,
    )


def complete(scene: Scene) -> Graph:
    """Return the full state: everybody sends to everybody else."""
    kinds = tuple(int(kind) for kind in np.repeat(np.arange(len(scene.layout.roles)), scene.layout.slots))
    both = scene.exists[:, None] & scene.exists[None]
    return Graph(
        scene.velocity,
        scene.exists,
        scene.position[None] - scene.position[:, None],
        both & ~np.eye(len(kinds), dtype=bool),
        kinds,
    )


class Edges(eqx.Module):
    """Lengths and directions of a graph's edges."""

    distance: Float[Array, "receivers senders 1"]
    turn: Turn

    def __init__(self, graph: Graph, irreps: Irreps):
        self.distance = norm(graph.offset)
        direction = graph.offset / jnp.where(self.distance > 0, self.distance, 1.0)
        self.turn = turn_of(direction, irreps)


class Layer(eqx.Module):
    """x + update(x, sum of messages): two gated products with the edge's harmonics, then two with the node's kind."""

    messages: tuple[EdgeMap, EdgeMap]
    updates: tuple[NodeMap, NodeMap]
    irreps: Irreps = eqx.field(static=True)

    def __init__(self, irreps: Irreps, kinds: int, weights: Weights):
        both = Irreps(*(2 * n for n in irreps))
        pair = both._replace(scalars=1 + both.scalars)
        self.messages = (
            EdgeMap(weights(pair, irreps), irreps),
            EdgeMap(weights(irreps, irreps), irreps),
        )
        self.updates = (
            NodeMap(both, irreps, kinds, gated=True),
            NodeMap(irreps, irreps, kinds, gain=RESIDUAL_GAIN),
        )
        self.irreps = irreps

    def __call__(self, x: Features, graph: Graph, edges: Edges) -> Features:
        """Return the next features of every node."""
        sent = self.send(x, edges)
        silent = len(graph.exists) - len(graph.edge)  # nodes that nobody sends to
        received = jnp.pad(jnp.where(graph.edge[..., None], sent.values, 0.0).sum(1), ((0, silent), (0, 0)))
        first, second = self.updates
        both = jnp.concatenate([x.values, received], axis=1)
        step = second(activate(first(both, graph.kinds, self.irreps), self.irreps).values, graph.kinds)
        return Features(x.values + step.values, x.turning)

    def send(self, x: Features, edges: Edges) -> Features:
        """Return the messages from all senders to all receivers, worked out in the frames of the edges."""
        shape = edges.distance.shape[:2]
        ends = x.values[: shape[0], None], x.values[None, len(x.values) - shape[1] :]
        spread = (Features(jnp.broadcast_to(end, (*shape, end.shape[2])), x.turning) for end in ends)
        pair = jnp.concatenate([edges.distance, *(edges.turn.into(end).values for end in spread)], axis=-1)
        first, second = self.messages
        sent = second(activate(first(pair, self.irreps), self.irreps).values)
        return edges.turn.back(activate(sent, self.irreps))


class Segnn(eqx.Module):
    """Embedding, layers and readout: two products at the nodes, their mean, and two products of it."""

    embed: NodeMap
    layers: tuple[Layer, ...]
    nodes: tuple[NodeMap, NodeMap]
    whole: tuple[NodeMap, NodeMap]

    def __init__(self, config: GraphPolicy, kinds: int, result: Irreps, weights: Weights, *, gain: float):
        irreps = balanced(config.width)
        count = sum(irreps)
        kept = Irreps(count, count * result.vectors, 0)  # scalars are needed to gate vectors
        last = Irreps(*(count * n for n in result))
        self.embed = NodeMap(Irreps(1, 1, 0), irreps, kinds)
        self.layers = tuple(Layer(irreps, kinds, weights) for _ in range(config.depth))
        self.nodes = NodeMap(irreps, kept, kinds, gated=True), NodeMap(kept, kept, kinds)
        self.whole = NodeMap(kept, last, gated=True), NodeMap(last, result, gain=gain)

    def __call__(self, graph: Graph) -> Features:
        """Return the result for the whole graph."""
        velocity = jnp.concatenate([norm(graph.velocity), graph.velocity], axis=1)
        x = self.embed(velocity, graph.kinds)
        edges = Edges(graph, self.embed.after)
        for layer in self.layers:
            x = layer(x, graph, edges)
        first, second = self.nodes
        x = second(activate(first(x.values, graph.kinds), second.before).values, graph.kinds)
        mean = _mean(x.values, graph.exists)
        first, second = self.whole
        return second(activate(first(mean, (0,)), second.before).values, (0,))


class SegnnActor(eqx.Module):
    """a ~ N(vector of the star graph, sigma^2) in the world's axes, with one sigma for both: equivariant."""

    network: Segnn
    log_std: Float[Array, ""]
    config: GraphPolicy = eqx.field(static=True)

    @property
    def nearest(self) -> int:
        """Count the entities of each role that the actor looks at; 0: all."""
        return self.config.nearest

    def __call__(self, view: View) -> Decision:
        """Decide from one agent's observation."""
        vector = self.network(star(view)).values[0]
        mean = vector + pull_back(view, self.config)
        spread = jnp.broadcast_to(self.log_std, mean.shape)
        return Decision(mean, spread, make_frame(view, "none"), self.config.squash)


class SegnnCritic(eqx.Module):
    """V: the scalar of the complete graph of the state, the same for every member."""

    network: Segnn

    def __call__(self, scene: Scene, role: str, member: Int[Array, ""]) -> Float[Array, ""]:
        """Return the team's value."""
        del role, member
        return self.network(complete(scene)).values[0, 0]


def norm(vectors: Float[Array, "*n 2"]) -> Float[Array, "*n 1"]:
    """Return the length of each vector."""
    return jnp.sqrt((vectors * vectors).sum(-1, keepdims=True))


def _mean(values: Float[Array, "n width"], exists: Bool[Array, " n"]) -> Float[Array, "1 width"]:
    count = jnp.maximum(exists.astype(values.dtype).sum(), 1.0)
    return jnp.where(exists[:, None], values, 0.0).sum(0, keepdims=True) / count


def segnn_policy(weights: Weights, policy: GraphPolicy, layout: Layout, *, key: PRNGKeyArray) -> RolePolicy:
    """Build actor and critic with weights of one kind; who acts is a kind of node of its own in the actor's star."""
    action = Segnn(policy, len(layout.roles) + 1, Irreps(0, 1, 0), weights, gain=0.01)
    value = Segnn(policy, len(layout.roles), Irreps(1, 0, 0), weights, gain=1.0)
    actor, critic = randomise((action, value), key=key)
    return RolePolicy(SegnnActor(actor, jnp.array(policy.log_std), policy), SegnnCritic(critic))
