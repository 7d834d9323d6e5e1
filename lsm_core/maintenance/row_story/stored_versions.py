"""Finding every stored version of one key: metadata rules files out, keys are compared first, values read last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lsm_core.errors import ColumnNotFound, InvalidFilter, UnsupportedFeature
from lsm_core.files import open_kv
from lsm_core.format.file_meta import DataFileMeta, ManifestEntry, table_to_entries
from lsm_core.format.kv_layout import key_name
from lsm_core.format.partition_path import partition_bytes
from lsm_core.format.snapshot import Snapshot
from lsm_core.merge import KeySpec
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, read_vector, require_in_place
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import TableStore
from lsm_core.read import parse_filter
from lsm_core.read.compacted import compacted_only
from lsm_core.read.inputs import sections_of
from lsm_core.read.prune import manifest_chooser, prune_buckets, prune_files, prune_partitions

KEPT_OUT = "marked in a deletion vector"
TAKEN_UP = "on a level above the lowest one that has the key: compactions of this table look keys up, so that one says what this said"
NOT_COMPACTED = "on level 0: batch reads of this table see compacted files only"
POSTPONED = "postponed: it waits to be put into a bucket"


@dataclass(frozen=True, eq=False)
class StoredVersion:
    """One stored version: a KV batch of one row, where it lies, and its file's age among all of them (larger = newer)."""

    row: pa.RecordBatch
    file: DataFileMeta
    position: int
    age: int
    hidden: str | None


@dataclass(frozen=True)
class Places:
    """The entries of a snapshot that can hold a key, and where deletion vectors lie, by data file."""

    entries: tuple[ManifestEntry, ...]
    deletions: Mapping[str, DeletionFile]

    def by_partition(self) -> dict[bytes, Places]:
        """The same, apart: versions of different partitions never merge, also where a key may move between them."""
        found: dict[bytes, list[ManifestEntry]] = {}
        for entry in self.entries:
            found.setdefault(entry.partition, []).append(entry)
        return {partition: Places(tuple(entries), self.deletions) for partition, entries in found.items()}


def typed_key(store: TableStore, key: Mapping[str, Any]) -> dict[str, pa.Scalar]:
    """The values of a whole primary key in the columns' types.

    Raises ColumnNotFound, UnsupportedFeature for a table without a key, InvalidFilter for columns or values that do not fit.
    """
    schema = store.schema
    if not schema.primary_keys:
        raise UnsupportedFeature("explaining rows of a table without a primary key", store.name)
    if not isinstance(key, Mapping):
        raise InvalidFilter(f"table {store.name}: a key is a mapping of column names to values, not {key!r}")
    for name in key:
        if name not in schema.field_names:
            raise ColumnNotFound(store.name, name, schema.primary_keys)
    if set(key) != set(schema.primary_keys):
        wanted = ", ".join(schema.primary_keys)
        raise InvalidFilter(
            f"table {store.name}: a key has exactly the columns {wanted}, not {', '.join(key) or 'none'}"
        )
    return {name: _scalar(store, name, key[name]) for name in schema.primary_keys}


def _scalar(store: TableStore, name: str, value: Any) -> pa.Scalar:
    kind = store.schema.arrow_schema.field(name).type
    if value is None:
        raise InvalidFilter(f"table {store.name}: key column '{name}' cannot be null")
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        try:
            return pa.scalar(value).cast(kind)  # text, as people type it
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidFilter(f"table {store.name}: {value!r} is no {kind} for key column '{name}'") from error


def places_of(store: TableStore, snapshot: Snapshot, key: Mapping[str, pa.Scalar]) -> Places:
    """Where the key can lie in ``snapshot``, by metadata alone; files that reads do not see are among them."""
    schema = store.schema
    predicate = parse_filter([(name, "=", value.as_py()) for name, value in key.items()], schema, store.name)
    partitions = None
    if schema.partition_keys and set(schema.partition_keys) <= set(key):
        partitions = [partition_bytes(schema, {name: key[name].as_py() for name in schema.partition_keys})]
    entries = live_entries(store, snapshot, partitions=partitions, choose=manifest_chooser(schema, None, predicate))
    entries = prune_partitions(schema, entries, predicate)
    entries = prune_files(store, prune_buckets(schema, entries, predicate, store.options.bucket_function), predicate)
    require_in_place(store, snapshot, entries)
    vectors = deletion_vectors(store, snapshot, partitions)
    deletions = {name: file for found in vectors.values() for name, file in found.items()}
    return Places(tuple(table_to_entries(entries)), deletions)


def versions_of(
    store: TableStore, places: Places, spec: KeySpec, key: Mapping[str, pa.Scalar]
) -> Iterator[StoredVersion]:
    """Every stored version of the key in the places of one partition, file by file, the oldest file first."""
    keys = spec.keys(pa.RecordBatch.from_pydict({key_name(name): pa.array([key[name]]) for name in spec.key_columns}))
    target = keys.scalar(0)
    by_name = {entry.file.file_name: entry for entry in places.entries}
    groups = [group for section in sections_of(store, [one.file for one in places.entries]) for group in section.groups]
    for age, group in enumerate(groups):
        for file in group:
            gone = places.deletions.get(file.file_name)
            yield from _in_file(store, by_name[file.file_name], age, gone, spec, target)


def _in_file(
    store: TableStore, entry: ManifestEntry, age: int, gone: DeletionFile | None, spec: KeySpec, target: int | bytes
) -> Iterator[StoredVersion]:
    """The versions of the key in one file: keys are compared first, values read only where one matches."""
    place = entry.partition, entry.bucket, entry.file
    if not any(stop > start for start, stop, _ in _stretches(store, place, spec, target, columns=[])):
        return
    vector = None if gone is None else read_vector(store, gone, entry.file.row_count)
    compacted = compacted_only(store)
    passed_over = None  # why batch reads pass over the whole file
    if entry.bucket < 0:
        passed_over = POSTPONED
    elif compacted and entry.file.level == 0:
        passed_over = NOT_COMPACTED
    for start, stop, (first, batch) in _stretches(store, place, spec, target, columns=None):
        for row in range(start, stop):
            deleted = vector is not None and bool(vector.deleted_mask(first + row, 1)[0])
            hidden = passed_over or (KEPT_OUT if deleted else None)
            yield StoredVersion(batch.slice(row, 1), entry.file, first + row, age, hidden)


def _stretches(
    store: TableStore,
    place: tuple[bytes, int, DataFileMeta],
    spec: KeySpec,
    target: int | bytes,
    columns: list[str] | None,
) -> Iterator[tuple[int, int, tuple[int, pa.RecordBatch]]]:
    """For each batch that the key may lie in: its rows with that key, the batch, and where in the file it begins."""
    first = 0
    with closing(open_kv(store, *place, columns=columns)) as batches:  # type: ignore[type-var]
        for batch in batches:
            keys = spec.keys(batch)
            yield keys.bisect(target, right=False), keys.bisect(target, right=True), (first, batch)
            first += batch.num_rows
            if keys.scalar(len(keys) - 1) > target:  # type: ignore[operator]
                return  # rows are in key order
