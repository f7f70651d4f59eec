"""The lock on the device: trainings share it, what is timed has it alone."""

import tempfile
import threading

import pytest

from legoswarm.fast.device_lock import device_lock


@pytest.mark.parametrize("alone", [(False, False), (False, True), (True, False), (True, True)])
def test_what_is_timed_runs_alone(alone, tmp_path, monkeypatch, capfd):
    """Two trainings share the machine; where one of the two is timed, the second one waits."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    events = []

    def second():
        with device_lock(alone=alone[1]):
            events.append("second")

    with device_lock(alone=alone[0]):
        other = threading.Thread(target=second)
        other.start()
        other.join(10 if not any(alone) else 0.3)
        events.append("first")
    other.join(10)
    assert events == (["first", "second"] if any(alone) else ["second", "first"])
    assert ("waiting for another run" in capfd.readouterr().err) == any(alone)


def test_without_a_place_for_locks_nobody_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with device_lock(alone=True), device_lock():
        pass
