"""Arguments of one read, passed to the readers of tables and of system tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa


class ReadRequest(NamedTuple):
    """The arguments of one read.

    Attributes:
        columns: names of the columns to read, in this order; None for all.
        filter: condition on the rows, or None.
        limit: largest number of rows, or None.
        version: values of `snapshot_id`, `tag`, `timestamp_ms` and `watermark`, at most one of them not None.
        dictionaries: whether text columns are returned as Arrow dictionaries.
    """

    columns: Sequence[str] | None
    filter: object
    limit: int | None
    version: Mapping[str, Any]
    dictionaries: bool = False


RequestReader = Callable[[ReadRequest], tuple[pa.Schema, Iterator[pa.RecordBatch]]]
"""Function that executes a read: it returns the Arrow schema and the batches of the rows."""
