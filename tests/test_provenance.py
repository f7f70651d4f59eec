"""Versions, hardware and revision: JAX names the device only where it is imported already."""

import subprocess
import sys

import jax
import numpy as np

from legoswarm.provenance import _revision, provenance


def test_the_device_is_jaxs_where_jax_is_imported(monkeypatch):
    device = jax.devices()[0]
    found = provenance()
    assert found["hardware"]["device"] == f"{device.platform}: {device.device_kind}"
    assert found["versions"]["numpy"] == np.__version__
    assert set(found) == {"versions", "hardware", "revision"}
    monkeypatch.delitem(sys.modules, "jax")
    assert provenance()["hardware"] == {**found["hardware"], "device": "cpu"}
    assert "jax" not in sys.modules


def test_versions_of_other_packages_are_told_where_they_are_installed():
    versions = provenance("pytest", "a-package-that-is-not-here")["versions"]
    assert set(versions) == {*provenance()["versions"], "pytest"}


def test_a_revision_is_dirty_if_more_than_results_changed(tmp_path):
    """Files that a measurement replaces do not change the source."""

    def git(*words):
        who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert _revision(tmp_path) is None
    git("init", "-q")
    (tmp_path / "package").mkdir()
    (tmp_path / "results").mkdir()
    for name in ("package/code.py", "results/measured.json"):
        (tmp_path / name).write_text("1")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    head = git("rev-parse", "HEAD").strip()
    (tmp_path / "results/measured.json").unlink()
    (tmp_path / "results/more.json").write_text("2")
    assert _revision(tmp_path / "package") == head
    (tmp_path / "package/code.py").write_text("2")
    assert _revision(tmp_path / "package") == f"{head}-dirty"
