"""Several devices and hosts: seeds divided are bit for bit those of one device, worlds divided the same to rounding."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import legoswarm
from legoswarm.cli import main
from legoswarm.fast.sharding import columns, device_grid, divided, join
from legoswarm.files import read_arrays
from legoswarm.learn.folder import RunFolder
from tests import sharded

ROOT = Path(__file__).parent.parent
SLURM_PORTS = 2**16 - 2**12


def start(count, *words, **variables):
    """A process with so many devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    settings = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "tests.sharded", *map(str, words)]
    return subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def check(*processes):
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)


def free_port():
    """One of the ports that JAX chooses from a Slurm job's number."""
    for port in range(SLURM_PORTS + os.getpid() % 4000, 2**16):
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("localhost", port))
            return port
    raise AssertionError("no port is free")


@pytest.mark.slow
def test_devices_of_one_process():
    check(start(2, "devices"))


@pytest.mark.slow
def test_two_processes_of_two_devices_train_one_run(tmp_path):
    port = free_port()
    second = {"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "localhost"}
    both = tmp_path / "both"
    both.mkdir()
    check(
        start(2, "hosts", both, f"localhost:{port}"),
        start(2, "hosts", both, "auto", **second, SLURM_JOB_ID=str(port - SLURM_PORTS)),
    )
    assert len(RunFolder(both / "run").read_metrics()) == 2
    runs = sharded.train(tmp_path / "alone", steps=80), legoswarm.resume_run(both / "run", steps=80, devices=1)
    for name in ("policy", "checkpoint"):
        sharded.assert_close(*(read_arrays(run.path / f"{name}.safetensors") for run in runs))
    assert [row["steps"] for row in runs[1].read_metrics()] == [20, 40, 60, 80]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--devices 0", "devices must be at least 1, not 0"),
        ("--devices 64", "a process here has 1 device(s), not 64; XLA_FLAGS="),
        ("--processes 2 --process 0", "processes need a coordinator"),
        ("--coordinator localhost:1", "how many processes there are and which one this is"),
        ("--coordinator localhost:1 --process 0", "how many processes there are and which one this is"),
        ("--coordinator auto --process 0", "or auto alone"),
        ("--coordinator localhost:1 --processes 2 --process 2", "the process must be one of 0 to 1, not 2"),
    ],
)
def test_devices_that_cannot_be(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(f"train yard --policy tiny --envs 4 --rollout 5 --steps 20 {words}".split()) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_worlds_that_live_outside_are_on_one_device(tmp_path):
    with pytest.raises(ValueError, match="it trains on one device of one machine"):
        legoswarm.train("mpe2-spread", "tiny", devices=2, out=tmp_path / "run", envs=4, rollout=5, steps=20)


def test_one_device_has_no_grid():
    assert device_grid(1, 3, 7) is None
    assert columns() == 1
    assert divided(rows := [1, 2], 0) is not rows  # a tree of the same leaves
    join(None)
