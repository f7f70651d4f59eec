"""A simulated drone with a body, on a simulated clock: no network, no waiting."""

from __future__ import annotations

import struct

import numpy as np

from legoswarm.deploy.sitl.drone import SimulatedDrone
from legoswarm.deploy.sitl.plants import PointMass

TICK = 0.01


class World:
    """One drone that starts at a place."""

    def __init__(self, place=(0.0, 0.0, 0.0), **faults):
        self.now = 100.0
        self.drone = SimulatedDrone(np.array(place, float))
        self.drone.inject(**faults)
        self.plant = PointMass(np.array([place], float))

    @property
    def position(self):
        return self.plant.position[0]

    @property
    def velocity(self):
        return self.plant.velocity[0]

    @property
    def record(self):
        return self.drone.commander

    def send(self, *packets: bytes) -> list[bytes]:
        """Packets to the drone; what it has to say."""
        for raw in packets:
            self.drone.receive(raw, self.now)
        return self.hear()

    def hear(self) -> list[bytes]:
        said = []
        while (raw := self.drone.transmit(self.now)) is not None:
            said.append(raw)
        return said

    def run(self, seconds: float, *stream: bytes, every: float = 0.02) -> list[bytes]:
        """Let time pass, with packets that come again and again; what the drone has to say."""
        said, start = [], self.now
        due = self.now
        while self.now < start + seconds - TICK / 2:
            if stream and self.now >= due - 1e-9:
                said += self.send(*stream)
                due += every
            self.now += TICK
            target = self.drone.tick(self.now, TICK, self.position, self.velocity, float(self.plant.yaw[0]))
            self.plant.step(target.velocity[None], np.array([target.yaw_rate]), np.array([int(target.mode)]), TICK)
            said += self.hear()
        return said

    def take_off(self, height: float = 0.6) -> None:
        self.send(take_off(height, 1.5))
        self.run(3)


def take_off(height: float, seconds: float) -> bytes:
    return struct.pack("<BBBff?f", 0x8C, 7, 0, height, 0.0, True, seconds)


def land(seconds: float) -> bytes:
    return struct.pack("<BBBff?f", 0x8C, 8, 0, 0.0, 0.0, True, seconds)


def hover(vx: float, vy: float, height: float, yaw_rate: float = 0.0) -> bytes:
    return struct.pack("<BBffff", 0x7C, 10, vx, vy, yaw_rate, height)


NOTIFY_STOP = bytes.fromhex("7d0000000000")
STOP = bytes.fromhex("7c00")
RPYT_ZERO = bytes.fromhex("3c" + "00" * 14)
EMERGENCY_STOP = bytes.fromhex("9d03")
