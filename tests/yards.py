"""A study of three parts on a Ray cluster of two machines, one of which is killed: `python -m tests.yards FOLDER`.

It is also what the processes of the cluster import, to know the study.
"""

import os
import sys
import threading
import time
from pathlib import Path

import ray

from legoswarm.own import import_own
from legoswarm.studies.catalogue import STUDIES, Study
from legoswarm.studies.part import SCALES, Part, Training
from legoswarm.studies.run import Setup, run_studies
from legoswarm.studies.sweep import sweep
from tests.tiny import Yard

FOLDER = "YARDS"  # the environment variable that names the folder


def noted(name):
    """What writes down where a part was begun, and waits where the machine is to be lost."""

    def measure(policies, scale):
        here, folder = ray.get_runtime_context().get_node_id(), Path(os.environ[FOLDER])
        with open(folder / "begun", "a") as file:
            file.write(f"{name} {here}\n")
        while (folder / "doomed").read_text() == here:
            time.sleep(0.1)
        return {"node": here}

    return measure


STUDIES["yards"] = Study(
    "three parts", lambda scale: [Part(f"p{n}", (Training(Yard(), "tiny", 100),), (noted(f"p{n}"),)) for n in range(3)]
)


def main(folder):
    from ray.cluster_utils import Cluster

    os.environ |= {FOLDER: str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    soon = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000}  # a lost machine is noticed in 5 s
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": soon})
    second = cluster.add_node(num_cpus=1)
    (folder / "doomed").write_text(second.node_id)

    def kill():
        begun = folder / "begun"
        while not begun.exists() or second.node_id not in begun.read_text():
            time.sleep(0.1)
        cluster.remove_node(second, allow_graceful=False)

    threading.Thread(target=kill, daemon=True).start()
    ray.init(cluster.address, log_to_driver=False)
    import_own("tests.yards")
    setup = Setup(SCALES["tiny"], 1, folder / "runs", folder / "out", ("tiny",), "a test")
    run_studies(["yards"], setup, engine="ray", cpus=1)
    small = {"policy": "tiny", "envs": 4, "rollout": 5, "epochs": 1, "minibatches": 1, "steps": 20, "eval_episodes": 2}
    grid = {"sampler": "grid", "out": folder / "sweep", "evaluations": 1}
    sweep("yard", ["lr=0.001,0.1"], engine="ray", cpus=1, **grid, **small)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
