"""A whole team's decisions: each role's own actor, each agent's own view and frame, in the order of agents."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scenes import TAG, orthogonal, random_scene

from legoswarm.frames.canonical import Frame
from legoswarm.policies.networks.decision import Decision
from legoswarm.policies.networks.team import decide, world_actions

ROLES = {"pursuer": (2.0, 0.4), "evader": (-3.0, 1.9)}  # what an actor makes of its velocity, and its frame's angle


class Along(eqx.Module):
    """Moves along its own velocity, in a frame that is turned by an angle."""

    gain: jax.Array
    turn: jax.Array

    def __call__(self, view):
        frame = Frame(self.turn)
        return Decision(self.gain * view.velocity, jnp.zeros(2), frame)


def test_every_agent_acts_with_its_roles_actor_from_its_own_view_in_its_own_frame():
    scene = random_scene(np.random.default_rng(0), TAG, still=0.0, empty=False)
    velocity = np.asarray(scene.velocity, float)
    actors = {role: Along(jnp.array(gain), jnp.array(orthogonal(angle))) for role, (gain, angle) in ROLES.items()}

    @jax.jit
    def act(actors, scene):
        decisions = decide(actors, scene)
        return decisions, world_actions(TAG, decisions, {role: d.mean for role, d in decisions.items()})

    for named in (actors, dict(reversed(actors.items()))):  # the order in which actors are named says nothing
        decisions, actions = act(named, scene)
        expected = []
        for role, (gain, angle) in ROLES.items():
            np.testing.assert_allclose(decisions[role].mean, gain * velocity[TAG.block(role)], rtol=1e-5)
            expected.append(gain * velocity[TAG.block(role)] @ orthogonal(angle).T)
        np.testing.assert_allclose(actions, np.concatenate(expected), atol=1e-5)
