"""What studies left behind: their JSON files, and figures of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.files import FileError, read_json

VARIANTS = ("limit", "engine")  # fields of rows that a question must name to get them


def part_file(out: Path, study: str, part: str) -> Path:
    """Where a part's result lies."""
    return out / study / f"{part}.json"


@dataclasses.dataclass(frozen=True)
class Results:
    """All parts that are done, by study and name."""

    parts: dict[str, dict[str, dict[str, Any]]]

    @staticmethod
    def read(folder: Path) -> Results:
        """Read every result below a folder."""
        parts: dict[str, dict[str, dict[str, Any]]] = {}
        for path in sorted(folder.glob("*/*.json")):
            value = read_json(path)
            if missing := sorted({"label", "scale", "command", "runs", "hardware", "content"} - set(value)):
                raise FileError(f"{path} is not a result of a study: {missing[0]!r} is missing")
            parts.setdefault(path.parent.name, {})[path.stem] = value
        return Results(parts)

    def study(self, name: str) -> list[dict[str, Any]]:
        """A study's parts."""
        return list(self.parts.get(name, {}).values())

    def labelled(self, study: str, label: str) -> list[dict[str, Any]]:
        """The parts of a study with a label; where SEGNN is missing, those of its planar form."""
        parts = self.study(study)
        found = [part for part in parts if part["label"] == label]
        return found or [part for part in parts if part["label"].replace("segnn-planar", "segnn") == label]

    def values(self, study: str, label: str, figure: str, **where: Any) -> np.ndarray:
        """A figure, one value for each seed: of the rows of the parts of a label that say what `where` says."""
        where = {**dict.fromkeys(VARIANTS), **where}
        rows = [row for part in self.labelled(study, label) for row in part.get("rows", ())]
        fits = [row for row in rows if all(row.get(name) == value for name, value in where.items())]
        return np.array([row[figure] for row in fits if row.get(figure) is not None], float)

    def curve(self, study: str, label: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Steps and values (points, seeds) of a learning curve."""
        for part in self.labelled(study, label):
            if part.get("curve", {}).get("steps"):
                return np.array(part["curve"]["steps"], float), np.array(part["curve"]["values"], float)
        return None
