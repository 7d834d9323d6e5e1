"""Arrow's Parquet decoder without `pyarrow.parquet`.

`pyarrow.parquet` imports file systems, with SSL and the libraries of four clouds: 9 MiB and a tenth of the time of
importing Arrow. Files are read through `lsm_core.storage` here.
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
    """Return Arrow's reader of ``source``, as `pyarrow.parquet.ParquetFile` opens it.

    Its `metadata` and `schema_arrow` describe the file.

    Args:
        source: the file.
        metadata: the footer, if already read.
        dictionaries: text columns to return as Arrow dictionaries.
        buffer_size: bytes of a column chunk that are read at a time; 0 for all.

    Raises:
        pyarrow.ArrowException: the file is not valid.
        OSError: the file cannot be read.
    """
    reader = ParquetReader()
    reader.open(
        source,
        metadata=metadata,
        read_dictionary=list(dictionaries) or None,
        buffer_size=buffer_size,
        pre_buffer=False,
        page_checksum_verification=True,  # for pages that have one, as Java's do
        arrow_extensions_enabled=True,
    )
    return reader


def iter_batches(
    reader: Any, rows: int, groups: Sequence[int] | None = None, leaves: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield decoded batches of a file, on the calling thread.

    Args:
        reader: Arrow's reader.
        rows: largest number of rows of a batch.
        groups: row groups to read; None for all.
        leaves: indexes of leaf columns; None for all.
    """
    chosen = range(reader.metadata.num_row_groups) if groups is None else groups
    batches: Iterator[pa.RecordBatch] = reader.iter_batches(
        rows, row_groups=chosen, column_indices=None if leaves is None else list(leaves), use_threads=False
    )
    return batches
