"""Print the tables of docs/scale.md, or count what the devices of a row exchange in one iteration.

python tools/scale.py
XLA_FLAGS=--xla_force_host_platform_device_count=2 python tools/scale.py volume results/scale/volume.json
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
# Assumed, from data sheets: bytes a second of one GPU to the others, and seconds until a collective operation begins.
LINKS = {"NVLink": (450e9, 15e-6), "InfiniBand": (50e9, 40e-6)}
TABLES = ("measured", "plan")  # of docs/scale.md
SIZES = {"f32": 4, "s32": 4, "u32": 4, "pred": 1}


def volume(out: str) -> None:
    """Count collective operations and their bytes in the compiled program of MAPPO's MLP, worlds on two devices."""
    from legoswarm.learn.programs import Programs
    from legoswarm.learn.train import configure
    from legoswarm.policies.networks.roles import count_parameters, make_policies
    from legoswarm.provenance import provenance

    config = configure("spread", "mappo", "mappo", agents=3)
    programs = Programs(config, (0,), devices=2)
    programs.compile(programs.first_state(), measuring=False)
    found = {"all-reduce": [0, 0], "all-gather": [0, 0]}
    for line in programs._made["_advance"].as_text().splitlines():
        if operation := re.search(r"= (.*) (all-reduce|all-gather)\(", line):
            shapes = re.findall(r"(\w+)\[([\d,]*)\]", operation[1])
            size = sum(SIZES[kind] * math.prod(map(int, filter(None, shape.split(",")))) for kind, shape in shapes)
            found[operation[2]] = [found[operation[2]][0] + 1, found[operation[2]][1] + size]
    import jax

    parameters = count_parameters(make_policies(config.policy, config.task.layout, key=jax.random.key(0)))
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "worlds": config.algorithm.envs,
        "rollout": config.algorithm.rollout,
        "parameters": sum(parameters.values()),
        "operations": {name: {"count": count, "bytes": size} for name, (count, size) in found.items()},
        **provenance(),
    }
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(json.dumps(report, indent=2) + "\n")


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def measured() -> str:
    """Return the table of seeds on virtual devices."""
    lines = ["| devices | seconds | CPU seconds | speed-up |", "|---|---|---|---|"]
    rows = _read("scale/seeds.json")["rows"]
    for row in rows:
        seconds = f"{row['run_seconds']:.2f} | {row['cpu_seconds']:.2f}"
        lines.append(f"| {row['devices']} | {seconds} | {rows[0]['run_seconds'] / row['run_seconds']:.2f} |")
    return "\n".join(lines)


def plan() -> str:
    """Return what more GPUs would give LEGO with three agents, from one H200 and from what devices exchange."""
    one, ten = (_read(f"speed/training-n3-{count}.json")["rows"][0] for count in ("1seed", "10seeds"))
    plain, fused = (_read(f"speed/switches-{kind}.json")["rows"][0]["run_seconds"] for kind in ("kernels", "default"))
    exchanged = _read("scale/volume.json")["operations"]
    iterations = one["steps"] // 3200
    work = (ten["run_seconds"] - one["run_seconds"]) / 9  # seconds that another seed costs
    rest = one["run_seconds"] - work  # seconds that pass however little there is to do
    gradient_steps = one["epochs"] * one["minibatches"]
    gradients = 4 * (one["actor_parameters"] + one["critic_parameters"])

    def exchange(devices: int, link: str, worlds: int) -> float:
        """Return the seconds that a row's devices exchange during the whole run."""
        bandwidth, latency = LINKS[link]
        share = (devices - 1) / devices
        step = exchanged["all-reduce"]["count"] * latency + 2 * share * gradients / bandwidth
        rollout = exchanged["all-gather"]
        gather = rollout["count"] * latency + share * rollout["bytes"] * worlds / 128 / bandwidth
        return iterations * (gradient_steps * step + gather)

    rows = [
        ("1 seed", 1, 1, one["run_seconds"], "measured"),
        ("10 seeds", 1, 10, ten["run_seconds"], "measured"),
        ("8 seeds", 8, 8, one["run_seconds"], "nothing is exchanged"),
        ("80 seeds", 8, 80, ten["run_seconds"], "nothing is exchanged"),
        ("64 seeds", 64, 64, one["run_seconds"], "nothing is exchanged"),
        ("640 seeds", 64, 640, ten["run_seconds"], "nothing is exchanged"),
    ]
    for devices, link in ((8, "NVLink"), (64, "InfiniBand")):
        for worlds, load in ((128, 1 / devices), (128 * devices, 1.0)):
            sent = exchange(devices, link, worlds)
            seconds = plain / fused * (rest + work * load) + sent
            label = f"1 seed, {worlds:,} worlds"
            rows.append((label, devices, worlds // 128, seconds, f"{sent:.2f} s of it for exchange over {link}"))
    lines = [
        "| what | GPUs | seconds | million steps a second | of GPUs x 1 seed each | |",
        "|---|---|---|---|---|---|",
    ]
    for label, devices, batches, seconds, why in rows:
        speed = batches * one["steps"] / seconds
        lines.append(
            f"| {label} | {devices} | {seconds:.1f} | {speed / 1e6:.2f}"
            f" | {speed / devices / one['env_steps_per_second']:.0%} | {why} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["volume"]:
        volume(sys.argv[2])
    else:
        print(measured(), plan(), sep="\n\n")
