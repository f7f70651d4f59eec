"""The link to one drone: what a mission asks of it."""

from __future__ import annotations

import dataclasses
import enum
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

CLOSE_HEIGHT = 0.1  # m; a link to a drone that flies higher is not closed


class LinkError(ValueError):
    """A drone that cannot be reached or does not do what it was asked; the message is one sentence for a person."""


class Health(enum.Flag, boundary=enum.KEEP):
    """What the drone's supervisor says of itself; the bits of the firmware's `supervisor.info`."""

    CAN_BE_ARMED = 1 << 0
    ARMED = 1 << 1
    AUTO_ARMED = 1 << 2
    CAN_FLY = 1 << 3
    FLYING = 1 << 4
    TUMBLED = 1 << 5
    LOCKED = 1 << 6
    CRASHED = 1 << 7


@dataclasses.dataclass(frozen=True)
class DroneState:
    """What a drone says of itself: its own estimate, in the world frame."""

    received: float  # time.monotonic() when it arrived
    position: Float[np.ndarray, "3"]  # m
    velocity: Float[np.ndarray, "3"]  # m/s
    yaw: float  # rad, counter-clockwise
    battery: float  # V
    health: Health


class Beat:
    """The longest interval of a stream, which may end and begin again."""

    def __init__(self) -> None:
        self.longest = 0.0  # s
        self._last: float | None = None

    def strike(self, now: float) -> None:
        """Note that something is sent now."""
        if self._last is not None:
            self.longest = max(self.longest, now - self._last)
        self._last = now

    def end(self) -> None:
        """End the stream: what is sent next begins another one."""
        self._last = None


@runtime_checkable
class Link(Protocol):
    """The link to one drone. Methods return at once unless they say otherwise, and raise LinkError when they fail.

    Once the link is lost, orders do nothing; `lost` says so.
    """

    @property
    def name(self) -> str:
        """Return the name of the drone as in crazyflies.yaml, for example cf1."""
        ...

    @property
    def longest_interval(self) -> float:
        """Return the longest time between two setpoints that were sent in flight, s: what the computer let pass."""
        ...

    def open(self, timeout: float) -> None:
        """Connect and wait for the first state; raise LinkError if it fails or takes longer."""
        ...

    def state(self) -> DroneState | None:
        """Return the newest state, or None before the first."""
        ...

    def lost(self) -> str | None:
        """Return why the link is lost, or None as long as nothing says so; a silent drone shows in the state's age."""
        ...

    def parameter(self, name: str) -> str:
        """Ask the drone for a parameter, for example stabilizer.controller; wait a second at most."""
        ...

    def set_pose(self, x: float, y: float, z: float, yaw: float, timeout: float) -> None:
        """Tell the estimator where the drone stands, restart it and wait until it has settled."""
        ...

    def take_off(self, height: float, seconds: float) -> None:
        """Rise to `height` above the ground by the drone's own commander."""
        ...

    def land(self, seconds: float) -> None:
        """Stop the stream of setpoints and land here by the drone's own commander; do nothing after motors_off."""
        ...

    def hover(self, velocity_xy: Float[np.ndarray, "2"], height: float) -> None:
        """Fly with this velocity of the world frame at this height; do nothing after motors_off.

        It is to be said again and again: after 0.5 s the drone hovers on the spot, after 5 s it lands, so that no
        drone flies on for a mission that hangs.
        """
        ...

    def motors_off(self) -> None:
        """Stop this drone's motors now, wherever it is."""
        ...

    def close(self) -> None:
        """Let go of a drone that stands; refuse above 0.1 m, except after motors_off or when the radio has let go."""
        ...
