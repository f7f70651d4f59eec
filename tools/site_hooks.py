"""Hooks of mkdocs: what the site has beside docs/, so that links which lead out of that folder work on GitHub and here.

README.md is the first page, `tools/site_reference.py` makes the reference from the code, and a file or folder outside
docs/ that a page links to becomes a page of its own.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tools.site_reference import PAGES  # noqa: E402

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")  # where a link leads, but for its anchor
AS_THEY_ARE = (".md", ".png", ".gif", ".svg")
HIDDEN = "---\nsearch: {exclude: true}\n---\n\n"


def draw_math(source: str, *_: Any, **__: Any) -> str:
    """Return an equation in LaTeX, as GitHub draws it too, as MathML, which browsers draw by themselves."""
    return f'<div class="math">{convert(source, display="block")}</div>'


def on_files(files: Files, config: Any) -> Files:
    """Add the first page, the reference, and what pages link to outside docs/."""
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / "README.md")))
    for name, make in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=make()))
    todo = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    while todo:
        for target in sorted(_targets(todo.pop())):
            name = _place(target)
            if target.exists() and name.startswith("files/") and name not in files.src_uris:
                inclusion = {"inclusion": InclusionLevel.NOT_IN_NAV}
                if target.suffix in AS_THEY_ARE:
                    todo += [target] if target.suffix == ".md" else []
                    files.append(File.generated(config, name, abs_src_path=str(target), **inclusion))
                else:
                    files.append(File.generated(config, name, content=_show(target), **inclusion))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links lead where the site has what they name."""
    here = page.file.src_uri
    if page.parent is None:
        page.meta["hide"] = ["navigation"]  # a page without neighbours
    origin = _origin(here)
    if origin is None:
        return markdown
    folder = posixpath.dirname(here) or "."
    return LINK.sub(lambda found: posixpath.relpath(_place(_target(origin, found[1])), folder), markdown)


def _origin(uri: str) -> Path | None:
    """Return the Markdown file that a page of the site is made from, if it has links to follow."""
    if uri == "index.md":
        return ROOT / "README.md"
    origin = ROOT / uri.removeprefix("files/") if uri.startswith("files/") else ROOT / "docs" / uri
    return origin if origin.exists() else None


def _targets(page: Path) -> Iterator[Path]:
    return (_target(page, found[1]) for found in LINK.finditer(page.read_text()))


def _target(page: Path, link: str) -> Path:
    return Path(os.path.normpath(page.parent / link))


def _place(target: Path) -> str:
    """Return where the site has a file of the repository."""
    path = target.relative_to(ROOT).as_posix()
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"files/{path}" + ("" if target.suffix in AS_THEY_ARE else ".md")


def _show(target: Path) -> str:
    """Return a page with what a file says, or which files a folder has."""
    head = f"{HIDDEN}# {target.relative_to(ROOT)}\n\n"
    if target.is_dir():
        names = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
        return head + "This folder of the repository holds these files.\n\n" + "\n".join(f"- `{n}`" for n in names)
    text = escape(target.read_text()) if target.suffix != ".py" else target.read_text()
    return head + (f"```python\n{text}\n```" if target.suffix == ".py" else f"<pre><code>{text}</code></pre>")
