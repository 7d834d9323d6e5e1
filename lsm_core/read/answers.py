"""What a batch read answers: the rows of a version, or, where the table's options ask for changes, changed rows without their kinds."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.read.changes.spans import Span, span_of_options
from lsm_core.read.scan import as_schema, plan_scan, to_arrow, to_batches
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
    """The rows of a read as one table; arguments and errors as for :func:`answer_batches`."""
    span = _span(store, version)
    if span is None:
        scan = plan_scan(store, columns=columns, filter=filter, limit=limit, dictionaries=dictionaries, **version)
        return to_arrow(scan.store, scan, limit=limit)
    from lsm_core.read.changes import Choice  # what only reads of changes need

    choice = Choice.of(store, columns, filter)
    batches = list(_changed_rows(choice, span, limit, dictionaries))
    return pa.Table.from_batches(batches, _schema_without_kinds(choice, dictionaries))


def answer_batches(
    store: TableStore,
    columns: Sequence[str] | None,
    filter: object,  # noqa: A002 - the public API calls it so
    limit: int | None,
    version: Mapping[str, Any],
    dictionaries: bool = False,
) -> Batches:
    """Plan a read and run it; ``version`` are the arguments of :func:`plan_scan` that name one, and win over the options.

    Changed rows come as Java gives them: all rows of delta and changelog files, but no deleted ones of a comparison.
    ``dictionaries``: text columns come as Arrow dictionaries of int32, each batch with its own.
    Raises what :func:`plan_scan` and :func:`incremental` raise, and InvalidOption for a ``limit`` that is no count.
    """
    span = _span(store, version)
    if span is None:
        scan = plan_scan(store, columns=columns, filter=filter, limit=limit, dictionaries=dictionaries, **version)
        return to_batches(scan.store, scan, limit=limit)
    from lsm_core.read.changes import Choice

    return _changed_rows(Choice.of(store, columns, filter), span, limit, dictionaries)


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


__all__ = ["answer_batches", "answer_table"]
