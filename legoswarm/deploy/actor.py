"""LEGO's actors in plain NumPy, for all agents of all controlled roles at once.

They compute what `policies.lego.LegoActor` computes, arranged for few operations on small arrays: actors and encoders
of all roles side by side, heads as an axis. Axes: hands, controlled roles, roles, agents, (heads,) others, features.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from legoswarm.arrays import AnyArray
from legoswarm.frames.rules import TINY
from legoswarm.policies.lego import LegoPolicy

HIDDEN = np.float32(-1e9)  # added to the attention score of what is not seen: its weight is then exactly zero
HAND_SIGNS = np.array([[1, 1], [1, -1]], np.float32)  # turn a right-handed frame into a right- or a left-handed one
FEATURE_SIGNS = HAND_SIGNS[:, [0, 1, 0, 1]]
TURNS = np.array([[1, 0, 0, 1], [0, -1, 1, 0]], np.float32)  # x @ TURNS is the frame [x, J x], row by row
WORLD_AXES = np.eye(2, dtype=np.float32)
Chosen: TypeAlias = tuple[AnyArray, AnyArray, AnyArray]  # positions, velocities and weights of others


class Affine(NamedTuple):
    """An affine map x W + b."""

    weight: np.ndarray
    bias: np.ndarray

    def __call__(self, x: AnyArray) -> AnyArray:
        """Map each row of `x`."""
        return x @ self.weight + self.bias


class NumpyAttention(NamedTuple):
    """x + sigma(heads of softmax(Q K^T) V); `qkv` maps to the scaled query, the key and the value of each head."""

    qkv: np.ndarray
    sigma: Affine

    def __call__(self, x: AnyArray, penalty: AnyArray) -> AnyArray:
        """Apply one layer to the features of the others, with `penalty` added to the scores."""
        joined = _normalise(x)[..., None, :, :] @ self.qkv
        size = self.sigma.weight.shape[-2]
        query, key, value = (joined[..., at * size : (at + 1) * size] for at in range(3))
        scores = query @ np.matrix_transpose(key) + penalty
        weights = np.exp(scores - np.maximum.reduce(scores, axis=-1, keepdims=True))
        mixed = (weights @ value) / np.add.reduce(weights, axis=-1, keepdims=True)
        return x + np.maximum(np.add.reduce(mixed @ self.sigma.weight, axis=-3) + self.sigma.bias, 0.0)


def mask_nearest(count: int, position: AnyArray, velocity: AnyArray, weight: AnyArray) -> Chosen:
    """Set the weight of others to 0 if `count` others of their role are seen closer to the agent."""
    square = np.where(weight > 0, np.vecdot(position, position), np.inf)
    closer = (square[..., :, None] > square[..., None, :]).astype(np.float32)
    return position, velocity, weight * (np.add.reduce(closer, axis=-1) < count).astype(np.float32)


def gather_nearest(count: int, position: AnyArray, velocity: AnyArray, weight: AnyArray) -> Chosen:
    """Drop the others that `mask_nearest` masks, so that no more are encoded than count.

    All that are as far away as the last one stay, so that the outcome does not depend on their order.
    """
    if weight.shape[-1] <= count:
        return position, velocity, weight
    square = np.where(weight > 0, np.vecdot(position, position), np.inf)
    far = square > np.partition(square, count - 1, axis=-1)[..., count - 1 : count]
    weight = np.where(far, 0, weight)
    most = max(int(np.count_nonzero(weight, axis=-1).max()), 1)
    first = np.argpartition(weight == 0, most - 1, axis=-1)[..., :most]
    position, velocity = (np.take_along_axis(x, first[..., None], axis=-2) for x in (position, velocity))
    return position, velocity, np.take_along_axis(weight, first, axis=-1)


class NumpyActors(NamedTuple):
    """The weights of the actors of all controlled roles."""

    myself: Affine
    embed: Affine
    layers: tuple[NumpyAttention | Affine, ...]  # attention, or deep sets
    fuse: Affine  # one matrix for each part
    last: Affine
    head: Affine

    def __call__(
        self,
        config: LegoPolicy,
        velocity: Float[AnyArray, "controlled agents 2"],
        others_position: Float[AnyArray, "_ _ agents others 2"],
        others_velocity: Float[AnyArray, "_ _ _ others 2"],
        mask: Bool[AnyArray, "controlled roles agents others"],
        gather: bool = True,
    ) -> Float[AnyArray, "controlled agents 2"]:
        """Return the mean action of each agent in the world frame, not yet limited.

        Of each role the `config.nearest` others are encoded; with `gather` the rest is dropped instead of masked.
        """
        weight = mask.astype(np.float32)
        count = np.add.reduce(weight, axis=-1)
        total = np.add.reduce(others_position * weight[..., None], axis=(1, 3))
        to_centroid = total / (np.add.reduce(count, axis=1)[..., None] + 1)
        frame = _frame(config, velocity, others_position, weight, to_centroid)
        if config.nearest:
            choose, seen = gather_nearest if gather else mask_nearest, (others_position, others_velocity, weight)
            others_position, others_velocity, weight = choose(config.nearest, *seen)
            count = np.add.reduce(weight, axis=-1)
        hands = HAND_SIGNS[: config.hands, None, None]
        own = (velocity[..., None, :] @ frame)[..., 0, :] * hands
        turn = frame[:, None]
        others = np.concatenate([others_position @ turn, others_velocity @ turn], axis=-1)
        others = others * FEATURE_SIGNS[: config.hands, None, None, None, None]
        local = np.add.reduce(self._mean(config, own, others, weight, count) * hands, axis=0) / config.hands
        action = (local[..., None, :] @ np.matrix_transpose(frame))[..., 0, :]
        if config.leash:
            distance = _norm(to_centroid)[..., None]
            pull = np.maximum(distance - config.leash, 0.0) / np.maximum(distance, config.leash)
            action = action + to_centroid * (config.leash_gain * pull)
        if config.squash:
            local = config.squash * np.tanh((action[..., None, :] @ frame)[..., 0, :] / config.squash)
            action = (local[..., None, :] @ np.matrix_transpose(frame))[..., 0, :]
        return action

    def _mean(
        self,
        config: LegoPolicy,
        own: Float[AnyArray, "hands controlled agents 2"],
        others: Float[AnyArray, "hands controlled _ agents others 4"],
        weight: Float[AnyArray, "controlled roles agents others"],
        count: Float[AnyArray, "controlled roles agents"],
    ) -> Float[AnyArray, "hands controlled agents 2"]:
        """Return the mean action of each agent in its own frame, once for each handedness of the frame."""
        x, myself = self.embed(others), self.myself(own)
        if config.encoder == "joint":
            x, weight, myself = self._together(x, weight, count, myself)
        else:
            x, myself = self._deeper(x, weight), _normalise(np.maximum(myself, 0.0))
        if config.pooling == "max":
            top = np.maximum.reduce(np.where(weight[..., None] > 0, x, -np.inf), axis=-2)
            pooled = np.where(count[..., None] > 0, top, 0.0)
        else:
            share = weight / np.maximum(count, 1.0)[..., None]
            pooled = (share[..., None, :] @ x)[..., 0, :]
        parts = np.concatenate([myself[:, :, None], pooled], axis=2)
        x = np.add.reduce(parts @ self.fuse.weight, axis=2) + self.fuse.bias
        x = self.last(_normalise(np.maximum(x, 0.0)))
        return self.head(_normalise(np.maximum(x, 0.0)))

    def _deeper(self, x: AnyArray, weight: AnyArray) -> AnyArray:
        """Apply all layers of the encoders; `weight` is 0 for the others that are not seen."""
        penalty = ((1 - weight) * HIDDEN)[..., None, None, :]
        for layer in self.layers:
            x = layer(x, penalty) if isinstance(layer, NumpyAttention) else layer(np.maximum(x, 0.0))
        return x

    def _together(
        self,
        x: Float[AnyArray, "hands controlled roles agents others width"],
        weight: Float[AnyArray, "controlled roles agents others"],
        count: Float[AnyArray, "controlled roles agents"],
        myself: Float[AnyArray, "hands controlled agents width"],
    ) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Let the agent and the entities of all roles attend to each other in one row.

        Return the features of the row, which entries of it are seen of each role, and the agent's own features."""
        roles = range(self.embed.weight.shape[1])
        x = np.concatenate([myself[:, :, None, :, None], *(x[:, :, at : at + 1] for at in roles)], axis=-2)
        nobody = (count[:, :1] * 0)[..., None]
        there = np.concatenate([nobody + 1, *(weight[:, at : at + 1] for at in roles)], axis=-1)
        x = self._deeper(x, there)
        own = [[weight[:, at : at + 1] * (at == role) for at in roles] for role in roles]
        return x, np.concatenate([np.concatenate([nobody, *row], axis=-1) for row in own], axis=1), x[:, :, 0, :, 0]


def _frame(
    config: LegoPolicy,
    velocity: Float[AnyArray, "controlled agents 2"],
    position: Float[AnyArray, "_ _ agents others 2"],
    weight: Float[AnyArray, "controlled roles agents others"],
    to_centroid: Float[AnyArray, "controlled agents 2"],
) -> Float[AnyArray, "controlled agents 2 2"]:
    """Return the frame [x y] of each agent, by the rules of `frames.canonical`."""
    if config.axis == "none":
        return WORLD_AXES + 0 * velocity[..., None]
    speed = _norm(velocity)[..., None]
    if config.rest == "global":
        frame = _right_handed(np.where(speed != 0, velocity, WORLD_AXES[0]))
        return _choose(frame, np.vecdot(frame[..., 1], to_centroid))
    weight = weight * np.vecdot(position, position)
    outward = np.add.reduce(position * weight[..., None], axis=(1, 3))
    outward = outward / np.maximum(np.add.reduce(weight, axis=(1, 3)), TINY * TINY)[..., None]
    x = np.where(speed > 1e-12, velocity, WORLD_AXES[0])
    x = np.where(_norm(outward)[..., None] > TINY, outward, x)
    x = np.where(_norm(to_centroid)[..., None] > TINY, to_centroid, x)
    candidates = [velocity, outward]
    if config.axis == "velocity":
        moving = speed > config.slow
        x = np.where(moving, velocity, x)
        candidates.append(np.where(moving, to_centroid, outward))
    frame = _right_handed(x)
    side = velocity[..., 0] * 0
    for candidate in candidates:  # the last one that has a direction other than x's
        length, aside = _norm(candidate), np.vecdot(frame[..., 1], candidate)
        side = np.where((length > TINY) & (abs(aside) > TINY * length), aside, side)
    return _choose(frame, side)


def _right_handed(x: Float[AnyArray, "controlled agents 2"]) -> Float[AnyArray, "controlled agents 2 2"]:
    """Return the right-handed frame whose first axis has the direction of `x`."""
    return np.reshape(x / _norm(x)[..., None] @ TURNS, (len(x), -1, 2, 2))


def _choose(
    frame: Float[AnyArray, "controlled agents 2 2"], side: Float[AnyArray, "controlled agents"]
) -> Float[AnyArray, "controlled agents 2 2"]:
    """Turn the second axis to the side on which `side` is positive."""
    return frame * np.where(side[..., None, None] > 0, HAND_SIGNS[0], HAND_SIGNS[1])


def _normalise(x: AnyArray) -> AnyArray:
    average = _average(x.shape[-1])
    centred = x - x @ average
    return centred / np.sqrt((centred * centred) @ average + 1e-5)


@functools.cache
def _average(width: int) -> Float[np.ndarray, "width 1"]:
    """Return the matrix A for which x @ A is the mean of the last axis of x."""
    return np.full((width, 1), 1 / width, np.float32)


def _norm(vectors: Float[AnyArray, "*n 2"]) -> Float[AnyArray, "*n"]:
    return np.hypot(vectors[..., 0], vectors[..., 1])
