"""What studies left behind: their JSON files, and figures of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.files import FileError, read_json

VARIANTS = ("limit", "engine")  # fields of rows that a question must name to get them


def part_file(out: Path, study: str, part: str) -> Path:
    """Return where a part's result lies."""
    return out / study / f"{part}.json"


@dataclasses.dataclass(frozen=True)
class Results:
    """Holds all parts that are done, by study and name."""

    parts: dict[str, dict[str, dict[str, Any]]]

    @staticmethod
    def read(folder: Path) -> Results:
        """Read every result below a folder, and beside it the references that learn nothing."""
        parts: dict[str, dict[str, dict[str, Any]]] = {}
        for path in sorted(folder.glob("*/*.json")):
            value = read_json(path)
            if missing := sorted({"label", "scale", "command", "runs", "hardware", "content"} - set(value)):
                raise FileError(f"{path} is not a result of a study: {missing[0]!r} is missing")
            parts.setdefault(path.parent.name, {})[path.stem] = value
        for path in sorted(folder.parent.glob("references/*.json")):
            parts.setdefault("references", {})[path.stem] = {"label": path.stem, "scale": "full", **read_json(path)}
        return Results(parts)

    def study(self, name: str) -> list[dict[str, Any]]:
        """Return a study's parts."""
        return list(self.parts.get(name, {}).values())

    def labelled(self, study: str, label: str) -> list[dict[str, Any]]:
        """Return the parts of a study with a label."""
        return [part for part in self.study(study) if part["label"] == label]

    def planar_for_segnn(self) -> Results:
        """Return the same, with the planar form of SEGNN under its name in studies where SEGNN itself was not run."""

        def renamed(name: str) -> str:
            return name.replace("segnn-planar", "segnn")

        parts = {}
        for study, members in self.parts.items():
            labels = [part["label"] for part in members.values() if part["label"].startswith("segnn")]
            itself = any("planar" not in label for label in labels)
            stand_in = {renamed(name): {**part, "label": renamed(part["label"])} for name, part in members.items()}
            parts[study] = members if itself else stand_in
        return Results(parts)

    def values(self, study: str, label: str, figure: str, **where: Any) -> np.ndarray:
        """Return a figure, one value for each seed, of a label's rows that say what `where` says."""
        where = {**dict.fromkeys(VARIANTS), **where}
        rows = [row for part in self.labelled(study, label) for row in part.get("rows", ())]
        fits = [row for row in rows if all(row.get(name) == value for name, value in where.items())]
        return np.array([row[figure] for row in fits if row.get(figure) is not None], float)

    def curve(self, study: str, label: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Return steps and values (points, seeds) of a learning curve, without seeds that lack a number at a point."""
        for part in self.labelled(study, label):
            if part.get("curve", {}).get("steps"):
                values = np.array(part["curve"]["values"], float)
                known = values[:, np.isfinite(values).all(0)]
                return (np.array(part["curve"]["steps"], float), known) if known.size else None
        return None
