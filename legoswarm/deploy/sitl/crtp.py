"""The packets of Bitcraze's CRTP protocol (version 12), from the drone's side.

One packet is a header, port << 4 | 3 << 2 | channel, and up to 30 bytes of data; numbers are little-endian.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import zlib
from typing import TypeAlias

Vector: TypeAlias = tuple[float, float, float]
Place: TypeAlias = tuple[float | None, float | None, float | None]

PROTOCOL_VERSION = 12
MAX_DATA = 30
NULL = 0xFF  # the header of a packet that says nothing; cflib looks for drones with it

# Types of log variables and of parameters, by their number on the wire.
LOG_FORMATS = {1: "B", 2: "H", 3: "I", 4: "b", 5: "h", 6: "i", 7: "f", 8: "e"}
PARAMETER_FORMATS = {0x08: "B", 0x09: "H", 0x0A: "I", 0x00: "b", 0x01: "h", 0x02: "i", 0x06: "f"}
READ_ONLY = 0x40


def packet(port: int, channel: int, data: bytes) -> bytes:
    """Return a packet as it goes over the wire."""
    if len(data) > MAX_DATA:
        raise ValueError(f"a CRTP packet holds {MAX_DATA} bytes, not {len(data)}")
    return bytes([port << 4 | 3 << 2 | channel]) + data


def split(raw: bytes) -> tuple[int, int, bytes]:
    """Return port, channel and data of a packet."""
    return raw[0] >> 4, raw[0] & 3, raw[1:]


@dataclasses.dataclass(frozen=True)
class Contents:
    """A table of contents: the names and types of log variables or parameters; an id is a place in it."""

    port: int
    entries: tuple[tuple[str, int], ...]

    def reply(self, request: bytes) -> bytes | None:
        """Answer a question for the table's size or for one of its entries."""
        if request[:1] == b"\x03":
            limits = bytes([16, 128]) if self.port == 5 else b""  # log blocks, variables in all of them
            return packet(self.port, 0, struct.pack("<BHI", 3, len(self.entries), self.checksum) + limits)
        if request[:1] == b"\x02" and len(request) >= 3:
            (at,) = struct.unpack_from("<H", request, 1)
            if at < len(self.entries):
                return packet(self.port, 0, struct.pack("<BH", 2, at) + self._entry(at))
            return packet(self.port, 0, b"\x02")
        return None

    @property
    def checksum(self) -> int:
        """Return the number by which cflib knows a table that it has read before."""
        return zlib.crc32(b"".join(self._entry(at) for at in range(len(self.entries))))

    def _entry(self, at: int) -> bytes:
        name, kind = self.entries[at]
        return bytes([kind]) + name.replace(".", "\0").encode() + b"\0"


@dataclasses.dataclass(frozen=True)
class Stop:
    """A setpoint or order to stop the motors at once."""


@dataclasses.dataclass(frozen=True)
class Motion:
    """A setpoint of the host, as a place to hold and a velocity; what it leaves open is None, or zero.

    Of a full state, acceleration, attitude and turn are on the wire, but not modelled.
    """

    position: Place = (None, None, None)
    velocity: Vector = (0.0, 0.0, 0.0)
    yaw: float | None = None  # degrees
    yaw_rate: float = 0.0  # degrees/s
    own_frame: bool = False  # the velocity turns with the drone's yaw


@dataclasses.dataclass(frozen=True)
class Order:
    """An order to the high-level commander, to fly to a place in a time; None: as it stands."""

    position: Place
    yaw: float | None  # rad
    seconds: float
    relative: bool = False
    lands: bool = False  # the motors stop in the end


def read_setpoint(data: bytes) -> Motion | Stop | None:
    """Read the setpoint in a packet of port 7, channel 0; None if it is not modelled, damaged or not finite."""
    try:
        if data[0] == 6:
            values = struct.unpack_from("<hhhhhhhhhIhhh", data, 1)
            x, y, z, vx, vy, vz = (value / 1000 for value in values[:6])
            return Motion((x, y, z), (vx, vy, vz))
        if data[0] in (7, 8, 10):
            x, y, z, w = values = struct.unpack_from("<ffff", data, 1)
            hover = Motion((None, None, w), (x, y, 0.0), yaw_rate=z, own_frame=True)
            kinds = {7: Motion((x, y, z), yaw=w), 8: Motion(velocity=(x, y, z), yaw_rate=w), 10: hover}
            return kinds[data[0]] if all(map(math.isfinite, values)) else None
        return Stop() if data[0] == 0 else None
    except (struct.error, IndexError):
        return None


def read_order(data: bytes) -> Order | Stop | None:
    """Read the order to the high-level commander in a packet of port 8; None if it is not modelled or damaged."""
    try:
        if data[0] in (7, 8):
            _, height, yaw, as_it_stands, seconds = struct.unpack_from("<Bff?f", data, 1)
            return Order((None, None, height), None if as_it_stands else yaw, seconds, lands=data[0] == 8)
        if data[0] == 12:
            _, relative, _, x, y, z, yaw, seconds = struct.unpack_from("<BBBfffff", data, 1)
            return Order((x, y, z), yaw, seconds, bool(relative))
        return Stop() if data[0] == 3 else None
    except (struct.error, IndexError):
        return None
