"""Steer your own robots in your own simulation: positions in metres go in, velocities in metres per second come out.

    python examples/robots.py robots.png

Six robots cover five places in a room of 4 m x 4 m. One of them breaks down, and the others go on without it.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from legoswarm.deploy.runtime import load_runtime

UNIT = 2.0  # metres in a unit of the task, whose arena reaches from -1 to 1
STRETCH = 5.0  # seconds that a second of the task takes, so that the robots are fast enough
TOP_SPEED = 0.6  # of the robots, m/s
LAG = 0.2  # seconds that they need to follow a command
policy = load_runtime("zoo:spread")


def command(positions, velocities, places):
    """Return the velocity that each robot should have, m/s: what the task's physics make of the policy's forces.

    What is faster than the robots can be is cut to their top speed.
    """
    roles = ["agent"] * len(positions) + ["landmark"] * len(places)
    there = np.concatenate([positions, places]) / UNIT
    moving = np.concatenate([velocities, np.zeros_like(places)]) * STRETCH / UNIT
    force = policy.act(there, moving, roles)
    velocity = (0.75 * moving[: len(positions)] + 0.1 * 5 * force) * UNIT / STRETCH
    speed = np.linalg.norm(velocity, axis=1, keepdims=True)
    return velocity * np.minimum(1, TOP_SPEED / np.maximum(speed, 1e-9))


def simulate(seconds=25, breaks_at=2.0):
    """Return the robots' paths, the places to cover, and which robot broke down."""
    rng = np.random.default_rng(39)
    positions, places = rng.uniform(-1.8, 1.8, (6, 2)), rng.uniform(-1.6, 1.6, (5, 2))
    velocities, wish, works, paths = np.zeros((6, 2)), np.zeros((6, 2)), np.ones(6, bool), []
    for tick in range(int(seconds * 20)):  # the simulation steps 20 times a second, the policy twice
        if tick == int(breaks_at * 20):
            works[0], wish[0] = False, 0.0
        if tick % 10 == 0:
            wish[works] = command(positions[works], velocities[works], places)
        velocities += (wish - velocities) * 0.05 / LAG
        positions = positions + 0.05 * velocities
        paths.append(positions)
    return np.array(paths), places, 0


if __name__ == "__main__":
    paths, places, broken = simulate()
    distances = np.linalg.norm(places[:, None] - paths[-1][None, 1:], axis=-1).min(1)
    print("metres from each place to the nearest working robot:", *np.round(distances, 2))
    plt.figure(figsize=(5, 5)).add_subplot(aspect="equal", xlim=(-2, 2), ylim=(-2, 2), xlabel="x, m", ylabel="y, m")
    plt.grid(color="#e6e6e6")
    plt.plot(*paths.transpose(2, 0, 1), color="#0072B2")
    plt.plot(*paths[-1].T, "o", color="#0072B2", label="robots at the end")
    plt.plot(*paths[-1][broken], "kx", markersize=14, label="the one that broke down")
    plt.plot(*places.T, "+", color="#E69F00", markersize=14, mew=2, label="places to cover")
    plt.legend(loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=2, frameon=False)
    plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "robots.png", dpi=110)
