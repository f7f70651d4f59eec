"""Generalised advantage estimation with termination and truncation told apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def generalised_advantages(
    reward: Float[Array, "time ..."],
    value: Float[Array, "time ..."],
    next_value: Float[Array, "time ..."],
    terminated: Bool[Array, "time ..."],
    truncated: Bool[Array, "time ..."],
    *,
    gamma: float,
    lam: float,
) -> Float[Array, "time ..."]:
    """Return A_t = delta_t + gamma lambda (1 - ended_t) A_{t+1}, delta_t = r_t + gamma (1 - terminated_t) V'_t - V_t.

    V'_t values the state that step t led to. A time limit cuts the sum but not the bootstrap.
    """
    goes_on = (~terminated).astype(value.dtype)
    delta = reward + gamma * goes_on * next_value - value
    keep = gamma * lam * goes_on * (~truncated).astype(value.dtype)

    def step(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, keep = now
        advantage = delta + keep * later
        return advantage, advantage

    return jax.lax.scan(step, jnp.zeros_like(delta[0]), (delta, keep), reverse=True)[1]
