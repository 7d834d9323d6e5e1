"""What a batch read answers: the rows of a version, or changed rows where the table's options ask for those."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.read.changes.choice import Choice
from lsm_core.read.changes.incremental import incremental
from lsm_core.read.changes.span import ScanMode, Span, span_of_options
from lsm_core.read.scan import as_schema, plan_scan, to_arrow, to_batches
from lsm_core.types import RowKind
from lsm_core.types.dictionaries import as_dictionaries

Batches = Generator[pa.RecordBatch, None, None]


def answer_table(
    store: TableStore,
    columns: Sequence[str] | None,
    given: object,
    limit: int | None,
    named: Mapping[str, Any],
    dictionaries: bool = False,
) -> pa.Table:
    """What a read answers as one table; arguments and errors of :func:`answer_batches`."""
    span = _span(store, named)
    if span is None:
        scan = plan_scan(store, columns=columns, filter=given, limit=limit, dictionaries=dictionaries, **named)
        return to_arrow(scan.store, scan, limit=limit)
    choice = Choice.of(store, columns, given)
    schema = _value_schema(choice, dictionaries)
    return pa.Table.from_batches(list(_values(choice, span, limit, dictionaries)), schema)


def answer_batches(
    store: TableStore,
    columns: Sequence[str] | None,
    given: object,
    limit: int | None,
    named: Mapping[str, Any],
    dictionaries: bool = False,
) -> Batches:
    """Plan a read with a filter as ``given``; ``named`` are the arguments of :func:`plan_scan` that name a version, which win over the options.

    Changed rows come without their kinds, as in Java: all rows of delta and changelog files, but no deleted ones of a comparison.
    ``dictionaries``: text columns come as Arrow dictionaries of int32, each batch with its own.
    Raises what :func:`plan_scan` and :func:`incremental` raise, and InvalidOption for a ``limit`` that is no count.
    """
    span = _span(store, named)
    if span is None:
        scan = plan_scan(store, columns=columns, filter=given, limit=limit, dictionaries=dictionaries, **named)
        return to_batches(scan.store, scan, limit=limit)
    return _values(Choice.of(store, columns, given), span, limit, dictionaries)


def _span(store: TableStore, named: Mapping[str, Any]) -> Span | None:
    return span_of_options(store) if all(value is None for value in named.values()) else None


def span_parts(span: Span) -> list[Span]:
    """Shares of a span that can be read on their own, in order: snapshot by snapshot; a comparison is one share."""
    if span.empty or span.mode is ScanMode.DIFF:
        return [] if span.empty else [span]
    return [replace(span, start=number, end=number + 1) for number in range(span.start, span.end)]


def span_values(choice: Choice, span: Span) -> Batches:
    """The changed rows of a span without their kinds, as :func:`answer_batches` gives them."""
    return _without_kinds(incremental(choice, span), span, None)


def _value_schema(choice: Choice, dictionaries: bool) -> pa.Schema:
    schema = pa.schema(list(choice.schema)[1:])
    return as_dictionaries(schema, schema.names) if dictionaries else schema


def _values(choice: Choice, span: Span, limit: int | None, dictionaries: bool) -> Batches:
    left = None if limit is None else whole_number(limit, "limit", choice.store.name, least=0)
    rows = _without_kinds(incremental(choice, span), span, left)
    if not dictionaries:
        return rows
    schema = _value_schema(choice, dictionaries)
    return (as_schema(batch, schema) for batch in rows)


def _without_kinds(rows: Batches, span: Span, left: int | None) -> Batches:
    with closing(rows) as batches:
        for batch in batches:
            if left == 0:
                return
            kept = batch
            if span.mode is ScanMode.DIFF:
                kept = batch.filter(pc.not_equal(batch.column(0), int(RowKind.DELETE)))
            kept = kept if left is None else kept.slice(0, left)
            left = None if left is None else left - kept.num_rows
            if kept.num_rows:
                yield kept.select(kept.schema.names[1:])


__all__ = ["answer_batches", "answer_table", "span_parts", "span_values"]
