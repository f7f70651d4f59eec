"""A stand-in for the Crazyradio dongle, so that cflib's own radio driver flies simulated drones.

Each transfer carries a packet to a drone and brings one back with the acknowledgement. Both ways may lose it; safelink,
one counting bit for each way, has the driver send it again, so that a loss on the radio shows as a delay. The drones
and the air between them are an `Endpoint`, here or in another process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from unittest import mock

from legoswarm.deploy.cflib_link import load_cflib

ANSWER_SECONDS = 0.5  # within which the world answers, or the packet is lost
ADDRESS = "radio://0/80/2M/E7E7E7E7{:02X}"


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

    def __init__(self, air: int):
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.connect(("127.0.0.1", air))
        self._address = 0

    def set_address(self, address: tuple[int, ...] | list[int]) -> None:
        """Choose a drone."""
        self._address = address[-1]

    def close(self, *_: int) -> None:
        """Do nothing, as all drones hear every channel and rate, the driver tries again, and nothing is held."""

    set_channel = set_data_rate = set_arc = close

    def send_packet(self, data: Iterable[int]) -> Acknowledgement:
        """Carry a packet over and bring one back, unless the air loses either; a mute or deaf drone does not answer."""
        begun = time.monotonic()
        try:
            self._socket.send(bytes([self._address, *data]))
            answer = self._socket.recv(64)
        except OSError:  # a world that has ended, or stands still
            time.sleep(0.01)
            return Acknowledgement()
        ack, milliseconds = struct.unpack_from("<BH", answer)
        time.sleep(max(milliseconds / 1000 - (time.monotonic() - begun), 0.0))
        return Acknowledgement(True, answer[3:]) if ack else Acknowledgement()

    def release(self) -> None:
        """Let go of the air."""
        self._socket.close()


_ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def radio(air: int) -> Iterator[None]:
    """Put the stand-in in the place of cflib's Crazyradio; `air` is an endpoint's port."""
    load_cflib()
    from cflib.crtp import radiodriver as driver

    dongle = Dongle(air)
    with (
        contextlib.ExitStack() as last,
        _ONE_AT_A_TIME,
        mock.patch.object(driver, "Crazyradio", _maker(dongle, driver.Crazyradio)),
        mock.patch.object(driver.RadioManager, "_radios", []),
    ):
        last.callback(dongle.release)
        yield


def _maker(dongle: Dongle, real: type) -> type:
    """Return a class whose objects are the stand-in; the driver reads the real one's constants from it."""

    class Crazyradio(real):
        def __new__(cls, *args: object, **settings: object) -> Dongle:
            return dongle

    return Crazyradio
