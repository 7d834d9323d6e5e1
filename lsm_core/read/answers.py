"""What a batch read answers: the rows of a version, or, where the table's options ask for changes, changed rows without their kinds."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lsm_core.format.schema import TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.read.changes.spans import Span, span_of_options
from lsm_core.read.scan import as_schema, plan_scan, plan_version, to_arrow, to_batches
from lsm_core.read.table_versions import resolve
from lsm_core.types.dictionaries import as_dictionaries

if TYPE_CHECKING:
    from lsm_core.read.changes import Choice

Batches = Generator[pa.RecordBatch, None, None]


def answer_table(
    store: TableStore,
    columns: Sequence[str] | None,
    filter: object,  # noqa: A002 - the public API calls it so
    limit: int | None,
    version: Mapping[str, Any],
    dictionaries: bool = False,
) -> pa.Table:
    """The rows of a read as one table; arguments and errors as for :func:`answer_stream`."""
    span = _span(store, version)
    if span is None:
        scan = plan_scan(store, columns=columns, filter=filter, limit=limit, dictionaries=dictionaries, **version)
        return to_arrow(scan.store, scan, limit=limit)
    from lsm_core.read.changes import Choice  # what only reads of changes need

    choice = Choice.of(store, columns, filter)
    batches = list(_changed_rows(choice, span, limit, dictionaries))
    return pa.Table.from_batches(batches, _schema_without_kinds(choice, dictionaries))


def answer_stream(
    store: TableStore,
    columns: Sequence[str] | None,
    filter: object,  # noqa: A002 - the public API calls it so
    limit: int | None,
    version: Mapping[str, Any],
    dictionaries: bool = False,
) -> tuple[pa.Schema, Batches]:
    """Plan a read and return the schema of its rows and their batches.

    Changed rows come as Java gives them: all rows of delta and changelog files, but no deleted ones of a comparison.

    Args:
        store: the table.
        columns: names of the columns to read, in this order; None for all.
        filter: condition on the rows, as :func:`parse_filter` takes it.
        limit: largest number of rows; None for all.
        version: the arguments of :func:`plan_scan` that name a version; they win over the table's options.
        dictionaries: return text columns as Arrow dictionaries of int32, each batch with its own.

    Returns:
        The Arrow schema and a generator of batches in bounded memory.

    Raises:
        InvalidOption: ``limit`` is no count.
        DredgeError: as :func:`plan_scan` and :func:`incremental` raise it.
    """
    span = _span(store, version)
    if span is None:
        scan = plan_scan(store, columns=columns, filter=filter, limit=limit, dictionaries=dictionaries, **version)
        return scan.arrow_schema, to_batches(scan.store, scan, limit=limit)
    from lsm_core.read.changes import Choice

    choice = Choice.of(store, columns, filter)
    return _schema_without_kinds(choice, dictionaries), _changed_rows(choice, span, limit, dictionaries)


def fixed_answers(store: TableStore, named: Mapping[str, Any]) -> tuple[TableSchema, Callable[[Any], Any]]:
    """Resolve a version once, for many reads of it.

    Args:
        store: the table.
        named: the arguments of :func:`resolve` that name a version; without one the options do, else the newest is meant.

    Returns:
        The schema of the version, and a function from a question (columns, filter, limit, ...) to the Arrow schema and batches
        of its rows. Options that ask for changes are resolved with each question.

    Raises:
        SnapshotNotFound: the version does not exist.
        InvalidOption: two versions are named.
    """
    if _span(store, named) is not None:
        return store.schema, lambda question: answer_stream(store, *question)
    version = resolve(store, **named)

    def answer(question: Any) -> tuple[pa.Schema, Batches]:
        columns, condition, limit = question[:3]
        scan = plan_version(version, columns=columns, filter=condition, limit=limit)
        return scan.arrow_schema, to_batches(scan.store, scan, limit=limit)

    return version.store.schema, answer


def _span(store: TableStore, version: Mapping[str, Any]) -> Span | None:
    """The changes that the options ask for; None where a version is read: no option says otherwise, or an argument names one."""
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


__all__ = ["answer_stream", "answer_table", "fixed_answers"]
