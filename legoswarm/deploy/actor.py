"""LEGO's actors in plain NumPy, for all agents of all controlled roles at once.

They compute what `policies.networks.encoded` computes, arranged for few operations on small arrays: actors and encoders
of all roles side by side, heads as an axis. Axes: controlled roles, roles, agents, (heads,) others, features.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from legoswarm.arrays import AnyArray
from legoswarm.frames.rules import AMID, CLOSE
from legoswarm.layout import TIE
from legoswarm.policies.lego import LegoPolicy

HIDDEN = np.float32(-1e9)  # added to the attention score of what is not seen: its weight is then exactly zero
TURNS = np.array([[1, 0, 0, 1], [0, -1, 1, 0]], np.float32)  # x @ TURNS is the frame [x, J x], row by row
WORLD_AXES = np.eye(2, dtype=np.float32)


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


def mask_nearest(count: int, square: AnyArray, mask: AnyArray) -> AnyArray:
    """Return the mask without others than the nearest, by the rule of `scene.closest`."""
    square = np.where(mask, square, np.inf)
    farther = (square[..., :, None] < (1 - TIE) * square[..., None, :]).astype(np.float32)
    return mask & (np.add.reduce(1 - farther, axis=-1) < count + 0.5)


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
    ) -> Float[AnyArray, "controlled agents 2"]:
        """Return the mean action of each agent in the world frame, not yet limited."""
        weight = mask.astype(np.float32)
        count = np.add.reduce(weight, axis=-1)
        total = np.add.reduce(others_position * weight[..., None], axis=(1, 3))
        to_centroid = total / (np.add.reduce(count, axis=1)[..., None] + 1)
        frame = _frame(config, velocity, others_position, weight, to_centroid)
        own, turn = (velocity[..., None, :] @ frame)[..., 0, :], frame[:, None]
        others = np.concatenate([others_position @ turn, others_velocity @ turn], axis=-1)
        local = self._mean(config, own, others, weight, count)
        if config.leash:
            distance = _norm(to_centroid)[..., None]
            pull = np.maximum(distance - config.leash, 0.0) / np.maximum(distance, config.leash)
            local = local + ((to_centroid * (config.leash_gain * pull))[..., None, :] @ frame)[..., 0, :]
        if config.squash:
            local = config.squash * np.tanh(local / config.squash)
        return (local[..., None, :] @ np.matrix_transpose(frame))[..., 0, :]

    def _mean(
        self,
        config: LegoPolicy,
        own: Float[AnyArray, "controlled agents 2"],
        others: Float[AnyArray, "controlled _ agents others 4"],
        weight: Float[AnyArray, "controlled roles agents others"],
        count: Float[AnyArray, "controlled roles agents"],
    ) -> Float[AnyArray, "controlled agents 2"]:
        """Return the mean action of each agent in its own frame."""
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
        parts = np.concatenate([myself[:, None], pooled], axis=1)
        x = np.add.reduce(parts @ self.fuse.weight, axis=1) + self.fuse.bias
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
        x: Float[AnyArray, "controlled roles agents others width"],
        weight: Float[AnyArray, "controlled roles agents others"],
        count: Float[AnyArray, "controlled roles agents"],
        myself: Float[AnyArray, "controlled agents width"],
    ) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Let the agent and the entities of all roles attend to each other in one row.

        Return the features of the row, which entries of it are seen of each role, and the agent's own features."""
        roles = range(self.embed.weight.shape[1])
        x = np.concatenate([myself[:, None, :, None], *(x[:, at : at + 1] for at in roles)], axis=-2)
        nobody = (count[:, :1] * 0)[..., None]
        there = np.concatenate([nobody + 1, *(weight[:, at : at + 1] for at in roles)], axis=-1)
        x = self._deeper(x, there)
        own = [[weight[:, at : at + 1] * (at == role) for at in roles] for role in roles]
        return x, np.concatenate([np.concatenate([nobody, *row], axis=-1) for row in own], axis=1), x[:, 0, :, 0]


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
    if config.rest == "global":
        x = np.where(_norm(velocity)[..., None] != 0, velocity, WORLD_AXES[0])
        frame = np.reshape(x / _norm(x)[..., None] @ TURNS, (len(x), -1, 2, 2))
        side = np.where(np.vecdot(frame[..., 1], to_centroid) > 0, np.float32(1), np.float32(-1))
    else:
        square = weight * np.vecdot(position, position)
        total, there = np.add.reduce(square, axis=(1, 3)), np.add.reduce(weight, axis=(1, 3))
        spread = np.sqrt(total / np.maximum(there, 1.0) + CLOSE * CLOSE)[..., None]
        outward = np.add.reduce(position * square[..., None], axis=(1, 3))
        outward = outward / np.maximum(total, CLOSE * CLOSE)[..., None] / spread
        towards, swift = to_centroid / spread, velocity / max(config.slow, 1e-9)
        amid = np.maximum(1 - _norm(towards) / AMID, 0.0)[..., None]
        resting = np.clip(2 - _norm(swift), 0.0, 1.0)[..., None] if config.axis == "velocity" else 1.0
        x = resting * (towards + amid * outward) + (1 - resting) * swift
        x = x / np.maximum(_norm(x), config.tie)[..., None]
        frame = np.reshape(x @ TURNS, (len(x), -1, 2, 2))
        side = np.vecdot(frame[..., 1], resting * outward + (1 - resting) * towards)
        side = np.clip(side / config.tie, -1.0, 1.0)
    return np.concatenate([frame[..., :1], frame[..., 1:2] * side[..., None, None]], axis=-1)


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
