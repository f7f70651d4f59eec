"""The simulated drone does what the firmware's documentation says, on a simulated clock."""

import copy
import functools
import math
import struct

import numpy as np
import pytest
from simulated import EMERGENCY_STOP, NOTIFY_STOP, RPYT_ZERO, STOP, World, hover, land, take_off

from legoswarm.deploy.link import Health
from legoswarm.deploy.sitl.drone import Faults

pytestmark = pytest.mark.usefixtures("unchecked")
VELOCITY_WORLD = struct.pack("<BBffff", 0x7C, 8, 0.3, 0.0, 0.0, 0.0)


@functools.cache
def hovering():
    world = World()
    world.take_off(0.6)
    return world


def flying(**faults):
    world = copy.deepcopy(hovering())
    world.drone.inject(**faults)
    return world


def test_take_off_hover_and_land():
    world = flying()
    assert world.position == pytest.approx([0, 0, 0.6], abs=0.02)
    assert Health.FLYING in world.drone.health
    world.run(2, hover(0.3, -0.2, 0.8))
    assert world.velocity == pytest.approx([0.3, -0.2, 0], abs=0.02)
    assert world.position[2] == pytest.approx(0.8, abs=0.02)
    world.send(NOTIFY_STOP, land(2.0))
    x, y, _ = world.position
    world.run(2.2)
    assert world.position == pytest.approx([x, y, 0], abs=0.1)
    assert world.position[2] == 0
    assert not world.drone.commander.motors
    assert world.record.cut_offs == []
    assert world.record.events[-1][1] == "landed"


def test_the_high_level_commander_needs_no_stream():
    world = flying()
    world.run(5)
    assert world.position == pytest.approx([0, 0, 0.6], abs=0.01)
    assert world.drone.commander.can_fly


def test_go_to_is_absolute_or_relative():
    world = flying()
    world.send(struct.pack("<BBBBBfffff", 0x8C, 12, 0, 0, 0, 0.5, -0.5, 0.8, 0.0, 2.0))
    world.run(4)
    assert world.position == pytest.approx([0.5, -0.5, 0.8], abs=0.02)
    world.send(struct.pack("<BBBBBfffff", 0x8C, 12, 0, 1, 0, 0.5, 0.0, 0.0, math.pi / 2, 2.0))
    world.run(6)
    assert world.position == pytest.approx([1.0, -0.5, 0.8], abs=0.02)
    assert world.plant.yaw[0] == pytest.approx(math.pi / 2, abs=0.02)


def test_position_and_full_state_setpoints():
    world = flying()
    world.run(4, struct.pack("<BBffff", 0x7C, 7, 0.4, 0.2, 0.9, 45.0))
    assert world.position == pytest.approx([0.4, 0.2, 0.9], abs=0.02)
    assert world.plant.yaw[0] == pytest.approx(math.pi / 4, abs=0.02)
    world.run(4, struct.pack("<BBhhhhhhhhhIhhh", 0x7C, 6, -100, 0, 700, *[0] * 6, 0, 0, 0, 0))
    assert world.position == pytest.approx([-0.1, 0, 0.7], abs=0.02)


def test_watchdog_levels_out_and_then_locks():
    world = flying()
    world.run(2, hover(0.4, 0.0, 0.6))
    last = world.now - 0.02  # the stream's last packet
    world.run(0.4)
    assert world.velocity[0] == pytest.approx(0.4, abs=0.01)
    assert world.record.events == []
    world.run(1.4)
    assert world.record.events == [(pytest.approx(last + 0.51, abs=0.021), "level")]
    assert 0.1 < world.velocity[0] < 0.35  # drifts: nothing holds it
    assert world.position[2] == pytest.approx(0.6, abs=0.02)
    assert world.drone.commander.can_fly
    world.run(1)
    assert world.record.events[1] == (pytest.approx(last + 2.01, abs=0.021), "locked")
    assert [cut.cause for cut in world.record.cut_offs] == ["watchdog"]
    assert world.record.cut_offs[0].height == pytest.approx(0.6, abs=0.02)
    assert world.record.largest_gap(world.now) == pytest.approx(2.01, abs=0.021)
    assert Health.LOCKED in world.drone.health
    assert Health.CAN_FLY not in world.drone.health
    world.send(take_off(0.6, 1.5))
    world.run(3, hover(0.0, 0.0, 0.6))
    assert world.position[2] == 0  # until it is started again


def test_a_new_setpoint_ends_the_levelling():
    world = flying()
    world.run(1, hover(0.4, 0.0, 0.6))
    world.run(1.5)
    world.run(1, hover(0.4, 0.0, 0.6))
    assert world.velocity[0] == pytest.approx(0.4, abs=0.02)
    assert world.drone.commander.can_fly
    assert world.drone.commander.largest_gap(world.now) == pytest.approx(1.52, abs=0.03)


def test_a_landing_takes_over_from_a_stream_that_ends_or_stops_by_itself():
    for farewell in ([NOTIFY_STOP], []):
        world = flying()
        world.run(1, hover(0.2, 0.0, 0.6))
        world.send(*farewell, land(1.5))
        world.run(0.5)
        assert (world.position[2] < 0.59) == bool(farewell)
        world.run(2)
        assert world.position[2] == 0
        assert world.record.cut_offs == []


@pytest.mark.parametrize("packet", [STOP, RPYT_ZERO, bytes.fromhex("8c0300"), EMERGENCY_STOP, bytes.fromhex("6d03")])
def test_what_stops_the_motors_at_once(packet):
    world = flying()
    world.run(1, hover(0.0, 0.0, 0.6))
    world.send(packet, packet)
    world.run(0.1)
    assert world.velocity[2] < -0.8
    world.run(1)
    assert world.position[2] == 0
    assert [cut.height for cut in world.record.cut_offs] == [pytest.approx(0.6, abs=0.02)]
    latched = packet in (EMERGENCY_STOP, bytes.fromhex("6d03"))
    assert (Health.LOCKED in world.drone.health) == latched


def test_emergency_stop_watchdog():
    world = flying()
    world.run(2, bytes.fromhex("9d04"), every=0.5)
    assert world.record.cut_offs == []
    world.run(0.7)
    assert [cut.cause for cut in world.record.cut_offs] == ["emergency stop"]


def test_mellinger_hovers_instead_of_following_a_velocity():
    world = flying(controller=2)
    assert world.send(bytes.fromhex("2d0000")) == [bytes.fromhex("2d00000002")]
    world.run(2, hover(0.4, 0.0, 0.6))
    assert world.position == pytest.approx([0, 0, 0.6], abs=0.02)
    world.run(2, VELOCITY_WORLD)
    assert world.position == pytest.approx([0, 0, 0], abs=0.02)
    right = flying()
    right.run(2, VELOCITY_WORLD)
    assert right.velocity[0] == pytest.approx(0.3, abs=0.01)
    assert right.position[2] == pytest.approx(0.6, abs=0.02)


def test_hover_setpoints_turn_with_the_drone():
    world = flying()
    world.run(2, hover(0.0, 0.0, 0.6, yaw_rate=45.0))
    assert world.plant.yaw[0] == pytest.approx(math.pi / 2, abs=0.05)
    world.run(2, hover(0.3, 0.0, 0.6))
    assert world.velocity == pytest.approx([0, 0.3, 0], abs=0.02)


def reset_estimator(world, x, y, z, yaw):
    for at, value in enumerate((x, y, z, yaw)):
        world.send(struct.pack("<BHf", 0x2E, 3 + at, value))
    world.send(bytes.fromhex("2e0700 01"), bytes.fromhex("2e0700 00"))


def test_the_estimate_starts_where_it_is_told():
    """A wrong pose is not noticed on board: the drone flies in the world that it was told of."""
    world = World()
    reset_estimator(world, 1.0, 2.0, 0.0, math.pi / 2)
    world.take_off()
    world.run(2, hover(0.3, 0.0, 0.6))  # straight ahead: along the true x axis
    moved = world.position[0]
    assert moved > 0.4
    assert world.drone.estimate.position == pytest.approx([1, 2 + moved, 0.6], abs=0.02)
    assert world.drone.estimate.yaw == pytest.approx(math.pi / 2)
    assert world.drone.estimate.velocity == pytest.approx([0, 0.3, 0], abs=0.02)
    world.send(NOTIFY_STOP, struct.pack("<BBBBBfffff", 0x8C, 12, 0, 0, 0, 1.0, 2.0, 0.6, math.pi / 2, 2.0))
    world.run(4)
    assert world.position == pytest.approx([0, 0, 0.6], abs=0.02)


def test_positions_from_outside_are_taken_over():
    world = flying()
    world.send(struct.pack("<Bfff", 0x6C, 3.0, -1.0, 0.6))
    assert world.drone.estimate.position == pytest.approx([3, -1, 0.6])
    half = math.sqrt(0.5)
    world.send(struct.pack("<BBfffffff", 0x6D, 8, 1.0, 1.0, 0.6, 0.0, 0.0, half, half))
    assert world.drone.estimate.position == pytest.approx([1, 1, 0.6])
    world.run(0.05)
    assert world.drone.estimate.yaw - world.plant.yaw[0] == pytest.approx(math.pi / 2, abs=0.05)


def test_drift_shows_in_the_world_and_not_in_the_estimate():
    world = flying(drift=(0.05, 0.0, 0.0), yaw_drift=0.01)
    start, told = world.position.copy(), world.drone.estimate.position.copy()
    world.run(4, hover(0.0, 0.0, 0.6))
    assert world.position[0] - start[0] == pytest.approx(-0.2, abs=0.02)
    assert world.drone.estimate.position[0] - told[0] == pytest.approx(0, abs=0.02)
    assert world.drone.estimate.yaw - world.plant.yaw[0] == pytest.approx(0.04, abs=0.001)


def positions(said):
    return np.array([struct.unpack_from("<f", raw, 5)[0] for raw in said if raw[0] == 0x5E])


def log_x(world):
    world.send(bytes.fromhex("5d 06 01 77 0000"), bytes.fromhex("5d 03 01 01"))


def test_noise_is_on_what_the_drone_reports():
    world = flying(noise=0.02)
    log_x(world)
    seen = positions(world.run(5))
    assert seen.std() == pytest.approx(0.02, rel=0.15)
    assert abs(world.position[0]) < 1e-6


def test_latency_is_on_the_way_there_and_back():
    world = World()
    world.drone.inject(latency=0.1)
    asked = world.now
    world.send(bytes.fromhex("fc 01"))
    while not world.run(0.01):
        assert world.now < asked + 0.3
    assert world.now - asked == pytest.approx(0.2, abs=0.021)


def test_loss_is_of_setpoints_and_log_packets_only():
    world = flying(loss=0.3)
    log_x(world)
    seen = len(positions(world.run(4, hover(0.0, 0.0, 0.6), every=0.01)))
    assert seen == pytest.approx(280, rel=0.15)
    assert world.record.setpoints == pytest.approx(280, rel=0.15)
    assert len(world.send(*[bytes.fromhex("fc 01")] * 100)) == 100


def test_mute_deaf_and_dead():
    world = flying()
    world.drone.inject(mute=True)
    assert world.send(bytes.fromhex("fc 01")) == []
    world.run(1, hover(0.2, 0.0, 0.6))
    assert world.record.setpoints == 50  # it still hears
    world.drone.inject(mute=False, deaf=True)
    assert world.send(bytes.fromhex("fc 01")) == []
    world.run(1, hover(0.2, 0.0, 0.6))
    assert world.record.events == [(pytest.approx(world.now - 0.5, abs=0.05), "level")]
    world.drone.inject(deaf=False, dead=True)
    world.run(1, hover(0.2, 0.0, 0.6))
    assert world.position[2] == 0
    assert world.record.cut_offs == []  # nobody stopped them


def test_hanging_handshake_answers_all_but_the_tables():
    world = World(hang=True)
    assert len(world.send(bytes.fromhex("fd 00"), bytes.fromhex("dd 00"))) == 2
    assert world.send(bytes.fromhex("5c 03"), bytes.fromhex("2c 03")) == []


def test_tumbling_stops_the_motors():
    world = flying()
    world.drone.inject(tumble=True)
    world.run(1, hover(0.0, 0.0, 0.6))
    assert Health.TUMBLED in world.drone.health
    assert Health.CAN_FLY not in world.drone.health
    assert [cut.cause for cut in world.record.cut_offs] == ["tumbled"]
    assert world.position[2] == 0


def test_battery():
    world = World()
    rest = world.drone.battery
    world.take_off()
    assert rest - world.drone.battery == pytest.approx(0.2, abs=0.02)  # under load
    before = world.drone.battery
    world.run(3)
    assert before - world.drone.battery == pytest.approx(3 * 0.8 / 360, rel=0.01)
    world.drone.inject(battery=2.9)
    world.run(4.9)
    assert world.position[2] > 0.5  # it does not land by itself
    world.run(2)
    assert world.position[2] == 0
    assert world.send(bytes.fromhex("fc 01")) == []  # shut down


@pytest.mark.parametrize("fault", [{"loss": 1.5}, {"noise": -1.0}, {"latency": -0.1}])
def test_impossible_faults(fault):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Faults(**fault)
