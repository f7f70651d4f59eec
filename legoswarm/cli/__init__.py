"""The command line: a thin shell, each command calls one public function."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from legoswarm.cli.options import Parser, of, one_line, parse

# In which module the class of a command is, and what it does: the overview imports none of them.
COMMANDS = {
    "demo": ("evaluate", "train for about two minutes, evaluate on other team sizes, animate"),
    "train": ("train", "train policies"),
    "eval": ("evaluate", "evaluate a policy, or two of them head to head"),
    "watch": ("evaluate", "animate a trained policy"),
    "study": ("evaluate", "repeat the paper's tables and figures, part by part"),
    "report": ("evaluate", "draw one page from what studies measured"),
    "bench": ("train", "measure speed: training, compilation, worlds, acting"),
    "export": ("robots", "write a policy that runs without JAX: NumPy and ONNX"),
    "fly": ("robots", "fly pursuit and evasion on drones, real or simulated"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; errors of the user's are one sentence and exit code 2, or with --debug their traceback."""
    argv = list(sys.argv[1:] if argv is None else argv)
    _use_compilation_cache()  # JAX looks at it when it is imported
    name = argv[0] if argv and argv[0] in COMMANDS else _overview(argv)
    try:
        command = getattr(importlib.import_module(f"legoswarm.cli.{COMMANDS[name][0]}"), name.capitalize())
        given = parse(command, f"legoswarm {name}", argv[1:])
        command(**of(command, given)).run(shlex.join(["legoswarm", *argv]), given)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        sys.stderr.write(f"legoswarm {name}: interrupted\n")
        return 130
    except Exception as error:
        if (why := _sentence(error)) is None:
            raise
        sys.stderr.write(traceback.format_exc() if "--debug" in argv else f"legoswarm {name}: {one_line(why)}\n")
        return 2
    return 0


def _overview(argv: Sequence[str]) -> NoReturn:
    """Say what commands there are, or the version, or what is wrong with a line that does not begin with a command."""
    from importlib import metadata

    version = "from source"
    with contextlib.suppress(metadata.PackageNotFoundError):
        version = metadata.version("legoswarm")
    parser = Parser(prog="legoswarm", description="Equivariant swarm policies for any team size (LEGO-MAPPO).")
    parser.add_argument("--version", action="version", version=f"legoswarm {version}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (_, about) in COMMANDS.items():
        commands.add_parser(name, help=about, add_help=False)
    parser.parse_args(argv)
    parser.error("the command comes first")


def _sentence(error: Exception) -> object:
    """Return what to tell the user, or None if the mistake is ours."""
    from legoswarm.files import FileError

    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or error}"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # XLA's word for it
        return "there is not enough memory for this"
    return error if isinstance(error, ValueError | FileError) else None


def _use_compilation_cache() -> None:
    """Keep compiled programs between runs, in the user's cache folder unless the environment says otherwise."""
    with contextlib.suppress(RuntimeError):  # a user without a home
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "legoswarm"
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(home / "jax"))
        os.environ.setdefault("LEGOSWARM_PROGRAMS", str(home / "programs"))
    # XLA's log would doubt each program it finds there, for features that no CPU has (jax-ml/jax#38445).
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
