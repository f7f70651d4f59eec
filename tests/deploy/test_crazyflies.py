"""crazyflies.yaml: Crazyswarm2's format, and clear words about damaged files."""

import os

import pytest

from legoswarm.deploy.crazyflies import Crazyflie, read_crazyflies
from legoswarm.files import FileError

# As Crazyswarm2 ships it, with three robots.
WHOLE = """
fileversion: 3
robots:
  cf231:
    enabled: true
    uri: radio://0/80/2M/E7E7E7E7E7
    initial_position: [0.0, 0.5, 0.0]
    type: cf21
    battery:
      voltage_critical: 3.6
  cf5:
    enabled: false
    uri: radio://0/80/2M/E7E7E7E705
    initial_position: [0, -0.5, 0]
    type: cf21_mocap_deck
  cf6:
    uri: udp://127.0.0.1:19850
    initial_position: [1, -0.5, 0]
robot_types:
  cf21:
    motion_capture:
      tracking: "librigidbodytracker"
    big_quad: false
    battery:
      voltage_warning: 3.8
      voltage_critical: 3.7
all:
  battery:
    voltage_warning: 3.5
    voltage_critical: 3.4
  firmware_logging:
    enabled: false
  firmware_params:
    stabilizer:
      estimator: 2
      controller: 2
  reference_frame: "world"
"""

# A billion keys, were they all merged.
MERGE_BOMB = "fileversion: 3\na0: &a0 {x: 1}\n" + "".join(
    f"a{at + 1}: &a{at + 1} {{<<: [{', '.join([f'*a{at}'] * 10)}], x{at}: 1}}\n" for at in range(9)
)


def written(tmp_path, text):
    path = tmp_path / "crazyflies.yaml"
    path.write_text(text)
    return path


def test_robot_before_type_before_all(tmp_path):
    firmware = {"stabilizer.estimator": 2.0, "stabilizer.controller": 2.0}
    assert read_crazyflies(written(tmp_path, WHOLE.replace("cf21_mocap_deck", "cf21"))) == [
        Crazyflie("cf231", "radio://0/80/2M/E7E7E7E7E7", (0.0, 0.5, 0.0), 3.8, 3.6, firmware),
        Crazyflie("cf6", "udp://127.0.0.1:19850", (1.0, -0.5, 0.0), 3.5, 3.4, firmware),
    ]


def test_what_is_not_needed_may_be_left_out(tmp_path):
    text = "{fileversion: 3, robots: {1: {uri: 'udp://a:1', initial_position: [0, 0, 0]}}}"
    assert read_crazyflies(str(written(tmp_path, text))) == [Crazyflie("1", "udp://a:1", (0.0, 0.0, 0.0))]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("fileversion: 3", "fileversion: 2", "fileversion 3"),
        ("fileversion: 3", "fileversion: [", "not valid YAML"),
        ("fileversion: 3", "- 3", "not valid YAML"),
        ("fileversion: 3", "fileversion: !!python/object:os.system 3", "not valid YAML"),
        ("type: cf21\n", "type: cf99\n", "type cf99, which robot_types does not have"),
        ("[0.0, 0.5, 0.0]", "[0.0, 0.5]", "cf231 needs an initial_position"),
        ("[0.0, 0.5, 0.0]", "[0.0, .nan, 0.0]", "cf231 needs an initial_position"),
        ("[0.0, 0.5, 0.0]", "somewhere", "cf231 needs an initial_position"),
        ("[0.0, 0.5, 0.0]", f"[0.0, 1{400 * '0'}, 0.0]", "cf231 needs an initial_position"),
        ("    uri: radio://0/80/2M/E7E7E7E7E7\n", "", "cf231 needs a uri"),
        ("uri: radio://0/80/2M/E7E7E7E7E7", "uri: 80", "cf231 needs a uri"),
        ("radio://0/80/2M/E7E7E7E7E7", "udp://127.0.0.1:19850", "two robots the same uri"),
        ("voltage_critical: 3.6", "voltage_critical: low", "voltage_critical of robot cf231 is not a number"),
        ("    battery:\n      voltage_critical: 3.6", "    battery: 3.6", "battery is not a mapping"),
        ("  cf6:", "  cf231:", "has the key cf231 twice"),
        ("estimator: 2", "estimator: kalman", "stabilizer.estimator of robot cf231 is not a number"),
        (
            "tracking:",
            "enabled: true\n      tracking:",
            "flies by motion capture, so say where",
        ),
        ("    enabled: false\n  firm", "    enabled: true\n    custom_topics: {a: 1}\n  firm", "custom_topics"),
        ("big_quad: false", "big_quad: &x 1\n    small: *x", "uses YAML aliases"),
        ("fileversion: 3", MERGE_BOMB, "uses YAML aliases"),
        ("fileversion: 3", "fileversion: " + "[" * 20_000, "more than 100 brackets"),
    ],
)
def test_damaged_files(tmp_path, old, new, sentence):
    assert old in WHOLE
    with pytest.raises(FileError, match=sentence):
        read_crazyflies(written(tmp_path, WHOLE.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "fileversion 3"),
        ("drones", "the file is not a mapping"),
        ("fileversion: 3", "no robot that is enabled"),
        ("{fileversion: 3, robots: [cf1]}", "robots is not a mapping"),
        ("{fileversion: 3, robots: {cf1: on}}", "robot cf1 is not a mapping"),
        ("{fileversion: 3, robots: {cf1: {enabled: false}}}", "no robot that is enabled"),
    ],
)
def test_files_of_another_shape(tmp_path, text, sentence):
    with pytest.raises(FileError, match=sentence):
        read_crazyflies(written(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        read_crazyflies(tmp_path / "none.yaml")
    with pytest.raises(FileError, match="is not a plain file"):
        read_crazyflies(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not text in UTF-8"):
        read_crazyflies(tmp_path / "bytes.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")  # nobody ever writes into it
    with pytest.raises(FileError, match="is not a plain file"):
        read_crazyflies(tmp_path / "pipe.yaml")
