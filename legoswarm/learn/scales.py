"""The scale of returns, which is another one for each team size."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class ValueNorm(eqx.Module):
    """Running, debiased mean and variance of the returns; critics work in normalised units.

    One for each team size: returns grow with the square of it, and between sizes of one training differ far more
    than between good and bad play.
    """

    mean: Float[Array, " sizes"]
    square: Float[Array, " sizes"]
    weight: Float[Array, " sizes"]

    @staticmethod
    def fresh(members: int) -> ValueNorm:
        """Return the state before anything was seen, for teams of none to all of the members."""
        return ValueNorm(*jnp.zeros((3, members + 1)))

    def update(self, returns: Float[Array, "*n members"], mask: Bool[Array, "*n members"], decay: float) -> ValueNorm:
        """Move towards a batch's means and mean squares; sizes that are not in it stay."""
        seen = by_size(mask.astype(returns.dtype), mask) > 0
        new = by_size(returns, mask), by_size(returns**2, mask), jnp.ones_like(self.weight)
        old = self.mean, self.square, self.weight
        return ValueNorm(*(jnp.where(seen, decay * a + (1 - decay) * b, a) for a, b in zip(old, new, strict=True)))

    def statistics(
        self, mask: Bool[Array, "*n members"], floor: float
    ) -> tuple[Float[Array, "*n 1"], Float[Array, "*n 1"]]:
        """Return debiased mean and deviation for each team's size, the variance at least `floor`."""
        weight = jnp.maximum(self.weight, 1e-8)
        mean = self.mean / weight
        variance = jnp.maximum(self.square / weight - mean**2, floor)
        started = self.weight > 0
        return of_size(jnp.where(started, mean, 0.0), mask), of_size(jnp.where(started, jnp.sqrt(variance), 1.0), mask)


def by_size(values: Float[Array, "*n members"], mask: Bool[Array, "*n members"]) -> Float[Array, " sizes"]:
    """Return means over the agents that exist, for each number of them in a world; zero for other numbers."""
    weight = mask.astype(values.dtype)
    here = jax.nn.one_hot(mask.sum(-1), mask.shape[-1] + 1, dtype=values.dtype)
    total, count = (
        (each.sum(-1)[..., None] * here).reshape(-1, here.shape[-1]).sum(0) for each in (values * weight, weight)
    )
    return total / jnp.maximum(count, 1.0)


def of_size(values: Float[Array, " sizes"], mask: Bool[Array, "*n members"]) -> Float[Array, "*n 1"]:
    """Return each world's value of its team size."""
    return values[mask.sum(-1)][..., None]


def masked_mean(values: Float[Array, "*n"], mask: Bool[Array, "*n"]) -> Float[Array, ""]:
    """Return the mean over the agents that exist."""
    weight = mask.astype(values.dtype)
    return (values * weight).sum() / jnp.maximum(weight.sum(), 1.0)
