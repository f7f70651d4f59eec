"""Traced programs, kept between runs.

JAX's compilation cache is keyed by the traced program, so every start traces all of it anew: most of the time that a
start from that cache takes. Here the traced program is kept under all that decides it: what the caller says, the source
of this package, versions, JAX's settings and the machine.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax import export

from legoswarm.fast.caches import FOLDER as FOLDER
from legoswarm.fast.switches import VARIABLE, switch
from legoswarm.files import write_bytes
from legoswarm.provenance import provenance

TRITON = ("__gpu$xla.gpu.triton", "triton_kernel_call", "triton_kernel_call_ffi")  # where this JAX is the only reader
UNCHECKED = [export.DisabledSafetyCheck.custom_call(name) for name in TRITON]


def kept(fun: Callable[..., Any], args: Any, decides: Any) -> Callable[..., Any]:
    """Return a function, or what was traced of it for such arguments, from its file or into it.

    `decides` is what decides the traced program beside the arguments' shapes, as JSON; None: it is not kept.
    """
    path = _file(fun.__name__, args, decides)
    if path is None:
        return fun
    with contextlib.suppress(OSError, ImportError):
        check, data = (whole := path.read_bytes())[:32], whole[32:]
        if hashlib.sha256(data).digest() == check:  # a damaged one is made anew
            return export.deserialize(bytearray(data)).call
    try:
        [device] = jax.tree.leaves(args)[0].devices()
        where = ["cpu"] if device.platform == "cpu" else None  # the first state is made there, beside a GPU too
        traced = export.export(jax.jit(fun), platforms=where, disabled_checks=UNCHECKED)(*args)
        data = bytes(traced.serialize())
        path.parent.mkdir(parents=True, exist_ok=True)
        if _source() == SOURCE:  # or else what was traced is not what the key says
            write_bytes(path, hashlib.sha256(data).digest() + data)
    except (OSError, ImportError, ValueError, NotImplementedError):  # no room, or nothing that JAX can keep
        return fun
    return traced.call


def _file(name: str, args: Any, decides: Any) -> Path | None:
    """Return where a program is kept; None where it is not."""
    folder = os.environ.get(FOLDER)
    if not folder or decides is None or switch("programs", "on") == "off":
        return None
    leaves = [f"{leaf.dtype}{leaf.shape}{getattr(leaf, 'weak_type', False)}" for leaf in jax.tree.leaves(args)]
    settings = {
        name: str(getattr(jax.config, name, value)) for name, value in jax.config.values.items() if "cache" not in name
    }
    variables = [os.environ.get(name) for name in ("XLA_FLAGS", VARIABLE)]
    key = json.dumps([name, decides, leaves, _surroundings(), settings, variables], sort_keys=True)
    return Path(folder) / hashlib.sha256(key.encode()).hexdigest()


def _source() -> str:
    """Return a hash of the package's source as it is now."""
    package = Path(__file__).resolve().parents[1]
    source = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        source.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return source.hexdigest()


SOURCE = _source()  # when it was imported: it may be changed while a process runs


@functools.cache
def _surroundings() -> list[Any]:
    """Return what does not change while a process runs: the package's source, versions and the machine."""
    around = provenance()
    steerable = [f"{each.name} {each.version}" for each in importlib.metadata.distributions(name="e3nn-jax")]
    return [SOURCE, around["versions"], steerable, around["hardware"], jax.devices()[0].client.platform_version]
