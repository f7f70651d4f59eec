"""Positions from outside the drones, which the guard flies by and forwards to the drones' estimators.

A source is anything with `pose(name) -> Pose | None` (`link.Positions`). Two come with the package, by a word:

    udp:PORT                   datagrams {"time": s, "poses": [["cf1", x, y, z, vx, vy, vz, qx, qy, qz, qw], ...]}
    motioncapture:KIND@HOST    Vicon, OptiTrack and others through the package `motioncapture` (extra `mocap`)

Velocities and quaternions of a datagram may be left out; `time` is of the sender's own clock, from which ages are
reckoned. Positions are metres in the frame of the room, the origin in its middle, z upwards.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from legoswarm.deploy.link import Pose, Positions

LOST_SECONDS = 0.2  # from poses farther apart no velocity is reckoned


@contextlib.contextmanager
def open_source(words: str | None) -> Iterator[Positions | None]:
    """Open the source that some words name, and close it afterwards; without words there is none."""
    if words is None:
        yield None
        return
    kind, _, rest = words.partition(":")
    if kind == "udp" and rest.isdigit() and 0 < int(rest) < 2**16:
        with contextlib.closing(UdpSource(int(rest))) as source:
            yield source
    elif kind == "motioncapture" and "@" in rest:
        with contextlib.closing(MotionCapture(*rest.split("@", 1))) as source:
            yield source
    else:
        raise ValueError(f"positions come from udp:PORT or motioncapture:KIND@HOST, not from {words!r}")


class _Poses:
    """The newest pose of each drone, with velocities from differences where they are not given."""

    def __init__(self) -> None:
        self._poses: dict[str, Pose] = {}

    def note(
        self, name: str, position: np.ndarray, velocity: np.ndarray | None, attitude: np.ndarray | None, stamp: float
    ) -> None:
        """Note a pose that has just come."""
        last = self._poses.get(name)
        if velocity is None:
            velocity = np.zeros(3)
            if last is not None and last.stamp is not None and 0 < stamp - last.stamp < LOST_SECONDS:
                new = (position - last.position) / (stamp - last.stamp)
                velocity = last.velocity + 0.3 * (new - last.velocity)  # differences are noisy
        self._poses[name] = Pose(time.monotonic(), position, velocity, stamp=stamp, attitude=attitude)

    def pose(self, name: str) -> Pose | None:
        """Return the newest pose of a drone, or None before the first."""
        return self._poses.get(name)


class UdpSource(_Poses):
    """Poses from datagrams of JSON at a port of this computer."""

    def __init__(self, port: int):
        super().__init__()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind(("", port))
        except OSError as error:
            self._socket.close()
            raise ValueError(f"the UDP port {port} is not free: {error.strerror}") from None
        self._socket.setblocking(False)

    def pose(self, name: str) -> Pose | None:
        """Return the newest pose of a drone; what cannot be read is passed over."""
        while True:
            try:
                text = self._socket.recv(65536)
            except BlockingIOError:
                return super().pose(name)
            with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
                self._take(json.loads(text))

    def _take(self, message: Any) -> None:
        stamp = float(message["time"])
        for name, *numbers in message["poses"]:
            values = np.array(numbers, float)
            if values.shape not in ((3,), (6,), (10,)) or not (np.isfinite(values).all() and math.isfinite(stamp)):
                raise ValueError
            velocity = values[3:6] if len(values) > 3 else None
            self.note(str(name), values[:3], velocity, values[6:] if len(values) == 10 else None, stamp)

    def close(self) -> None:
        """Free the port."""
        self._socket.close()


class MotionCapture(_Poses):
    """Poses of rigid bodies from a camera system, read in a thread of their own; bodies are named as the drones are."""

    def __init__(self, kind: str, host: str):
        super().__init__()
        try:
            import motioncapture  # pyright: ignore
        except ImportError:
            raise ValueError(
                "a camera system needs the package motioncapture: pip install 'legoswarm[mocap]'"
            ) from None
        try:
            self._system: Any = motioncapture.connect(kind, {"hostname": host})
        except Exception as error:
            raise ValueError(f"the camera system {kind} at {host} cannot be reached: {error}") from None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="cameras", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        begun = time.monotonic()
        while not self._stop.is_set():
            self._system.waitForNextFrame()
            stamp = time.monotonic() - begun  # the package gives no time of its own for every system
            for name, body in self._system.rigidBodies.items():
                place, turn = np.array(body.position, float), body.rotation
                if np.isfinite(place).all():
                    self.note(name, place, None, np.array([turn.x, turn.y, turn.z, turn.w]), stamp)

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
