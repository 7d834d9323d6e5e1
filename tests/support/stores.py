"""Small tables for tests of the engine's modules, created from a schema without a catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from lsm_core.clock import FixedClock
from lsm_core.commit import Committer
from lsm_core.compact import BucketTask
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.metadata import indexes, snapshots
from lsm_core.metadata.indexes import vector_files
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.manifests import delta_entries, live_entries
from lsm_core.metadata.store import TableStore, write_schema
from lsm_core.read import plan_scan, to_arrow
from lsm_core.read.merge_read import as_tree
from lsm_core.storage import LocalFileIO
from lsm_core.tree import Levels, drops_delete
from lsm_core.types import parse
from lsm_core.write import TableWrite

NOW = 1_700_000_000_000


def make_store(
    root: Path | str,
    fields: Mapping[str, str],
    primary_keys: Sequence[str] = (),
    partition_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> TableStore:
    """Create the empty table ``db.t`` in ``root``; ``fields`` are SQL types by column name."""
    made = tuple(DataField(i, name, parse(kind)) for i, (name, kind) in enumerate(fields.items()))
    schema = TableSchema(
        0, made, len(made) - 1, tuple(partition_keys), tuple(primary_keys), dict(options or {}), None, NOW
    )
    assert write_schema(LocalFileIO(), str(root), schema)
    return TableStore.open(LocalFileIO(), str(root), "db.t", FixedClock(NOW))


def write(store: TableStore, data: pa.Table | pa.RecordBatch, kinds: Sequence[str] | None = None) -> int | None:
    """Write and commit rows; return the snapshot id, or None without a commit."""
    with TableWrite(store) as writer:
        writer.write(data, None if kinds is None else pa.array(kinds, pa.string()))
        messages = writer.prepare_commit()
    return Committer(store).commit(messages).snapshot_id


def read(store: TableStore, **choice: object) -> pa.Table:
    """Return all rows of a scan with the arguments ``choice`` of `plan_scan`."""
    return to_arrow(store, plan_scan(store, **choice))  # type: ignore[arg-type]


def live_files(store: TableStore) -> dict[tuple[bytes, int], list[DataFileMeta]]:
    """Return the live files by (partition, bucket)."""
    snapshot = snapshots.latest(store)
    if snapshot is None:
        return {}
    groups = bucket_groups(live_entries(store, snapshot))
    return {(p, b): [entry.file for entry in table_to_entries(rows)] for p, b, _, rows in groups}


def deleted_rows(store: TableStore) -> dict[str, int]:
    """Return the number of rows that deletion vectors mark, by data file, in the newest snapshot."""
    latest = snapshots.latest(store)
    assert latest is not None
    found = vector_files(store, latest).values()
    return {name: count for files in found for name, count in indexes.deleted_rows(files).items()}


def committed_files(store: TableStore) -> set[str]:
    """Return the names of all data files in the delta entries of existing snapshots."""
    names: set[str] = set()
    for snapshot in snapshots.iterate(store):
        names |= set(delta_entries(store, snapshot).column("file_name").to_pylist())
    return names


def full_tasks(store: TableStore, verification: str = "full") -> list[BucketTask]:
    """Return the tasks of a full compaction of a primary-key table, one per bucket."""
    return [
        unit_task(
            store, partition, bucket, [file.file_name for file in files], store.options.num_levels - 1, verification
        )
        for (partition, bucket), files in live_files(store).items()
    ]


def unit_task(
    store: TableStore, partition: bytes, bucket: int, names: Sequence[str], level: int, verification: str = "full"
) -> BucketTask:
    """Return a compaction task for the files ``names`` of a bucket, with the output level ``level``."""
    files = tuple(live_files(store)[partition, bucket])
    levels = Levels(as_tree(store, files), store.options.num_levels)
    snapshot = snapshots.latest(store)
    assert snapshot is not None
    return BucketTask(
        partition,
        bucket,
        store.options.bucket,
        files,
        tuple(names),
        level,
        drops_delete(levels, level),
        snapshot.id,
        verification,
        index_files=vector_files(store, snapshot).get((partition, bucket), ()),
    )


def data_files_on_disk(store: TableStore) -> set[str]:
    """Return the names of all files in the table's bucket folders, referenced or not."""
    return {path.name for path in Path(store.root).glob("**/bucket-*/*") if path.is_file()}


def append_task(store: TableStore) -> list[BucketTask]:
    """Return one task per bucket of an append table, with all files of the bucket as one bin."""
    snapshot = snapshots.latest(store)
    vectors = {} if snapshot is None else vector_files(store, snapshot)
    tasks = []
    for (partition, bucket), files in live_files(store).items():
        names = tuple(file.file_name for file in sorted(files, key=lambda f: (f.min_sequence_number, f.file_name)))
        index_files = vectors.get((partition, bucket), ())
        tasks.append(
            BucketTask(partition, bucket, store.options.bucket, tuple(files), bins=(names,), index_files=index_files)
        )
    return tasks
