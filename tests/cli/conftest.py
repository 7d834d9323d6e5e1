"""Fixture with a small warehouse for tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.maintenance.tables import keyed, rows


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    table = keyed(tmp_path, partitioned=True)
    for i in range(5):
        table.write(rows(range(20), v=i, dt="a"))
    table.write(rows(range(3), dt="b"))
    return Shell(tmp_path / "wh", capsys)
