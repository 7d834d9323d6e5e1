"""`$audit_log`, `$binlog` and `$ro`: the table's own rows, seen with their kinds or without what still waits to be merged."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.kv_layout import VALUE_KIND
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.read import Scan, Split, plan_scan, read_bucket_merged, read_split, to_batches
from lsm_core.table.system.view import Version, View, Wanted
from lsm_core.types import DataType, TypeRoot, parse
from lsm_core.types.row_kind import kinds_to_text

ROW_KIND: Final = "rowkind"
_ROW_KIND_ID: Final = 2147483643
_INSERT: Final = "+I"


def _with_kind(store: TableStore, fields: tuple[DataField, ...]) -> TableSchema:
    if store.schema.has_field(ROW_KIND):
        raise UnsupportedFeature(f"a column called '{ROW_KIND}', which $audit_log and $binlog add", store.name)
    kind = DataField(_ROW_KIND_ID, ROW_KIND, parse("STRING"))
    return TableSchema(id=0, fields=(kind, *fields), highest_field_id=_ROW_KIND_ID)


class AuditLog(View):
    """The newest row of every key with its kind, deleted ones too (append tables: all rows)."""

    def schema(self, store: TableStore) -> TableSchema:
        """`rowkind`, then the table's columns. Raises UnsupportedFeature when the table has a column of that name."""
        return _with_kind(store, store.schema.fields)

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """Batch by batch. Raises what reading the table raises."""
        names = [name for name in version.store.schema.field_names if name in wanted]
        # A batch must have a column to have rows.
        columns = names or [version.store.schema.field_names[0]]
        scan = plan_scan(version.store, columns=columns, filter=_pruning(wanted), **version.named)
        return _with_kinds(scan, columns)


class Binlog(AuditLog):
    """`$audit_log` with every value in a list, as streams pair what an update replaces with what it puts there."""

    def schema(self, store: TableStore) -> TableSchema:
        """`rowkind`, then a list for each of the table's columns."""
        lists = [
            replace(field, type=DataType(TypeRoot.ARRAY, element=field.type.with_nullable(nullable=True)), default=None)
            for field in store.schema.fields
        ]
        return _with_kind(store, tuple(lists))

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """Batch by batch. Raises what reading the table raises."""
        parts = super().tables(version, Wanted(wanted.columns))
        return (_in_lists(part) for part in parts)


class ReadOptimized(View):
    """What needs no merging: files of the top level (append tables: all rows). Fast, and as old as the last full compaction."""

    def schema(self, store: TableStore) -> TableSchema:
        """The table's own."""
        return store.schema

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """Batch by batch. Raises what reading the table raises."""
        store = version.store
        names = [name for name in store.schema.field_names if name in wanted]
        levels = [store.options.num_levels - 1] if store.has_primary_key else None
        scan = plan_scan(store, columns=names, filter=wanted.predicate, levels=levels, **version.named)
        return (pa.Table.from_batches([batch]) for batch in to_batches(scan.store, scan))


def _with_kinds(scan: Scan, columns: list[str]) -> Generator[pa.Table, None, None]:
    for split in scan.splits:
        with closing(_split_with_kinds(scan, split, columns)) as parts:
            yield from parts


def _split_with_kinds(scan: Scan, split: Split, columns: list[str]) -> Generator[pa.Table, None, None]:
    if not scan.schema.primary_keys:
        with closing(read_split(scan.store, split, columns)) as batches:
            for batch in batches:
                kinds = pa.repeat(pa.scalar(_INSERT), batch.num_rows)
                yield pa.Table.from_batches([batch]).append_column(ROW_KIND, kinds)
        return
    deletions = {file.file_name: one for file, one in zip(split.files, split.deletions, strict=True) if one}
    merged = read_bucket_merged(
        scan.store,
        split.partition,
        split.bucket,
        split.files,
        columns=columns,
        keep_deletes=True,
        keep_system=True,
        sections=split.sections or None,
        deletions=deletions,
    )
    with closing(merged) as batches:
        for batch in batches:
            kinds = kinds_to_text(batch.column(VALUE_KIND))
            yield pa.Table.from_batches([batch.select(columns)]).append_column(ROW_KIND, kinds)


def _in_lists(part: pa.Table) -> pa.Table:
    ends = pa.array(np.arange(part.num_rows + 1, dtype=np.int32))
    columns = {}
    for name in part.column_names:
        values = part.column(name).combine_chunks()
        flat = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
        columns[name] = flat if name == ROW_KIND else pa.ListArray.from_arrays(ends, flat)
    return pa.table(columns)


def _pruning(wanted: Wanted) -> object:
    """The part of a filter that the table itself can be asked: all but tests of the row kind."""
    predicate, given = wanted.predicate, wanted.given
    if predicate is None or predicate.by_position:
        return None
    if ROW_KIND not in predicate.columns:
        return predicate
    if predicate.groups is None or not isinstance(given, (list, tuple)):
        return None
    groups = given if given and isinstance(given[0], list) else [[given] if isinstance(given, tuple) else given]
    kept = [[test for test in group if test[0] != ROW_KIND] for group in groups]
    return kept if all(kept) else None


__all__ = ["AuditLog", "Binlog", "ReadOptimized"]
