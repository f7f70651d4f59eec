"""The real cflib against simulated drones, over UDP and over its own radio driver with a stand-in dongle.

Waiting times are measured on the clock of the simulated world. What this process itself stalls in the meantime is
measured by a metronome beside the flight and allowed for: a loaded machine is not a fault of a link.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from flights import REAL_TIME

from legoswarm.deploy import cflib_link as link_module
from legoswarm.deploy.cflib_link import CflibLink
from legoswarm.deploy.link import Health, Link, LinkError
from legoswarm.deploy.sitl import crtp
from legoswarm.deploy.sitl.dongle import ADDRESS, radio
from legoswarm.deploy.sitl.endpoint import Endpoint
from legoswarm.deploy.sitl.process import EndpointProcess

pytestmark = REAL_TIME
PLACES = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
URIS = [ADDRESS.format(at) for at in range(3)]


@pytest.fixture(autouse=True)
def nothing_lies_about(tmp_path, monkeypatch):
    """The working folder stays empty."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    assert list(work.iterdir()) == []


@contextlib.contextmanager
def links_to(uris, timeout=10.0):
    links = [CflibLink(f"cf{at}", uri) for at, uri in enumerate(uris)]
    try:
        for link in links:
            link.open(timeout)
        yield links
    finally:
        for link in links:
            link._may_fall = True  # whatever a test has left in the air
            link.close()


class Metronome(threading.Thread):
    """Beats every 20 ms; `stall` is by how much a beat came too late."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stall, self._enough = 0.0, threading.Event()

    def run(self):
        while not self._enough.is_set():
            before = time.monotonic()
            time.sleep(0.02)
            self.stall = max(self.stall, time.monotonic() - before - 0.02)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._enough.set()
        self.join()


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def stream(links, velocity, height, seconds, until=lambda: True):
    """Say where to fly, as a mission does, for some time and `until` then; gives the longest time it took to say it."""
    longest, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end or not until():
        assert time.monotonic() < end + 10, "it did not come to pass"
        before = time.monotonic()
        for link in links:
            link.hover(np.array(velocity), height)
        longest = max(longest, time.monotonic() - before)
        time.sleep(0.02)
    return longest


def height(link):
    return link.state().position[2]


def take_off(links, height_=0.5):
    stream(links, [0.0, 0.0], height_, 0.5, lambda: all(height(link) > 0.8 * height_ for link in links))


def land(links):
    for link in links:
        link.land(1.0)
    wait_until(lambda: all(height(link) < 0.05 and Health.FLYING not in link.state().health for link in links))


def beats(link, seconds):
    """When states came."""
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        received = link.state().received
        if not times or received != times[-1]:
            times.append(received)
        time.sleep(0.002)
    return np.array(times)


def test_a_flight_over_udp(capfd):
    with EndpointProcess(PLACES) as drones, Metronome() as metronome, links_to(drones.uris) as links:
        assert all(isinstance(link, Link) for link in links)
        assert Health.CAN_FLY in links[0].state().health
        assert links[0].state().battery == pytest.approx(4.1, abs=0.01)
        assert any(len(beats(links[0], 0.6)) > 24 - 50 * metronome.stall for _ in range(5))  # 50 Hz
        assert links[1].parameter("stabilizer.controller") == "1"
        with pytest.raises(LinkError, match=r"no parameter stabilizer\.colour"):
            links[1].parameter("stabilizer.colour")
        links[0].set_pose(0.5, -0.5, 0.0, 1.0, timeout=10.0)
        assert links[0].state().position == pytest.approx([0.5, -0.5, 0], abs=0.01)
        assert links[0].state().yaw == pytest.approx(1.0, abs=0.01)
        take_off(links)
        stream(links, [0.3, 0.0], 0.7, 1.5)
        for link in links:  # in the world frame, also for the one that looks elsewhere
            assert link.state().velocity == pytest.approx([0.3, 0, 0], abs=0.1)
            assert height(link) == pytest.approx(0.7, abs=0.1)
            with pytest.raises(LinkError, match="land it first"):
                link.close()
        land(links)
        for link in links:
            link.close()
        for report in drones.report():
            assert report["largest_gap"] < 0.1 + metronome.stall
            assert report["cut_offs"] == []
            assert [event for _, event in report["events"]] == ["landed"]
    assert capfd.readouterr() == ("", "")


def test_a_flight_over_the_radio(tmp_path):
    with EndpointProcess(PLACES) as drones, radio(drones.air), Metronome() as metronome, links_to(URIS) as links:
        assert links[2].parameter("stabilizer.estimator") == "2"
        take_off(links)
        stream(links, [0.0, 0.3], 0.5, 1.0)
        assert all(link.state().velocity[1] > 0.2 for link in links)
        assert all(link.lost() is None for link in links)
        land(links)
        for link in links:
            link.close()
        for report in drones.report():
            assert report["largest_gap"] < 0.1 + metronome.stall
            assert report["cut_offs"] == []
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 2  # the tables of contents


def test_nobody_waits_for_a_drone_that_hears_and_says_nothing():
    with EndpointProcess(PLACES) as drones, Metronome() as metronome, links_to(drones.uris) as links:
        take_off(links)
        drones.inject(1, deaf=True, mute=True)
        stream(links, [0.1, 0.0], 0.5, 0.8, lambda: drones.report()[1]["events"])
        reports = drones.report()
        assert [what for _, what in reports[1]["events"]] == ["level"]
        for at in (0, 2):
            assert reports[at]["largest_gap"] < 0.1 + metronome.stall
            assert reports[at]["events"] == []
            assert time.monotonic() - links[at].state().received < 0.1 + metronome.stall
        # UDP notices nothing: only the age of the state tells.
        assert links[1].lost() is None
        assert time.monotonic() - links[1].state().received > 0.7
        with pytest.raises(LinkError, match="does not answer"):
            links[1].parameter("stabilizer.controller")
        land([links[0], links[2]])


def test_a_radio_link_that_breaks_is_lost_and_the_others_do_not_wait():
    with EndpointProcess(PLACES) as drones, radio(drones.air), Metronome() as metronome, links_to(URIS) as links:
        take_off(links)
        drones.inject(1, mute=True)
        said = stream(links, [0.0, 0.0], 0.5, 0.5, lambda: links[1].lost() is not None)
        assert said < 0.05 + metronome.stall
        assert links[1].lost() in ("Too many packets lost", "RadioDriver: Could not send packet to copter")
        reports = drones.report()
        for at in (0, 2):
            assert reports[at]["largest_gap"] < 0.1 + metronome.stall
            assert links[at].lost() is None
        links[1].land(1.0)  # nothing happens
        links[1].close()  # there is nothing to hold on to
        land([links[0], links[2]])


def test_a_handshake_that_hangs_has_a_time_limit():
    with Endpoint(PLACES[:1]) as drones:
        drones.inject(0, hang=True)
        link = CflibLink("cf1", drones.uris[0])
        start = time.monotonic()
        with pytest.raises(LinkError, match=r"cf1 cannot be reached at udp://.* within 0\.5 s"):
            link.open(0.5)
        assert time.monotonic() - start < 5
        with pytest.raises(LinkError, match="opened before"):
            link.open(0.5)
        with pytest.raises(LinkError, match="not connected"):
            link.arm()
        link.close()


def test_giving_up_on_a_drone_in_the_air_stops_no_motors():
    """cflib's own way to close a link would."""
    with Endpoint(PLACES[:1]) as drones, links_to(drones.uris) as (link,):
        take_off([link])
        drones.inject(0, hang=True)
        with pytest.raises(LinkError, match="cannot be reached"):
            CflibLink("cf1 again", drones.uris[0]).open(0.5)
        wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "link-cf1 again"])
        assert drones.report()[0]["motors"]
        assert drones.report()[0]["cut_offs"] == []


def test_the_radio_brings_every_packet_once_and_in_order():
    from cflib.crtp.crtpstack import CRTPPacket
    from cflib.crtp.radiodriver import RadioDriver

    with Endpoint(PLACES[:1], loss=0.4, seed=1) as drones, radio(drones.air):
        driver = RadioDriver()
        driver.connect(URIS[0], None, None)
        try:
            for at in range(100):
                assert driver.send_packet(CRTPPacket(0xFC, [at]))
            echoes, end = [], time.monotonic() + 10
            while time.monotonic() < end:
                packet = driver.receive_packet(0.1)
                if packet is not None and packet.channel == 0:  # the others are empty
                    echoes.append(packet.data[0])
                    if len(echoes) == 100:
                        end = time.monotonic() + 0.5  # there must be no more
        finally:
            driver.close()
    assert echoes == list(range(100))


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("udp://127.0.0.1:9", "Error communicating|Could not send|within"),
        ("radio://0/80/2M/E7E7E7E701", "Cannot find a Crazyradio Dongle"),
        ("carrier-pigeon://0", "No driver found"),
    ],
)
def test_nobody_there(uri, why):
    link = CflibLink("cf1", uri)
    with pytest.raises(LinkError, match=why):
        link.open(0.5)
    link.close()


def test_a_drone_out_of_radio_range():
    with Endpoint(PLACES[:1]) as drones, radio(drones.air):
        link = CflibLink("cf9", "radio://0/80/2M/E7E7E7E709")
        with pytest.raises(LinkError, match="Too many packets lost"):
            link.open(10.0)


def test_motors_off_is_for_one_drone_only():
    with Endpoint(PLACES) as drones, links_to(drones.uris) as links:
        take_off(links)
        for at in range(3):
            drones.inject(at, loss=0.3)  # one packet may get lost
        links[1].motors_off()
        links[1].hover(np.zeros(2), 0.5)  # nothing happens
        links[1].land(1.0)  # nothing happens: it would start the motors again
        stream([links[0], links[2]], [0.0, 0.0], 0.5, 0.6, lambda: drones.report()[1]["position"][2] == 0)
        reports = drones.report()
        assert [cut["cause"] for cut in reports[1]["cut_offs"]] == ["stop setpoint"]
        assert reports[1]["cut_offs"][0]["height"] > 0.3
        assert reports[1]["position"][2] == 0
        assert reports[0]["cut_offs"] == reports[2]["cut_offs"] == []
        assert all(reports[at]["position"][2] > 0.3 for at in (0, 2))
        links[1].close()
        land([links[0], links[2]])


def test_a_mission_that_hangs_holds_and_then_lands_for_good(monkeypatch):
    monkeypatch.setattr(link_module, "LAND_AFTER", 3.0)
    monkeypatch.setattr(link_module, "LAND_SECONDS", 1.0)
    with Endpoint(PLACES[:1]) as drones, links_to(drones.uris) as (link,):
        take_off([link])
        stream([link], [0.4, 0.0], 0.5, 0.7)
        assert link.state().velocity[0] > 0.2
        wait_until(lambda: abs(link.state().velocity[0]) < 0.05)
        assert height(link) > 0.4
        assert link.lost() is None
        wait_until(lambda: height(link) < 0.05)
        assert link.lost() == "it lands, since nothing was said to it for 3 s"
        link.hover(np.zeros(2), 0.5)  # nothing happens: a mission that comes back starts nobody again
        time.sleep(0.5)
        report = drones.report()[0]
        assert report["position"][2] == 0
        assert report["largest_gap"] < 0.5  # the stream went on
        assert report["cut_offs"] == []
        assert 0 < link.longest_interval < 0.5


def test_setpoints_are_finite():
    link = CflibLink("cf1", "udp://127.0.0.1:9")
    for velocity, level in (([np.nan, 0.0], 0.5), ([0.0, 0.0], np.inf)):
        with pytest.raises(LinkError, match="not finite"):
            link.hover(np.array(velocity), level)


def test_a_broken_callback_shows_as_a_lost_link(monkeypatch):
    with Endpoint(PLACES[:1]) as drones:
        link = CflibLink("cf1", drones.uris[0])
        monkeypatch.setattr(link, "_hear", lambda values, when: 1 / 0)
        with pytest.raises(LinkError, match="ZeroDivisionError: division by zero"):
            link.open(5.0)


def test_a_broken_sender_shows_as_a_lost_link_and_lands(monkeypatch):
    with Endpoint(PLACES[:1]) as drones, links_to(drones.uris) as (link,):
        take_off([link])
        stream([link], [0.2, 0.0], 0.5, 0.3)
        monkeypatch.setattr(link_module, "LAND_SECONDS", 1.0)
        monkeypatch.setattr(link, "_stream", lambda: 1 / 0)
        wait_until(lambda: link.lost() is not None)
        assert link.lost() == "ZeroDivisionError: division by zero"
        link.hover(np.zeros(2), 0.5)  # nothing happens
        with pytest.raises(LinkError, match="land it first"):
            link.close()
        wait_until(lambda: height(link) < 0.05)
        link.close()
        assert drones.report()[0]["cut_offs"] == []


def test_a_sender_that_breaks_starts_no_motors_that_were_stopped(monkeypatch):
    with Endpoint(PLACES[:1]) as drones, links_to(drones.uris) as (link,):
        take_off([link])
        drones.inject(0, mute=True)  # the last that is known: it flies
        link.motors_off()
        wait_until(lambda: not drones.report()[0]["motors"])
        monkeypatch.setattr(link, "_stream", lambda: 1 / 0)
        wait_until(lambda: link.lost() is not None)
        time.sleep(0.2)
        assert not drones.report()[0]["motors"]


def test_an_endpoint_that_ends_is_a_lost_link():
    with Endpoint(PLACES[:1]) as drones:
        link = CflibLink("cf1", drones.uris[0])
        link.open(5.0)
    link.hover(np.zeros(2), 0.5)  # something must be sent for UDP to notice
    wait_until(lambda: link.lost() is not None)
    link.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "link-cf1"]


def test_estimates_that_are_none_do_not_count():
    with Endpoint(PLACES[:1]) as drones, links_to(drones.uris) as (link,):
        drones.inject(0, noise=float("inf"))
        time.sleep(0.2)
        last = link.state()
        time.sleep(0.2)
        assert link.state() is last
        assert np.isfinite(last.position).all()


CRASH = """
import sys
import time
import numpy as np
from legoswarm.deploy.cflib_link import CflibLink
link = CflibLink("cf1", sys.argv[1])
link.open(10.0)
for _ in range(25):
    link.hover(np.zeros(2), 0.5)
    time.sleep(0.02)
assert "jax" not in sys.modules
raise RuntimeError("the mission has a bug")
"""


def test_a_host_that_crashes_stops_no_motors():
    """The process ends at once; the drone's own watchdog does the rest."""
    with Endpoint(PLACES[:1]) as drones:
        done = subprocess.run(
            [sys.executable, "-c", CRASH, drones.uris[0]], capture_output=True, text=True, check=False, timeout=30
        )
        assert "RuntimeError: the mission has a bug" in done.stderr
        wait_until(lambda: drones.report()[0]["locked"])
        assert [cut["cause"] for cut in drones.report()[0]["cut_offs"]] == ["watchdog"]


def test_cflib_that_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "cflib.crazyflie", None)
    with pytest.raises(LinkError, match=r"pip install 'legoswarm\[fly\]'"):
        CflibLink("cf1", "udp://127.0.0.1:9")


def test_cflib_finds_the_drones(monkeypatch):
    from cflib.crtp import udpdriver

    port = 20000 + os.getpid() % 10000
    monkeypatch.setattr(udpdriver, "_BASE_PORT", port)
    with Endpoint([[at, 0] for at in range(10)], port=port) as drones:  # cflib looks at ten ports
        found = set()
        for _ in range(5):  # cflib waits 0.1 s for each: too short for a busy machine now and then
            found |= {uri for uri, _ in udpdriver.UdpDriver().scan_interface()}
            if len(found) == 10:
                break
        assert sorted(found) == drones.uris == [f"udp://127.0.0.1:{port + at}" for at in range(10)]
        with pytest.raises(ValueError, match=f"{port} is not free"):
            Endpoint(PLACES, port=port)


def test_drones_in_a_process_of_their_own_say_what_is_wrong():
    with pytest.raises(ValueError, match="'balloon'"):
        EndpointProcess(PLACES, plant="balloon")
    with EndpointProcess(PLACES) as drones:
        with pytest.raises(ValueError, match="unexpected keyword argument 'colour'"):
            drones.inject(0, colour=1)
        assert len(drones.report()) == 3
        drones._process.kill()
        drones._process.wait()
        with pytest.raises(ValueError, match="the simulated drones have ended"):
            drones.report()


def test_the_world_stands_still_when_the_machine_does():
    """What drones wait for is the host's doing, not that of a machine which does something else."""
    with Endpoint(PLACES[:1]) as drones:
        commander = drones.drones[0].commander

        def setpoint():
            commander.setpoint(crtp.Motion((None, None, 0.0)), drones.now(), 0.0)

        with drones.lock:  # the world cannot move on
            setpoint()
            before = drones.now()
            time.sleep(0.3)
            setpoint()
            assert drones.now() - before < 0.05
        wait_until(lambda: drones.now() - before > 0.1)  # it goes on from there
        report = drones.report()[0]
        assert report["largest_gap"] < 0.2
        assert report["stall"] > 0.25
        with drones.lock:
            setpoint()
        start = drones.now()
        wait_until(lambda: drones.now() - start > 0.4)
        with drones.lock:
            setpoint()
        assert drones.report()[0]["largest_gap"] > 0.35
