"""The command line with linear maps in place of the networks that studies train at the smallest scale.

They compile in a fraction of the time. What the methods are has tests of its own, and what ships in the zoo stays.
"""

import os
import subprocess
import sys
from pathlib import Path

import jax

from legoswarm.cli import main


def run(*words):
    """Run a command in a process of its own; the compiler makes its older kernels, if it still can, in less time."""
    settings = {"PYTHONPATH": str(Path(__file__).parent.parent), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    option = {"xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x, compiler_options=option).lower(0.0).compile()
        settings["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false"
    except jax.errors.JaxRuntimeError:  # there is no such option; as a flag it would end the process
        pass
    command = [sys.executable, "-m", "tests.linear", *words]
    return subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)


def use_linear_maps():
    """Let every method of the studies build linear maps at that scale."""
    from legoswarm.policies.policy import POLICIES
    from legoswarm.studies.catalogue import METHODS
    from legoswarm.studies.part import SCALES
    from tests.tiny import TinyPolicy

    def instead_of(build):
        def built(policy, *where, key):
            small = policy.width == SCALES["tiny"].policy["width"]
            return (TinyPolicy.build if small else build)(policy, *where, key=key)

        return built

    for name in METHODS:
        POLICIES[name].build = instead_of(POLICIES[name].build)


if __name__ == "__main__":
    use_linear_maps()
    sys.exit(main())
