"""Arrow's decoder of Parquet files, alone.

`pyarrow.parquet` puts file systems, with SSL and the libraries of four clouds, in front of it: 9 MiB and a tenth of what a new
process takes to import Arrow. Files come through our own `storage` here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow._parquet import FileMetaData, ParquetReader


def open_reader(
    source: pa.NativeFile,
    *,
    metadata: FileMetaData | None = None,
    dictionaries: Sequence[str] = (),
    buffer_size: int = 0,
) -> Any:
    """Arrow's reader of ``source`` as `pyarrow.parquet.ParquetFile` would open it; its `metadata` and `schema_arrow` tell what is there.

    ``metadata``: the footer, if it is known already. ``dictionaries``: text columns to give as Arrow dictionaries. ``buffer_size``:
    bytes of a column chunk that are read at a time, 0 for all. Raises `pyarrow.ArrowException`, OSError.
    """
    reader = ParquetReader()
    reader.open(
        source,
        metadata=metadata,
        read_dictionary=list(dictionaries) or None,
        buffer_size=buffer_size,
        pre_buffer=False,
        page_checksum_verification=True,  # of pages that carry one, as Java's do
        arrow_extensions_enabled=True,
    )
    return reader


def iter_batches(
    reader: Any, rows: int, groups: Sequence[int] | None = None, leaves: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Batches of at most ``rows`` rows of some row groups and leaf columns (None: all), decoded on the calling thread."""
    chosen = range(reader.metadata.num_row_groups) if groups is None else groups
    found: Iterator[pa.RecordBatch] = reader.iter_batches(
        rows, row_groups=chosen, column_indices=None if leaves is None else list(leaves), use_threads=False
    )
    return found


__all__ = ["FileMetaData", "iter_batches", "open_reader"]
