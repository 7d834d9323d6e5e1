"""Rows of a batch read.

A batch read returns the rows of one version. If the table's options select changes, it returns the changed rows
without their row kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lsm_core.arrays import as_dictionaries
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.read.changes.spans import Span, span_of_options
from lsm_core.read.fallback import find_other_branch, plan_branches, plan_read
from lsm_core.read.read_tags import protected, releasing, with_release
from lsm_core.read.scan import Scan, as_schema, to_arrow, to_batches
from lsm_core.read.table_versions import resolve

if TYPE_CHECKING:
    from lsm_core.read.changes import Choice


Batches = Generator[pa.RecordBatch, None, None]


def read_as_table(
    store: TableStore,
    columns: Sequence[str] | None,
    filter: object,  # noqa: A002 - the public API calls it so
    limit: int | None,
    version: Mapping[str, Any],
    dictionaries: bool = False,
) -> pa.Table:
    """Plan a batch read and return its rows as one table.

    Args:
        store: the table.
        columns: names of the columns to read, in this order; None for all.
        filter: condition on the rows: tuples (column, operator, value), SQL text or an Arrow expression; None for all.
        limit: largest number of rows; None for all.
        version: version to read, as one of `snapshot_id`, `tag`, `timestamp_ms` and `watermark`; it overrides the
            table's options. If empty, these options choose a version or changes.
        dictionaries: return text columns as Arrow dictionaries of int32.

    Raises:
        InvalidOption: ``limit`` is not a whole number of at least 0.
        DredgeError: the version or a column does not exist, or the table cannot be read.
    """
    span = _span(store, version)
    if span is None:
        scan = plan_read(store, columns=columns, filter=filter, limit=limit, dictionaries=dictionaries, **version)
        scan = protected(scan)
        with releasing(scan):
            return to_arrow(scan.store, scan, limit=limit)
    from lsm_core.read.changes import Choice  # imported here: only reads of changes need it

    choice = Choice.of(store, columns, filter)
    batches = list(_changed_rows(choice, span, limit, dictionaries))
    return pa.Table.from_batches(batches, _schema_without_kinds(choice, dictionaries))


def read_as_stream(
    store: TableStore,
    columns: Sequence[str] | None,
    filter: object,  # noqa: A002 - the public API calls it so
    limit: int | None,
    version: Mapping[str, Any],
    dictionaries: bool = False,
) -> tuple[pa.Schema, Batches]:
    """Plan a batch read and return its Arrow schema and its batches of rows.

    If the table's options select changes, the rows are the same as in Java: all rows of delta and changelog files.
    A comparison of two versions (mode diff) returns no deleted rows.

    Args:
        store: the table.
        columns: names of the columns to read, in this order; None for all.
        filter: condition on the rows: tuples (column, operator, value), SQL text or an Arrow expression; None for all.
        limit: largest number of rows; None for all.
        version: version to read, as one of `snapshot_id`, `tag`, `timestamp_ms` and `watermark`; it overrides the
            table's options. If empty, these options choose a version or changes.
        dictionaries: return text columns as Arrow dictionaries of int32; each batch has its own dictionary.

    Returns:
        The Arrow schema and a generator of batches in bounded memory.

    Raises:
        InvalidOption: ``limit`` is not a whole number of at least 0.
        DredgeError: the version or a column does not exist, or the table cannot be read.
    """
    span = _span(store, version)
    if span is None:
        scan = plan_read(store, columns=columns, filter=filter, limit=limit, dictionaries=dictionaries, **version)
        return scan.arrow_schema, _rows_of(scan, limit)
    from lsm_core.read.changes import Choice

    choice = Choice.of(store, columns, filter)
    return _schema_without_kinds(choice, dictionaries), _changed_rows(choice, span, limit, dictionaries)


def pin_version(store: TableStore, version_arguments: Mapping[str, Any]) -> tuple[TableSchema, Callable[[Any], Any]]:
    """Resolve a version once, for many reads of this version.

    Args:
        store: the table.
        version_arguments: version to read, as one of `snapshot_id`, `tag`, `timestamp_ms` and `watermark`. If empty,
            the table's options choose the version; without such options the newest version is read.

    Returns:
        The schema of the version, and a function that reads it. The function takes one tuple (columns, filter, limit,
        version, dictionaries) and returns the Arrow schema and the batches of rows. For a fixed version it ignores the
        last two members. If options select changes, they are resolved again for each read.

    Raises:
        SnapshotNotFound: the version does not exist.
        InvalidOption: the arguments name two versions.
    """
    if _span(store, version_arguments) is not None:
        return store.schema, lambda request: read_as_stream(store, *request)
    resolved = resolve(store, **version_arguments)
    other = find_other_branch(store, version_arguments)

    def read(request: Any) -> tuple[pa.Schema, Batches]:
        columns, condition, limit = request[:3]
        scan = plan_branches(resolved, other, columns=columns, filter=condition, limit=limit)
        return scan.arrow_schema, _rows_of(scan, limit)

    return resolved.store.schema, read


def _rows_of(scan: Scan, limit: int | None) -> Batches:
    batches = to_batches(scan.store, scan, limit=limit)  # raises errors of the arguments before a tag exists
    scan = protected(scan)
    return batches if scan.read_tag is None else with_release(scan, batches)


def _span(store: TableStore, version: Mapping[str, Any]) -> Span | None:
    """Return the span of changes that the table's options select, or None if a version is to be read."""
    return span_of_options(store) if all(value is None for value in version.values()) else None


def _changed_rows(choice: Choice, span: Span, limit: int | None, dictionaries: bool) -> Batches:
    from lsm_core.read.changes import span_values

    left = None if limit is None else whole_number(limit, "limit", choice.store.name, least=0)
    rows = span_values(choice, span, left)
    if not dictionaries:
        return rows
    schema = _schema_without_kinds(choice, dictionaries)
    return (as_schema(batch, schema) for batch in rows)


def _schema_without_kinds(choice: Choice, dictionaries: bool) -> pa.Schema:
    schema = pa.schema(list(choice.schema)[1:])
    return as_dictionaries(schema, schema.names) if dictionaries else schema
