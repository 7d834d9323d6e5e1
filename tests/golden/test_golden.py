"""Every golden table that Java wrote: read as Java reads it, compacted without changing an answer, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsm_core.commit import Committer
from lsm_core.compact import BucketTask, run_bucket_task
from lsm_core.errors import SnapshotNotFound, UnsupportedFeature
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.write import TableWrite
from tests.golden.cases import Case, cases, unreadable, unwritable
from tests.golden.rows import same_rows, table_rows
from tests.support.stores import append_task, data_files_on_disk, full_tasks, live_files, read


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_table_of_java(case: Case, tmp_path: Path) -> None:
    """Reads as Java read it at every live snapshot, before and after our compaction; else it is refused up front."""
    story, store = case.story, case.unpack(tmp_path)
    feature = unreadable(story)
    if feature is not None:
        _is_refused(store, feature, reading=True)
        return
    _reads_as_java(store, story)
    feature = unwritable(story)
    if feature is not None:
        _is_refused(store, feature, reading=False)
        return
    _keeps_its_rows_when_compacted(store, story)


def _reads_as_java(store: TableStore, story: dict[str, Any]) -> None:
    for number in story["live_snapshots"]:
        rows = story["snapshots"][str(number)]["rows"]
        same_rows(table_rows(read(store, snapshot_id=number)), rows, store.schema)
    gone = {int(number) for number in story["snapshots"]} - set(story["live_snapshots"])
    for number in gone:
        with pytest.raises(SnapshotNotFound):
            read(store, snapshot_id=number)
    for asked in story["reads"]:
        command = asked["command"]
        if command["op"] == "read" and set(command) <= {"op", "filter", "columns"}:
            filters = [(name, op.replace("_", " "), *value) for name, op, *value in command.get("filter", [])]
            found = read(store, columns=command.get("columns"), filter=filters or None)
            same_rows(table_rows(found), asked["rows"], store.schema)


def _is_refused(store: TableStore, feature: str, *, reading: bool) -> None:
    """Every way in says which feature of which table it is, and no file appears or goes."""
    before = _all_files(store)
    if reading:
        with pytest.raises(UnsupportedFeature, match=feature):
            read(store)
    with pytest.raises(UnsupportedFeature, match=feature) as caught:
        TableWrite(store)
    assert caught.value.table == "db.t"
    for (partition, bucket), files in live_files(store).items():
        names = tuple(file.file_name for file in files)
        for task in (
            BucketTask(partition, bucket, 1, tuple(files), names, store.options.num_levels - 1),
            BucketTask(partition, bucket, -1, tuple(files), bins=(names,)),
        ):
            with pytest.raises(UnsupportedFeature, match=feature):
                run_bucket_task(store, task, None)
    assert _all_files(store) == before


def _keeps_its_rows_when_compacted(store: TableStore, story: dict[str, Any]) -> None:
    newest = snapshots.latest(store)
    assert newest is not None
    expected = story["snapshots"][str(newest.id)]["rows"]
    tasks = full_tasks(store) if store.schema.primary_keys else append_task(store)
    messages = [run_bucket_task(store, task, None).message for task in tasks]
    Committer(store).commit(messages)
    same_rows(table_rows(read(store)), expected, store.schema)
    same_rows(table_rows(read(store, snapshot_id=newest.id)), expected, store.schema)
    same_rows(table_rows(read(store, columns=list(reversed(store.schema.field_names)))), expected, store.schema)


def _all_files(store: TableStore) -> set[str]:
    return {str(path) for path in Path(store.root).rglob("*") if path.is_file()} | data_files_on_disk(store)
