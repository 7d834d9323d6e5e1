"""System tables about files, buckets and partitions.

The module contains `$files`, `$file_key_ranges`, `$file_indexes`, `$manifests`, `$table_indexes`, `$buckets` and
`$partitions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.manifest import table_to_entries
from lsm_core.format.partitions import partition_spec_values
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.indexes import index_container, vector_files
from lsm_core.metadata.live_files import NEWEST, totals
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.read.fallback import partition_sources
from lsm_core.read.predicate import Predicate, parse_filter
from lsm_core.read.table_versions import Version as ReadVersion
from lsm_core.table.system.entry_texts import cast_text, key_texts, partition_texts, paths, row_texts, stats_texts
from lsm_core.table.system.view import Selection, Version, View, table_of_columns, table_schema

FILES: Final = table_schema(
    [
        ("partition", "STRING"),
        ("bucket", "INT NOT NULL"),
        ("file_path", "STRING NOT NULL"),
        ("file_format", "STRING NOT NULL"),
        ("schema_id", "BIGINT NOT NULL"),
        ("level", "INT NOT NULL"),
        ("record_count", "BIGINT NOT NULL"),
        ("file_size_in_bytes", "BIGINT NOT NULL"),
        ("min_key", "STRING"),
        ("max_key", "STRING"),
        ("null_value_counts", "STRING NOT NULL"),
        ("min_value_stats", "STRING NOT NULL"),
        ("max_value_stats", "STRING NOT NULL"),
        ("min_sequence_number", "BIGINT"),
        ("max_sequence_number", "BIGINT"),
        ("creation_time", "TIMESTAMP(3)"),
        ("deleteRowCount", "BIGINT"),
        ("file_source", "STRING"),
        ("first_row_id", "BIGINT"),
        ("write_cols", "ARRAY<STRING>"),
    ]
)
_RANGES: Final = (*FILES.field_names[:10], "first_row_id")
KEY_RANGES: Final = table_schema([(name, str(FILES.field(name).type)) for name in _RANGES])
_STATS: Final = ("null_value_counts", "min_value_stats", "max_value_stats")
# Entry columns that a column is made from, where it is not the one of the same name.
_PATH: Final = ("partition", "bucket", "file_name", "external_path")
_STATS_FROM: Final = (
    *("schema_id", "row_count", "value_stats_cols", "write_cols"),
    *("value_stats_min", "value_stats_max", "value_stats_nulls"),
)
_MADE_FROM: Final = {
    "file_path": _PATH,
    "file_format": ("file_name",),
    "record_count": ("row_count",),
    "file_size_in_bytes": ("file_size",),
    "min_key": ("min_key", "schema_id"),
    "max_key": ("max_key", "schema_id"),
    "creation_time": ("creation_time_ms",),
    "deleteRowCount": ("delete_row_count",),
    **dict.fromkeys(_STATS, _STATS_FROM),
}
_ORDERED_BY: Final = ("partition", "bucket", "file_name")
_AT_ONCE: Final = 8192
"""Manifest entries whose texts are computed in one batch, because statistics of wide tables are some KB per file."""


class Files(View):
    """Live files of a version, sorted by partition, bucket and name: `$files` and `$file_key_ranges`.

    Attributes:
        columns: schema of the system table.
    """

    def __init__(self, columns: TableSchema) -> None:
        self.columns = columns

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield the files of the version in parts of some thousand. Only the selected columns of entries are in memory.

        Raises:
            CorruptFile: a manifest or manifest list is damaged.
        """
        store, snapshot = version.store, version.snapshot
        if snapshot is None:
            return
        sources = {source for name in selection.columns for source in _MADE_FROM.get(name, (name,))}
        needed = sorted({*sources, *_ORDERED_BY})
        entries = manifests.live_entries(
            store, snapshot, columns=needed, keep=_entry_filter(store, selection.predicate)
        )
        keys = [
            partition_texts(store, entries.column("partition")),
            entries.column("bucket"),
            entries.column("file_name"),
        ]
        named = pa.table(keys, names=list(_ORDERED_BY))
        order = pc.sort_indices(named, sort_keys=[(name, "ascending") for name in _ORDERED_BY])
        for first in range(0, entries.num_rows, _AT_ONCE):
            yield _describe_files(store, entries.take(order.slice(first, _AT_ONCE)), selection)


def _entry_filter(store: TableStore, predicate: Predicate | None) -> Callable[[pa.Table], pa.Table]:
    """Return a function that filters entries by partition, bucket and level before the entries are kept in memory.

    In a table with `bucket` = -2, the function always drops the files of bucket -2 (rows without a final bucket yet).
    """
    placed = _placement_filter(predicate)

    def keep(entries: pa.Table) -> pa.Table:
        if store.options.bucket == POSTPONE_BUCKET:
            entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
        if placed is None or not entries.num_rows:
            return entries
        texts = partition_texts(store, entries.column("partition")) if "partition" in placed.columns else None
        plain = entries.select(["bucket", "level"])
        tested = plain if texts is None else plain.append_column("partition", texts)
        rows = tested.append_column("row", pa.array(np.arange(tested.num_rows)))
        return entries.take(rows.filter(placed.expression).column("row"))

    return keep


def _placement_filter(predicate: Predicate | None) -> Predicate | None:
    """Return the part of a filter that tests partition, bucket and level, from the tests combined by AND; or None."""
    if predicate is None or predicate.groups is None or len(predicate.groups) != 1:
        return None
    tests: list[tuple[object, ...]] = []
    for test in predicate.groups[0]:
        if test.column not in ("partition", "bucket", "level"):
            continue
        if test.others:
            return None
        value = test.value
        if value is None:
            tests.append((test.column, test.op))
        else:
            tests.append((test.column, test.op, value.to_pylist() if isinstance(value, pa.Array) else value.as_py()))
    return parse_filter(tests, FILES, "") if tests else None


def _describe_files(store: TableStore, entries: pa.Table, selection: Selection) -> pa.Table:
    makers: dict[str, Callable[[], pa.Array]] = {
        "partition": lambda: partition_texts(store, entries.column("partition")),
        "file_path": lambda: paths(store, entries),
        "file_format": lambda: pc.replace_substring_regex(one_array(entries.column("file_name")), r"(?s)^.*\.", ""),
        "record_count": lambda: entries.column("row_count"),
        "file_size_in_bytes": lambda: entries.column("file_size"),
        "min_key": partial(key_texts, store, entries, "min_key"),
        "max_key": partial(key_texts, store, entries, "max_key"),
        "creation_time": lambda: pc.cast(entries.column("creation_time_ms"), pa.timestamp("ms")),
        "deleteRowCount": lambda: entries.column("delete_row_count"),
        "file_source": lambda: pc.if_else(
            pc.equal(entries.column("file_source"), 1),
            "COMPACT",
            pc.if_else(pc.equal(entries.column("file_source"), 0), "APPEND", None),
        ),
    }
    stats = stats_texts(store, entries) if selection.columns.intersection(_STATS) else {}
    columns = {}
    for name in FILES.field_names:
        if name in selection:
            texts = stats.get(name)
            columns[name] = texts if texts is not None else makers.get(name, partial(entries.column, name))()
    return pa.table(columns)


FILE_INDEXES: Final = table_schema(
    [
        ("partition", "STRING"),
        ("bucket", "INT NOT NULL"),
        ("file_path", "STRING NOT NULL"),
        ("file_size_in_bytes", "BIGINT NOT NULL"),
        ("record_count", "BIGINT NOT NULL"),
        ("schema_id", "BIGINT NOT NULL"),
        ("column_name", "STRING NOT NULL"),
        ("index_type", "STRING NOT NULL"),
        ("storage_type", "STRING NOT NULL"),
        ("index_file_path", "STRING"),
        ("index_size_in_bytes", "BIGINT NOT NULL"),
        ("index_container_size_in_bytes", "BIGINT NOT NULL"),
        ("is_empty", "BOOLEAN NOT NULL"),
    ]
)
_OF_FILE: Final = FILE_INDEXES.field_names[:6]


class FileIndexes(View):
    """`$file_indexes`: one row per index of a live data file, sorted by partition, bucket and name of the data file.

    Paimon has this table since 2.1.
    """

    columns = FILE_INDEXES

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield the indexes of the version in parts of some thousand data files. Only heads of side files are read.

        Raises:
            CorruptFile: a manifest, manifest list or index is damaged, or a side file is missing.
        """
        store, snapshot = version.store, version.snapshot
        if snapshot is None:
            return
        entries = manifests.live_entries(store, snapshot, keep=_entry_filter(store, selection.predicate))
        named = pc.greater(pc.list_value_length(entries.column("extra_files")), 0)
        entries = entries.filter(
            pc.or_(pc.is_valid(entries.column("embedded_index")), pc.fill_null(named, fill_value=False))
        )
        texts = partition_texts(store, entries.column("partition"))
        keys = pa.table([texts, entries.column("bucket"), entries.column("file_name")], names=list(_ORDERED_BY))
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in _ORDERED_BY])
        for first in range(0, entries.num_rows, _AT_ONCE):
            yield _describe_indexes(store, entries.take(order.slice(first, _AT_ONCE)))


def _describe_indexes(store: TableStore, entries: pa.Table) -> pa.Table:
    """Return one row per index of the data files, in their order.

    Raises:
        CorruptFile: an index is damaged, or its side file is missing.
    """
    files = _describe_files(store, entries, Selection(frozenset(_OF_FILE)))
    places: list[int] = []
    indexes: list[tuple[str, str, str, str | None, int, int, bool]] = []
    for place, entry in enumerate(table_to_entries(entries)):
        container = index_container(store, entry.partition, entry.bucket, entry.file)
        if container is None:
            continue
        storage = "EMBEDDED" if container.path is None else "FILE"
        for column, kind, size, is_empty in container.index.sizes():
            places.append(place)
            indexes.append((column, kind, storage, container.path, size, container.size, is_empty))
    described = files.select(_OF_FILE).take(pa.array(places, pa.int64()))
    names = FILE_INDEXES.field_names[len(_OF_FILE) :]
    values = zip(*indexes, strict=True) if indexes else [()] * len(names)
    for name, items in zip(names, values, strict=True):
        described = described.append_column(name, pa.array(items, FILE_INDEXES.arrow_schema.field(name).type))
    return described


MANIFESTS: Final = table_schema(
    [
        ("file_name", "STRING NOT NULL"),
        ("file_size", "BIGINT NOT NULL"),
        ("num_added_files", "BIGINT NOT NULL"),
        ("num_deleted_files", "BIGINT NOT NULL"),
        ("schema_id", "BIGINT NOT NULL"),
        ("min_partition_stats", "STRING"),
        ("max_partition_stats", "STRING"),
        ("min_row_id", "BIGINT"),
        ("max_row_id", "BIGINT"),
    ]
)
INDEXES: Final = table_schema(
    [
        ("partition", "STRING"),
        ("bucket", "INT NOT NULL"),
        ("index_type", "STRING NOT NULL"),
        ("file_name", "STRING NOT NULL"),
        ("file_size", "BIGINT NOT NULL"),
        ("row_count", "BIGINT NOT NULL"),
        (
            "dv_ranges",
            "ARRAY<ROW<`f0` STRING NOT NULL, `f1` INT NOT NULL, `f2` INT NOT NULL, `_CARDINALITY` BIGINT>>",
        ),
    ]
)
_SAME: Final = [name for name in MANIFESTS.field_names if not name.endswith("partition_stats")]
_SAME_INDEX: Final = ["bucket", "index_type", "file_name", "file_size", "row_count"]


class Manifests(View):
    """`$manifests`: one row per manifest of the version, from the base, delta and changelog manifest lists."""

    columns = MANIFESTS

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with all manifests of the version, because a version has some hundred manifests.

        Raises:
            CorruptFile: a manifest list is damaged.
        """
        store, snapshot = version.store, version.snapshot
        if snapshot is None:
            return
        metas = manifests.data_manifests(store, snapshot)
        metas += manifests.changelog_list(store, snapshot) or []
        columns = {name: [getattr(meta, name) for meta in metas] for name in _SAME}
        table = table_of_columns(MANIFESTS, columns, store.manifest_dir)
        for side in ("min", "max"):
            place = MANIFESTS.field_names.index(f"{side}_partition_stats")
            bounds = pa.array([getattr(meta.partition_stats, f"{side}_values") for meta in metas], pa.binary())
            table = table.set_column(place, table.field(place), row_texts(store, bounds))
        yield table


class TableIndexes(View):
    """`$table_indexes`: one row per index file of the version (hash indexes and deletion vectors)."""

    columns = INDEXES

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with all index files of the version, because a bucket has few of them.

        Raises:
            CorruptFile: the index manifest is damaged.
        """
        if version.snapshot is None:
            return
        entries = manifests.index_entries(version.store, version.snapshot)
        columns: dict[str, list[object]] = {name: [getattr(entry, name) for entry in entries] for name in _SAME_INDEX}
        columns["dv_ranges"] = [
            None
            if entry.deletion_vectors is None
            else [
                {"f0": v.data_file, "f1": v.offset, "f2": v.length, "_CARDINALITY": v.cardinality}
                for v in entry.deletion_vectors
            ]
            for entry in entries
        ]
        table = table_of_columns(INDEXES, columns, version.store.manifest_dir)
        partitions = pa.array([entry.partition for entry in entries], pa.binary())
        yield table.set_column(0, table.field(0), partition_texts(version.store, partitions))


BUCKETS: Final = table_schema(
    [
        ("partition", "STRING"),
        ("bucket", "INT NOT NULL"),
        ("record_count", "BIGINT NOT NULL"),
        ("file_size_in_bytes", "BIGINT NOT NULL"),
        ("file_count", "BIGINT NOT NULL"),
        ("last_update_time", "TIMESTAMP(3)"),
    ]
)
PARTITIONS: Final = table_schema(
    [
        ("partition", "STRING"),
        ("record_count", "BIGINT NOT NULL"),
        ("file_size_in_bytes", "BIGINT NOT NULL"),
        ("file_count", "BIGINT NOT NULL"),
        ("last_update_time", "TIMESTAMP(3)"),
        ("created_at", "TIMESTAMP(3)"),
        ("created_by", "STRING"),
        ("updated_by", "STRING"),
        ("options", "STRING"),
        ("total_buckets", "INT NOT NULL"),
        ("done", "BOOLEAN NOT NULL"),
        ("deleted_record_count", "BIGINT"),
    ]
)


_SERVED: Final = frozenset({"created_at", "created_by", "updated_by", "options", "done"})
"""Columns of `$partitions` that a catalog server knows."""
_LATEST_MS: Final = 253_402_300_799_999
"""Last millisecond of the year 9999: the end of the times that a partition may have."""


class Buckets(View):
    """`$buckets`: one row per bucket with files, including bucket -2, whose rows have no final bucket yet."""

    columns = BUCKETS

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with all buckets of the version, sorted by partition and bucket.

        Raises:
            CorruptFile: a manifest or manifest list is damaged.
        """
        if version.snapshot is None:
            return
        buckets = totals(version.store, version.snapshot, ["partition", "bucket"])
        texts = partition_texts(version.store, buckets.column("partition"))
        described = _with_update_time(buckets.set_column(0, "partition", texts)).select(BUCKETS.field_names)
        yield described.sort_by([("partition", "ascending"), ("bucket", "ascending")])


class Partitions(View):
    """`$partitions`: one row per partition with files (one row for a table without partitions).

    Columns that only catalog servers know are null, and `done` is false, unless a server keeps the table's partitions
    (`metastore.partitioned-table`). `deleted_record_count` is the number of rows that deletion vectors delete, or null
    if a vector's number is not recorded.
    """

    columns = PARTITIONS

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with all partitions of the version, sorted by partition; those of a fallback branch too.

        Raises:
            CorruptFile: a manifest or manifest list is damaged.
            MetastoreFailed: the catalog server of the table's partitions cannot be used.
        """
        parts = [
            part
            for source, hidden in partition_sources(ReadVersion(version.snapshot, version.store), version.named)
            for part in self._read_branch(source, hidden, selection)
        ]
        if parts:
            yield pa.concat_tables(parts).sort_by("partition")

    def _read_branch(self, version: ReadVersion, hidden: frozenset[bytes], selection: Selection) -> Iterator[pa.Table]:
        """Yield the partitions of a version, without the ``hidden`` ones; nothing without a snapshot."""
        if version.snapshot is None:
            return
        partitions = totals(version.store, version.snapshot, ["partition"])
        if hidden:
            is_hidden = pc.is_in(partitions.column("partition"), pa.array(sorted(hidden), pa.binary()))
            partitions = partitions.filter(pc.invert(is_hidden))
        serialised = one_array(partitions.column("partition"))
        dated = _with_update_time(partitions.set_column(0, "partition", _specs(version.store, serialised)))
        served = _served_partitions(version.store) if selection.columns.intersection(_SERVED) else {}
        dated = _with_served_columns(dated, version.store, serialised.to_pylist(), served)
        if "deleted_record_count" in selection:
            counts = _deleted_rows(version.store, version.snapshot)
            deleted = pa.array([counts.get(partition, 0) for partition in serialised.to_pylist()], pa.int64())
            dated = dated.append_column("deleted_record_count", deleted)
        for name in set(PARTITIONS.field_names).difference(dated.column_names):
            dated = dated.append_column(name, pa.nulls(dated.num_rows, PARTITIONS.arrow_schema.field(name).type))
        yield dated.select(PARTITIONS.field_names)


def _deleted_rows(store: TableStore, snapshot: Snapshot) -> dict[bytes, int | None]:
    """Return the number of rows that deletion vectors delete, by partition; None if a vector's number is not recorded.

    Raises:
        CorruptFile: the index manifest is damaged.
    """
    counts: dict[bytes, int | None] = {}
    if not store.options.deletion_vectors_enabled:
        return counts
    for (partition, _), files in vector_files(store, snapshot).items():
        numbers = [vector.cardinality for file in files for vector in file.deletion_vectors or ()]
        known = counts.get(partition, 0)
        if numbers:
            counts[partition] = None if known is None or None in numbers else known + sum(filter(None, numbers))
    return counts


def _served_partitions(store: TableStore) -> dict[tuple[str, ...], Mapping[str, Any]]:
    """Return the partitions that the catalog server lists, by the texts of the partition columns.

    The result is empty if no server keeps the partitions of the table.
    """
    keys = store.schema.partition_keys
    if store.publisher is None or not keys or not store.options.get("metastore.partitioned-table"):
        return {}
    entries = ((entry["spec"], entry) for entry in store.publisher.list_partitions(store.branch))
    return {tuple(spec[key] for key in keys): entry for spec, entry in entries if set(spec) == set(keys)}


def _with_served_columns(
    rows: pa.Table, store: TableStore, partitions: Sequence[bytes], served: Mapping[tuple[str, ...], Mapping[str, Any]]
) -> pa.Table:
    """Add the columns that only a catalog server knows; values of an unexpected type are null."""
    specs = partition_spec_values(store.schema, partitions, store.options) if served else [{}] * len(partitions)
    entries = [served.get(tuple(spec.values()), {}) for spec in specs]
    for name, member in (("created_by", "createdBy"), ("updated_by", "updatedBy")):
        texts = [value if isinstance(value := entry.get(member), str) else None for entry in entries]
        rows = rows.append_column(name, pa.array(texts, pa.string()))
    times = [value if _is_time(value := entry.get("createdAt")) else None for entry in entries]
    rows = rows.append_column("created_at", pa.array(times, pa.timestamp("ms")))
    options = [json.dumps(value) if isinstance(value := entry.get("options"), dict) else None for entry in entries]
    rows = rows.append_column("options", pa.array(options, pa.string()))
    return rows.append_column("done", pa.array([entry.get("done") is True for entry in entries], pa.bool_()))


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LATEST_MS


def _specs(store: TableStore, partitions: pa.Array) -> pa.Array:
    """Return partitions as "dt=2024-01-01/h=3" with unescaped values.

    Null and blank values are shown as the value of `partition.default-name`.
    """
    types = store.schema.partition_types
    if not types:
        return pa.repeat(pa.scalar(""), len(partitions))
    pieces = []
    default = store.options.partition_default_name
    for name, kind, column in zip(store.schema.partition_keys, types, decode_rows(partitions, types), strict=True):
        text = pc.fill_null(cast_text(column, kind), "")
        shown = pc.if_else(pc.equal(pc.utf8_trim_whitespace(text), ""), default, text)
        pieces.append(pc.binary_join_element_wise(f"{name}=", shown, ""))
    return pc.binary_join_element_wise(*pieces, "/")


def _with_update_time(rows: pa.Table) -> pa.Table:
    place = rows.column_names.index(NEWEST)
    return rows.set_column(place, NEWEST, pc.cast(rows.column(NEWEST), pa.timestamp("ms")))
