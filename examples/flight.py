"""A flight of one's own: two simulated drones change places, flown by a guard, with state estimates from this program.

    python examples/flight.py

A commander is any object with `wish(report)`. Positions may come from the drones themselves, or, as here, from a
stream of datagrams: an estimator of one's own sends what it believes, and the guard flies by it and forwards it.
"""

import json
import socket

import numpy as np

from legoswarm.deploy.guard_process import fly_guarded
from legoswarm.deploy.plan import Plan, Robot, Wish
from legoswarm.deploy.sitl.process import EndpointProcess

PORT = 19990
STARTS = [(-0.8, 0.0, 0.0), (0.8, 0.1, 0.0)]


class ChangePlaces:
    """Fly everybody to where the other one began; the safety rules keep them apart on the way."""

    def wish(self, report):
        """Return a velocity for each drone, m/s, in the stage `run`; before, any answer shows that we are alive."""
        goals = np.array(STARTS)[::-1, :2]
        away = goals - report.position[:, :2]
        return Wish(0.8 * away, done=report.stage == "run" and bool((np.abs(away) < 0.1).all()))


def send_estimate(names, positions, seconds):
    """Send what an estimator believes to the guard: do this 50 to 100 times a second, from any program."""
    poses = [[name, *place] for name, place in zip(names, positions, strict=True)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(json.dumps({"time": seconds, "poses": poses}).encode(), ("127.0.0.1", PORT))


if __name__ == "__main__":
    with EndpointProcess(STARTS, cameras=PORT) as world:  # the simulated cameras send such datagrams themselves
        robots = [Robot(f"cf{at + 1}", uri, "drone", STARTS[at]) for at, uri in enumerate(world.uris)]
        outcome = fly_guarded(robots, ChangePlaces(), plan=Plan(pursuer_height=0.5), source=f"udp:{PORT}", say=print)
    print({name: status.value for name, status in outcome.statuses.items()}, outcome.error or "")
