"""A sort compaction broken at I/O steps: the same rows, a retry sorts them, nothing wrong is left."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lsm_core import Schema
from tests.faults.strides import strides
from tests.maintenance.faults import broken_at_steps
from tests.maintenance.tables import catalog

_SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


@strides(29)
def test_a_sort_broken_at_its_steps(tmp_path: Path, stride: int) -> None:
    made = catalog(tmp_path / "template").create_table("db.t", Schema(_SCHEMA, options={"bucket": "-1"}))
    for start in range(2):
        made.write(pa.table({"a": range(start, 40, 2), "b": [str(i % 7) for i in range(20)]}, schema=_SCHEMA))
    broken_at_steps(
        tmp_path / "template",
        tmp_path,
        lambda table: table.compact(order_by=["b", "a"], strategy="zorder"),
        lambda table: len(table.plan_scan()[0].files) == 1,
        least=25,
        stride=stride,
    )
