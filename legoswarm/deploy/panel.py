"""What people tell a guard in flight: keys, a gamepad, and Ctrl-C of the process that started it."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

KEYS = "keys: space stops all motors, 1 to 9 those of one drone, l lands everybody"


class Panel:
    """Collects orders: `land`, `stop`, or the name of a drone to stop.

    `wire` is a pipe on which the other process writes `l` for a first Ctrl-C and a space for a second; `terminal` is
    where keys are typed, if there is one: as long as the other process has it, what is typed is for the drones. With
    `gamepad` any button of any gamepad stops all, and one that is unplugged lands all (pygame, extra `gamepad`).
    """

    def __init__(self, names: Sequence[str], wire: int | None, terminal: int | None, gamepad: bool = False):
        self._names, self._parent = list(names), os.getppid()
        self._terminal = None if terminal is None else _own_view(terminal)
        self._sources = [source for source in (wire, self._terminal) if source is not None]
        self._pygame: Any = _start_gamepads() if gamepad else None

    def __call__(self) -> list[str]:
        """Return the orders since the last call."""
        orders = []
        for source in select.select(self._sources, [], [], 0)[0]:
            keys = b""
            with contextlib.suppress(OSError):  # a terminal that has gone
                keys = os.read(source, 64)
            if not keys or (source == self._terminal and not self._attended()):
                self._sources.remove(source)
                continue
            orders += self._read(keys.decode("ascii", "ignore"))
        if self._pygame is not None:
            happened = {event.type for event in self._pygame.event.get()}  # all, or they would fill the queue
            orders += ["stop"] * (self._pygame.JOYBUTTONDOWN in happened)
            orders += ["land"] * (self._pygame.JOYDEVICEREMOVED in happened)
        return orders

    def _read(self, keys: str) -> list[str]:
        """Return what keys mean that came at once; those of an arrow or of F5 are several, and mean nothing."""
        if "\x1b" in keys:
            return []
        known = {" ": "stop", "l": "land"}
        if len(keys) == 1:
            known |= {str(at): name for at, name in enumerate(self._names[:9], 1)}
        return [known[key] for key in keys if key in known]

    def _attended(self) -> bool:
        """Return whether the process that started this one has the terminal still: not if it ended or was stopped.

        What is typed then is for the shell.
        """
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{self._parent}/stat").read_text().rpartition(")")[2].split()[0]
            return os.getppid() == self._parent and state not in "TtZX"
        return os.getppid() == self._parent


def _own_view(terminal: int) -> int:
    """Open a terminal once more, for reads that never wait, since others read from it too; a pipe stays what it is."""
    try:
        return os.open(os.ttyname(terminal), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return terminal


def _start_gamepads() -> Any:
    """Have pygame listen to all gamepads; no window is needed."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS", "1")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError:
        raise ValueError("a gamepad needs pygame: pip install 'legoswarm[gamepad]'") from None
    try:
        pygame.display.init()
        pygame.joystick.init()
    except pygame.error as error:
        raise ValueError(f"gamepads cannot be used: {error}") from None
    pads = [pygame.joystick.Joystick(at) for at in range(pygame.joystick.get_count())]
    if not pads:
        raise ValueError("there is no gamepad")
    for pad in pads:
        pad.init()
    return pygame


@contextlib.contextmanager
def key_by_key(terminal: int | None) -> Iterator[None]:
    """Have a terminal hand over keys at once instead of line by line; Ctrl-C and the like stay what they are."""
    if terminal is None:
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSANOW)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)
