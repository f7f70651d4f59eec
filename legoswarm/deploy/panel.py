"""What people tell a guard in flight: keys, a gamepad, and Ctrl-C of the process that started it."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator, Sequence
from typing import Any

KEYS = "keys: space stops all motors, 1 to 9 those of one drone, l lands everybody"


class Panel:
    """Collects orders: `land`, `stop`, or the name of a drone to stop.

    `wire` is a pipe on which the other process writes `l` for a first Ctrl-C and a space for a second; `terminal` is
    where keys are typed, if there is one. With `gamepad` any button of any gamepad stops all (pygame, extra `gamepad`).
    """

    def __init__(self, names: Sequence[str], wire: int | None, terminal: int | None, gamepad: bool = False):
        self._names = list(names)
        self._sources = [source for source in (wire, terminal) if source is not None]
        self._pygame: Any = _start_gamepads() if gamepad else None

    def __call__(self) -> list[str]:
        """Return the orders since the last call."""
        orders = []
        for source in select.select(self._sources, [], [], 0)[0]:
            keys = b""
            with contextlib.suppress(OSError):  # a terminal that has gone
                keys = os.read(source, 64)
            if not keys:
                self._sources.remove(source)
            orders += [order for key in keys.decode("ascii", "ignore") if (order := self._order(key))]
        if self._pygame is not None and self._pygame.event.get(self._pygame.JOYBUTTONDOWN):
            orders.append("stop")
        return orders

    def _order(self, key: str) -> str | None:
        if key in "123456789" and int(key) <= len(self._names):
            return self._names[int(key) - 1]
        return {" ": "stop", "l": "land"}.get(key)


def _start_gamepads() -> Any:
    """Have pygame listen to all gamepads; no window is needed."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS", "1")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError:
        raise ValueError("a gamepad needs pygame: pip install 'legoswarm[gamepad]'") from None
    pygame.display.init()
    pygame.joystick.init()
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
