"""Search for every stored version of one key: metadata rules files out, keys are compared first, values read last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lsm_core.errors import ColumnNotFound, InvalidFilter, UnsupportedFeature
from lsm_core.files import open_kv
from lsm_core.format.manifest import DataFileMeta, ManifestEntry, table_to_entries
from lsm_core.format.partitions import partition_bytes
from lsm_core.format.schema import key_name
from lsm_core.format.snapshot import Snapshot
from lsm_core.merge import KeySpec
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, read_vector, require_in_place
from lsm_core.metadata.live_files import compacted_only
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import TableStore
from lsm_core.read import parse_filter
from lsm_core.read.merge_read import sections_of
from lsm_core.read.prune import manifest_chooser, prune_buckets, prune_files, prune_partitions

KEPT_OUT = "marked in a deletion vector"
HIDDEN_BY_LOOKUP = (
    "on a level above the lowest one that has the key: compactions of this table look keys up, "
    "so the lower version includes this one"
)
NOT_COMPACTED = "on level 0: batch reads of this table see compacted files only"
POSTPONED = "postponed: it waits to be put into a bucket"


@dataclass(frozen=True, eq=False)
class StoredVersion:
    """One stored version.

    Attributes:
        row: KV batch of one row.
        file: the data file.
        position: row number in the file, from 0.
        age: age rank of the file among the files of the partition (larger = newer).
        hidden: reason why reads do not see the version, None if they do.
    """

    row: pa.RecordBatch
    file: DataFileMeta
    position: int
    age: int
    hidden: str | None


@dataclass(frozen=True)
class Places:
    """Manifest entries of the files of a snapshot that can hold a key.

    Attributes:
        entries: manifest entries of the files.
        deletions: deletion vectors by data file.
    """

    entries: tuple[ManifestEntry, ...]
    deletions: Mapping[str, DeletionFile]

    def by_partition(self) -> dict[bytes, Places]:
        """Return the manifest entries of each partition, by partition bytes, with all deletion vectors.

        Versions of different partitions never merge, even where a key may move between partitions.
        """
        by_partition: dict[bytes, list[ManifestEntry]] = {}
        for entry in self.entries:
            by_partition.setdefault(entry.partition, []).append(entry)
        return {partition: Places(tuple(entries), self.deletions) for partition, entries in by_partition.items()}


def parse_key(store: TableStore, key: Mapping[str, Any]) -> dict[str, pa.Scalar]:
    """Convert a whole primary key to the columns' types.

    Args:
        store: the table.
        key: values by column; texts are parsed.

    Raises:
        ColumnNotFound: the key names an unknown column.
        UnsupportedFeature: the table has no primary key.
        InvalidFilter: columns are missing, or a value does not fit its column.
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
        key_columns = ", ".join(schema.primary_keys)
        raise InvalidFilter(
            f"table {store.name}: a key has exactly the columns {key_columns}, not {', '.join(key) or 'none'}"
        )
    return {name: _scalar(store, name, key[name]) for name in schema.primary_keys}


def _scalar(store: TableStore, name: str, value: Any) -> pa.Scalar:
    kind = store.schema.arrow_schema.field(name).type
    if value is None and not store.schema.nullable_key:
        raise InvalidFilter(f"table {store.name}: key column '{name}' cannot be null")
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        try:
            return pa.scalar(value).cast(kind)  # text, as people type it
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidFilter(f"table {store.name}: {value!r} is no {kind} for key column '{name}'") from error


def places_of(store: TableStore, snapshot: Snapshot, key: Mapping[str, pa.Scalar]) -> Places:
    """Return the files that can hold a key, from metadata only, including files that reads do not see.

    Args:
        store: the table.
        snapshot: snapshot to search.
        key: primary key, typed.
    """
    schema = store.schema
    tests = [(name, "=", value.as_py()) if value.is_valid else (name, "is null", None) for name, value in key.items()]
    predicate = parse_filter(tests, schema, store.name)
    partitions = None
    if schema.partition_keys and set(schema.partition_keys) <= set(key):
        partitions = [partition_bytes(schema, {name: key[name].as_py() for name in schema.partition_keys})]
    entries = live_entries(store, snapshot, partitions=partitions, choose=manifest_chooser(schema, None, predicate))
    entries = prune_partitions(schema, entries, predicate)
    entries = prune_files(store, prune_buckets(schema, entries, predicate, store.options.bucket_function), predicate)
    require_in_place(store, snapshot, entries)
    vectors = deletion_vectors(store, snapshot, partitions)
    deletions = {name: file for files in vectors.values() for name, file in files.items()}
    return Places(tuple(table_to_entries(entries)), deletions)


def versions_of(
    store: TableStore, places: Places, spec: KeySpec, key: Mapping[str, pa.Scalar]
) -> Iterator[StoredVersion]:
    """Yield every stored version of a key in one partition, file by file, the oldest file first.

    Args:
        store: the table.
        places: files of one partition that can hold the key.
        spec: key layout of the table.
        key: primary key, typed.
    """
    keys = spec.keys(pa.RecordBatch.from_pydict({key_name(name): pa.array([key[name]]) for name in spec.key_columns}))
    target = keys.scalar(0)
    by_name = {entry.file.file_name: entry for entry in places.entries}
    groups = [
        group for section in sections_of(store, [entry.file for entry in places.entries]) for group in section.groups
    ]
    for age, group in enumerate(groups):
        for file in group:
            vector = places.deletions.get(file.file_name)
            yield from _versions_in_file(store, by_name[file.file_name], age, vector, spec, target)


def _versions_in_file(
    store: TableStore,
    entry: ManifestEntry,
    age: int,
    deletion_file: DeletionFile | None,
    spec: KeySpec,
    target: int | bytes,
) -> Iterator[StoredVersion]:
    """Yield the versions of a key in one file: keys are compared first, values read only where one matches.

    Args:
        store: the table.
        entry: manifest entry of the file.
        age: age rank of the file (larger = newer), which is stored in the versions.
        deletion_file: deletion vector of the file, or None.
        spec: key layout of the table.
        target: the key, in the comparable form of ``spec``.
    """
    place = entry.partition, entry.bucket, entry.file
    if not any(stop > start for start, stop, _ in _stretches(store, place, spec, target, columns=[])):
        return
    vector = None if deletion_file is None else read_vector(store, deletion_file, entry.file.row_count)
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
    """Yield (start, stop, (number of the batch's first row in the file, batch)) for each batch of a file.

    Rows from ``start`` to before ``stop`` of the batch have the key. Batches after the key's position are not read.

    Args:
        store: the table.
        place: partition bytes, bucket number and metadata of the file.
        spec: key layout of the table.
        target: the key, in the comparable form of ``spec``.
        columns: value columns to read, None for all.
    """
    first = 0
    with closing(open_kv(store, *place, columns=columns)) as batches:  # type: ignore[type-var]
        for batch in batches:
            keys = spec.keys(batch)
            yield keys.bisect(target, right=False), keys.bisect(target, right=True), (first, batch)
            first += batch.num_rows
            if keys.scalar(len(keys) - 1) > target:  # type: ignore[operator]
                return  # rows are in key order
