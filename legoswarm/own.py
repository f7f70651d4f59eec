"""What users bring and ask for: importing their code, commands that know it, folders that are free; free of JAX."""

from __future__ import annotations

import importlib
import itertools
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

_imported: list[str] = []


def import_own(name: str) -> None:
    """Import a file such as `my_task.py` or a module by its name: what it registers is known from then on.

    Its folder is added to Python's path, so that processes that a run starts find it too.
    """
    path = Path(name)
    if path.suffix == ".py":
        if not path.is_file():
            raise ValueError(f"{name} does not exist, so it cannot be imported")
        folder, module = str(path.resolve().parent), path.stem
        if folder not in sys.path:
            sys.path.insert(0, folder)
    else:
        module = name
    loaded = sys.modules.get(module)
    if path.suffix == ".py" and loaded and Path(loaded.__file__ or "").resolve() != path.resolve():
        raise ValueError(f"{name} cannot be imported: another module is called {module}")
    try:
        importlib.import_module(module)
    except Exception as error:
        raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    if name not in _imported:
        _imported.append(name)


def imported() -> list[str]:
    """Return what `import_own` has imported, files by their whole paths: for processes elsewhere."""
    return [str(Path(name).resolve()) if name.endswith(".py") else name for name in _imported]


def command(*words: object) -> str:
    """Return a command line that works as this process was started, such as `.venv/bin/legoswarm eval RUN`."""
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    own = script.endswith(".py") and Path(script).name != "__main__.py" and "site-packages" not in script
    called = sys.argv[0] if Path(sys.argv[0]).name == "legoswarm" and not shutil.which("legoswarm") else "legoswarm"
    start = ["python", script] if own else [called]
    return shlex.join([*start, *map(str, words), *_options()])


def _options() -> Sequence[str]:
    return [word for name in _imported for word in ("--import", name)]


def free_folder(parent: Path, stem: str) -> Path:
    """Return parent/stem, or the first that does not exist of stem-1, stem-2 and so on."""
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(1)))
    return next(path for name in names if not (path := parent / name).exists())
