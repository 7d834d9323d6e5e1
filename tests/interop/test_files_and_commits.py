"""Files and commits by themselves against the real Java: the same metadata for the same rows, and commits that it reads and builds on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.commit import CommitMessage, Committer
from lsm_core.errors import CommitConflict
from lsm_core.files import AppendFileWriter, KeyValueFileWriter, open_append, open_kv
from lsm_core.format.manifest import ManifestEntry, table_to_entries
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from tests.commit.tables import kv_batch, message
from tests.interop.rows import ALL_TYPES, KEYS, canonical, canonical_java, java_rows, java_schema, rows_of
from tests.support.peers import PyPaimon
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]


def open_table(tmp_path: Path) -> TableStore:
    return TableStore.open(LocalFileIO(), str(tmp_path / "db.db" / "t"), "db.t")


def live(store: TableStore) -> list[ManifestEntry]:
    latest = snapshots.latest(store)
    assert latest is not None
    return table_to_entries(manifests.live_entries(store, latest))


def comparable(entry: ManifestEntry, source: int = 0) -> ManifestEntry:
    """The entry without what must differ: name, size and time."""
    return dataclasses.replace(
        entry, file=dataclasses.replace(entry.file, file_name="", file_size=0, creation_time_ms=0, file_source=source)
    )


@pytest.mark.paimon_java
@pytest.mark.parametrize("mode", one_in(2, ["truncate(16)", "full", "counts", "none", "truncate(2)"]))
@pytest.mark.parametrize("dense", ["true", "false"])
def test_a_rewritten_file_has_the_metadata_java_gives_it(tmp_path: Path, java: Java, mode: str, dense: str) -> None:
    options = {"bucket": "1", "metadata.stats-mode": mode, "metadata.stats-dense-store": dense}
    java(
        "create",
        schema={"fields": java_schema(ALL_TYPES), "primaryKeys": KEYS, "partitionKeys": ["region"], "options": options},
    )
    deletes = rows_of(3, 6, 2, step=4)
    java("write", rows=java_rows(rows_of(0, 40, 1)) + java_rows(deletes, "-D"), compact="none")
    store = open_table(tmp_path)
    for entry in live(store):
        place = (entry.partition, entry.bucket)
        writer = KeyValueFileWriter(store, *place, entry.total_buckets, entry.file.level, 0)
        for batch in open_kv(store, *place, entry.file, batch_rows=7):
            writer.write(batch)
        (mine,) = writer.close()
        assert comparable(dataclasses.replace(entry, file=mine)) == comparable(entry)


@pytest.mark.paimon_java
def test_a_rewritten_append_file_has_the_metadata_java_gives_it(tmp_path: Path, java: Java) -> None:
    java(
        "create",
        schema={"fields": java_schema(ALL_TYPES), "primaryKeys": [], "partitionKeys": [], "options": {"bucket": "-1"}},
    )
    java("write", rows=java_rows(rows_of(0, 50, 1)), compact="none")
    store = open_table(tmp_path)
    (entry,) = live(store)
    writer = AppendFileWriter(store, entry.partition, entry.bucket, entry.total_buckets, 0)
    for batch in open_append(store, entry.partition, entry.bucket, entry.file):
        writer.write(batch)
    (mine,) = writer.close()
    assert comparable(dataclasses.replace(entry, file=mine)) == comparable(entry)


@pytest.mark.paimon_java
@pytest.mark.pypaimon
def test_java_and_pypaimon_read_large_files_and_java_compacts_them(
    tmp_path: Path, java: Java, pypaimon: PyPaimon
) -> None:
    fields = pa.schema(
        [pa.field("k", pa.int64(), nullable=False), ("g", pa.string()), ("n", pa.int64()), ("d", pa.float64())]
    )
    java(
        "create",
        schema={
            "fields": java_schema(fields),
            "primaryKeys": ["k"],
            "partitionKeys": [],
            "options": {"bucket": "1", "target-file-size": "2 mb"},
        },
    )
    store = open_table(tmp_path)
    count = 200_000
    rng = np.random.default_rng(7)
    table = pa.table(
        {
            "k": np.arange(count) * 3,
            "g": pa.array([f"g{v}" for v in rng.integers(0, 20, count)]),
            "n": rng.integers(-(2**62), 2**62, count),
            "d": rng.normal(size=count),
        },
        schema=fields,
    )
    committer = Committer(store, "dredge")
    expected = {}
    for number, (start, size) in enumerate(((0, count), (count // 2, 1000))):
        part = table.slice(start, size)
        writer = KeyValueFileWriter(store, bytes(12), 0, 1, 0, 0)
        batch = kv_batch(
            store,
            {name: part.column(name).combine_chunks() for name in part.column_names},
            first_sequence=number * count,
        )
        for at in range(0, size, 30_000):
            writer.write(batch.slice(at, 30_000))
        files = writer.close()
        expected[number] = len(files)
        committer.commit([message(store, new_files=files)], commit_identifier=number)
    assert expected == {0: expected[0], 1: 1}
    assert expected[0] > 1
    picked = [["k", ">=", 299_990], ["k", "<", 300_020]]
    near = [row for row in canonical(table) if 299_990 <= row[0] < 300_020]
    assert canonical_java(java("read", filter=picked)["rows"], fields) == near
    assert canonical(pypaimon.read("db.t")) == canonical(table)
    assert java("snapshots")
    java("compact", full=True)
    assert canonical_java(java("read", filter=picked)["rows"], fields) == near
    assert {entry.file.level for entry in live(store)} == {5}
    assert sum(entry.file.row_count for entry in live(store)) == count


@pytest.mark.paimon_java
def test_a_stale_dredge_compaction_loses_against_javas(tmp_path: Path, java: Java) -> None:
    java(
        "create",
        schema={"fields": java_schema(ALL_TYPES), "primaryKeys": KEYS, "partitionKeys": [], "options": {"bucket": "1"}},
    )
    java("write", rows=java_rows(rows_of(0, 20, 1)), compact="none")
    java("write", rows=java_rows(rows_of(10, 20, 2)), compact="none")
    store = open_table(tmp_path)
    old = [entry.file for entry in live(store)]
    java("compact", full=True)
    upgrade = CommitMessage(bytes(12), 0, 1, compact_before=tuple(old[:1]), compact_after=(old[0].upgrade(4),))
    with pytest.raises(CommitConflict, match="deleted or moved") as caught:
        Committer(store, "dredge").commit([upgrade])
    assert caught.value.snapshot_id == 3
    assert len(java("read")["rows"]) == 30


@pytest.mark.paimon_java
def test_java_goes_on_from_dredge_commits_and_dredge_from_javas(tmp_path: Path, java: Java) -> None:
    java(
        "create",
        schema={
            "fields": java_schema(ALL_TYPES),
            "primaryKeys": KEYS,
            "partitionKeys": ["region"],
            "options": {"bucket": "1", "manifest.merge-min-count": "3"},
        },
    )
    store = open_table(tmp_path)
    for revision in range(1, 5):
        java("write", rows=java_rows(rows_of(0, 30, revision)), compact="none")
        # Dredge lifts every file of level 0 to the empty level above Java's.
        messages = [
            CommitMessage(
                e.partition, e.bucket, e.total_buckets, compact_before=(e.file,), compact_after=(e.file.upgrade(4),)
            )
            for e in live(store)
            if e.file.level == 0
        ]
        assert len(messages) == 3
        assert len(Committer(store, "dredge").commit(messages).snapshot_ids) == 1
        assert canonical_java(java("read")["rows"], ALL_TYPES) == canonical(rows_of(0, 30, revision))
        java("compact", full=True)
        assert canonical_java(java("read")["rows"], ALL_TYPES) == canonical(rows_of(0, 30, revision))
        assert {entry.file.level for entry in live(store)} == {5}
    latest = snapshots.latest(store)
    assert latest is not None
    assert (latest.id, latest.total_record_count) == (12, 30)
