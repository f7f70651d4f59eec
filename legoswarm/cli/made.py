"""Files that commands make: their paths on stdout, and how to open them on stderr."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

_OPENERS = {"darwin": "open", "win32": "start"}  # by platform


def say_made(path: Path) -> None:
    """Print the path of a file that a command has made, and beside it, for people, how to open it."""
    print(path, flush=True)
    hint(how_to_open(path))


def hint(words: str) -> None:
    """Tell people, on stderr, what they can do next."""
    print(words, file=sys.stderr, flush=True)


def how_to_open(path: Path) -> str:
    """Return a sentence that says how to open a page, a picture, an animation or a file of JSON."""
    if path.suffix == ".json":
        return f"Read it: python3 -m json.tool {shlex.quote(str(path))}"
    how = "Open it in a browser" if path.suffix == ".html" else "Look at it"
    return f"{how}: {_OPENERS.get(sys.platform, 'xdg-open')} {shlex.quote(str(path))}"
