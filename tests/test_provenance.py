"""Versions, hardware and revision: JAX names the device only where it is imported already."""

import sys

import jax
import numpy as np

from legoswarm.provenance import provenance


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
