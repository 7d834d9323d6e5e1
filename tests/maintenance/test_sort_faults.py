"""A sort compaction broken at every single I/O step: the same rows, a retry sorts them, nothing wrong is left."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lsm_core import Schema
from tests.maintenance.faults import broken_at_every_step
from tests.maintenance.tables import catalog

_SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


def test_a_sort_broken_at_every_step(tmp_path: Path) -> None:
    made = catalog(tmp_path / "template").create_table("db.t", Schema(_SCHEMA, options={"bucket": "-1"}))
    for start in range(2):
        made.write(pa.table({"a": range(start, 40, 2), "b": [str(i % 7) for i in range(20)]}, schema=_SCHEMA))
    broken_at_every_step(
        tmp_path / "template",
        tmp_path,
        lambda table: table.compact(order_by=["b", "a"], strategy="zorder"),
        lambda table: len(table.plan_scan()[0].files) == 1,
        least=25,
    )
