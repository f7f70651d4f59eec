"""What tests of several devices run in processes of their own: XLA makes its devices once, when a process begins.

python -m tests.sharded devices
python -m tests.sharded hosts FOLDER COORDINATOR
"""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import legoswarm
from legoswarm.files import FileError
from legoswarm.learn.programs import Programs
from legoswarm.learn.train import configure
from legoswarm.policies.saved.trees import named_leaves, rebuild
from tests import tiny

assert tiny
MAPPO = {"policy": "tiny", "envs": 4, "rollout": 5, "epochs": 2, "minibatches": 2, "anneal": False}
ROUNDING = {"rtol": 2e-4, "atol": 2e-5}


def train(out, **options):
    return legoswarm.train("yard", out=out, **MAPPO, evaluations=2, eval_episodes=4, quiet=True, **options)


def assert_close(one, two):
    """Arrays by name, floats to rounding, all others bit by bit."""
    assert one.keys() == two.keys()
    for name, array in one.items():
        if array.dtype == np.float32:
            np.testing.assert_allclose(two[name], array, err_msg=name, **ROUNDING)
        else:
            np.testing.assert_array_equal(two[name], array, err_msg=name)


class Training:
    """Three iterations on some devices, the first one by itself."""

    def __init__(self, devices):
        self.programs = Programs(configure("yard", **MAPPO, steps=80), range(2), devices=devices)
        state = self.programs.first_state()
        self.programs.compile(state, measuring=False)
        self.first = named_leaves(self.programs.advance(state, 1)[0])
        self.last = self.resumed(self.first)

    def resumed(self, arrays):
        """What two more iterations make of a checkpoint."""
        state = self.programs.with_settings(rebuild(self.programs.skeleton, arrays, "checkpoint"))
        self.shards = [shard.data.shape[:2] for shard in state.worlds.position.addressable_shards]
        return named_leaves(self.programs.advance(state, 2)[0])


def devices():
    """Two seeds on two devices: bit for bit as on one, also from a checkpoint of two on one and the other way."""
    one, two = map(Training, (1, 2))
    assert (one.shards, two.shards) == ([(2, 4)], [(1, 4)] * 2)
    for other in (two.last, one.resumed(two.first), two.resumed(one.first)):
        for name, array in one.last.items():
            np.testing.assert_array_equal(other[name], array, err_msg=name)
    assert "all-reduce" not in two.programs._made["_advance"].as_text()  # rows know nothing of each other


def hosts(folder, coordinator):
    """Two processes of two devices each, with a world of one seed on each device.

    The first one is told who it is, the other one reads it from Slurm's variables, as in a job.
    """
    me = {} if coordinator == "auto" else {"processes": 2, "process": 0}
    out = Path(folder) / ("run" if me else "nothing")  # which only the first one may make
    train(out, steps=40, devices=2, coordinator=coordinator, **me)
    assert (jax.process_count(), jax.device_count(), jax.process_index()) == (2, 4, 0 if me else 1)
    assert [path.name for path in Path(folder).iterdir()] == ["run"]
    refused = "exists and is not an empty folder" if me else "process 0 has refused this run"
    with pytest.raises((FileError, ValueError), match=refused):
        train(out, steps=40, devices=2)


if __name__ == "__main__":
    {"devices": devices, "hosts": hosts}[sys.argv[1]](*sys.argv[2:])
