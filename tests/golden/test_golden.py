"""Every golden table that Java wrote: decoded whole, read as Java reads it at every version, compacted without changing an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.commit import Committer
from lsm_core.compact import run_bucket_task
from lsm_core.errors import SnapshotNotFound
from lsm_core.metadata import snapshots
from lsm_core.metadata.branches import open_branch
from lsm_core.metadata.indexes import deletion_vectors
from lsm_core.metadata.manifests import tracked_schema
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.read import plan_scan, read_bucket_merged, to_arrow
from lsm_core.table.system import SYSTEM_TABLES
from tests.golden.cases import Case, cases, of_changes
from tests.golden.decode import decode_everything
from tests.golden.rows import same_rows, table_rows
from tests.support.stores import append_task, data_files_on_disk, full_tasks, live_files

Rows = list[dict[str, Any]]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_table_of_java(case: Case, tmp_path: Path) -> None:
    """Reads as Java read it at every live snapshot, before and after our compaction."""
    story, store = case.story, case.unpack(tmp_path)
    decode_everything(store)
    _reads_as_java(store, story)
    _reads_as_java_otherwise(store, story)
    _keeps_its_rows_when_compacted(store, story)


def _reads_as_java(store: TableStore, story: dict[str, Any]) -> None:
    """Every live snapshot: by its number, by its time and by its option."""
    for number in story["live_snapshots"]:
        rows = story["snapshots"][str(number)]["rows"]
        _is_read(store, rows, snapshot_id=number)
        _is_read(store.copy({"scan.snapshot-id": str(number)}), rows)
        moment = snapshots.read(store, number).time_millis
        youngest = max(n for n in story["live_snapshots"] if snapshots.read(store, n).time_millis <= moment)
        _is_read(store, story["snapshots"][str(youngest)]["rows"], timestamp_ms=moment)
    newest = max(story["live_snapshots"])
    schema = snapshots.read(store, newest).schema_id
    if schema == store.schema.id:  # else a column has come or gone since
        _is_read(store, story["snapshots"][str(newest)]["rows"])
    for number in {int(number) for number in story["snapshots"]} - set(story["live_snapshots"]):
        with pytest.raises(SnapshotNotFound):
            plan_scan(store, snapshot_id=number)
    first = snapshots.read(store, min(story["live_snapshots"])).time_millis
    with pytest.raises(SnapshotNotFound):
        plan_scan(store, timestamp_ms=first - 1)


def _reads_as_java_otherwise(store: TableStore, story: dict[str, Any]) -> None:
    """The story's further reads: tags, branches, filters and columns."""
    for asked in story["reads"]:
        command = asked["command"]
        base, _, after = command.get("table", "db.t").partition("$")
        if command["op"] != "read" or of_changes(command):
            continue
        if after == "row_tracking":
            found = SYSTEM_TABLES[after](store)
            schema = tracked_schema(store.schema)
            same_rows(table_rows(found), asked["rows"], schema)
            continue
        if after and not after.startswith("branch_"):
            continue
        assert base == "db.t"
        place = open_branch(store, after.removeprefix("branch_")) if after else store
        filters = [(name, op.replace("_", " "), *value) for name, op, *value in command.get("filter", [])]
        options = command.get("options") or {}
        _is_read(place.copy(options), asked["rows"], columns=command.get("columns"), filter=filters or None)
        if "scan.tag-name" in options:
            _is_read(place, asked["rows"], tag=options["scan.tag-name"])
            _is_read(place.copy({"scan.version": options["scan.tag-name"]}), asked["rows"])


def _is_read(store: TableStore, expected: Rows, **choice: Any) -> None:
    scan = plan_scan(store, **choice)
    same_rows(table_rows(to_arrow(store, scan)), expected, scan.schema)


def _keeps_its_rows_when_compacted(store: TableStore, story: dict[str, Any]) -> None:
    newest = snapshots.latest(store)
    assert newest is not None
    expected = _rows_today(store, story["snapshots"][str(newest.id)]["rows"], newest.schema_id)
    if store.bucket_mode is BucketMode.POSTPONE:
        assert expected == []
        table = Table(store)
        table.apply(table.plan_maintenance("assign_buckets"))
        expected = _replayed(story)
    if store.options.merge_engine == "first-row" or (store.has_primary_key and store.options.deletion_vectors_enabled):
        expected = _with_level_0(store)
    tasks = full_tasks(store) if store.schema.primary_keys else append_task(store)
    messages = [run_bucket_task(store, task, None).message for task in tasks]
    Committer(store).commit(messages)
    decode_everything(store)
    _is_read(store, expected)
    _is_read(store, expected, columns=list(reversed(store.schema.field_names)))
    for number in story["live_snapshots"]:
        _is_read(store, story["snapshots"][str(number)]["rows"], snapshot_id=number)


def _replayed(story: dict[str, Any]) -> Rows:
    """What was written to a table of postponed buckets, merged by deduplicate."""
    found: dict[int, dict[str, Any]] = {}
    for row in (row for step in story["steps"] for row in step["command"]["rows"]):
        found.pop(row["k"], None)
        if row["_kind"] in ("+I", "+U"):
            found[row["k"]] = row
    return list(found.values())


def _with_level_0(store: TableStore) -> Rows:
    """First-row tables and those with deletion vectors answer without level 0; compacting lets its rows be seen."""
    newest = snapshots.latest(store)
    assert newest is not None
    vectors, rows = deletion_vectors(store, newest), []
    for (partition, bucket), files in live_files(store).items():
        batches = read_bucket_merged(store, partition, bucket, files, deletions=vectors.get((partition, bucket)))
        rows += [row for batch in batches for row in table_rows(_table(batch))]
    return rows


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _rows_today(store: TableStore, rows: Rows, schema_id: int) -> Rows:
    """Rows as of today's schema: before the compaction, by our own reader, when columns have changed since the commit."""
    return rows if schema_id == store.schema.id else table_rows(to_arrow(store, plan_scan(store)))


def _all_files(store: TableStore) -> set[str]:
    return {str(path) for path in Path(store.root).rglob("*") if path.is_file()} | data_files_on_disk(store)
