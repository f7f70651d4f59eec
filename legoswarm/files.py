"""Files: JSON and safetensors only, each written beside its name and renamed into place."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import save


class FileError(Exception):
    """A file that is missing, damaged or not what it should be; the message is one sentence for a person."""


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give the path to errors that do not name it, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Give a file to write in the same folder, with the same suffix; it is renamed to `path` if all goes well."""
    part = path.with_name(f".{path.stem}.part{os.getpid()}{path.suffix.lower()}")
    try:
        with naming(path):
            yield part
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` as a whole or not at all, also if the machine stops half-way."""
    with beside(path) as part, open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON."""
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def finite(value: Any, digits: int | None = None) -> Any:
    """Return a value as JSON knows it: arrays as lists, None for what is not finite, rounded to so many digits."""
    if isinstance(value, dict):
        return {name: finite(each, digits) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [finite(each, digits) for each in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(value) if digits is None else round(float(value), digits)
    return value


def check_regular(path: Path) -> None:
    """Refuse what is not a plain file: a pipe or a device may never end, or never begin."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise FileError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise FileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(mode):
        raise FileError(f"{path} is not a plain file")


def read_text(path: Path) -> str:
    """Read a file of text."""
    check_regular(path)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path} is damaged: it is not text in UTF-8") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    text = read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise FileError(f"{path} is damaged: it is not valid JSON") from None
    if not isinstance(value, dict):
        raise FileError(f"{path} is damaged: it does not hold a JSON object")
    return value


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays as safetensors."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    write_bytes(path, save(contiguous))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read named arrays."""
    check_regular(path)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, TypeError, AttributeError, safetensors.SafetensorError) as error:
        # NumPy has no attribute for some of the format's number types, such as float8.
        raise FileError(f"{path} is damaged: it is not a complete safetensors file ({error})") from None


def check_array(array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, name: str, source: str) -> None:
    """Refuse an array that is not what it should be, or not finite."""
    if array.shape != shape or array.dtype != dtype:
        raise FileError(
            f"{source} does not fit the architecture it claims: {name!r} is {array.dtype}{list(array.shape)},"
            f" not {dtype}{list(shape)}"
        )
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        raise FileError(f"{source} is damaged: {name!r} holds values that are not finite")
