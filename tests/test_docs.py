"""README and documents: links lead somewhere, the example does what it says, and no figure is typed by hand."""

import importlib
import inspect
import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest

from legoswarm.cli import COMMANDS
from legoswarm.cli.options import parse
from legoswarm.files import FileError
from legoswarm.studies.markdown import PLACE

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def anchors(page):
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            linked = page.parent / name if name else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), target


def test_the_readmes_example_covers_the_landmarks(capsys):
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(code) == 1
    names = {}
    exec(code[0], names)
    agents, landmarks = names["positions"][:6], names["positions"][6:]
    assert np.linalg.norm(agents[:, None] - landmarks, axis=-1).min(0).max() < 0.15
    assert capsys.readouterr().out


def test_code_beside_the_equations_is_that_of_the_package():
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs/method.md").read_text(), re.DOTALL)
    source = "".join(path.read_text() for path in (ROOT / "legoswarm").rglob("*.py"))
    bare, *blocks = (re.sub(r"(?m)^ +", "", text) for text in (source, *code))
    assert len(blocks) > 5
    assert not [block for block in blocks if block not in bare]


def test_the_tutorials_robots_cover_their_places():
    example = runpy.run_path(str(ROOT / "examples/robots.py"))
    assert inspect.getsource(example["command"]) in (ROOT / "docs/start.md").read_text()
    asked = example["command"](np.zeros((2, 2)), np.zeros((2, 2)), np.array([[1.5, 1.5], [-1.5, 1.0]]))
    assert 0.1 < np.linalg.norm(asked, axis=1).max() <= example["TOP_SPEED"] + 1e-9
    paths, places, broken = example["simulate"]()
    working = np.delete(paths[-1], broken, axis=0)
    assert np.linalg.norm(places[:, None] - working, axis=-1).min(1).max() < 0.1
    assert np.linalg.norm(places - paths[-1][broken], axis=-1).min() > 0.4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_the_options_that_documents_give_them(page):
    text = page.read_text()
    blocks = re.findall(r"```(?:bash)?\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in re.findall(r"^(?:\w+=\S+ )*legoswarm (.+)$", block, re.MULTILINE)]
    lines += re.findall(rf"(?<!`)`legoswarm ((?:{'|'.join(COMMANDS)}) [^`]+)`", text)
    for words in (shlex.split(re.sub(r" [NKX]\b", " 1", line), comments=True) for line in lines):
        command = importlib.import_module(f"legoswarm.cli.{COMMANDS[words[0]][0]}")
        try:
            parse(getattr(command, words[0].capitalize()), page.name, words[1:])
        except SystemExit as end:
            assert not end.code, shlex.join(words)  # noqa: PT017, --help ends too, with 0
        except (FileError, ValueError) as error:
            if not re.search("runs/|--import|demo", str(error)):  # what only readers have
                raise


@pytest.mark.parametrize(("tool", "page"), [("scale", "scale.md"), ("outside", "own-environment.md")])
def test_tables_are_those_that_tools_print(tool, page):
    names = runpy.run_path(str(ROOT / "tools" / f"{tool}.py"))
    for table in names["TABLES"]:
        assert names[table]() in (ROOT / "docs" / page).read_text(), table


def test_the_tables_of_flights_are_those_of_the_results():
    tool = runpy.run_path(str(ROOT / "tools/flight_tables.py"))
    page = (ROOT / "docs/flights.md").read_text()
    assert tool["page"](page) == page


@pytest.mark.parametrize("name", ["README.md", "docs/results.md"])
def test_no_figure_stands_outside_what_is_generated(name):
    """Numbers with a decimal point or a per cent sign are results; those of the protocol have neither."""
    text = (ROOT / name).read_text()
    text = text[text.index("## Results") : text.index("## More")] if name == "README.md" else text
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", PLACE.sub("", text))
    assert set(re.findall(r"-?\d+\.\d+|\d+ %", prose)) <= {"5 %", "1 %", "95 %"}  # levels of significance


def test_the_readme_has_one_table_and_five_findings_of_a_line():
    results = (ROOT / "README.md").read_text().split("## Results")[1].split("## More")[0]
    assert len(re.findall(r"^(?:\| --- )+\|$", results, re.MULTILINE)) == 1
    assert results.count("\n- ") == 5
