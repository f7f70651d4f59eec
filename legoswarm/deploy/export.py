"""Export: one seed of a LEGO policy as a policy file and, for each controlled role, as an ONNX file.

An ONNX file holds the actor of one role with its frames, its leash and the limit on actions; it is recorded from the
NumPy runtime. docs/export.md says how to run it.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from legoswarm.deploy.actor import mask_nearest
from legoswarm.deploy.runtime import Runtime, load_runtime
from legoswarm.files import FileError, write_bytes
from legoswarm.layout import TIE, Layout

if TYPE_CHECKING:
    from legoswarm.policies.saved.act import Swarm

TOLERANCE = 1e-4  # of what JAX says, relative to the largest action of a scene or to 1
CHECKED_SCENES = 20  # of each of two team sizes that a file is checked with


def export_policy(name: str | Path, out: str | Path, seed: int | None = None, onnx: bool = True) -> list[Path]:
    """Write one seed, by default the best, into a new folder; return the files, each complete and checked."""
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileError(f"{out} exists and is not an empty folder; choose another --out")
    runtime = load_runtime(name, seed)
    from legoswarm.policies.saved.act import Swarm
    from legoswarm.policies.saved.file import load_policy, save_policy

    file = load_policy(name).only(runtime.seed)
    models = record_all(runtime) if onnx else {}
    for role, model in models.items():
        check(model, role, Swarm(file))
    out.mkdir(parents=True, exist_ok=True)
    save_policy(out, file)
    for role, model in models.items():
        write_bytes(out / f"{role}.onnx", model)
    return sorted(out.iterdir())


def record_all(runtime: Runtime) -> dict[str, bytes]:
    """Return the ONNX file of each controlled role."""
    roles = runtime.controlled_roles
    if odd := [role for role in roles if not re.fullmatch(r"[\w-]+", role)]:
        raise ValueError(f"the role {odd[0]!r} cannot be the name of an ONNX file; leave ONNX out with --no-onnx")
    try:
        import onnxruntime as _  # noqa: F401

        from legoswarm.deploy.record import Recorder
    except ModuleNotFoundError:
        raise ValueError("ONNX files need the extra: pip install 'legoswarm[onnx]', or say --no-onnx") from None
    return {role: _record(Recorder(), runtime, at) for at, role in enumerate(roles)}


def _record(recorder: Any, runtime: Runtime, own: int) -> bytes:
    """Record the runtime's code for one role as a graph from the arrays of a scene, of any size, to actions."""
    about = runtime.description
    positions = recorder.input("positions", np.eye(3, 2), "entities", 2)
    velocities = recorder.input("velocities", np.eye(3, 2), "entities", 2)
    roles = recorder.input("roles", np.arange(3), "entities")
    agents = recorder.input("agents", np.arange(2), "agents")
    visible = recorder.input("visible", np.ones((2, 3), bool), "agents", "entities")
    relative = (positions - np.take(positions, agents, axis=0)[:, None]).astype(np.float32)
    velocity = velocities.astype(np.float32)
    mine = np.take(velocity, agents, axis=0)
    number = np.cumsum(roles * 0 + 1) - 1
    mask = (roles == np.arange(len(runtime.roles))[:, None, None]) & visible & (number != agents[:, None])
    actor = _one(runtime.actors, own)
    with np.errstate(all="ignore"):  # the examples that symbols carry mean nothing
        square = np.vecdot(relative, relative)
        if math.isfinite(about.sensing):
            radii = [np.inf if about.layout.each(role) else about.sensing for role in runtime.roles]
            mask = mask & (square < ((1 - TIE) * np.square(radii)).astype(np.float32)[:, None, None])
        if near := getattr(about.config, "nearest", 0):  # they are masked: how many there are is no part of a graph
            mask = mask_nearest(near, square, mask)
        seen = mine[None], relative[None, None], velocity[None, None, None], mask[None]
        actions = about.limit(actor(about.config, *seen))[0]
    facts = {"roles": list(runtime.roles), "role": runtime.roles[own], "limit": str(about.limit), "task": about.task}
    facts["seed"] = runtime.seed
    texts = {name: fact if isinstance(fact, str) else json.dumps(fact) for name, fact in facts.items()}
    return recorder.finish(runtime.roles[own], "actions", actions, ("agents", 2), texts)


def _one(actors: Any, own: int) -> Any:
    """Return the weights of one controlled role alone."""
    if not isinstance(actors, tuple):
        return actors[own : own + 1]
    parts = [_one(part, own) for part in actors]
    return type(actors)(*parts) if hasattr(actors, "_fields") else tuple(parts)


def check(model: bytes, role: str, swarm: Swarm) -> None:
    """Compare an ONNX file with JAX on random scenes of the team it was trained with, and of a larger one."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for more in (0, 1):
        trained = swarm.file.layout
        agents = np.maximum(trained.slots[: trained.controlled], 1) + more
        each = [trained.each(role) for role in trained.roles[trained.controlled :]]
        objects = np.maximum(trained.slots[trained.controlled :], 1) + more
        objects = np.where(each, np.multiply(each, agents.sum()), objects)  # of private roles, as many for each agent
        kinds = np.repeat(np.arange(len(swarm.roles)), [*agents, *objects])
        team = Layout(trained.roles, tuple(np.bincount(kinds).tolist()), trained.controlled, private=trained.private)
        names = [swarm.roles[kind] for kind in kinds]
        mine = np.flatnonzero(kinds == swarm.roles.index(role))
        for _ in range(CHECKED_SCENES):
            positions, velocities = rng.uniform(-1, 1, (2, len(kinds), 2))
            visible = (rng.uniform(size=(team.agents, team.entities)) < 0.8) & team.owned
            expected = swarm.act(positions, velocities, names, visible)
            inputs = {"positions": positions, "velocities": velocities, "roles": kinds, "agents": mine}
            found = session.run(["actions"], {**inputs, "visible": visible[mine]})[0]
            error = np.abs(found - expected[mine]).max() / max(1.0, np.abs(expected).max())
            if not error <= TOLERANCE:
                raise ValueError(f"the ONNX file for {role} differs from JAX by {error:.1e}; nothing was written")
