"""What an actor decides: a Gaussian over actions in the agent's own frame, perhaps squashed."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from legoswarm.frames.canonical import Frame


class Decision(eqx.Module):
    """The action in the frame is z of a Gaussian or, with a `squash` of S > 0, S tanh(z / S).

    But near a tie the frame is orthogonal, so densities in the frame and in the world are the same.
    """

    mean: Float[Array, " dim"]
    log_std: Float[Array, " dim"]
    frame: Frame
    squash: float = eqx.field(static=True, default=0.0)

    @property
    def mode(self) -> Float[Array, "*n dim"]:
        """Return the action of the mean: what a trained policy does."""
        return self._squashed(self.mean)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """Draw an action in the frame."""
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self._squashed(self.mean + jnp.exp(self.log_std) * noise)

    def log_prob(self, local: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of an action in the frame."""
        before = self.squash * jnp.arctanh(self._share(local)) if self.squash else local
        z = (before - self.mean) * jnp.exp(-self.log_std)
        return -0.5 * (z * z).sum() - self.log_std.sum() - len(z) / 2 * math.log(2 * math.pi) - self.log_slope(local)

    def log_slope(self, local: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log of how much the squash shrinks areas around an action in the frame: 0 for small actions."""
        if not self.squash:
            return jnp.zeros(())
        share = self._share(local)
        return (jnp.log1p(share) + jnp.log1p(-share)).sum()

    def entropy(self) -> Float[Array, ""]:
        """Return the entropy of the Gaussian, before it is squashed."""
        return self.log_std.sum() + len(self.mean) / 2 * (1 + math.log(2 * math.pi))

    def _share(self, local: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return the action as a share of the bound, which rounding reaches but no inverse may."""
        return jnp.clip(local / self.squash, -1 + 1e-6, 1 - 1e-6)

    def _squashed(self, z: Float[Array, "*n dim"]) -> Float[Array, "*n dim"]:
        return self.squash * jnp.tanh(z / self.squash) if self.squash else z
