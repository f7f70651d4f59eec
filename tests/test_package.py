"""Ready to publish: wheel and source archive hold what they should, and the wheel works by itself."""

import importlib.metadata
import os
import re
import site
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
USE = """
import legoswarm, numpy, os
assert os.environ["WHERE"] in legoswarm.__file__, legoswarm.__file__
policy = legoswarm.load("zoo:spread")
assert policy.act(numpy.eye(2), numpy.zeros((2, 2)), ["agent", "landmark"]).shape == (1, 2)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the source archive."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return out


def test_the_wheel_holds_the_package_and_nothing_else(built):
    (path,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(path).namelist())
    assert names >= {"legoswarm/py.typed", "legoswarm/zoo/spread.safetensors", "legoswarm/zoo/spread.json"}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"legoswarm"}
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "legoswarm").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == ours


def test_the_source_archive_builds_the_same(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "legoswarm/py.typed"}
    assert not any(name.startswith(("results/", "runs/")) for name in names)


def test_the_wheel_works_in_an_environment_of_its_own(built, tmp_path):
    """Its dependencies are those of this interpreter; `tools/check_versions.py` installs them too."""
    venv.create(tmp_path / "venv")
    (packages,) = (tmp_path / "venv").glob("lib/*/site-packages")
    (path,) = built.glob("*.whl")
    zipfile.ZipFile(path).extractall(packages)
    lent = [place for place in site.getsitepackages() if Path(place).is_dir()]
    (packages / "lent.pth").write_text("\n".join(lent))
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(tmp_path / "venv" / "bin" / "python"), "-c", USE]
    subprocess.run(command, cwd=tmp_path, check=True, env={**surroundings, "WHERE": str(packages)})


def test_the_version_stands_in_one_place():
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == PROJECT["version"]
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()
    assert importlib.metadata.version("legoswarm") == PROJECT["version"]
