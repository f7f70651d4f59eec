"""A stand-in for the Crazyradio dongle, so that cflib's own radio driver flies simulated drones.

Each transfer carries a packet to a drone and brings one back with the acknowledgement. Both ways may lose it; safelink,
one counting bit for each way, has the driver send it again, so that a loss on the radio shows as a delay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterable, Iterator
from unittest import mock

import numpy as np

from legoswarm.deploy.cflib_link import load_cflib
from legoswarm.deploy.sitl.drone import SimulatedDrone
from legoswarm.deploy.sitl.endpoint import Endpoint

TRANSFER_SECONDS = 0.002  # a dongle that changes between drones makes about 300 to 500 transfers a second
_SAFELINK_ON = bytes([0xFF, 0x05, 0x01])
_UP, _DOWN = 0x08, 0x04  # the counting bits in the header
_NOTHING = bytes([0xF3])


class Receiver:
    """The radio of one drone, with its side of safelink."""

    def __init__(self, drone: SimulatedDrone):
        self.drone = drone
        self._safelink = False
        self._up = self._down = 1  # the last bits seen and sent
        self._reply = _NOTHING

    def answer(self, raw: bytes, now: float) -> bytes:
        """Take a packet in; return what goes back with the acknowledgement."""
        if raw == _SAFELINK_ON:
            self._safelink, self._up, self._down = True, 1, 1
            return raw
        up, down = bool(raw[0] & _UP), bool(raw[0] & _DOWN)
        if not self._safelink or up != self._up:  # else it was here before, and its acknowledgement got lost
            self._up = up
            if raw[0] & 0xF3 != _NOTHING[0]:
                self.drone.receive(bytes([raw[0] | _UP | _DOWN]) + raw[1:], now)
        if not self._safelink or down != self._down:  # the host has got the last reply
            self._down = down
            self._reply = self.drone.transmit(now) or _NOTHING
        return bytes([self._reply[0] & 0xF3 | _DOWN * self._down]) + self._reply[1:]


@dataclasses.dataclass(frozen=True)
class Acknowledgement:
    """What the driver hears of a transfer."""

    ack: bool = False
    data: bytes = b""
    retry: int = 0
    powerDet: bool = False  # the driver's name


class Dongle:
    """What cflib's driver calls a Crazyradio; drone i of the endpoint listens at address E7E7E7E700 + i."""

    version = 3.0

    def __init__(self, endpoint: Endpoint, loss: float = 0.0, seed: int = 0):
        self._endpoint = endpoint
        self._receivers = [Receiver(drone) for drone in endpoint.drones]
        self._loss = loss
        self._random = np.random.default_rng(seed)
        self._address = 0

    def set_address(self, address: tuple[int, ...] | list[int]) -> None:
        """Choose a drone."""
        self._address = address[-1]

    def close(self, *_: int) -> None:
        """Do nothing, as all drones hear every channel and rate, the driver tries again, and nothing is held."""

    set_channel = set_data_rate = set_arc = close

    def send_packet(self, data: Iterable[int]) -> Acknowledgement:
        """Carry a packet over and bring one back, unless the air loses either; a mute or deaf drone does not answer."""
        time.sleep(TRANSFER_SECONDS)
        lost_there, lost_back = self._random.random(2) < self._loss
        if self._address >= len(self._receivers) or lost_there:
            return Acknowledgement()
        receiver = self._receivers[self._address]
        if receiver.drone.faults.deaf or receiver.drone.faults.mute:
            return Acknowledgement()
        with self._endpoint.lock:
            reply = receiver.answer(bytes(data), self._endpoint.now())
        return Acknowledgement() if lost_back else Acknowledgement(True, reply)


_ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def radio(endpoint: Endpoint, loss: float = 0.0, seed: int = 0) -> Iterator[list[str]]:
    """Put the stand-in in the place of cflib's Crazyradio; yield the drones' radio URIs."""
    load_cflib()
    from cflib.crtp import radiodriver as driver

    dongle = Dongle(endpoint, loss, seed)
    with (
        _ONE_AT_A_TIME,
        mock.patch.object(driver, "Crazyradio", _maker(dongle, driver.Crazyradio)),
        mock.patch.object(driver.RadioManager, "_radios", []),
    ):
        yield [f"radio://0/80/2M/E7E7E7E7{at:02X}" for at in range(len(endpoint.drones))]


def _maker(dongle: Dongle, real: type) -> type:
    """Return a class whose objects are the stand-in; the driver reads the real one's constants from it."""

    class Crazyradio(real):
        def __new__(cls, *args: object, **settings: object) -> Dongle:
            return dongle

    return Crazyradio
