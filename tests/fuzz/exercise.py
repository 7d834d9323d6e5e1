"""Probes of a damaged table: all operations that read bytes from disk; each may fail only with a `DredgeError`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from lsm_core import Catalog
from lsm_core.clock import FixedClock
from lsm_core.files.formats import open_source
from lsm_core.format.file_index import FileIndex
from lsm_core.format.manifest import table_to_entries
from lsm_core.maintenance import apply_plan, health, plan_compaction, plan_expiry, plan_sweep
from lsm_core.metadata import branches, consumers, manifests, snapshots, tags
from lsm_core.metadata.indexes import deletion_vectors, hash_index, read_vector
from lsm_core.metadata.store import TableStore, list_schema_ids, load_schema
from lsm_core.read import plan_scan, to_batches
from lsm_core.table.system import SYSTEM_TABLES
from lsm_core.write import TableWrite
from tests.fuzz.guard import GuardedFileIO
from tests.support.references import all_references

NOW = 1_900_000_000_000
Probe = tuple[str, Callable[[], Any]]


class Exercise:
    """Probes of one table; ``files`` records the paths that they access."""

    def __init__(self, root: Path, random: Random) -> None:
        self.root, self.random = root, random
        warehouse = root.parent.parent
        self.files = GuardedFileIO(str(root), (str(warehouse), str(root.parent)))
        self._warehouse = str(warehouse)

    def store(self) -> TableStore:
        """Open the table without cached state."""
        return TableStore.open(self.files, str(self.root), "db.t", FixedClock(NOW))

    def reading(self) -> Iterator[Probe]:
        """Yield name and function of the probes that change nothing."""
        yield "open", self.store
        yield "schemas", self._schemas
        yield "snapshots", lambda: list(snapshots.iterate(self.store()))
        yield "tags", lambda: tags.list_tags(self.store())
        yield "consumers", lambda: consumers.list_consumers(self.store())
        yield "branches", self._branches
        yield "manifests", self._manifests
        yield "references", self._references
        yield "indexes", self._indexes
        yield "data files", self._data_files
        yield "file indexes", self._file_indexes
        yield "read", lambda: self._read(self.store())
        yield "filtered", self._filtered
        yield "by tag or time", self._travel
        yield "health", lambda: health(self.store())
        yield "plan compaction", lambda: plan_compaction(self.store(), full=True)
        yield "plan expiry", lambda: plan_expiry(self.store(), retain_max=1, retain_min=1, older_than_ms=NOW)
        yield "plan sweep", lambda: plan_sweep(self.store(), NOW)
        for name in self.random.sample(sorted(SYSTEM_TABLES), 5):
            yield f"${name}", partial(self._system, f"db.t${name}")
        yield (
            "sys.tables",
            lambda: self._system(self.random.choice(["sys.tables", "sys.all_table_options", "sys.partitions"])),
        )

    def writing(self) -> Iterator[Probe]:
        """Yield name and function of the probes that write or delete files of the table."""
        yield "append a row", self._write
        yield "compact", lambda: self._apply(plan_compaction, full=True)
        yield "expire", lambda: self._apply(plan_expiry, retain_max=1, retain_min=1, older_than_ms=NOW)
        yield "sweep", lambda: self._apply(plan_sweep, now_ms=NOW * 2)

    # -- probes -----------------------------------------------------------------------------------------------------

    def _schemas(self) -> None:
        for number in list_schema_ids(self.files, str(self.root)):
            assert load_schema(self.files, str(self.root), number).arrow_schema is not None

    def _branches(self) -> None:
        store = self.store()
        for name in branches.list_branches(store):
            self._read(branches.open_branch(store, name))

    def _manifests(self) -> None:
        store = self.store()
        for snapshot in snapshots.iterate(store):
            manifests.live_entries(store, snapshot)
            manifests.delta_entries(store, snapshot)
            manifests.changelog_entries(store, snapshot)

    def _references(self) -> None:
        store = self.store()
        for snapshot in [*snapshots.iterate(store), *tags.list_tags(store).values()]:
            all_references(store, snapshot)

    def _indexes(self) -> None:
        store = self.store()
        newest = snapshots.latest(store)
        if newest is None:
            return
        entries = manifests.index_entries(store, newest)
        for vectors in deletion_vectors(store, newest).values():
            for vector in vectors.values():
                read_vector(store, vector).deleted_mask(0, 1000)
        for entry in entries:
            if entry.index_type == "HASH":
                hash_index(store, entry)

    def _live_files(self) -> Iterator[tuple[TableStore, Any]]:
        store = self.store()
        newest = snapshots.latest(store)
        entries = [] if newest is None else table_to_entries(manifests.live_entries(store, newest))
        for entry in self.random.sample(entries, min(6, len(entries))):
            yield store, entry

    def _data_files(self) -> None:
        """Read data files directly, also of tables whose features a scan refuses."""
        for store, entry in self._live_files():
            path = store.data_path(entry.partition, entry.bucket, entry.file)
            source = open_source(store.file_io, path, size=entry.file.file_size, rows=entry.file.row_count)
            try:
                for batch in source.batches(source.schema.names, 1000):
                    batch.validate(full=True)
            finally:
                source.close()

    def _file_indexes(self) -> None:
        for store, entry in self._live_files():
            if entry.file.embedded_index is not None:
                self._ask(store, FileIndex.decode(entry.file.embedded_index, "embedded"))
        for path in sorted(self.root.glob("**/*.index")):
            self._ask(self.store(), FileIndex.decode(path.read_bytes(), str(path)))

    def _ask(self, store: TableStore, index: FileIndex) -> None:
        for field in store.schema.fields:
            for value in (7, "a", None):
                try:
                    given = pa.scalar(value, store.schema.arrow_schema.field(field.name).type)
                except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
                    continue
                for operation in ("=", "<", ">=", "!=", "is null", "starts with"):
                    index.may_match(field.name, field.type, operation, given)
                    index.row_mask(field.name, field.type, operation, given, 10)

    def _read(self, store: TableStore, **choice: Any) -> int:
        rows = 0
        for batch in to_batches(store, plan_scan(store, **choice)):
            batch.validate(full=True)
            rows += batch.num_rows
        return rows

    def _filtered(self) -> None:
        store = self.store()
        if not store.schema.fields:
            return
        field = self.random.choice(store.schema.fields)
        kind = store.schema.arrow_schema.field(field.name).type
        value = {True: 1, pa.types.is_string(kind): "a", pa.types.is_boolean(kind): True}[True]
        operation = self.random.choice(["=", "!=", "<", ">=", "in"])
        self._read(store, filter=[(field.name, operation, [value] if operation == "in" else value)])

    def _travel(self) -> None:
        store = self.store()
        for name in tags.list_tags(store):
            self._read(store.copy({"scan.tag-name": name}))
        self._read(store.copy({"scan.timestamp-millis": str(NOW)}))
        oldest = snapshots.earliest_id(store)
        self._read(store, snapshot_id=oldest)

    def _system(self, name: str) -> None:
        catalog = Catalog(self._warehouse, clock=FixedClock(NOW))
        catalog.file_io = self.files
        catalog.table(name).to_arrow().validate(full=True)

    def _write(self) -> None:
        store = self.store()
        schema = store.schema.arrow_schema
        rows = pa.table([pa.nulls(1, f.type) if f.nullable else _some(f.type) for f in schema], schema=schema)
        with TableWrite(store) as writer:
            writer.write(rows)
            writer.prepare_commit()

    def _apply(self, planner: Callable[..., Any], **arguments: Any) -> None:
        store = self.store()
        apply_plan(store, planner(store, **arguments), approved_by="fuzz")


def _some(kind: pa.DataType) -> pa.Array:
    """Return an array of one value that is not null."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return pa.array([1], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    try:
        return pa.array(["1"]).cast(kind)
    except pa.ArrowException:
        empty: list[Any] = [[None]] if pa.types.is_list(kind) else [{}]
        return pa.array(empty, kind)
