"""The version that processes compare is the one that is installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import lsm_core


def test_the_package_and_its_metadata_name_one_version() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["version"] == lsm_core.__version__
