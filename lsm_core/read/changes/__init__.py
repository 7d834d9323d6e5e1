"""Reading what changed instead of what is: between two versions of a table, or snapshot after snapshot as a stream."""

from __future__ import annotations

from lsm_core.read.changes.changed_rows import ROW_KIND, Choice
from lsm_core.read.changes.incremental import (
    incremental,
    incremental_table,
    span_parts,
    span_values,
)
from lsm_core.read.changes.spans import Span, span_between, span_of_options
from lsm_core.read.changes.stream import ChangeBatch, StreamScan

__all__ = [
    "ROW_KIND",
    "ChangeBatch",
    "Choice",
    "Span",
    "StreamScan",
    "incremental",
    "incremental_table",
    "span_between",
    "span_of_options",
    "span_parts",
    "span_values",
]
