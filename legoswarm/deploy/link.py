"""The link to one drone: what a mission asks of it."""

from __future__ import annotations

import dataclasses
import enum
import math
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
class Pose:
    """Where a drone was, in the world frame, and when that was known."""

    received: float  # s, of the mission's clock
    position: Float[np.ndarray, "3"]  # m
    velocity: Float[np.ndarray, "3"]  # m/s


@runtime_checkable
class Positions(Protocol):
    """Where positions come from: the drones' own estimators, or motion capture."""

    def pose(self, name: str) -> Pose | None:
        """Return the newest pose of a drone at once, or None before the first."""
        ...


@dataclasses.dataclass(frozen=True)
class DroneState(Pose):
    """What a drone says of itself: its own estimate, and how it does."""

    yaw: float  # rad, counter-clockwise
    battery: float  # V
    health: Health


@runtime_checkable
class Link(Protocol):
    """The link to one drone. Methods return at once unless they say otherwise, and raise LinkError when they fail.

    Once the link is lost, orders do nothing; `lost` says so. What is allowed is decided here; how it is sent, by the
    links to drones of one kind.
    """

    name: str  # of the drone as in crazyflies.yaml, for example cf1
    longest_interval: float = 0.0  # s between two setpoints that were sent in flight: what the computer let pass
    _may_fall: bool = False  # its motors were stopped on purpose
    _sent: float = math.inf  # when the last setpoint of a stream was sent

    def open(self, timeout: float) -> None:
        """Connect and wait for the first state; raise LinkError if it fails or takes longer."""
        ...

    def state(self) -> DroneState | None:
        """Return the newest state, or None before the first."""
        ...

    def lost(self) -> str | None:
        """Return why the link is lost, or None as long as nothing says so; a silent drone shows in the state's age."""
        return None

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
        if not self._may_fall:
            self._land(seconds)

    def hover(self, velocity_xy: Float[np.ndarray, "2"], height: float) -> None:
        """Fly with this velocity of the world frame at this height; do nothing after motors_off.

        It is to be said again and again: after 0.5 s the drone hovers on the spot, after 5 s it lands, so that no
        drone flies on for a mission that hangs.
        """
        if not (np.isfinite(velocity_xy).all() and math.isfinite(height)):
            raise LinkError(f"{self.name} was told a velocity or a height that is not finite")
        if not self._may_fall:
            self._hover(float(velocity_xy[0]), float(velocity_xy[1]), float(height))

    def motors_off(self) -> None:
        """Stop this drone's motors now, wherever it is."""
        ...

    def close(self) -> None:
        """Let go of a drone that stands; refuse above 0.1 m, except after motors_off or when the radio has let go."""
        state = self.state()
        if state is not None and state.position[2] > CLOSE_HEIGHT and self._holds() and not self._may_fall:
            raise LinkError(f"{self.name} was last heard of at a height of {state.position[2]:.2f} m: land it first")
        self._let_go()

    def _land(self, seconds: float) -> None: ...

    def _hover(self, vx: float, vy: float, height: float) -> None: ...

    def _holds(self) -> bool:
        return True

    def _let_go(self) -> None: ...

    def _note_sent(self, now: float) -> None:
        """Note that a setpoint of the stream is sent now."""
        self.longest_interval, self._sent = max(self.longest_interval, now - self._sent), now

    def _in_own_frame(self, vx: float, vy: float) -> tuple[float, float]:
        """Return a velocity of the world frame in the frame of the drone's yaw."""
        yaw = 0.0 if (state := self.state()) is None else state.yaw
        return math.cos(yaw) * vx + math.sin(yaw) * vy, math.cos(yaw) * vy - math.sin(yaw) * vx
