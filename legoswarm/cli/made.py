"""Files that commands make: their paths on stdout, and how to open them on stderr."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

_OPENERS = {"darwin": "open", "win32": "start"}  # by platform


def say_made(path: Path) -> None:
    """Print the path of a file that a command has made, and beside it, for people, how to open it."""
    print(path, flush=True)
    print(how_to_open(path), file=sys.stderr)


def how_to_open(path: Path) -> str:
    """Return a sentence that says how to open a page, a picture or an animation."""
    how = "Open it in a browser" if path.suffix == ".html" else "Look at it"
    return f"{how}: {_OPENERS.get(sys.platform, 'xdg-open')} {shlex.quote(str(path))}"
