"""The safety filter: what stands between a policy and drones. A pure function; time comes in as an argument.

Every tick, each drone wants a velocity. The filter gives the nearest velocities for which all of this holds:

- speed at most `speed`, change of velocity at most `acceleration`: always, exactly;
- fence: the velocity towards a wall is at most `gain` times the distance to the soft fence;
- obstacles: the velocity towards a physical obstacle is at most `gain` times the distance to its keep-out circle;
- separation: for two drones in one layer, the velocities towards each other add up to at most `gain` times what
  their distance exceeds `separation` by. A drone that nobody steers counts as one that stands still, and keeps
  others away in both layers. A `wild` one, which cannot be trusted to stay where it is, keeps others away at any
  height, by `berth`;
- height: at least `floor`, and at most `ceiling` less the inset;
- downwash: two drones in different layers, laterally closer than `pause`: the lower one is paused, and the upper one
  does not come closer. After `hold` seconds the lower one is sent away; after `patience` seconds the pause is over
  and both may fly again, but only apart. It is over, too, as soon as they are farther apart than `resume`.

All of it is about where drones will be `ahead` seconds from now: a body that follows velocities with a first-order
lag T moves such that p + T v integrates the command. With gain <= acceleration / speed, braking straight ahead
keeps every one of these bounds once they hold: the filter never runs into a corner (docs/deploy.md).
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from legoswarm.arrays import AnyArray
from legoswarm.configs import check_fields, option

Plane: TypeAlias = Float[np.ndarray, "*scenes drones 2"]
Mask: TypeAlias = Bool[np.ndarray, "*scenes drones"]
Square: TypeAlias = Float[np.ndarray, "*scenes drones drones"]
Directions: TypeAlias = Float[np.ndarray, "*scenes drones others 2"]
Reasons: TypeAlias = Int[np.ndarray, "*scenes drones"]
CYCLES = 6  # of the projection
BODY = 0.07  # m, radius of a Crazyflie with its propellers


class Reason(enum.IntFlag):
    """Why a drone does not do what its policy wants."""

    SPEED = enum.auto()  # faster than allowed
    ACCELERATION = enum.auto()  # a change faster than allowed
    FENCE = enum.auto()  # close to the fence
    OBSTACLE = enum.auto()  # close to an obstacle
    SEPARATION = enum.auto()  # close to a drone of its layer, or to one that nobody steers
    PAUSE = enum.auto()  # paused under another drone
    LEAVE = enum.auto()  # sent away from another drone after a pause
    OVER = enum.auto()  # must not come closer above a drone that is paused
    STALE = enum.auto()  # its position is too old
    NOT_A_NUMBER = enum.auto()  # what it should do is not a number
    OUTSIDE = enum.auto()  # beyond the hard fence or the ceiling: it must land
    CEILING = enum.auto()  # higher or lower than allowed


@dataclasses.dataclass(frozen=True)
class Rules:
    """The numbers of the filter, in metres and seconds."""

    speed: float = option(0.5, "largest commanded speed, m/s", above=0)
    acceleration: float = option(1.5, "largest change of the commanded velocity, m/s^2", above=0)
    gain: float = option(3.0, "allowed approach for each metre of distance, 1/s; at most acceleration / speed", above=0)
    ahead: float = option(0.3, "how far ahead positions are taken, s: the drone's lag and half of the latency", above=0)
    fence: float = option(
        2.1, "half the side of the square that no drone may leave, m; beyond it a drone lands", above=0
    )
    inset: float = option(0.3, "how far inside the fence drones are held back, m", above=0)
    ceiling: float = option(2.0, "the height that no drone may exceed, m; beyond it a drone lands", above=0)
    floor: float = option(0.2, "the height below which nobody is sent in flight, m", above=0)
    runaway: float = option(0.3, "so far beyond fence or ceiling a drone's motors are stopped, m", above=0)
    berth: float = option(0.8, "kept from a drone that does not do what it is told, m", above=0)
    separation: float = option(0.35, "between two drones of one layer, m", above=0)
    clearance: float = option(0.2, "between a drone's centre and the surface of an obstacle, m", above=0)
    layer: float = option(0.3, "drones whose heights differ by less are in one layer, m", above=0)
    pause: float = option(0.3, "lateral distance at which the lower of two drones is paused, m", above=0)
    resume: float = option(0.4, "lateral distance at which it may go on, m", above=0)
    wake: float = option(0.9, "how far below a drone its downwash counts, m", above=0)
    hold: float = option(1.0, "after so long under another drone a paused one is sent away, s", above=0)
    patience: float = option(2.0, "after so long a pause is over, s", above=0)
    leave: float = option(0.2, "how fast drones are sent apart, m/s", above=0)
    stale: float = option(0.15, "a drone whose position is older stands still, s", above=0)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.gain > self.acceleration / self.speed * (1 + 1e-9):
            raise ValueError("the gain of the safety rules must not exceed acceleration / speed")
        if not self.pause < self.resume or not self.hold <= self.patience or not self.inset < self.fence:
            raise ValueError("the safety rules need pause < resume, hold <= patience and inset < fence")
        if not self.floor < self.soft_ceiling:
            raise ValueError("the safety rules need floor < ceiling - inset")

    @property
    def soft_fence(self) -> float:
        """Return half the side of the square within which drones are held."""
        return self.fence - self.inset

    @property
    def soft_ceiling(self) -> float:
        """Return the height below which drones are held."""
        return self.ceiling - self.inset

    def beyond(self, position: Float[np.ndarray, "*drones 3"], margin: float = 0.0) -> Bool[np.ndarray, "*drones"]:
        """Return which drones are farther than a margin outside the fence or above the ceiling."""
        aside = np.abs(position[..., :2]).max(-1)
        return np.asarray((aside > self.fence + margin) | (position[..., 2] > self.ceiling + margin))


@dataclasses.dataclass(frozen=True)
class Obstacles:
    """Physical obstacles: upright cylinders that reach through all layers; in metres."""

    centre: Float[np.ndarray, "*scenes obstacles 2"]
    radius: Float[np.ndarray, "*scenes obstacles"]


@dataclasses.dataclass(frozen=True)
class Sighting:
    """What is known about the drones at one moment; in metres and seconds."""

    position: Float[np.ndarray, "*scenes drones 3"]
    velocity: Plane
    age: Float[np.ndarray, "*scenes drones"]  # of the position
    steered: Mask  # the filter's commands reach it; others are in the way
    flying: Mask  # off the ground; what stands there is in nobody's way
    wild: Mask | None = None  # of those that are not steered: may go anywhere


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The filter's answer at one tick, which it is shown again at the next one."""

    time: float
    velocity: Plane  # the commands
    reasons: Reasons  # Reason flags: why they are not what was wanted
    close: Bool[np.ndarray, "*scenes drones drones"]  # row is too close under column
    since: Float[np.ndarray, "*scenes drones"]  # when a drone's pause under others began; NaN: none

    @staticmethod
    def start(time: float, shape: tuple[int, ...]) -> Verdict:
        """Return a verdict by which nobody moves or is paused; `shape` is (*scenes, drones)."""
        close = np.zeros((*shape, shape[-1]), bool)
        return Verdict(time, np.zeros((*shape, 2)), np.zeros(shape, int), close, np.full(shape, np.nan))


def apply_rules(
    rules: Rules, wanted: Plane, sighting: Sighting, obstacles: Obstacles, last: Verdict, time: float
) -> Verdict:
    """Return the velocities nearest to `wanted` that keep the rules, for one scene or arrays of scenes."""
    step = rules.acceleration * min(max(time - last.time, 0.0), 0.1)
    steered, place = sighting.steered, sighting.position[..., :2] + rules.ahead * sighting.velocity
    around = _direction(place[..., None, :, :] - place[..., :, None, :])  # from each drone (row) to each other
    close, since = _pauses(rules, sighting, last, time)

    finite, fresh = np.isfinite(wanted).all(-1), sighting.age <= rules.stale
    paused = time - since < rules.patience
    goal = np.where((finite & fresh & steered & ~paused)[..., None], wanted, 0.0)
    goal, leaving, over = _apart(rules, goal, around[0], np.where(close, (time - since)[..., None], np.nan))
    calm = _shorten(goal, rules.speed)
    bounds = Bounds.around(rules, sighting, place, around, obstacles)
    velocity, pressed = _project(calm, bounds, last.velocity, step, rules.speed)

    causes = (
        (~finite, Reason.NOT_A_NUMBER),
        (~fresh, Reason.STALE),
        (paused, Reason.PAUSE),
        (leaving, Reason.LEAVE),
        (over, Reason.OVER),
        (_length(goal) > rules.speed + 1e-9, Reason.SPEED),
        (_length(calm - last.velocity) > step + 1e-9, Reason.ACCELERATION),
        (rules.beyond(sighting.position), Reason.OUTSIDE),
    )
    reasons = pressed + sum(mask * int(reason) for mask, reason in causes)
    velocity = np.where(steered[..., None], velocity, 0.0)
    return Verdict(time, velocity, np.where(steered, reasons, 0), close, since)


def _pauses(
    rules: Rules, sighting: Sighting, last: Verdict, time: float
) -> tuple[Bool[np.ndarray, "*scenes drones drones"], Float[np.ndarray, "*scenes drones"]]:
    """Return who is too close under whom, and since when each drone is under others, NaN where it is not."""
    plane, height = sighting.position[..., :2], sighting.position[..., 2]
    lateral = _length(plane[..., :, None, :] - plane[..., None, :, :])
    rise = height[..., None, :] - height[..., :, None]
    able = sighting.steered & sighting.flying
    under = able[..., :, None] & able[..., None, :] & (rise >= rules.layer) & (rise < rules.wake)
    close = under & (lateral < np.where(last.close, rules.resume, rules.pause))
    begun = np.where(np.isnan(last.since), time, last.since)
    return close, np.where(close.any(-1), begun, np.nan)


def _apart(rules: Rules, goal: Plane, direction: Directions, under: Square) -> tuple[Plane, Mask, Mask]:
    """Take from `goal` what brings a pair closer whose lower drone (row) has been paused `under` the upper one.

    Return the new goal, who is sent away, and who must not come closer above another.
    """
    leaving, over = np.zeros((2, *goal.shape[:-1]), bool)
    if np.isnan(under).all():
        return goal, leaving, over
    above = np.swapaxes(under, -1, -2)
    away = (under >= rules.hold) | (above >= rules.patience)
    for other in range(goal.shape[-2]):
        limit = np.where(away[..., other], -rules.leave, np.where(above[..., other] >= 0, 0.0, np.inf))
        towards = direction[..., other, :]
        excess = np.maximum(_dot(towards, goal) - limit, 0.0)
        goal = goal - excess[..., None] * towards
        leaving |= away[..., other]
        over |= ~away[..., other] & (excess > 1e-9)
    return goal, leaving, over


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Bounds on velocities that braking straight ahead never breaks.

    Each drone: low <= v <= high, and direction . v <= alone for each column; pairs of drones, with the column of the
    first one's direction: direction . (v_first - v_second) <= together.
    """

    low: Plane
    high: Plane
    direction: Float[np.ndarray, "*scenes drones columns 2"]
    alone: Float[np.ndarray, "*scenes drones columns"]
    together: Float[np.ndarray, "*scenes drones drones"]

    @staticmethod
    def around(
        rules: Rules, sighting: Sighting, place: Plane, around: tuple[Directions, Square], obstacles: Obstacles
    ) -> Bounds:
        """Return the bounds of fence, obstacles and other drones; the columns of drones come first."""
        steered, flying, height = sighting.steered, sighting.flying, sighting.position[..., 2]
        both = steered[..., :, None] & steered[..., None, :]
        drop = np.abs(height[..., :, None] - height[..., None, :])
        near = flying[..., :, None] & flying[..., None, :] & (drop < np.where(both, rules.layer, rules.wake))
        wild = np.zeros_like(steered) if sighting.wild is None else sighting.wild
        beware = (wild[..., :, None] | wild[..., None, :]) & flying[..., :, None] & flying[..., None, :]
        near = (near | beware) & ~np.eye(place.shape[-2], dtype=bool)
        distance = np.where(beware, rules.berth, rules.separation)
        together = np.where(near, rules.gain * (around[1] - distance), np.inf)
        alone = np.where(both, np.maximum(together, 0.0), together)
        towards, distance = _direction(obstacles.centre[..., None, :, :] - place[..., :, None, :])
        gap = distance - obstacles.radius[..., None, :] - rules.clearance
        return Bounds(
            low=-rules.gain * (rules.soft_fence + place),
            high=rules.gain * (rules.soft_fence - place),
            direction=np.concatenate([around[0], towards], -2),
            alone=np.concatenate([alone, rules.gain * gap], -1),
            together=np.where(both, together, np.inf),
        )

    def hold(self, velocity: Plane) -> bool:
        """Return whether velocities keep all bounds."""
        drones = velocity.shape[-2]
        closing = _dot(self.direction, velocity[..., None, :])
        towards = closing[..., :drones]
        return bool(
            (velocity >= self.low).all()
            and (velocity <= self.high).all()
            and (closing <= self.alone).all()
            and (towards + np.swapaxes(towards, -1, -2) <= self.together).all()
        )


def _project(goal: Plane, bounds: Bounds, last: Plane, step: float, speed: float) -> tuple[Plane, Reasons]:
    """Return the point nearest to `goal` within `bounds` and within `step` of `last` (Dykstra's algorithm).

    `step` and `speed` hold exactly. Return also, for each drone, the reasons of the bounds that pressed on it.
    """
    near = last + _shorten(goal - last, step)
    if bounds.hold(near):
        return near, np.zeros(goal.shape[:-1], int)
    drones, columns = goal.shape[-2], bounds.alone.shape[-1]
    singles = [at for at in range(columns) if (bounds.alone[..., at] < speed).any()]
    pairs = [(i, j) for j in range(drones) for i in range(j) if (bounds.together[..., i, j] < 2 * speed).any()]
    fence, ball = np.zeros_like(goal), np.zeros_like(goal)
    alone = np.zeros_like(bounds.alone)
    together = np.zeros_like(bounds.together)
    velocity = goal
    for _ in range(CYCLES):
        velocity, fence = _within(velocity, fence, np.clip(velocity + fence, bounds.low, bounds.high))
        for at in singles:
            excess = _dot(bounds.direction[..., at, :], velocity) - bounds.alone[..., at]
            change = np.maximum(excess, -alone[..., at])
            alone[..., at] += change
            velocity = velocity - change[..., None] * bounds.direction[..., at, :]
        for i, j in pairs:
            direction = bounds.direction[..., i, j, :]
            excess = _dot(direction, velocity[..., i, :] - velocity[..., j, :]) - bounds.together[..., i, j]
            change = np.maximum(excess / 2, -together[..., i, j])
            together[..., i, j] += change
            velocity[..., i, :] -= change[..., None] * direction
            velocity[..., j, :] += change[..., None] * direction
        velocity, ball = _within(velocity, ball, last + _shorten(velocity + ball - last, step))
    others = alone[..., :drones].any(-1) | together.any(-1) | together.any(-2)
    presses = (
        (np.abs(fence).max(-1) > 1e-6, Reason.FENCE),
        (others, Reason.SEPARATION),
        (alone[..., drones:].any(-1), Reason.OBSTACLE),
    )
    velocity = _shorten(velocity, speed)
    velocity = last + _shorten(velocity - last, step)
    return velocity, np.asarray(sum(mask * int(reason) for mask, reason in presses))


def _within(velocity: Plane, turn: Plane, inside: Plane) -> tuple[Plane, Plane]:
    """Return the point inside a convex set and what is left over: a step of Dykstra's algorithm."""
    return inside, velocity + turn - inside


def _direction(vector: Float[np.ndarray, "*scenes 2"]) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors and lengths; a vector without a direction points along x."""
    length = _length(vector)
    tiny = length < 1e-6
    unit = np.where(tiny[..., None], [1.0, 0.0], vector / np.where(tiny, 1.0, length)[..., None])
    return unit, length


def _dot(a: np.ndarray, b: np.ndarray) -> AnyArray:
    """Return a . b, written out because sums over axes of length 2 are slow."""
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1]


def _length(vector: np.ndarray) -> AnyArray:
    return np.sqrt(_dot(vector, vector))


def _shorten(vector: np.ndarray, limit: float) -> np.ndarray:
    """Return the vectors, none longer than `limit`."""
    length = _length(vector)[..., None]
    return vector * np.where(length > limit, limit / np.maximum(length, 1e-12), 1.0)
