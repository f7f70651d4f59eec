"""The world of simulated drones in real time, and the UDP ports at which cflib finds them."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from legoswarm.deploy.punctual import come_first
from legoswarm.deploy.sitl import crtp
from legoswarm.deploy.sitl.drone import Airspace, SimulatedDrone, move_on, report_all
from legoswarm.deploy.sitl.plants import Plant, PointMass

TICK = 0.01  # s
SLIP = TICK  # by which the world may be late; a machine that stands still for longer takes the world with it
PLANTS = ("point", "crazyflow")


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


class Endpoint(contextlib.AbstractContextManager["Endpoint"]):
    """Simulated drones at `positions` (m), each at a UDP port of its own, in a thread of this process.

    The drones' ports count up from `port`; with 0 the system picks free ones. One more port, `air`, is what a stand-in
    for the radio's dongle talks to. Obstacles are upright poles at (x, y). Nothing is served before the plant is ready.
    What drones wait for is measured on the world's own clock. Poses of all drones go to `cameras`, a UDP port, if it is
    given, 100 times a second.
    """

    def __init__(
        self,
        positions: Sequence[Any] | np.ndarray,
        *,
        plant: str = "point",
        port: int = 0,
        seed: int = 0,
        obstacles: Sequence[Any] | np.ndarray = (),
        loss: float = 0.0,
        cameras: int | None = None,
    ):
        places = _places(positions)
        self.airspace = Airspace(np.array(obstacles, float).reshape(-1, 2))
        self.receivers: list[Receiver] = []
        self._loss, self._transfer, self._random = loss, TRANSFER_SECONDS, np.random.default_rng(seed)
        self._cameras = cameras
        self.plant = make_plant(plant, places)
        self.drones = [SimulatedDrone(place, seed=seed + at) for at, place in enumerate(places)]
        self.lock = threading.Lock()  # of drones and plant
        self.error: BaseException | None = None
        self.receivers = [Receiver(drone) for drone in self.drones]
        self._peers: list[Any] = [None] * (len(places) + 1)
        self._sockets: list[socket.socket] = []
        self._stop = threading.Event()
        self._due = time.monotonic()  # the next tick, in the world's time
        self._behind = 0.0  # s by which the world's time is behind the machine's
        self._stall = 0.0  # s, the longest time for which it stood still
        self._ports = contextlib.ExitStack()
        for at in range(len(places) + 1):  # the last one is the air
            self._sockets.append(self._ports.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            self._sockets[at].setblocking(False)
            try:
                self._sockets[at].bind(("127.0.0.1", port + at if port and at < len(places) else 0))
            except OSError as error:
                self._ports.close()
                raise ValueError(f"the UDP port {port + at} is not free: {error.strerror}") from None
        self._thread = threading.Thread(target=self._run, name="sitl-endpoint", daemon=True)
        self._thread.start()

    @property
    def uris(self) -> list[str]:
        """Return the addresses at which cflib finds the drones."""
        return [f"udp://127.0.0.1:{sock.getsockname()[1]}" for sock in self._sockets[:-1]]

    @property
    def air(self) -> int:
        """Return the port at which a stand-in for the radio's dongle reaches all drones."""
        return self._sockets[-1].getsockname()[1]

    def inject(self, drone: int, **faults: Any) -> None:
        """Change some of a drone's faults (see `Faults`)."""
        with self.lock:
            self.drones[drone].inject(**faults)

    def disturb(self, loss: float | None = None, transfer: float | None = None) -> None:
        """Change what share of packets the air loses each way, and how long (s) a transfer takes."""
        with self.lock:
            self._loss = self._loss if loss is None else loss
            self._transfer = self._transfer if transfer is None else transfer

    @property
    def standing(self) -> bool:
        """Return whether nobody's motors run."""
        return not any(drone.commander.motors for drone in self.drones)

    @property
    def places(self) -> list[list[float]]:
        """Return where everybody truly is."""
        return np.round(self.plant.position, 4).tolist()

    def report(self) -> list[dict[str, Any]]:
        """Report for each drone what it saw and where it truly is."""
        with self.lock:
            if self.error is not None:
                raise RuntimeError(f"the simulated world has stopped: {self.error!r}") from self.error
            stall = round(self._stall, 4)
            room = self.airspace.report()
            return [{**row, "stall": stall, "room": room} for row in report_all(self.drones, self.plant, self.now())]

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
                        move_on(self.drones, self.plant, self._due, TICK, self.airspace)
                    self._show()
                    for at in range(len(self.drones)):
                        self._flush(at)
                    self._due += TICK

    def _receive(self, at: int) -> None:
        """Hand a drone what has come for it, and send its answers."""
        sock = self._sockets[at]
        while True:
            try:
                raw, peer = sock.recvfrom(64)
            except (BlockingIOError, ConnectionError):
                return
            if at == len(self.drones):
                self._send(at, self._carry(raw), peer)
                continue
            drone = self.drones[at]
            if raw[:1] == bytes([crtp.NULL]):  # somebody looks for drones
                if not drone.faults.mute:
                    self._send(at, raw, peer)
                continue
            self._peers[at] = peer
            with self.lock:
                drone.receive(raw, self.now())
            self._flush(at)

    def _carry(self, raw: bytes) -> bytes:
        """Carry a packet of the radio, an address and data, to a drone; return whether it was acknowledged, and how."""
        there, back = self._random.random(2) >= self._loss
        milliseconds = round(1000 * self._transfer)
        if len(raw) < 2 or raw[0] >= len(self.receivers) or not there:
            return struct.pack("<BH", 0, milliseconds)
        receiver = self.receivers[raw[0]]
        if receiver.drone.faults.deaf or receiver.drone.faults.mute:
            return struct.pack("<BH", 0, milliseconds)
        with self.lock:
            reply = receiver.answer(raw[1:], self.now())
        return struct.pack("<BH", 1, milliseconds) + reply if back else struct.pack("<BH", 0, milliseconds)

    def _show(self) -> None:
        """Send all poses to whoever reads those of the cameras."""
        if self._cameras is not None:
            poses = [
                [f"cf{at + 1}", *place, *speed]
                for at, (place, speed) in enumerate(
                    zip(self.plant.position.tolist(), self.plant.velocity.tolist(), strict=True)
                )
            ]
            text = json.dumps({"time": self._due, "poses": poses}).encode()
            with contextlib.suppress(OSError):
                self._sockets[-1].sendto(text, ("127.0.0.1", self._cameras))

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
