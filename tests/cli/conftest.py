"""Fixture with a small warehouse for tests of the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.maintenance.tables import keyed, rows


@pytest.fixture(scope="session")
def warehouse_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a warehouse with a table of six commits; writing them takes longer than most tests of a verb."""
    place = tmp_path_factory.mktemp("template")
    table = keyed(place, partitioned=True)
    for i in range(5):
        table.write(rows(range(20), v=i, dt="a"))
    table.write(rows(range(3), dt="b"))
    return place / "wh"


@pytest.fixture
def shell(warehouse_template: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Return a runner of verbs on a copy of the template."""
    shutil.copytree(warehouse_template, tmp_path / "wh")
    return Shell(tmp_path / "wh", capsys)
