"""The world of simulated drones in real time, and the UDP ports at which cflib finds them."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from legoswarm.deploy.punctual import come_first
from legoswarm.deploy.sitl import crtp
from legoswarm.deploy.sitl.drone import SimulatedDrone, move_on, report_all
from legoswarm.deploy.sitl.plants import Plant, PointMass

TICK = 0.01  # s
SLIP = TICK  # by which the world may be late; a machine that stands still for longer takes the world with it
PLANTS = ("point", "crazyflow")


class Endpoint(contextlib.AbstractContextManager["Endpoint"]):
    """Simulated drones at `positions` (m), each at a UDP port of its own, in a thread of this process.

    The drones' ports count up from `port`; with 0 the system picks free ones. Nothing is served before the plant is
    ready. What drones wait for is measured on the world's own clock.
    """

    def __init__(self, positions: Sequence[Any] | np.ndarray, *, plant: str = "point", port: int = 0, seed: int = 0):
        places = _places(positions)
        self.plant = make_plant(plant, places)
        self.drones = [SimulatedDrone(place, seed=seed + at) for at, place in enumerate(places)]
        self.lock = threading.Lock()  # of drones and plant
        self.error: BaseException | None = None
        self._peers: list[Any] = [None] * len(places)
        self._sockets: list[socket.socket] = []
        self._stop = threading.Event()
        self._due = time.monotonic()  # the next tick, in the world's time
        self._behind = 0.0  # s by which the world's time is behind the machine's
        self._stall = 0.0  # s, the longest time for which it stood still
        self._ports = contextlib.ExitStack()
        for at in range(len(places)):
            self._sockets.append(self._ports.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            self._sockets[at].setblocking(False)
            try:
                self._sockets[at].bind(("127.0.0.1", port + at if port else 0))
            except OSError as error:
                self._ports.close()
                raise ValueError(f"the UDP port {port + at} is not free: {error.strerror}") from None
        self._thread = threading.Thread(target=self._run, name="sitl-endpoint", daemon=True)
        self._thread.start()

    @property
    def uris(self) -> list[str]:
        """Return the addresses at which cflib finds the drones."""
        return [f"udp://127.0.0.1:{sock.getsockname()[1]}" for sock in self._sockets]

    def inject(self, drone: int, **faults: Any) -> None:
        """Change some of a drone's faults (see `Faults`)."""
        with self.lock:
            self.drones[drone].inject(**faults)

    def report(self) -> list[dict[str, Any]]:
        """Report for each drone what it saw and where it truly is."""
        with self.lock:
            if self.error is not None:
                raise RuntimeError(f"the simulated world has stopped: {self.error!r}") from self.error
            stall = round(self._stall, 4)
            return [{**row, "stall": stall} for row in report_all(self.drones, self.plant, self.now())]

    def now(self) -> float:
        """Return the world's time, s: the machine's, less what it stood still for, never far ahead of the world."""
        return min(time.monotonic() - self._behind, self._due + SLIP)

    def close(self) -> None:
        """End the world and free its ports."""
        self._stop.set()
        self._thread.join()
        self._ports.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        come_first()  # a drone's own computer does nothing else either
        try:
            self._serve()
        except BaseException as error:
            self.error = error

    def _serve(self) -> None:
        selector = selectors.DefaultSelector()
        for at, sock in enumerate(self._sockets):
            selector.register(sock, selectors.EVENT_READ, at)
        self._due = time.monotonic()
        with selector:
            while not self._stop.is_set():
                for key, _ in selector.select(max(self._due - self.now(), 0)):
                    self._receive(key.data)
                if (late := time.monotonic() - self._behind - self._due) > SLIP:
                    self._behind += late - SLIP
                    self._stall = max(self._stall, late)
                now = self.now()
                while self._due <= now:
                    with self.lock:
                        move_on(self.drones, self.plant, self._due, TICK)
                    for at in range(len(self.drones)):
                        self._flush(at)
                    self._due += TICK

    def _receive(self, at: int) -> None:
        """Hand a drone what has come for it, and send its answers."""
        sock, drone = self._sockets[at], self.drones[at]
        while True:
            try:
                raw, peer = sock.recvfrom(64)
            except (BlockingIOError, ConnectionError):
                return
            if raw[:1] == bytes([crtp.NULL]):  # somebody looks for drones
                if not drone.faults.mute:
                    self._send(at, raw, peer)
                continue
            self._peers[at] = peer
            with self.lock:
                drone.receive(raw, self.now())
            self._flush(at)

    def _flush(self, at: int) -> None:
        """Send a drone's packets to whom it last heard of; a radio fetches them by itself."""
        if self._peers[at] is None:
            return
        while True:
            with self.lock:
                raw = self.drones[at].transmit(self.now())
            if raw is None:
                return
            self._send(at, raw, self._peers[at])

    def _send(self, at: int, raw: bytes, peer: Any) -> None:
        with contextlib.suppress(OSError):  # a host that has gone
            self._sockets[at].sendto(raw, peer)


def make_plant(name: str, places: np.ndarray) -> Plant:
    """Return bodies that are ready to move: point masses, or Crazyflow's quadrotors."""
    if name == "point":
        return PointMass(places)
    if name == "crazyflow":
        from legoswarm.deploy.sitl.crazyflow import Crazyflow

        return Crazyflow(places)
    raise ValueError(f"there is no plant {name!r}; there are {', '.join(PLANTS)}")


def _places(positions: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Return positions in m as an array of drones by 3; they may be given without a height."""
    places = np.array(positions, float)
    if places.ndim == 2 and places.shape[1] == 2:
        places = np.concatenate([places, np.zeros((len(places), 1))], 1)
    if places.ndim != 2 or places.shape[1] != 3 or not len(places) or not np.isfinite(places).all():
        raise ValueError("simulated drones need positions (x, y) or (x, y, z) in metres")
    return places
