"""The link to a Crazyflie, through Bitcraze's cflib."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import importlib.util
import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from legoswarm.deploy.link import (
    STATE_PERIOD,
    STATE_VARIABLES,
    VARIANCE_PERIOD,
    VARIANCE_SECONDS,
    VARIANCES,
    DroneState,
    Echoes,
    Health,
    Link,
    LinkError,
    Pose,
    Quality,
    Stamps,
)

UDP_RATE, RADIO_RATE = 50.0, 28.0  # setpoints in a second
HOLD_AFTER, LAND_AFTER, LAND_SECONDS = 0.5, 2.0, 3.0  # s without a new setpoint from the guard
STOP_SECONDS = 1.0  # for how long motors_off is repeated: a packet may get lost
CLOSE_SECONDS = 4.0  # s
SETTLED_SAMPLES, SETTLED_SPREAD = 10, 0.001  # at 10 Hz, m^2
CLOSED = "the link was closed"
PROTOCOL = 12  # of the firmware: older ones refuse to land when they did not take off by themselves
ECHO_BYTES = 9  # as long as cflib's own pings, which it looks into as well
_DRIVERS = threading.Lock()


class CflibLink(Link):
    """A Crazyflie behind cflib: radio://0/80/2M/E7E7E7E701, or udp://127.0.0.1:19850 for a simulated one.

    All that may block in cflib happens in this drone's own thread; that thread also streams the newest setpoint, 50
    times a second (28 on the radio, which the drones share). cflib's own `close_link` is never used on an open link,
    since it stops the motors first.
    """

    def __init__(self, name: str, uri: str):
        load_cflib()  # refuses before a flight has begun and files of it are written
        self.name = name
        self.uri = uri
        self._period = 1 / (UDP_RATE if uri.startswith("udp:") else RADIO_RATE)
        self._cf: Any = None
        self._thread: threading.Thread | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._seen: Pose | None = None  # from outside, and not yet told
        self._setpoint: _Setpoint | None = None  # the mailbox: the newest one counts
        self._state: DroneState | None = None
        self._variances: tuple[float, ...] = ()
        self._variances_came = -math.inf
        self._stamps, self._echoes = Stamps(), Echoes()
        self._acknowledged: float | None = None
        self._lost: str | None = None
        self._answered = threading.Event()  # a first state has come, or the link is lost
        self._closing = threading.Event()

    def open(self, timeout: float) -> None:
        """Connect and wait for the first state; raise LinkError if it fails or takes longer."""
        if self._thread is not None:
            raise LinkError(f"{self.name} has been opened before")
        self._thread = threading.Thread(target=self._work, name=f"link-{self.name}", daemon=True)
        self._thread.start()
        if not self._answered.wait(timeout) or self._lost is not None:
            self._closing.set()
            why = self._lost or f"it was not connected within {timeout:g} s"
            raise LinkError(f"{self.name} cannot be reached at {self.uri}: {why}")

    def state(self) -> DroneState | None:
        """Return the newest state, or None before the first."""
        return self._state

    def lost(self) -> str | None:
        """Return why the link is lost, or None as long as nothing says so."""
        return self._lost

    def parameter(self, name: str) -> str:
        """Ask the drone for a parameter; wait a second at most."""
        return self._exchange(name, lambda: self._cf.param.request_param_update(name), time.monotonic() + 1)

    def decks(self) -> list[str]:
        """Return the names of the decks that the drone says it carries; cflib has read them when it connected."""
        values = self._cf.param.values.get("deck", {})
        return sorted(name for name, value in values.items() if str(value) not in ("0", "None", ""))

    def set_pose(self, x: float, y: float, z: float, yaw: float, timeout: float) -> None:
        """Start the estimator again at this pose and wait until its variances stand still for a second."""
        deadline = time.monotonic() + timeout
        for name, value in (("X", x), ("Y", y), ("Z", z), ("Yaw", yaw)):
            self._write(f"kalman.initial{name}", value, deadline)
        self._write("kalman.resetEstimation", 1.0, deadline)
        time.sleep(0.1)
        self._write("kalman.resetEstimation", 0.0, deadline)
        self._settle(deadline)

    def quality(self) -> Quality:
        """Return how well the link works."""
        return dataclasses.replace(self._echoes.quality(time.monotonic()), acknowledged=self._acknowledged)

    def set_parameter(self, name: str, value: float) -> None:
        """Set a parameter and wait a second at most for the drone to confirm it."""
        self._write(name, value, time.monotonic() + 1)

    def send_pose(self, pose: Pose) -> None:
        """Tell the drone where it is seen from outside; the newest pose counts if several wait."""
        self._seen = pose
        self._post(self._send_pose)

    def arm(self) -> None:
        """Ask the drone to arm itself."""
        self._post(lambda: self._cf.supervisor.send_arming_request(True))

    def motors_off(self) -> None:
        """Stop this drone's motors now, wherever it is."""
        self._may_fall = True
        self._setpoint = _Setpoint(time.monotonic())
        self._post(self._stream)

    def emergency_stop(self) -> None:
        """Stop this drone's motors now and lock it, by cflib's own emergency message."""
        self._may_fall, self._setpoint = True, None
        self._post(lambda: self._cf.supervisor.send_emergency_stop())

    def _land(self, seconds: float) -> None:
        self._setpoint = None
        self._post(lambda: self._land_now(seconds))

    def _hover(self, vx: float, vy: float, height: float) -> None:
        self._setpoint = _Setpoint(time.monotonic(), vx, vy, height)

    def _holds(self) -> bool:
        return self._cf is not None and self._cf.link is not None

    def _let_go(self) -> None:
        if self._thread is not None:
            self._closing.set()
            self._jobs.put(lambda: None)
            self._thread.join(CLOSE_SECONDS)

    # The drone's own thread

    def _work(self) -> None:
        try:
            self._connect()
            self._serve()
        except Exception as error:
            self._lose(error)
        with contextlib.suppress(Exception):
            flying = self._state is not None and Health.FLYING in self._state.health
            if self._lost is not None and flying and not self._may_fall:
                self._land_now(LAND_SECONDS)  # in case the drone still hears
        while not self._closing.is_set():  # it may also hear that it is to land or to stop
            with contextlib.suppress(Exception):
                self._jobs.get(timeout=0.2)()
        with contextlib.suppress(Exception):
            self._hang_up()

    def _serve(self) -> None:
        due = time.monotonic()
        while not self._closing.is_set() and self._lost is None:
            due = max(due + self._period, time.monotonic())
            while (left := due - time.monotonic()) > 0 and not self._closing.is_set():
                with contextlib.suppress(queue.Empty):
                    self._jobs.get(timeout=left)()
            self._stream()
            self._echo()

    def _connect(self) -> None:
        cflib = load_cflib()
        from cflib.crtp.crtpstack import CRTPPort

        cf = self._cf = cflib.crazyflie.Crazyflie(rw_cache=None if self.uri.startswith("udp:") else _cache())
        # It would ping from a thread that keeps the process from ending; here the drone's own thread does it.
        cf.link_statistics.start = lambda: setattr(cf.link_statistics, "_is_active", True)
        cf.link_statistics.latency.stop = lambda: None
        cf.link_statistics.link_quality_updated.add_callback(self._note_quality)
        cf.add_port_callback(CRTPPort.LINKCTRL, self._hear_echo)
        cf.fully_connected.add_callback(lambda uri: self._jobs.put(self._listen))
        cf.connection_failed.add_callback(lambda uri, why: self._lose(why))
        cf.connection_lost.add_callback(lambda uri, why: self._lose(why))
        cf.disconnected.add_callback(lambda uri: self._lose(CLOSED))
        cf.open_link(self.uri)

    def _listen(self) -> None:
        """Ask for the state, 50 times a second, and for how sure the estimator is, 10 times."""
        if (version := self._cf.platform.get_protocol_version()) < PROTOCOL:
            self._lose(f"its firmware is too old: it speaks protocol {version}, and {PROTOCOL} is needed")
            return
        blocks = (
            ("variance", VARIANCE_PERIOD, VARIANCES, self._hear_variance),
            ("state", STATE_PERIOD, STATE_VARIABLES, self._hear),
        )
        for name, period, variables, heard in blocks:
            config = self._config(name, round(1000 * period), variables, heard)
            config.error_cb.add_callback(lambda config, why: self._lose(why))
            config.start()

    def _config(
        self,
        name: str,
        period: int,
        variables: Sequence[tuple[str, str]],
        heard: Callable[[dict[str, float], int], None],
    ) -> Any:
        from cflib.crazyflie.log import LogConfig

        config = LogConfig(f"{self.name} {name}", period)
        for variable, kind in variables:
            config.add_variable(variable, kind)

        def guarded(milliseconds: int, values: dict[str, float], config: Any) -> None:
            try:
                heard(values, milliseconds)
            except Exception as error:  # cflib would only log it
                self._lose(error)

        config.data_received_cb.add_callback(guarded)
        self._cf.log.add_config(config)
        return config

    def _hear(self, values: dict[str, float], milliseconds: int) -> None:
        now = time.monotonic()
        variance = max(self._variances) if now - self._variances_came < VARIANCE_SECONDS else math.inf
        state = DroneState.read(values, variance, now, self._stamps.seconds(milliseconds))
        self._state = state or self._state
        if state is not None:
            self._answered.set()

    def _hear_variance(self, values: dict[str, float], milliseconds: int) -> None:
        self._variances, self._variances_came = tuple(values.values()), time.monotonic()

    def _hear_echo(self, packet: Any) -> None:
        if packet.channel == 0 and len(packet.data) == ECHO_BYTES:
            self._echoes.back(int.from_bytes(packet.data[1:3], "little"), time.monotonic())

    def _note_quality(self, percent: float) -> None:
        self._acknowledged = percent / 100

    def _echo(self) -> None:
        """Send a packet that the drone sends back, if one is due."""
        from cflib.crtp.crtpstack import CRTPPacket, CRTPPort

        if self._state is not None and (number := self._echoes.next(time.monotonic())) is not None:
            packet = CRTPPacket()
            packet.set_header(CRTPPort.LINKCTRL, 0)
            packet.data = b"\x01" + number.to_bytes(ECHO_BYTES - 1, "little")  # not the 0 of cflib's own pings
            self._cf.send_packet(packet)

    def _send_pose(self) -> None:
        pose, self._seen = self._seen, None
        if pose is not None and pose.attitude is not None:
            self._cf.loc.send_extpose(pose.position.tolist(), pose.attitude.tolist())
        elif pose is not None:
            self._cf.extpos.send_extpos(*pose.position.tolist())

    def _stream(self) -> None:
        """Send the newest setpoint of the mailbox."""
        setpoint, now = self._setpoint, time.monotonic()
        if setpoint is None:
            return
        age = now - setpoint.since
        if setpoint.height is None:
            if age < STOP_SECONDS:
                self._cf.commander.send_stop_setpoint()
            return
        if age > LAND_AFTER:
            raise LinkError(f"it lands, since nothing was said to it for {LAND_AFTER:g} s")
        self._note_sent(now)
        moves = age <= HOLD_AFTER
        velocity = self._in_own_frame(moves * setpoint.vx, moves * setpoint.vy)
        self._cf.commander.send_hover_setpoint(*velocity, 0.0, setpoint.height)

    def _land_now(self, seconds: float) -> None:
        self._sent = math.inf
        self._cf.commander.send_notify_setpoint_stop()
        self._cf.high_level_commander.land(0.0, seconds, yaw=None)

    def _hang_up(self) -> None:
        """Close the driver below cflib's Crazyflie, whose own `close_link` stops the motors of an open link."""
        cf = self._cf
        if cf.incoming.is_alive():
            cf.incoming.stop()
            cf.incoming.join(2)
        driver, cf.link = cf.link, None
        if driver is not None:
            driver.close()
        cf.close_link()

    # Everybody's threads

    def _lose(self, why: object) -> None:
        """Note why the link is lost, unless it is closed on purpose."""
        # cflib says that a link is closed before it says why.
        if self._lost == CLOSED or (self._lost is None and not self._closing.is_set()):
            named = isinstance(why, Exception) and not isinstance(why, LinkError)
            text = f"{type(why).__name__}: {why}" if named else str(why)
            self._lost = text.strip().splitlines()[0] if text.strip() else "no reason given"
        self._answered.set()

    def _post(self, job: Callable[[], None]) -> None:
        """Have the drone's own thread do something, or try to where the link is lost."""
        if self._state is None:
            raise LinkError(f"{self.name} is not connected")
        self._jobs.put(job)

    def _write(self, name: str, value: float, deadline: float) -> None:
        self._exchange(name, lambda: self._cf.param.set_value(name, value), deadline)

    def _exchange(self, name: str, request: Callable[[], None], deadline: float) -> str:
        """Ask for a parameter or set it, and wait for the drone's answer."""
        if self._state is None or self._lost is not None:
            raise LinkError(f"{self.name} is not connected")
        param, answers = self._cf.param, queue.SimpleQueue[str]()
        if param.toc.get_element_by_complete_name(name) is None:
            raise LinkError(f"{self.name} has no parameter {name}")
        group, field = name.split(".")

        def answer(name: str, value: str) -> None:
            answers.put(value)

        param.add_update_callback(group=group, name=field, cb=answer)
        try:
            request()
            return answers.get(timeout=max(deadline - time.monotonic(), 0))
        except queue.Empty:
            raise LinkError(f"{self.name} does not answer when asked about {name}") from None
        finally:
            param.remove_update_callback(group, field, answer)

    def _settle(self, deadline: float) -> None:
        """Wait until the estimator's variances stand still for a second."""
        samples: collections.deque[tuple[float, ...]] = collections.deque(maxlen=SETTLED_SAMPLES)
        while len(samples) < SETTLED_SAMPLES or np.ptp(list(samples), 0).max() > SETTLED_SPREAD:
            if time.monotonic() > deadline or self._lost is not None:
                raise LinkError(f"the position estimate of {self.name} does not settle")
            time.sleep(VARIANCE_PERIOD)
            if self._variances:
                samples.append(self._variances)


class _Setpoint(NamedTuple):
    """A velocity of the world frame and a height, or None to stop the motors."""

    since: float
    vx: float = 0.0
    vy: float = 0.0
    height: float | None = None


def require_cflib() -> None:
    """Refuse to fly without Bitcraze's library, which another process is going to import."""
    try:
        found = importlib.util.find_spec("cflib.crazyflie")
    except ImportError:
        found = None
    if found is None:
        raise LinkError("flying needs cflib, which is not here: pip install 'legoswarm[fly]'")


def load_cflib() -> Any:
    """Import Bitcraze's library and start its drivers; it logs nothing unless somebody has asked for its log."""
    require_cflib()
    import cflib.crazyflie
    import cflib.crtp

    logger = logging.getLogger("cflib")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    with _DRIVERS:
        if not cflib.crtp.CLASSES:
            cflib.crtp.init_drivers()
    return cflib


def _cache() -> str:
    """Return the folder in which cflib keeps the tables of contents that it reads from each firmware once."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return str(home / "legoswarm" / "crazyflie")
