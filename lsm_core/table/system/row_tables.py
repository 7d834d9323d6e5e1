"""System tables with the table's own rows: `$audit_log`, `$binlog`, `$ro` and `$row_tracking`."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.metadata.manifests import tracked_schema, tracks_rows
from lsm_core.metadata.store import TableStore
from lsm_core.read import Scan, to_batches
from lsm_core.read.changes import Choice, Span, span_of_options
from lsm_core.read.changes.changed_rows import Rows, split_rows
from lsm_core.read.changes.incremental import incremental
from lsm_core.read.changes.spans import ScanMode
from lsm_core.read.fallback import plan_read
from lsm_core.read.read_tags import protected, releasing
from lsm_core.read.table_versions import startup
from lsm_core.table.system.view import Selection, Version, View
from lsm_core.types import DataType, TypeRoot, parse

ROW_KIND: Final = "rowkind"
_ROW_KIND_ID: Final = 2147483643
_BEFORE: Final = "-U"
_AFTER: Final = "+U"


def _with_kind(store: TableStore, fields: tuple[DataField, ...]) -> TableSchema:
    if store.schema.has_field(ROW_KIND):
        raise UnsupportedFeature(f"a column called '{ROW_KIND}', which $audit_log and $binlog add", store.name)
    kind = DataField(_ROW_KIND_ID, ROW_KIND, parse("STRING"))
    return TableSchema(id=0, fields=(kind, *fields), highest_field_id=_ROW_KIND_ID)


class AuditLog(View):
    """`$audit_log`: rows with their row kinds; of a keyed table the newest row of each key, deleted rows included.

    With options for incremental reads (`incremental-between` ...), the table contains each change with its row kind.
    """

    def schema(self, store: TableStore) -> TableSchema:
        """Return `rowkind` and the table's columns.

        Args:
            store: the table.

        Raises:
            UnsupportedFeature: the table has a column named `rowkind`.
        """
        return _with_kind(store, store.schema.fields)

    def version(self, store: TableStore, named: Mapping[str, Any]) -> Version:
        """Return the version that the arguments of a read choose; changes are read with the table's current schema.

        Args:
            store: the table.
            named: arguments that choose a version, such as `snapshot_id` or `tag`; None for absent ones. They override
                options that select changes.

        Raises:
            SnapshotNotFound: the version does not exist.
            InvalidOption: arguments or options contradict each other.
        """
        pinned = any(value is not None for value in named.values())
        return super().version(store, named) if pinned or not startup(store).changes else Version(store, None)

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield the rows with their row kinds as text, one part per batch. Raises the errors of reads of the table."""
        names = [name for name in version.store.schema.field_names if name in selection]
        # A batch must have a column to have rows.
        columns = names or [version.store.schema.field_names[0]]
        choice = Choice.of(version.store, columns, _pruning(selection))
        span = _span(version)
        if span is not None:
            return _with_kind_texts(choice, incremental(choice, span))
        scan = plan_read(version.store, columns=columns, filter=choice.predicate, **version.named)
        return _with_kind_texts(choice, _all_rows(choice, protected(scan)))


class Binlog(AuditLog):
    """`$binlog`: rows of `$audit_log` with a list in each column; an update is one row of lists [old, new value]."""

    def schema(self, store: TableStore) -> TableSchema:
        """Return `rowkind`, and a list column for each of the table's columns.

        Args:
            store: the table.

        Raises:
            UnsupportedFeature: the table has a column named `rowkind`.
        """
        lists = [
            replace(field, type=DataType(TypeRoot.ARRAY, element=field.type.with_nullable(nullable=True)), default=None)
            for field in store.schema.fields
        ]
        return _with_kind(store, tuple(lists))

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield the rows of the binlog, one part per batch. Raises the errors of reads of the table."""
        span = _span(version)
        together = span is not None and span.mode is not ScanMode.DIFF
        return _paired(super().read_parts(version, Selection(selection.columns)), together=together)


class ReadOptimized(View):
    """`$ro`: rows of the files on the last level, as of the last full compaction; all rows of an append table.

    These rows are read without merging.
    """

    def schema(self, store: TableStore) -> TableSchema:
        """Return the table's schema."""
        return store.schema

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield the rows of the files, one part per batch. Raises the errors of reads of the table."""
        store = version.store
        names = [name for name in store.schema.field_names if name in selection]
        levels = [store.options.num_levels - 1] if store.has_primary_key else None
        scan = plan_read(store, columns=names, filter=selection.predicate, levels=levels, **version.named)
        return _read_parts(protected(scan))


class RowTracking(View):
    """`$row_tracking`: rows with `_ROW_ID` and `_SEQUENCE_NUMBER`, the id of the snapshot that last wrote the row."""

    def schema(self, store: TableStore) -> TableSchema:
        """Return the table's columns, then `_ROW_ID` and `_SEQUENCE_NUMBER`.

        Args:
            store: the table.

        Raises:
            UnsupportedFeature: the option `row-tracking.enabled` is not set.
        """
        if not tracks_rows(store):
            raise UnsupportedFeature("$row_tracking of a table without option 'row-tracking.enabled'", store.name)
        return tracked_schema(store.schema)

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield the rows with their ids, one part per batch. Raises the errors of reads of the table."""
        names = [name for name in self.schema(version.store).field_names if name in selection]
        scan = plan_read(version.store, columns=names, filter=selection.predicate, **version.named)
        return _read_parts(protected(scan))


def _read_parts(scan: Scan) -> Iterator[pa.Table]:
    with releasing(scan):
        for batch in to_batches(scan.store, scan):
            yield pa.Table.from_batches([batch])


def _span(version: Version) -> Span | None:
    """Return the range of changes that the options select, or None if the rows of one version are read."""
    return None if version.pinned else span_of_options(version.store)


def _all_rows(choice: Choice, scan: Scan) -> Rows:
    with releasing(scan):
        for split in scan.splits:
            with closing(split_rows(choice, split, deletes=True)) as batches:
                yield from batches


def _with_kind_texts(choice: Choice, rows: Rows) -> Generator[pa.Table, None, None]:
    """Yield rows with their row kinds as text in the first column, `rowkind`.

    Args:
        choice: columns and filter of the read.
        rows: batches of rows.
    """
    with closing(rows) as batches:
        for batch in batches:
            rows_with_kinds = pa.Table.from_batches([choice.with_text_kinds(batch)])
            yield rows_with_kinds.rename_columns([ROW_KIND, *rows_with_kinds.column_names[1:]])


def _paired(parts: Iterator[pa.Table], *, together: bool) -> Generator[pa.Table, None, None]:
    """Yield rows of the audit log with a list of one value in each column.

    With ``together``, a `-U` row and the `+U` row after it become one `+U` row with lists [old value, new value].

    Source: Paimon `PackChangelogReader`.
    """
    held: pa.Table | None = None
    for part in parts:
        if not together:
            yield _in_lists(part, np.zeros(part.num_rows, np.bool_))
            continue
        whole = part if held is None else pa.concat_tables([held, part])
        # The last row may be the first half of a pair.
        ready = whole.num_rows - (whole.column(ROW_KIND)[-1].as_py() == _BEFORE)
        held = whole.slice(ready)
        if ready:
            first = whole.slice(0, ready)
            kinds = one_array(first.column(ROW_KIND))
            before, after = (pc.equal(kinds, text).to_numpy(zero_copy_only=False) for text in (_BEFORE, _AFTER))
            yield _in_lists(first, np.r_[False, before[:-1] & after[1:]])
    if held is not None and held.num_rows:
        yield _in_lists(held, np.zeros(held.num_rows, np.bool_))


def _in_lists(part: pa.Table, second: npt.NDArray[np.bool_]) -> pa.Table:
    """Return rows with a list in each column; a row is merged with the row before it where ``second`` is true.

    The lists of a merged row are [value of the row before, value of the row]; its row kind is that of the second row.
    The lists of all other rows have one value.
    """
    kinds = one_array(part.column(ROW_KIND))
    ends = np.r_[np.flatnonzero(~second), part.num_rows].astype(np.int32)
    columns = {ROW_KIND: kinds.take(pa.array(ends[1:] - 1))}
    for name in part.column_names[1:]:
        columns[name] = pa.ListArray.from_arrays(pa.array(ends), one_array(part.column(name)))
    return pa.table(columns)


def _pruning(selection: Selection) -> object:
    """Return the part of a filter that the table's own read can use: all tests except tests of the row kind."""
    predicate, filter_argument = selection.predicate, selection.filter_argument
    if predicate is None or predicate.by_position:
        return None
    if ROW_KIND not in predicate.columns:
        return predicate
    if predicate.groups is None or not isinstance(filter_argument, (list, tuple)):
        return None
    groups = (
        filter_argument
        if filter_argument and isinstance(filter_argument[0], list)
        else [[filter_argument] if isinstance(filter_argument, tuple) else filter_argument]
    )
    kept = [[test for test in group if test[0] != ROW_KIND] for group in groups]
    return kept if all(kept) else None
