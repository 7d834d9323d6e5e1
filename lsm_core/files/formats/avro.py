"""Avro data files: the sink and the source."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.files.formats.guard import (
    check_rows,
    check_values,
    create_output,
    decoding_errors,
    open_checked,
    quietly_abort,
    quietly_close,
)
from lsm_core.files.formats.protocol import FileFormat, WholeFileSource
from lsm_core.files.formats.stats_collector import ColumnStatsCollector
from lsm_core.files.formats.writer_settings import avro_codec
from lsm_core.format import avro
from lsm_core.format.avro import RecordDecoder, avro_schema, encode_rows, fields_of, record_of
from lsm_core.format.stats import ColumnValues
from lsm_core.options import TableOptions
from lsm_core.storage import FileIO, Kept

_BLOCK_BYTES: Final = 1 << 18
_ENCODE_ROWS: Final = 16_384
_DECODE_ROWS: Final = 16_384
"""Largest number of records that are held as Python objects at a time."""
_DECODE_BYTES: Final = 1 << 23
_CODECS: Final = {
    "zstd": "zstandard",
    "zstandard": "zstandard",
    "deflate": "deflate",
    "snappy": "snappy",
    "bzip2": "bzip2",
    "xz": "xz",
    "none": "null",
    "null": "null",
}


class AvroSink:
    """Avro file that is being written.

    The sink never overwrites a file. The file is complete only after :meth:`close` has returned.
    """

    def __init__(
        self, file_io: FileIO, path: str, sample: pa.Table, *, codec: str, level: int, table: str = ""
    ) -> None:
        """Create the file ``path``.

        Args:
            file_io: file system of the file.
            path: path of the file.
            sample: first rows, with the schema.
            codec: Avro's name of the codec.
            level: compression level.
            table: name of the table, for errors.
        """
        self.path = path
        self.rows = 0
        self._codec, self._level = codec, level
        self._stats_collector = ColumnStatsCollector(sample.column_names, of_bytes=True)
        self._sync = os.urandom(avro.SYNC_BYTES)
        start = avro.header(avro_schema(sample.schema, table), codec, self._sync)
        with create_output(file_io, path) as self._output:
            self._output.write(start)

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return int(self._output.tell())

    def write(self, rows: pa.Table) -> None:
        """Append ``rows``.

        Raises:
            StorageFull: the disk is full.
        """
        for start in range(0, rows.num_rows, _ENCODE_ROWS):
            part = rows.slice(start, _ENCODE_ROWS).combine_chunks()
            for batch in part.to_batches():
                for block in avro.blocks(encode_rows(batch), self._codec, self._level, self._sync, _BLOCK_BYTES):
                    self._output.write(block)
        self._stats_collector.add(rows)
        self.rows += rows.num_rows

    def close(self) -> tuple[int, ColumnValues]:
        """Finish the file; return its exact size in bytes and the bounds and null counts of its columns."""
        size = self.position
        self._output.close()
        return size, self._stats_collector.values()

    def discard(self) -> None:
        """Close and remove the unfinished file after a failure."""
        quietly_abort(self._output)


def codec_of(name: str, table: str = "") -> str:
    """Return Avro's name of the codec that option `file.compression` names.

    Raises:
        InvalidOption: Avro does not have the codec.
    """
    codec = _CODECS.get(name)
    if codec is None:
        raise InvalidOption("file.compression", name, "for Avro: zstd, snappy, deflate, bzip2, xz, none", table)
    return codec


def open_sink(
    file_io: FileIO,
    path: str,
    sample: pa.Table,
    options: TableOptions,
    *,
    codec: str,
    dictionary: Sequence[str] = (),
    delta: Sequence[str] = (),
) -> AvroSink:
    """Create an Avro file with the table's options.

    Args:
        file_io: file system of the file.
        path: path of the file, which must not exist.
        sample: first rows of the file, with its schema.
        options: options of the table.
        codec: value of option `file.compression`.
        dictionary: columns that get a dictionary in any case (Parquet); ignored.
        delta: columns that are delta-encoded (Parquet); ignored.

    Raises:
        UnsupportedFeature: a type that Paimon's Avro files cannot store.
    """
    del dictionary, delta  # only Parquet uses these
    name = avro_codec(options, codec, codec_of)
    return AvroSink(file_io, path, sample, codec=name, level=options.zstd_level, table=options.table)


class AvroSource(WholeFileSource):
    """Avro file that is being read: opened, checked against its metadata, streamed in batches."""

    by_column = False

    def __init__(
        self,
        file_io: FileIO,
        path: str,
        *,
        size: int | None,
        rows: int | None,
        table: str = "",
        kept: Kept | None = None,
    ) -> None:
        """Open the file ``path``, and read its header and the positions of its blocks.

        Args:
            file_io: access to the files.
            path: path of the file.
            size: expected size in bytes, or None if unknown.
            rows: expected number of rows, or None if unknown.
            table: name of the table, for messages; unused here.
            kept: cache of footers, or None; unused here.

        Raises:
            CorruptFile: the file is damaged, or not of ``size`` bytes and ``rows`` rows.
        """
        del table, kept  # every stored value can be read, and no footer needs caching
        self.path = path
        with open_checked(file_io, path, "Avro", size) as self._input:
            self._container = avro.Container(self._input, path)
            self.rows = self._container.rows
            check_rows(path, self.rows, rows)
            self.group_rows = [self.rows]
            self._fields = fields_of(self._container.schema, path)
            self.schema = pa.schema([pa.field(name, f.arrow, f.nullable) for name, f in self._fields.items()])

    def batches(
        self,
        columns: Sequence[str],
        batch_rows: int,
        row_groups: Sequence[int] | None = None,
        *,
        dictionaries: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of at most ``batch_rows`` rows of ``columns`` in file order.

        The whole file is one row group.

        Raises:
            CorruptFile: the file is damaged.
        """
        del dictionaries  # repeating_texts returns none
        if row_groups is not None and not row_groups:
            return
        # Without columns, one column is decoded anyway, so that decoded rows are counted.
        names = list(columns) or list(self._fields)[:1]
        in_union = record_of(self._container.schema, self.path)[1]
        decoder = RecordDecoder(self._fields, names, self.path, in_union=in_union)
        for records in self._records(decoder, min(batch_rows, _DECODE_ROWS)):
            batch = decoder.batch(records)
            yield check_values(batch, self.path).select(list(columns))

    def _records(self, decoder: RecordDecoder, most: int) -> Iterator[list[Any]]:
        """Yield lists of up to ``most`` records; a list is shorter if records are large or the file ends."""
        gathered: list[Any] = []
        unpacked = 0
        for block in self._container.blocks:
            with decoding_errors(self.path, "Avro"):
                plain = self._container.plain(block)
            unpacked += len(plain)
            records, remaining = decoder.records((plain, block.rows)), block.rows
            while remaining:
                decoded = decoder.take(records, min(remaining, most - len(gathered)))
                if not decoded:
                    raise CorruptFile(self.path, f"an Avro block has {remaining} records fewer than it claims")
                remaining -= len(decoded)
                gathered += decoded
                if len(gathered) >= most or unpacked > _DECODE_BYTES:
                    yield gathered
                    gathered, unpacked = [], 0
        if gathered:
            yield gathered

    def close(self) -> None:
        """Release the file handle."""
        quietly_close(self._input)


FORMAT: Final = FileFormat("avro", AvroSource, open_sink, codec_of)
