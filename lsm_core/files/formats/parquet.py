"""Parquet as Paimon's files need it: settings that Java reads fast, and reading with little memory (kernels.md notes 1, 9).

Measured on the real Java reader: a dictionary on columns that do not repeat doubles its time, BYTE_STREAM_SPLIT stops it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.files.formats.gather import ValueGatherer
from lsm_core.files.formats.guard import check_rows, check_size, disk_full_named, named, quietly_close
from lsm_core.files.formats.parquet_footer import footer_values, plain_sizes
from lsm_core.format.stats import ColumnValues
from lsm_core.options import TableOptions
from lsm_core.storage import FileIO

EXTENSION: Final = "parquet"
ROW_GROUP_ROWS: Final = 131_072
"""Rows of a row group: the unit of pruning and of the compaction pipeline's queue."""
BUFFER_SIZE: Final = 64 * 1024
WRITE_SIZE: Final = 1024 * 1024
"""Bytes gathered before they are handed to the file."""
_SAMPLE_ROWS: Final = 8_192
_DISTINCT_SHARE: Final = 0.5
_CODECS: Final = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4", "brotli": "brotli", "none": "none"}


def codec_of(name: str, table: str = "") -> str:
    """The codec that option `file.compression` names; raises :class:`InvalidOption`."""
    codec = _CODECS.get(name.strip().lower())
    if codec is None:
        raise InvalidOption("file.compression", name, ", ".join(_CODECS), table)
    return codec


def repeating_columns(rows: pa.Table, always: Sequence[str], never: Sequence[str]) -> list[str]:
    """Columns worth a dictionary: those in ``always``, and those of which a spread sample of ``rows`` repeats values."""
    chosen = [name for name in always if name in rows.column_names]
    count = min(rows.num_rows, _SAMPLE_ROWS)
    spread = pa.array(np.linspace(0, max(rows.num_rows - 1, 0), count).astype(np.int64))
    for name in rows.column_names:
        column = rows.column(name)
        if name in chosen or name in never or pa.types.is_boolean(column.type) or pa.types.is_nested(column.type):
            continue
        if len(pc.unique(column.take(spread))) <= count * _DISTINCT_SHARE:
            chosen.append(name)
    return chosen


class ParquetSink:
    """One Parquet file being written. Never overwrites; nothing is published until :meth:`close` returned."""

    def __init__(
        self,
        file_io: FileIO,
        path: str,
        sample: pa.Table,
        *,
        codec: str,
        level: int,
        dictionary: Sequence[str] = (),
        delta: Sequence[str] = (),
    ) -> None:
        """Open ``path``; ``sample`` (the first rows) gives the schema and tells which columns repeat."""
        self.path = path
        self.rows = 0
        self._footers: list[Any] = []
        self._gathered = ValueGatherer(f.name for f in sample.schema if pa.types.is_floating(f.type))
        self._output: Any = None
        self._output = file_io.open_output(path)
        try:
            # Arrow hands over every page by itself: gathered here, or each would wait for Python's lock.
            self._stream: Any = pa.BufferedOutputStream(pa.PythonFile(self._output, mode="w"), WRITE_SIZE)
            self._writer: Any = pq.ParquetWriter(
                self._stream,
                sample.schema,
                version="2.6",
                compression=codec,
                compression_level=level if codec == "zstd" else None,
                use_dictionary=repeating_columns(sample, dictionary, delta),
                column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
                write_page_index=True,
                store_decimal_as_integer=True,
                store_schema=False,
                metadata_collector=self._footers,
            )
        except BaseException:
            quietly_close(self._output)
            raise

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        """Append ``rows`` as one row group. Raises :class:`StorageFull`."""
        with disk_full_named(self.path):
            self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._gathered.add(rows)
        self.rows += rows.num_rows

    def close(self) -> tuple[int, ColumnValues]:
        """Finish the file; returns its exact size in bytes and what is known of its columns' values."""
        with disk_full_named(self.path):
            self._writer.close()
            size = self.position
            self._stream.close()
            self._output.close()
        return size, {**footer_values(self._footers[0]), **self._gathered.values()}

    def discard(self) -> None:
        """Give up after a failure: close the handle and remove the unfinished file."""
        with contextlib.suppress(OSError, ValueError):
            self._output.abort()
        # A writer that is still open tries to write its footer when it is collected: end it against the closed sink now.
        quietly_close(self._writer.writer)
        quietly_close(self._stream)
        self._writer.is_open = False


def open_sink(
    file_io: FileIO,
    path: str,
    sample: pa.Table,
    options: TableOptions,
    *,
    codec: str,
    dictionary: Sequence[str],
    delta: Sequence[str],
) -> ParquetSink:
    """A sink with the table's settings."""
    chosen = codec_of(codec, options.table)
    return ParquetSink(
        file_io, path, sample, codec=chosen, level=options.zstd_level, dictionary=dictionary, delta=delta
    )


class ParquetSource:
    """One Parquet file being read: opened, checked against its metadata, streamed in batches."""

    def __init__(self, file_io: FileIO, path: str, *, size: int | None, rows: int | None) -> None:
        """Open ``path``; raises :class:`CorruptFile` when it is missing or not what ``size``/``rows`` say."""
        self.path = path
        with named(path, "Parquet"):
            self._input = file_io.open_input(path)
        try:
            with named(path, "Parquet"):
                check_size(path, self._input.size(), size)
                self._file: Any = pq.ParquetFile(self._input, buffer_size=BUFFER_SIZE, pre_buffer=False)
            self.rows: int = self._file.metadata.num_rows
            check_rows(path, self.rows, rows)
            self.schema: pa.Schema = self._file.schema_arrow
            metadata = self._file.metadata
            self.group_rows: list[int] = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        except BaseException:
            quietly_close(self._input)
            raise

    def value_bytes(self, names: Iterable[str]) -> dict[str, float]:
        """Average decoded bytes of a value, for columns whose pages hold the values themselves."""
        return plain_sizes(self._file.metadata, names)

    def batches(
        self, columns: Sequence[str], batch_rows: int, row_groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of at most ``batch_rows`` rows of ``columns`` (file order), on the calling thread only."""
        groups = list(range(len(self.group_rows)) if row_groups is None else row_groups)
        expected = sum(self.group_rows[i] for i in groups)
        seen = 0
        with named(self.path, "Parquet"):
            stream = self._file.iter_batches(batch_rows, row_groups=groups, columns=list(columns), use_threads=False)
        while True:
            with named(self.path, "Parquet"):
                batch = next(stream, None)
            if batch is None:
                break
            seen += batch.num_rows
            yield batch
        if seen != expected:
            raise CorruptFile(self.path, f"gave {seen} rows, its footer says {expected}")

    def close(self) -> None:
        """Release the file handle."""
        quietly_close(self._input)


__all__ = [
    "BUFFER_SIZE",
    "EXTENSION",
    "ROW_GROUP_ROWS",
    "ParquetSink",
    "ParquetSource",
    "codec_of",
    "open_sink",
    "repeating_columns",
]
