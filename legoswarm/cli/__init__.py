"""The command line: a thin shell, each command calls one public function."""

from __future__ import annotations

import _thread
import contextlib
import importlib
import os
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from legoswarm.cli.options import Parser, of, one_line, parse
from legoswarm.fast.caches import use_caches
from legoswarm.own import import_own

# In which module the class of a command is, and what it does: the overview imports none of them.
COMMANDS = {
    "demo": ("evaluate", "see it all in about two minutes: train a policy, try it with other teams, draw it"),
    "train": ("train", "train a policy on a task"),
    "eval": ("evaluate", "measure how good a policy is, or let two policies meet"),
    "curves": ("evaluate", "draw how trainings went: learning curves of runs"),
    "watch": ("evaluate", "animate a trained policy; without one, open the live page"),
    "page": ("evaluate", "write the live page: one HTML file in which a policy runs and you take part"),
    "study": ("evaluate", "repeat the paper's tables and figures"),
    "report": ("evaluate", "draw one page of all that studies have measured"),
    "sweep": ("train", "search for the options with which training works best"),
    "bench": ("train", "measure how fast this machine trains, simulates and acts"),
    "export": ("robots", "write a policy as files that run without JAX (NumPy, ONNX)"),
    "fly": ("robots", "fly a policy on drones, real or simulated"),
}

ENDS_AT_ONCE = ("eval", "watch", "page", "curves", "report")  # on Ctrl-C: they leave nothing behind
GRACE = 2.0  # seconds for the main thread to end by itself


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; errors of the user's are one sentence and exit code 2, or with --debug their traceback."""
    own_process = argv is None
    argv = words = list(sys.argv[1:] if argv is None else argv)
    use_caches()  # JAX looks at them when it is imported
    name = argv[0] if argv and argv[0] in COMMANDS else _overview(argv)
    at_once = own_process and name in ENDS_AT_ONCE
    try:
        if at_once:
            _end_on_interrupt(name)
        argv = _import_own(argv)
        command = getattr(importlib.import_module(f"legoswarm.cli.{COMMANDS[name][0]}"), name.capitalize())
        given = parse(command, f"legoswarm {name}", argv[1:])
        command(**of(command, given)).run(shlex.join(["legoswarm", *words]), given)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        sys.stderr.write(f"legoswarm {name}: interrupted\n")
        if at_once:
            sys.stderr.flush()
            os._exit(130)  # XLA may be compiling, and crashes when Python ends meanwhile
        return 130
    except Exception as error:
        if (why := _sentence(error)) is None:
            raise
        sys.stderr.write(traceback.format_exc() if "--debug" in argv else f"legoswarm {name}: {one_line(why)}\n")
        return 2
    return 0


def _end_on_interrupt(name: str) -> None:
    """Let Ctrl-C end this process, also while XLA compiles and Python does not get to run, or something swallows it.

    A thread waits for it and interrupts the main thread; where that does not end soon, the thread ends the process.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # of this thread and all that it starts from now on

    def wait() -> None:
        signal.sigwait({signal.SIGINT})
        _thread.interrupt_main()
        time.sleep(GRACE)
        sys.stderr.write(f"legoswarm {name}: interrupted\n")
        sys.stderr.flush()
        os._exit(130)

    threading.Thread(target=wait, daemon=True).start()


def _import_own(argv: Sequence[str]) -> list[str]:
    """Import what `--import FILE` names, before options are looked at: it may bring more of them. Return the rest."""
    rest: list[str] = []
    words = iter(part for word in argv for part in (word.split("=", 1) if word.startswith("--import=") else [word]))
    for word in words:
        if word == "--import":
            if (name := next(words, None)) is None:
                raise ValueError("--import needs the name of a file such as my_task.py, or of a module")
            import_own(name)
        else:
            rest.append(word)
    return rest


def _overview(argv: Sequence[str]) -> NoReturn:
    """Say what commands there are, or the version, or what is wrong with a line that does not begin with a command."""
    from importlib import metadata

    version = "from source"
    with contextlib.suppress(metadata.PackageNotFoundError):
        version = metadata.version("legoswarm")
    parser = Parser(
        prog="legoswarm",
        description="Train one policy that steers a swarm of any size (by the method LEGO), evaluate it, watch it,"
        " and fly it on robots. Begin with: legoswarm demo",
    )
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
