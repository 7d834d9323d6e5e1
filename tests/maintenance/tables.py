"""Small tables for tests of maintenance, and functions that read their rows, files and references."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FixedClock
from lsm_core.commit import Committer
from lsm_core.compact import run_bucket_task
from lsm_core.files import KeyValueFileWriter, open_kv
from lsm_core.format.manifest import SOURCE_COMPACT
from lsm_core.maintenance.actions.compact.execution import tasks_of_plan
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileIO
from tests.support.references import changelog_references, file_names, metadata_references

NOW = 1_700_000_000_000
HOUR = 3_600_000


def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path / "wh", clock=FixedClock(NOW))
    made.create_database("db", ignore_if_exists=True)
    return made


def keyed(tmp_path: Path, partitioned: bool = False, name: str = "db.t", **options: str) -> Table:
    """Create a table with primary key k and columns v and s; in option names, _ stands for - and __ for a dot."""
    fields = [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64()), pa.field("s", pa.string())]
    if partitioned:
        fields.append(pa.field("dt", pa.string(), nullable=False))
    keys = ["dt"] if partitioned else []
    given = {"bucket": "1", **{key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}}
    return catalog(tmp_path).create_table(name, Schema(pa.schema(fields), [*keys, "k"], keys, given))


def rows(keys: range | list[int], v: int = 0, dt: str | None = None) -> pa.Table:
    listed = list(keys)
    values = {"k": listed, "v": [v + k for k in listed], "s": [f"s{k}" if k % 5 else None for k in listed]}
    return pa.table({**values, **({"dt": [dt] * len(listed)} if dt else {})})


def content(table: Table, snapshot_id: int | None = None) -> list[tuple[Any, ...]]:
    found = table.to_arrow(snapshot_id=snapshot_id)
    return sorted(zip(*(found.column(name).to_pylist() for name in found.column_names), strict=True), key=repr)


def on_disk(table: Table, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Return the bytes of every file of the table by relative path, except paths that begin with ``without``."""
    root = Path(table.store.root)
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.startswith(without)} if without else found


def with_io(table: Table, file_io: FileIO) -> Table:
    """Return the same table with a different FileIO."""
    store = table.store
    return Table(TableStore.open(file_io, store.root, store.name, store.clock, store.dynamic_options))


def referenced(table: Table) -> set[str]:
    """Return the bare names of all files that the table's snapshots, tags and changelogs reference."""
    from lsm_core.metadata import changelogs, tags

    store, names = table.store, set[str]()
    for snapshot in [*snapshots.iterate(store), *tags.list_tags(store).values()]:
        names |= metadata_references(store, snapshot)
        names |= file_names(manifests.live_entries(store, snapshot))
        names |= file_names(manifests.changelog_entries(store, snapshot))
    for number in changelogs.list_changelogs(store):
        names |= changelog_references(store, changelogs.read_changelog(store, number))
    return names


def strays(table: Table) -> set[str]:
    """Return the names of data and manifest files on disk that nothing references."""
    names = {name.rpartition("/")[2] for name in on_disk(table) if "manifest/" in name or "bucket-" in name}
    return names - referenced(table)


def assert_whole(table: Table) -> None:
    """Assert that every snapshot can be read entirely, and that the data files of every tag exist."""
    from lsm_core.metadata import tags
    from lsm_core.read import plan_scan, to_arrow

    for snapshot in snapshots.iterate(table.store):
        table.to_arrow(snapshot_id=snapshot.id)
    for snapshot in tags.list_tags(table.store).values():
        scratch = manifests.live_entries(table.store, snapshot)
        for entry in scratch.column("file_name").to_pylist():
            assert list(Path(table.store.root).rglob(entry)), f"tag needs {entry}"
    to_arrow(table.store, plan_scan(table.store))


def tag(table: Table, name: str, snapshot_id: int) -> None:
    """Write a tag as Paimon does: a copy of the snapshot's JSON."""
    store = table.store
    data = store.file_io.read_bytes(store.snapshot_path(snapshot_id))
    store.file_io.mkdirs(f"{store.root}/tag")
    store.file_io.overwrite(f"{store.root}/tag/tag-{name}", data)


def compact_wrongly(table: Table, *, key: int, value: int, column: str = "v") -> int:
    """Publish a wrong full compaction of a one-bucket table, with ``value`` for ``key``; return the snapshot id."""
    store = table.store
    ((_, task),), _ = tasks_of_plan(store, table.plan_maintenance("compact", full=True))
    message = run_bucket_task(store, task).message
    batches = [batch for file in message.compact_after for batch in open_kv(store, task.partition, task.bucket, file)]
    written = pa.Table.from_batches(batches)
    at = written.schema.get_field_index(column)
    lie = pc.if_else(pc.equal(written.column("k"), key), pa.scalar(value, pa.int64()), written.column(column))
    writer = KeyValueFileWriter(
        store, task.partition, task.bucket, task.total_buckets, level=task.output_level, file_source=SOURCE_COMPACT
    )
    for batch in written.set_column(at, written.schema.field(at), lie).to_batches():
        writer.write(batch)
    Committer(store).commit([replace(message, compact_after=tuple(writer.close()))])
    newest = snapshots.latest_id(store)
    assert newest is not None
    return newest
