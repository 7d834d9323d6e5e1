"""A compaction beside writers that commit all the time is published: its base catches up with them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.commit.conflicts import BaseEntries

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
OTHERS = 20


def test_commits_that_come_while_the_base_is_read_cost_no_attempt_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    options = {"bucket": "1", "commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms"}
    table = catalog.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options=options))
    other = catalog.table("db.t")
    for number in range(3):
        table.write(pa.table({"k": [1], "v": [number]}, schema=FIELDS))
    read, left = BaseEntries.at, OTHERS

    def slow(self: BaseEntries, *arguments: object, **named: object) -> pa.Table:
        nonlocal left
        found = read(self, *arguments, **named)
        if left:
            left -= 1
            with monkeypatch.context() as patch:
                patch.setattr(BaseEntries, "at", read)
                other.write(pa.table({"k": [2], "v": [left]}, schema=FIELDS))
        return found

    monkeypatch.setattr(BaseEntries, "at", slow)
    report = table.compact(full=True)
    assert left == 0
    assert report.snapshot_id == 3 + OTHERS + 1
    assert {row["k"]: row["v"] for row in table.to_arrow().to_pylist()} == {1: 2, 2: 0}
