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
from legoswarm.deploy.runtime import load_runtime
assert os.environ["WHERE"] in legoswarm.__file__, legoswarm.__file__
policy = load_runtime("zoo:spread")
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


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_it_is_installed_into_an_empty_environment(built, tmp_path, kind):
    """Its dependencies are those of this interpreter; `tools/check_versions.py` installs them too."""
    venv.create(tmp_path / "venv")
    python, (packages,) = tmp_path / "venv" / "bin" / "python", (tmp_path / "venv").glob("lib/*/site-packages")
    lent = [place for place in site.getsitepackages() if Path(place).is_dir()]
    (packages / "lent.pth").write_text("\n".join(lent))
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    (archive,) = built.glob(kind)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index"]
    subprocess.run([*install, "--no-build-isolation", str(archive)], check=True, env=surroundings, capture_output=True)
    subprocess.run([python, "-c", USE], cwd=tmp_path, check=True, env={**surroundings, "WHERE": str(packages)})


def test_the_version_stands_in_one_place():
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == PROJECT["version"]
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()
    assert importlib.metadata.version("legoswarm") == PROJECT["version"]
