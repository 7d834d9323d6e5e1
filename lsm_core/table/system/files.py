"""`$files` and `$file_key_ranges`: one row a live data file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.format.schema import TableSchema
from lsm_core.metadata import manifests
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.read.predicate import Conjunct, Predicate, parse_filter
from lsm_core.table.system.entries import key_texts, partition_texts, paths, stats_texts
from lsm_core.table.system.view import Version, View, Wanted, table_schema

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
"""Entries whose texts are made together: statistics of wide tables are some KB a file."""


class Files(View):
    """Live files of a version by partition, bucket and name, as wide as ``columns`` says."""

    def __init__(self, columns: TableSchema) -> None:
        self._columns = columns

    def schema(self, store: TableStore) -> TableSchema:
        """The same for every table."""
        return self._columns

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """Only the entry columns that are needed stay in memory. Raises CorruptFile."""
        store, snapshot = version.store, version.snapshot
        if snapshot is None:
            return
        sources = {source for name in wanted.columns for source in _MADE_FROM.get(name, (name,))}
        needed = sorted({*sources, *_ORDERED_BY})
        entries = manifests.live_entries(store, snapshot, columns=needed, keep=_keeper(store, wanted.predicate))
        order = _order(store, entries)
        for first in range(0, entries.num_rows, _AT_ONCE):
            yield _described(store, entries.take(order.slice(first, _AT_ONCE)), wanted)


def _order(store: TableStore, entries: pa.Table) -> pa.Array:
    keys = [partition_texts(store, entries.column("partition")), entries.column("bucket"), entries.column("file_name")]
    table = pa.table(keys, names=list(_ORDERED_BY))
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in _ORDERED_BY])


def _keeper(store: TableStore, predicate: Predicate | None) -> Callable[[pa.Table], pa.Table]:
    """Leaves out entries by what makes up their identity, before they are kept in memory; files in no real bucket always."""
    placed = _placed(predicate)

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


def _placed(predicate: Predicate | None) -> Predicate | None:
    """The part of a filter that asks for partition, bucket and level, when all of it must hold."""
    if predicate is None or predicate.groups is None or len(predicate.groups) != 1:
        return None
    tests = [_as_given(test) for test in predicate.groups[0] if test.column in ("partition", "bucket", "level")]
    return parse_filter(tests, FILES, "") if tests and None not in tests else None


def _as_given(test: Conjunct) -> tuple[object, ...] | None:
    if test.others:
        return None
    if test.value is None:
        return (test.column, test.op)
    return (test.column, test.op, test.value.to_pylist() if isinstance(test.value, pa.Array) else test.value.as_py())


def _described(store: TableStore, entries: pa.Table, wanted: Wanted) -> pa.Table:
    makers: dict[str, Callable[[], pa.Array]] = {
        "partition": lambda: partition_texts(store, entries.column("partition")),
        "file_path": lambda: paths(store, entries),
        "file_format": lambda: _extension(one_array(entries.column("file_name"))),
        "record_count": lambda: entries.column("row_count"),
        "file_size_in_bytes": lambda: entries.column("file_size"),
        "min_key": partial(key_texts, store, entries, "min_key"),
        "max_key": partial(key_texts, store, entries, "max_key"),
        "creation_time": lambda: pc.cast(entries.column("creation_time_ms"), pa.timestamp("ms")),
        "deleteRowCount": lambda: entries.column("delete_row_count"),
        "file_source": lambda: _source(entries.column("file_source")),
    }
    stats = stats_texts(store, entries) if wanted.columns.intersection(_STATS) else {}
    columns = {}
    for name in FILES.field_names:
        if name in wanted:
            made = stats.get(name)
            columns[name] = made if made is not None else makers.get(name, partial(entries.column, name))()
    return pa.table(columns)


def _extension(names: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(names, r"(?s)^.*\.", "")


def _source(source: pa.ChunkedArray) -> pa.Array:
    return pc.if_else(pc.equal(source, 1), "COMPACT", pc.if_else(pc.equal(source, 0), "APPEND", None))


__all__ = ["FILES", "KEY_RANGES", "Files"]
