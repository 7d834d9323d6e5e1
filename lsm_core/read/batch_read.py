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
from lsm_core.read.scan import as_schema, plan_scan, plan_version, to_arrow, to_batches
from lsm_core.read.table_versions import naming_lost_version, resolve

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

    The arguments and errors are the same as for :func:`read_as_stream`.
    """
    span = _span(store, version)
    if span is None:
        scan = plan_scan(store, columns=columns, filter=filter, limit=limit, dictionaries=dictionaries, **version)
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
        filter: condition on the rows, as :func:`parse_filter` takes it.
        limit: largest number of rows; None for all.
        version: the arguments of :func:`plan_scan` that name a version; they override the table's options.
        dictionaries: return text columns as Arrow dictionaries of int32; each batch has its own dictionary.

    Returns:
        The Arrow schema and a generator of batches in bounded memory.

    Raises:
        InvalidOption: ``limit`` is not a whole number of at least 0.
        DredgeError: the errors of :func:`plan_scan` and :func:`incremental`.
    """
    span = _span(store, version)
    if span is None:
        scan = plan_scan(store, columns=columns, filter=filter, limit=limit, dictionaries=dictionaries, **version)
        return scan.arrow_schema, to_batches(scan.store, scan, limit=limit)
    from lsm_core.read.changes import Choice

    choice = Choice.of(store, columns, filter)
    return _schema_without_kinds(choice, dictionaries), _changed_rows(choice, span, limit, dictionaries)


def pin_version(store: TableStore, version_arguments: Mapping[str, Any]) -> tuple[TableSchema, Callable[[Any], Any]]:
    """Resolve a version once, for many reads of this version.

    Args:
        store: the table.
        version_arguments: the arguments of :func:`resolve` that name a version. If empty, the table's options choose
            the version; without such options the newest version is read.

    Returns:
        The schema of the version, and a function that reads it. The function takes a tuple of the arguments that follow
        ``store`` in :func:`read_as_stream`, and returns the same as :func:`read_as_stream`. For a fixed version the
        function uses only columns, filter and limit. Options that select changes are resolved again for each read.

    Raises:
        SnapshotNotFound: the version does not exist.
        InvalidOption: the arguments name two versions.
    """
    if _span(store, version_arguments) is not None:
        return store.schema, lambda request: read_as_stream(store, *request)
    resolved = resolve(store, **version_arguments)

    def read(request: Any) -> tuple[pa.Schema, Batches]:
        columns, condition, limit = request[:3]
        with naming_lost_version(resolved.store, resolved.snapshot):
            scan = plan_version(resolved, columns=columns, filter=condition, limit=limit)
        return scan.arrow_schema, to_batches(scan.store, scan, limit=limit)

    return resolved.store.schema, read


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
