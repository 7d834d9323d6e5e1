"""A compaction broken at I/O steps: the table reads as before, a retry compacts it, nothing wrong is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.strides import strides
from tests.maintenance.faults import broken_at_steps
from tests.maintenance.tables import keyed, rows


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("template")
    table = keyed(place)
    for i in range(3):
        table.write(rows(range(i, i + 8), v=10 * i))
    return place


@strides(29)
def test_a_compaction_broken_at_its_steps(template: Path, tmp_path: Path, stride: int) -> None:
    broken_at_steps(
        template,
        tmp_path,
        lambda table: table.compact(full=True),
        lambda table: {h.sorted_runs for h in table.health()} == {1},
        least=30,
        stride=stride,
    )
