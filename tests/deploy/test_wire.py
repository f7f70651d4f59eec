"""Golden bytes, row by row of the protocol's table, and cflib's own packets as a second opinion."""

import numpy as np
import pytest
from simulated import World

from legoswarm.deploy.sitl import crtp
from legoswarm.deploy.sitl.drone import LOG, PARAMETERS

QUESTIONS = {
    "15:0 echo": ("fc 01 aa 55", "fc 01 aa 55"),
    "15:1 source": ("fd 00", "fd" + b"Bitcraze Crazyflie".hex() + "00" * 12),
    "13:1 protocol version": ("dd 00", "dd 00 0c"),
    "5:1 log reset": ("5d 05", "5d 05 00 00"),
    "5:1 log create": ("5d 06 01 77 0000 88 0300", "5d 06 01 00"),
    "5:1 log create, no such variable": ("5d 06 01 77 ff00", "5d 06 01 02"),
    "5:1 log create, too large": ("5d 06 01" + "77 0000" * 7, "5d 06 01 07"),
    "5:1 log append to no block": ("5d 07 09 77 0000", "5d 07 09 02"),
    "5:1 log start of no block": ("5d 03 09 02", "5d 03 09 02"),
    "5:0 log table": ("5c 03", f"5c 03 0c00 {LOG.checksum.to_bytes(4, 'little').hex()} 10 80"),
    "5:0 log entry": ("5c 02 0000", "5c 02 0000 07" + b"stateEstimate\0x\0".hex()),
    "5:0 no such log entry": ("5c 02 0c00", "5c 02"),
    "2:0 parameter table": ("2c 03", f"2c 03 0a00 {PARAMETERS.checksum.to_bytes(4, 'little').hex()}"),
    "2:0 parameter entry": ("2c 02 0000", "2c 02 0000 08" + b"stabilizer\0controller\0".hex()),
    "2:0 read-only entry": ("2c 02 0800", "2c 02 0800 48" + b"deck\0bcFlow2\0".hex()),
    "2:1 read": ("2d 0000", "2d 0000 00 01"),
    "2:1 read, no such parameter": ("2d 0a00", "2d 0a00 02"),
    "2:2 write": ("2e 0300 0000c03f", "2e 0300 0000c03f"),
    "2:2 write to a read-only one": ("2e 0800 07", "2e 0800 01"),
    "4:0 memories": ("4c 01", "4c 01 00"),
    "9:0 supervisor": ("9c 0c", "9c 8c 0f00"),
    "9:1 arm": ("9d 01 01", "9d 81 01 01"),
    "9:1 recover": ("9d 02", "9d 82 01 01"),
}
SILENT = {
    "15:3 null": "ff",
    "9:1 emergency-stop watchdog": "9d 04",
    "6:2 others' positions": "6e 01 e803 0000 f401",
    "7:0 setpoint that is not modelled": "7c 0b 00",
    "7:0 damaged setpoint": "7c 0a 00 00",
    "8:0 order that is not modelled": "8c 00 00",
    "8:0 damaged order": "8c 07 00",
    "no such port": "1c 00",
}


@pytest.mark.parametrize("row", QUESTIONS)
def test_questions_and_answers(row):
    question, answer = (bytes.fromhex(text) for text in QUESTIONS[row])
    assert World().send(question) == [answer]


@pytest.mark.parametrize("row", SILENT)
def test_what_is_not_answered(row):
    world = World()
    assert world.send(bytes.fromhex(SILENT[row])) == []
    assert not world.drone.commander.motors


def test_life_of_a_log_block():
    world = World((1.5, -2.0, 0.0), battery=3.75)
    create = bytes.fromhex("5d 06 02 77 0000 77 0100 88 0700 22 0800")
    assert world.send(create, create) == [bytes.fromhex("5d 06 02 00"), bytes.fromhex("5d 06 02 11")]
    assert world.send(bytes.fromhex("5d 07 02 88 0500")) == [bytes.fromhex("5d 07 02 00")]
    assert world.run(0.05) == []
    assert world.send(bytes.fromhex("5d 03 02 02")) == [bytes.fromhex("5d 03 02 00")]
    said = world.run(0.1)
    assert [len(raw) for raw in said] == [1 + 4 + 4 + 4 + 2 + 2 + 2] * 5
    when = int.from_bytes(said[0][2:5], "little")
    assert when == pytest.approx(100_070, abs=1)
    golden = "5e 02" + when.to_bytes(3, "little").hex() + "0000c03f 000000c0 8043 0f00 0000"
    assert said[0] == bytes.fromhex(golden)
    assert np.diff([int.from_bytes(raw[2:5], "little") for raw in said]).tolist() == pytest.approx([20] * 4, abs=1)
    assert world.send(bytes.fromhex("5d 04 02")) == [bytes.fromhex("5d 04 02 00")]
    assert world.run(0.1) == []
    assert world.send(bytes.fromhex("5d 02 02"), bytes.fromhex("5d 03 02 02")) == [
        bytes.fromhex("5d 02 02 00"),
        bytes.fromhex("5d 03 02 02"),
    ]


def hover(velocity, yaw_rate, height):
    return crtp.Motion((None, None, height), velocity, yaw_rate=yaw_rate, own_frame=True)


SETPOINTS = {
    "00": crtp.Stop(),
    "06 e803 d007 f401 6400 38ff 0000 0000 0000 0000 00000000 0000 0000 0000": crtp.Motion(
        (1.0, 2.0, 0.5), (0.1, -0.2, 0.0)
    ),
    "07 0000803f 00000040 0000003f 0000b442": crtp.Motion((1.0, 2.0, 0.5), yaw=90.0),
    "08 0000003f 000000bf 0000803e 00002041": crtp.Motion(velocity=(0.5, -0.5, 0.25), yaw_rate=10.0),
    "0a 0000003f 000000bf 00002041 0000803e": hover((0.5, -0.5, 0.0), 10.0, 0.25),
    "0a 0000003f 0000c07f 00002041 0000803e": None,  # not a number
    "": None,
}
ORDERS = {
    "03 00": crtp.Stop(),
    "07 00 0000003f 0000803f 00 00000040": crtp.Order((None, None, 0.5), 1.0, 2.0),
    "07 00 0000003f 0000803f 01 00000040": crtp.Order((None, None, 0.5), None, 2.0),
    "08 00 00000000 00000000 01 00004040": crtp.Order((None, None, 0.0), None, 3.0, lands=True),
    "0c 00 01 00 0000803f 000000bf 00000000 00000000 00000040": crtp.Order((1.0, -0.5, 0.0), 0.0, 2.0, relative=True),
    "": None,
}


@pytest.mark.parametrize("data", SETPOINTS)
def test_setpoints(data):
    assert crtp.read_setpoint(bytes.fromhex(data)) == SETPOINTS[data]


@pytest.mark.parametrize("data", ORDERS)
def test_orders(data):
    assert crtp.read_order(bytes.fromhex(data)) == ORDERS[data]


def test_packets_have_a_size():
    assert crtp.split(crtp.packet(5, 2, bytes(30))) == (5, 2, bytes(30))
    with pytest.raises(ValueError, match="30 bytes"):
        crtp.packet(5, 2, bytes(31))


class Host:
    """As much of cflib's Crazyflie as its commanders ask for; keeps the packets that they send."""

    def __init__(self):
        self.sent = []
        self.platform = self

    def get_protocol_version(self):
        return crtp.PROTOCOL_VERSION

    def send_packet(self, packet):
        self.sent.append(bytes([packet.get_header()]) + bytes(packet.data))


def test_setpoints_as_cflib_writes_them():
    from cflib.crazyflie.commander import Commander
    from cflib.crazyflie.high_level_commander import HighLevelCommander

    host = Host()
    low, high = Commander(host), HighLevelCommander(host)
    low.send_hover_setpoint(0.5, -0.25, 0, 0.75)
    low.send_velocity_world_setpoint(0.5, -0.25, 0.125, 0)
    low.send_position_setpoint(1, 2, 0.5, 90)
    low.send_full_state_setpoint([1, 2, 0.5], [0.1, -0.2, 0], [0, 0, 0], [0, 0, 0, 1], 0, 0, 0)
    low.send_stop_setpoint()
    low.send_notify_setpoint_stop()
    low.send_setpoint(0, 0, 0, 0)
    high.takeoff(0.5, 2.0, yaw=None)
    high.land(0.0, 3.0, yaw=None)
    high.go_to(1, 2, 3, 0.5, 4.0)
    high.stop()
    hovering, velocity, position, full, stop, notify, zero, *orders = host.sent
    assert crtp.read_setpoint(hovering[1:]) == hover((0.5, -0.25, 0.0), 0.0, 0.75)
    assert crtp.read_setpoint(velocity[1:]) == crtp.Motion(velocity=(0.5, -0.25, 0.125))
    assert crtp.read_setpoint(position[1:]) == crtp.Motion((1.0, 2.0, 0.5), yaw=90.0)
    assert crtp.read_setpoint(full[1:]) == crtp.Motion((1.0, 2.0, 0.5), (0.1, -0.2, 0.0))
    assert crtp.read_setpoint(stop[1:]) == crtp.Stop()
    assert {raw[0] for raw in host.sent[:5]} == {0x7C}
    assert (notify, zero) == (bytes.fromhex("7d 00 00000000"), bytes.fromhex("3c" + "00" * 14))
    assert {raw[0] for raw in orders} == {0x8C}
    assert [crtp.read_order(raw[1:]) for raw in orders] == [
        crtp.Order((None, None, 0.5), None, 2.0),
        crtp.Order((None, None, 0.0), None, 3.0, lands=True),
        crtp.Order((1.0, 2.0, 3.0), 0.5, 4.0),
        crtp.Stop(),
    ]
