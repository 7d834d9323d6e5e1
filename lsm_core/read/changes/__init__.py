"""Reads of changes: between two versions of a table, or snapshot after snapshot as a stream.

The names are imported on first use: most reads only check whether the options ask for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsm_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from lsm_core.read.changes.changed_rows import ROW_KIND as ROW_KIND
    from lsm_core.read.changes.changed_rows import Choice as Choice
    from lsm_core.read.changes.incremental import incremental_table as incremental_table
    from lsm_core.read.changes.incremental import span_parts as span_parts
    from lsm_core.read.changes.incremental import span_values as span_values
    from lsm_core.read.changes.spans import Span as Span
    from lsm_core.read.changes.spans import span_between as span_between
    from lsm_core.read.changes.spans import span_of_options as span_of_options
    from lsm_core.read.changes.stream import ChangeBatch as ChangeBatch
    from lsm_core.read.changes.stream import StreamScan as StreamScan

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "changed_rows": (
            "ROW_KIND",
            "Choice",
        ),
        "incremental": (
            "incremental_table",
            "span_parts",
            "span_values",
        ),
        "spans": (
            "Span",
            "span_between",
            "span_of_options",
        ),
        "stream": (
            "ChangeBatch",
            "StreamScan",
        ),
    },
)
