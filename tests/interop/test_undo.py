"""Java reads what an undo leaves, goes on with it, and expires the snapshots before it without taking a file that came back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import CommitMessage, Committer
from lsm_core.errors import CorruptFile
from lsm_core.format.manifest import ADD, DELETE, DataFileMeta, table_to_entries
from lsm_core.metadata import manifests
from tests.interop.rows import ALL_TYPES, KEYS, canonical, canonical_java, java_rows, rows_of

Java = Callable[..., dict[str, Any]]


def filled(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", Schema(ALL_TYPES, primary_keys=KEYS, options={"bucket": "1", **EXPIRING, **options})
    )
    for number in range(2):
        table.write(rows_of(20 * number, 40, number + 1))
    gone = rows_of(5, 8, 9)
    table.write(gone, row_kinds=pa.array(["-D"] * gone.num_rows))
    # were the deletes the last, rows written after a compaction could have their sequence numbers, and nothing would be undone
    table.write(rows_of(40, 40, 3))
    return table


EXPIRING = {"snapshot.num-retained.max": "1", "snapshot.num-retained.min": "1"}


def expire(java: Java) -> None:
    """All but the newest snapshot, as Java's writers do after every commit to a table of these options."""
    java("expire_snapshots")


@pytest.mark.paimon_java
def test_java_reads_expires_writes_and_compacts_after_an_undo(tmp_path: Path, java: Java) -> None:
    table = filled(tmp_path)
    expected = canonical(table.to_arrow())
    report = table.compact(full=True)
    assert canonical_java(java("read")["rows"], ALL_TYPES) == expected
    undone = table.undo(report.run_id)
    assert undone.files_restored == 4
    assert canonical_java(java("read")["rows"], ALL_TYPES) == expected
    expire(java)
    assert [snapshot.id for snapshot in table.snapshots()] == [6]
    assert canonical_java(java("read")["rows"], ALL_TYPES) == expected == canonical(table.to_arrow())
    # A second compaction, undone by the tag that it left, while Java writes and expires on.
    tagging = Catalog(tmp_path).table("db.t").copy({"dredge.pre-compaction-tag": "true"})
    second = tagging.compact(full=True)
    java("write", rows=java_rows(rows_of(300, 10, 4)), compact="none")
    expire(java)
    now = canonical(tagging.to_arrow())
    assert tagging.undo(second.run_id).files_restored == 4
    assert canonical_java(java("read")["rows"], ALL_TYPES) == now == canonical(tagging.to_arrow())
    java("delete_tag", name=second.tag_before)
    java("write", rows=java_rows(rows_of(400, 10, 5)), compact="full")
    expire(java)
    assert len(tagging.snapshots()) == 1
    assert canonical_java(java("read")["rows"], ALL_TYPES) == canonical(tagging.to_arrow())
    assert len(canonical(tagging.to_arrow())) == len(now) + 10


@pytest.mark.paimon_java
def test_java_deletes_files_that_come_back_under_their_names_which_is_why_they_are_copied(
    tmp_path: Path, java: Java
) -> None:
    table = filled(tmp_path)
    report = table.compact(full=True)
    assert report.snapshot_id is not None
    newest = table.latest_snapshot()
    assert newest is not None
    entries = table_to_entries(manifests.delta_entries(table.store, newest))
    came: tuple[DataFileMeta, ...] = tuple(entry.file for entry in entries if entry.kind == ADD)
    gone: tuple[DataFileMeta, ...] = tuple(entry.file for entry in entries if entry.kind == DELETE)
    message = CommitMessage(entries[0].partition, 0, 1, compact_before=came, compact_after=gone)
    Committer(table.store).commit([message])
    table.to_arrow()
    expire(java)
    assert [snapshot.id for snapshot in table.snapshots()] == [6]
    with pytest.raises(CorruptFile, match="missing"):
        table.to_arrow()


@pytest.mark.paimon_java
def test_marked_rows_of_append_tables_are_java_s_again(tmp_path: Path, java: Java) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    options = {"bucket": "-1", "deletion-vectors.enabled": "true", "compaction.min.file-num": "2", **EXPIRING}
    table = catalog.create_table("db.t", Schema(ALL_TYPES, options=options))
    for number in range(3):
        table.write(rows_of(20 * number, 20, number + 1))
    table.delete([(KEYS[0], "is not null"), (ALL_TYPES.names[-1], "is null")])
    expected = canonical(table.to_arrow())
    report = table.compact(full=True)
    table.undo(report.run_id)
    expire(java)
    assert canonical_java(java("read")["rows"], ALL_TYPES) == expected == canonical(table.to_arrow())
