"""`scan.plan-auto-tag-for-read.time-retained`: a read tags its snapshot, and expiry keeps what it reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.metadata import tags

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
OPTION = "scan.plan-auto-tag-for-read.time-retained"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", OPTION: "2 h", "dredge.compaction.inline": "never", "dredge.delete-mode": "direct"}
    table = catalog.create_table("db.t", Schema(FIELDS, ["k"], [], {**options, "target-file-size": "1 kb"}))
    for number in range(3):
        table.write(pa.table({"k": [1, 2, number + 3], "v": [f"{number}"] * 3}, schema=FIELDS))
    return table.refresh()


def expire(table: Table) -> None:
    table.compact(full=True)
    table.refresh().write(pa.table({"k": [9], "v": ["9"]}, schema=FIELDS))
    table.refresh().expire_snapshots(retain_max=1, retain_min=1, older_than_ms=253_402_300_799_999)


def test_a_stream_of_rows_is_protected_and_its_tag_deleted_with_the_last_batch(table: Table) -> None:
    batches = table.to_batches()
    (name,) = tags.list_names(table.store)
    assert name.startswith("batch-read-3-")
    assert len(name) == len("batch-read-3-") + 8
    tag = tags.list_details(table.store)[name]
    assert (tag.snapshot.id, tag.time_retained_ms) == (3, 7_200_000)
    rows = pa.Table.from_batches(list(batches)).sort_by("k")
    assert rows.column("k").to_pylist() == [1, 2, 3, 4, 5]
    assert tags.list_names(table.store) == []


def test_expiry_during_a_read_keeps_its_files_and_its_tag(table: Table) -> None:
    batches = table.to_batches()
    expire(table)
    assert [snapshot.id for snapshot in table.refresh().snapshots()] == [5]
    assert sum(batch.num_rows for batch in batches) == 5
    (name,) = tags.list_names(table.store)
    deleted = table.refresh().expire_tags(older_than_ms=253_402_300_799_999)
    assert (deleted.tags, tags.list_names(table.store)) == ((name,), [])
    assert table.refresh().to_arrow().num_rows == 6


def test_without_the_option_the_same_read_fails(table: Table) -> None:
    batches = table.copy({OPTION: None}).to_batches()
    expire(table)
    with pytest.raises(Exception, match="expired"):
        list(batches)


@pytest.mark.parametrize("name", ["db.t", "db.t$ro", "db.t$audit_log"])
def test_reads_leave_no_tag(table: Table, tmp_path: Path, name: str) -> None:
    assert Catalog(str(tmp_path)).table(name).to_arrow().num_rows >= 0
    with pytest.raises(Exception, match="limit"):
        table.to_arrow(limit=-1)
    scan = table.scan()
    assert scan.to_table().num_rows == 5
    assert tags.list_names(table.store) == []


def test_splits_of_query_engines_are_protected_until_the_tag_expires(table: Table) -> None:
    assert table.plan_scan()
    (name,) = tags.list_names(table.store)
    path = tags.tag_path(table.store, name)
    with open(path) as file:
        assert json.load(file)["tagTimeRetained"] == 7200.0


def test_a_read_without_permission_to_write_goes_on(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> bool:
        raise PermissionError("read-only")

    monkeypatch.setattr(tags, "create", refuse)
    assert table.to_arrow().num_rows == 5
    assert "snapshot 3 is read without a tag against expiry: read-only" in caplog.text
    assert not os.path.exists(tags.tag_dir(table.store))


def test_a_read_of_spark_is_protected_when_it_is_planned(table: Table) -> None:
    from lsm_core.spark.table_reader import TableReader

    reader = TableReader(table.store, ["k"])
    assert tags.list_names(table.store) == []
    assert len(reader.partitions()) == 1
    (name,) = tags.list_names(table.store)
    assert name.startswith("batch-read-3-")
