"""Parquet data files: settings that Java reads fast, and reading with little memory (kernels.md notes 1, 9).

Measured with the real Java reader: a dictionary on columns that do not repeat doubles the reader's time, and the reader
fails on BYTE_STREAM_SPLIT.

The schema in the footer is converted to Java's form where Arrow's writer has no setting for it. Arrow writes all
timestamps of a file as INT96 or none, names the message "schema", and marks TIME as local time. So a file with INT96
columns is written with its other timestamps as plain integers, and their types are then put into the footer. Only the
list of schema elements is rewritten; the remaining footer is unchanged, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow._parquet import FileMetaData

from lsm_core.arrays import (
    arrow_array,
    as_dictionaries,
    concat_columns,
    distinct,
    numpy_array,
    plain_schema,
    plain_table,
    unified,
)
from lsm_core.errors import CorruptFile, InvalidOption, OutOfMemory, UnsupportedFeature, ValueTooLarge
from lsm_core.files.formats import thrift
from lsm_core.files.formats.guard import (
    TailOutput,
    check_rows,
    check_values,
    create_output,
    decoding_errors,
    disk_full_errors,
    open_checked,
    quietly_abort,
    quietly_close,
)
from lsm_core.files.formats.parquet_footer import (
    FLOATS,
    TAIL_BYTES,
    Footer,
    dictionary_texts,
    footer_values,
    group_bounds,
    int96_columns,
    parse_footer,
    plain_sizes,
    stored_footer,
)
from lsm_core.files.formats.parquet_pages import (
    LARGEST_VALUE,
    iter_batches,
    open_reader,
    require_possible_pages,
    rows_at_once,
    split_to_fit,
)
from lsm_core.files.formats.protocol import FileFormat
from lsm_core.files.formats.stats_collector import ColumnStatsCollector, leaf_arrays, leaf_types, map_field
from lsm_core.files.formats.thrift import Struct
from lsm_core.files.formats.thrift_fields import (
    Fields,
    join_fields,
    join_structs,
    nested,
    number_of,
    split_struct,
    split_structs,
)
from lsm_core.files.formats.writer_settings import leaf_paths, parquet_settings
from lsm_core.format.stats import ColumnValues
from lsm_core.options import TableOptions
from lsm_core.storage import FileIO, Kept, ahead
from lsm_core.storage.remote_input import END_BYTES, RemoteFile
from lsm_core.types.arrow import refit_table, without_hidden_nulls

EXTENSION: Final = "parquet"
ROW_GROUP_ROWS: Final = 131_072
"""Largest number of rows of a row group, which is the unit of pruning and of the compaction pipeline's queue."""
BUFFER_SIZE: Final = 64 * 1024
WRITE_SIZE: Final = 1024 * 1024
"""Bytes that are buffered before they are written to the file."""
_SAMPLE_ROWS: Final = 8_192
_DISTINCT_SHARE: Final = 0.5
_NANOS_PER_MILLI: Final = 1_000_000
_DAY_MILLIS: Final = 86_400_000
_EPOCH_DAY: Final = 2_440_588
_INT96: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])
CODECS: Final = {
    **{name: name for name in ("zstd", "snappy", "gzip", "lz4", "brotli", "none")},
    "lz4_raw": "lz4",  # Arrow writes the same for both
    "uncompressed": "none",
}
_PAGE_SIZE: Final = 1024 * 1024
_LEAST_BATCH_ROWS: Final = 1_024
SIZES: Final = (
    "parquet.block.size",
    "parquet.page.size",
    "parquet.page.row.count.limit",
    "parquet.dictionary.page.size",
)
"""Parquet options that are sizes in bytes, or numbers of rows, at least 1."""
_FOOTER: Final = "footer"
_FOOTER_SHARE: Final = 8
"""Approximate bytes of memory for each byte of a stored footer."""


def codec_of(name: str, table: str = "") -> str:
    """Return the codec that option `file.compression` names.

    Raises:
        InvalidOption: Parquet does not have the codec.
    """
    codec = CODECS.get(name.strip().lower())
    if codec is None:
        raise InvalidOption("file.compression", name, ", ".join(CODECS), table)
    return codec


_WIDE_VALUE: Final = 64 << 10
"""Average bytes of a value from which a column gets no dictionary and no statistics.

A dictionary page is limited to a megabyte.
"""


def repeating_columns(rows: pa.Table, always: Sequence[str], never: Sequence[str]) -> list[str]:
    """Return the columns that should be written with a dictionary.

    Args:
        rows: first rows of the file.
        always: columns that get a dictionary in any case.
        never: columns that never get a dictionary.

    Returns:
        The columns of ``always``, and those whose values repeat in a spread sample of ``rows``.
    """
    chosen = [name for name in always if name in rows.column_names]
    count = min(rows.num_rows, _SAMPLE_ROWS)
    spread = arrow_array(np.linspace(0, max(rows.num_rows - 1, 0), count).astype(np.int64))
    for name in rows.column_names:
        column = rows.column(name)
        if name in chosen or name in never or pa.types.is_boolean(column.type) or pa.types.is_nested(column.type):
            continue
        if _has_wide_values(column):  # none of these fits into a dictionary page
            continue
        if pa.types.is_dictionary(column.type):
            whole = concat_columns(column.chunks)
            column = distinct(whole).indices if pa.types.is_dictionary(whole.type) else whole
        if len(pc.unique(column.take(spread))) <= count * _DISTINCT_SHARE:
            chosen.append(name)
    return chosen


def _has_wide_values(column: pa.ChunkedArray) -> bool:
    return bool(column.nbytes > _WIDE_VALUE * max(1, len(column)))


class ParquetSink:
    """Parquet file that is being written.

    The sink never overwrites a file. The file is complete only after :meth:`close` has returned.
    """

    def __init__(
        self,
        file_io: FileIO,
        path: str,
        sample: pa.Table,
        *,
        codec: str | Mapping[str, str],
        level: int,
        dictionary: Sequence[str] | None = (),
        only_dictionary: bool = False,
        plain: Sequence[str] = (),
        delta: Sequence[str] = (),
        page_version: str = "1.0",
        bloom_filters: Mapping[str, Mapping[str, Any]] | None = None,
        page_size: int = _PAGE_SIZE,
        page_rows: int | None = None,
        dictionary_size: int | None = None,
    ) -> None:
        """Create the file ``path``.

        Args:
            file_io: file system of the file.
            path: path of the file.
            sample: first rows, with the schema; they show which columns have repeated values. A text column that is an
                Arrow dictionary is written as a dictionary if the file gets one for the column, else as plain text.
            codec: Arrow's name of the codec, or this name by path of each column.
            level: compression level of zstd.
            dictionary: columns that get a dictionary in any case; None for no dictionaries.
            only_dictionary: whether other columns get no dictionary, even if their values repeat.
            plain: columns that never get a dictionary.
            delta: columns that are delta-encoded.
            page_version: version of the data pages, "1.0" or "2.0".
            bloom_filters: number of distinct values (`ndv`) and false-positive probability (`fpp`) of each Bloom
                filter, by path of the column.
            page_size: bytes of a page.
            page_rows: largest number of rows of a page; None for Arrow's default.
            dictionary_size: largest size of a column's dictionary in bytes; None for Arrow's default.
        """
        import pyarrow.parquet as pq  # imported here: readers do not need it, see `parquet_reader`

        self.path = path
        self.rows = 0
        repeating = [] if dictionary is None else repeating_columns(sample, dictionary, [*delta, *plain])
        delta = [name for name in delta if name not in repeating]
        if only_dictionary:
            repeating = [name for name in repeating if name in (dictionary or ())]
        dictionary_columns = [field.name for field in sample.schema if pa.types.is_dictionary(field.type)]
        self._coded = [name for name in dictionary_columns if name in repeating]
        self._schema: pa.Schema = plain_schema(sample.schema)
        wide = [field.name for field in sample.schema if any(map(_is_wide, leaf_types(field.type)))]
        # Arrow writes all timestamps of a file as INT96 or none: others are stored as integers, typed in the footer.
        stored = pa.schema([map_field(field, _plain_integer) for field in self._schema]) if wide else self._schema
        self._stored = as_dictionaries(stored, self._coded)
        floats = [field.name for field in sample.schema if pa.types.is_floating(field.type)]
        # Arrow copies the bounds of a column six times, then omits those beyond 4 KiB from the footer, as Java does.
        large = [name for name in sample.column_names if _has_wide_values(sample.column(name))]
        only_nulls = [name for name in wide if _is_wide(sample.schema.field(name).type)]
        only_nulls += [name for name in large if not pa.types.is_nested(sample.schema.field(name).type)]
        self._stats_collector = ColumnStatsCollector(floats, only_nulls=only_nulls)
        with create_output(file_io, path) as self._output:
            self._held = TailOutput(self._output)
            # Arrow writes every page separately: they are buffered, or each would wait for Python's lock.
            self._stream: Any = pa.BufferedOutputStream(pa.PythonFile(self._held, mode="w"), WRITE_SIZE)
            self._writer: Any = pq.ParquetWriter(
                self._stream,
                self._stored,
                use_deprecated_int96_timestamps=bool(wide),
                version="2.6",
                compression=codec,
                compression_level=_levels(codec, level),
                data_page_version=page_version,
                bloom_filter_options=dict(bloom_filters) if bloom_filters else None,
                use_dictionary=repeating,
                data_page_size=page_size,
                max_rows_per_page=page_rows,
                dictionary_pagesize_limit=dictionary_size,
                # Arrow computes the distinct values of every write batch of a dictionary, for its statistics.
                write_batch_size=_batch_rows(sample, self._coded, page_size) if self._coded else None,
                column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
                write_statistics=[name for name in sample.column_names if name not in large] if large else True,
                write_page_index=True,
                write_page_checksum=True,
                store_decimal_as_integer=True,
                store_schema=False,
            )

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        """Append ``rows`` as one row group.

        Raises:
            StorageFull: the disk is full.
        """
        with disk_full_errors(self.path):
            stored = plain_table(rows, excluded=self._coded)
            if not stored.schema.equals(self._stored):
                stored = refit_table(stored, self._stored)
            stored = unified(stored)
            self._writer.write_table(_without_hidden_nulls(stored), row_group_size=max(rows.num_rows, 1))
        self._stats_collector.add(rows)
        self.rows += rows.num_rows

    def close(self) -> tuple[int, ColumnValues]:
        """Finish the file; return its exact size in bytes and the bounds and null counts of its columns."""
        with disk_full_errors(self.path):
            self._stream.flush()
            self._held.hold()
            self._writer.close()
            self._stream.close()
            values = self._stats_collector.values()
            tail = as_java(self._held.tail(), self._schema)
            with_nan = _columns_with_nan(values)
            if with_nan or any(map(_has_nested_floats, self._schema.types)):
                tail = _without_bounds_of_nan(tail, with_nan)
            self._output.write(tail)
            size = int(self._output.tell())
            self._output.close()
        length = int.from_bytes(tail[-TAIL_BYTES:-4], "little")
        footer = parse_footer(tail[-TAIL_BYTES - length : -TAIL_BYTES], self.path, size)
        return size, {**footer_values(footer, self._schema), **values}

    def discard(self) -> None:
        """Close and remove the unfinished file after a failure."""
        quietly_abort(self._output)
        # An open writer tries to write its footer when it is garbage-collected, so it is closed on the closed sink now.
        quietly_close(self._writer.writer)
        quietly_close(self._stream)
        self._writer.is_open = False


def _levels(codec: str | Mapping[str, str], level: int) -> Any:
    """Return the compression level for Arrow, by column where codecs differ; only zstd has levels here."""
    if isinstance(codec, str):
        return level if codec == "zstd" else None
    return {path: level for path, name in codec.items() if name == "zstd"} or None


def _batch_rows(sample: pa.Table, coded: Sequence[str], page_size: int) -> int:
    """Return the number of rows that the writer encodes at a time.

    This number of rows fills a quarter of a page of the widest column without a dictionary.

    Pages end only between these batches. Arrow's default, 1,024, makes dictionaries slower than plain text.

    Args:
        sample: some rows of the file.
        coded: columns that are written with a dictionary.
        page_size: target size of a page in bytes.
    """
    wide = [
        column.nbytes for name, column in zip(sample.column_names, sample.columns, strict=True) if name not in coded
    ]
    widest = max(wide, default=0) / max(sample.num_rows, 1)
    return int(min(max(page_size / 4 / max(widest, 1.0), _LEAST_BATCH_ROWS), ROW_GROUP_ROWS))


def _is_wide(kind: pa.DataType) -> bool:
    """Return whether Paimon stores the type as INT96: timestamps of more than six digits."""
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _plain_integer(field: pa.Field) -> pa.Field:
    return field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) and field.type.unit != "ns" else field


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
    """Create a Parquet file with the table's options `file.*` and the options `parquet.*` that Arrow supports.

    Args:
        file_io: file system of the file.
        path: path of the file, which must not exist.
        sample: first rows of the file, with its schema.
        options: options of the table.
        codec: value of option `file.compression`.
        dictionary: columns that get a dictionary in any case.
        delta: columns that are delta-encoded.
    """
    rows_limited, dictionary_limited = (option in options.raw for option in SIZES[2:])
    leaves = leaf_paths(list(sample.schema))
    settings = parquet_settings(options, codec_of, leaves, ROW_GROUP_ROWS)
    default_codec = settings.codec or codec_of(codec, options.table)
    is_coded = options.get("parquet.enable.dictionary") is not False
    return ParquetSink(
        file_io,
        path,
        sample,
        codec={path: settings.codecs.get(path, default_codec) for path in leaves} if settings.codecs else default_codec,
        level=settings.level,
        dictionary=[*(dictionary if is_coded else ()), *settings.coded] if is_coded or settings.coded else None,
        only_dictionary=not is_coded,
        plain=settings.plain,
        page_version=settings.page_version,
        bloom_filters=settings.bloom_filters,
        delta=delta,
        page_size=options.given_size("parquet.page.size", _PAGE_SIZE),
        page_rows=options.given_size("parquet.page.row.count.limit", 0) if rows_limited else None,
        dictionary_size=options.given_size("parquet.dictionary.page.size", 0) if dictionary_limited else None,
    )


_CODEC_NUMBERS: Final = {"none": {0}, "snappy": {1}, "gzip": {2}, "brotli": {4}, "zstd": {6}, "lz4": {5, 7}}


def codec_numbers(options: TableOptions, codec: str, schema: pa.Schema) -> Callable[[Sequence[str]], set[int]]:
    """Return a function from the path of a leaf to the numbers of the codecs with which new files store it.

    Args:
        options: options of the table.
        codec: value of option `file.compression`.
        schema: schema of the files.
    """
    settings = parquet_settings(options, codec_of, leaf_paths(list(schema)), ROW_GROUP_ROWS)
    default_codec = settings.codec or codec_of(codec, options.table)

    def numbers(path: Sequence[str]) -> set[int]:
        return _CODEC_NUMBERS[settings.codecs.get(".".join(path), default_codec)]

    return numbers


def _require_small_values(footer: Footer, path: str) -> None:
    """Raise :class:`ValueTooLarge` if the average value of a column chunk is too large to be decoded safely."""
    for group in footer.groups:
        if group.plain_bytes <= LARGEST_VALUE * max(group.rows, 1):
            continue
        for leaf, chunk in zip(footer.leaves, group.chunks, strict=True):
            if chunk.plain_bytes > LARGEST_VALUE * max(chunk.values, 1):
                size = chunk.plain_bytes // max(chunk.values, 1)
                raise ValueTooLarge(f"file {path}, column '{leaf.name}': values of {size:,} bytes")


class _OpenFooter(NamedTuple):
    """Footer of an open file, as Dredge and as Arrow read it.

    Attributes:
        footer: the footer as Dredge reads it.
        metadata: Arrow's form of the footer, for reading; its columns are never accessed.
        schema: Arrow schema of the file.
        wide: columns stored as INT96.
        remote: the open file in an object store, whose size and end are known; None for local files.
    """

    footer: Footer
    metadata: Any
    schema: pa.Schema
    wide: set[str]
    remote: RemoteFile | None


class ParquetSource:
    """Parquet file that is being read: opened, checked against its metadata, streamed in batches."""

    by_column = True
    _file: Any
    """Arrow's reader, created with the first batches, because many files are opened for their bounds only."""

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
        """Open the file ``path``; its footer is read from the cache ``kept`` if possible.

        Args:
            file_io: access to the files.
            path: path of the file.
            size: expected size in bytes, or None if unknown.
            rows: expected number of rows, or None if unknown.
            table: name of the table, for messages.
            kept: cache of footers, or None.

        Raises:
            CorruptFile: the file is missing, damaged, or not of ``size`` bytes and ``rows`` rows.
        """
        self.path = path
        self._table = table
        opened: _OpenFooter | None = None if kept is None else kept.get((_FOOTER, path))
        cached_input = (
            nullcontext(opened.remote.planned(())) if opened is not None and opened.remote is not None else None
        )
        with cached_input or open_checked(file_io, path, "Parquet", size) as self._input:
            if opened is None:
                opened = self._read_footer(kept)
            self._metadata, self._file = opened.metadata, None
            self._footer, self.schema, self._wide = opened.footer, opened.schema, opened.wide
            self._places: dict[str, list[int]] | None = None
            self.rows: int = self._footer.rows
            check_rows(path, self.rows, rows)
            self.group_rows = [group.rows for group in self._footer.groups]

    def _read_footer(self, kept: Kept | None) -> _OpenFooter:
        data = stored_footer(self._input, self.path)
        footer = parse_footer(data, self.path, self._input.size())
        _require_small_values(footer, self.path)
        whole = pa.BufferReader(b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1")
        arrow = open_reader(whole)
        remote = self._input.planned(()) if isinstance(self._input, RemoteFile) else None
        opened = _OpenFooter(footer, arrow.metadata, arrow.schema_arrow, int96_columns(footer), remote)
        if kept is not None:
            weight = _FOOTER_SHARE * len(data) + (END_BYTES if remote is not None else 0)
            kept.put((_FOOTER, self.path), opened, weight)
        return opened

    def value_bytes(self, names: Iterable[str]) -> dict[str, float]:
        """Return the average decoded bytes of a value, for columns without dictionary and without shared prefixes."""
        return plain_sizes(self._footer, names)

    def repeating_texts(self, names: Iterable[str]) -> list[str]:
        """Return the text columns among ``names`` that have a useful dictionary in every row group.

        Decoding such a column as an Arrow dictionary takes a fifth of the time of decoding it as plain text.
        """
        texts = [name for name in names if pa.types.is_string(self.schema.field(name).type)] if self.rows else []
        return [] if self._wide else dictionary_texts(self._footer, texts)

    def group_bounds(self, name: str) -> tuple[pa.Array, pa.Array] | None:
        """Return the smallest and the largest value of column ``name`` in each row group; None if not recorded."""
        return group_bounds(self._footer, self.schema, name, self.path)

    def batches(
        self,
        columns: Sequence[str],
        batch_rows: int,
        row_groups: Sequence[int] | None = None,
        *,
        dictionaries: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows in file order, decoded on the calling thread only.

        Args:
            columns: stored names.
            batch_rows: largest number of rows of a batch.
            row_groups: row groups to read; None for all.
            dictionaries: columns to return as Arrow dictionaries; a batch then ends with its row group, because each
                row group has a dictionary of its own.

        Raises:
            CorruptFile: the file is damaged.
            UnsupportedFeature: a timestamp that Arrow cannot represent.
            ValueTooLarge: a value does not fit into memory safely.
        """
        groups = list(range(len(self.group_rows)) if row_groups is None else row_groups)
        source = ahead(self._input, self._ranges(groups, self._leaves(columns)))
        # The page headers show how many rows fit into memory: those of a remote file are read group by group.
        for part in [groups] if source is self._input else [[number] for number in groups]:
            yield from self._batches(source, columns, batch_rows, part, dictionaries)

    def _batches(
        self,
        source: pa.NativeFile,
        columns: Sequence[str],
        batch_rows: int,
        groups: list[int],
        dictionaries: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of some row groups, with their pages read from ``source``.

        Args:
            source: the open file, possibly with prefetched pages.
            columns: stored names of the columns.
            batch_rows: largest number of rows of a batch.
            groups: indexes of the row groups.
            dictionaries: columns to return as Arrow dictionaries.
        """
        expected = sum(self.group_rows[i] for i in groups)
        seen = 0
        leaves = self._leaves(columns)
        with decoding_errors(self.path, "Parquet"):
            batch_rows = rows_at_once(source, self.path, self._footer, groups, leaves, batch_rows, dictionaries)
            keep = not dictionaries and source is self._input
            file = self._file if keep else None
            if file is None:
                file = open_reader(source, metadata=self._metadata, dictionaries=dictionaries, buffer_size=BUFFER_SIZE)
            if keep:
                self._file = file
            stream = iter_batches(file, batch_rows, groups, leaves)
            raw = self._raw_stream([name for name in columns if name in self._wide], batch_rows, groups)
        while True:
            try:
                with decoding_errors(self.path, "Parquet"):
                    batch = next(stream, None)
            except OutOfMemory:
                require_possible_pages(source, self.path, self._footer, groups, leaves)
                raise
            if batch is None:
                break
            if raw is not None:
                self._check_range(batch, raw)
            seen += batch.num_rows
            yield from (
                split_to_fit(check_values(batch, self.path), self.path)
                if dictionaries
                else (check_values(batch, self.path),)
            )
        if seen != expected:
            raise CorruptFile(self.path, f"gave {seen} rows, its footer says {expected}")

    def _leaves(self, columns: Sequence[str]) -> list[int]:
        """Return the indexes of the footer's leaves that belong to ``columns``, in the order of ``columns``."""
        if self._places is None:
            self._places = {}
            for place, leaf in enumerate(self._footer.leaves):
                self._places.setdefault(leaf.name, []).append(place)
        return [place for name in dict.fromkeys(columns) for place in self._places.get(name, ())]

    def _ranges(self, groups: Sequence[int], leaves: Sequence[int]) -> list[list[tuple[int, int]]]:
        """Return the byte ranges (start, end) of the pages of ``leaves``, for each of the row ``groups``."""
        chunks = [[self._footer.groups[number].chunks[leaf] for leaf in leaves] for number in groups]
        return [[(chunk.start, chunk.start + chunk.stored_bytes) for chunk in group] for group in chunks]

    def _raw_stream(self, wide: list[str], batch_rows: int, groups: list[int]) -> Iterator[pa.RecordBatch] | None:
        """Return a second stream of the INT96 columns, as stored bytes; None if ``wide`` is empty.

        Args:
            wide: the columns with INT96 values.
            batch_rows: number of rows of a batch.
            groups: indexes of the row groups.
        """
        if not wide:
            return None
        try:
            footer = int96_as_bytes(self._input)
        except (IndexError, ValueError) as error:
            raise CorruptFile(self.path, f"its Parquet footer is broken: {error}") from error
        leaves = self._leaves(wide)
        source = ahead(self._input, self._ranges(groups, leaves))
        return iter_batches(open_reader(source, metadata=footer, buffer_size=BUFFER_SIZE), batch_rows, groups, leaves)

    def _check_range(self, batch: pa.RecordBatch, raw: Iterator[pa.RecordBatch]) -> None:
        """Raise UnsupportedFeature for INT96 values that Arrow's nanoseconds cannot represent.

        Such a value is found because its decoded form differs from the stored bytes in ``raw``.

        Args:
            batch: the next batch of decoded rows.
            raw: stream of the same rows with INT96 values as bytes.
        """
        with decoding_errors(self.path, "Parquet"):
            other = next(raw, None)
        if other is None:
            raise CorruptFile(self.path, "gave fewer INT96 values than rows")
        for name in other.schema.names:
            pairs = zip(leaf_arrays(batch.column(name)), leaf_arrays(other.column(name)), strict=True)
            if not all(_same_time(nanos, stored) for nanos, stored in pairs if _is_wide(nanos.type)):
                reason = f"timestamps outside 1677-09-21 to 2262-04-11 ({self.path}, column '{name}')"
                raise UnsupportedFeature(reason, self._table)

    def close(self) -> None:
        """Release the file handle."""
        quietly_close(self._input)


def _without_hidden_nulls(rows: pa.Table) -> pa.Table:
    """Return ``rows`` with the nulls of NOT NULL fields inside null ROWs marked as not null.

    No row is removed. Parquet's writer refuses such nulls. Which value replaces a null does not matter: the value is
    never read, because the ROW around it is null.
    """
    for at, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            chunks = [without_hidden_nulls(chunk) for chunk in rows.column(at).chunks]
            rows = rows.set_column(at, field, pa.chunked_array(chunks, field.type))
    return rows


def _same_time(nanos: pa.Array, stored: pa.Array) -> bool:
    """Return whether INT96 values were decoded to nanoseconds without overflow.

    Args:
        nanos: the decoded timestamps.
        stored: the same values as stored: 8 bytes of nanoseconds of the day, 4 of the Julian day.
    """
    if not pa.types.is_fixed_size_binary(stored.type):
        return True  # nanoseconds that are not stored as INT96
    decoded = numpy_array(nanos.drop_null().cast(pa.int64()))
    present = stored.drop_null()
    start = present.offset * _INT96.itemsize
    parts = (
        np.frombuffer(present.buffers()[1] or b"", _INT96, len(present), start) if len(present) else np.empty(0, _INT96)
    )
    # Days and milliseconds of the day, neither of which overflows; Java's nanoseconds are negative before 1970.
    millis = (parts["day"].astype(np.int64) - _EPOCH_DAY) * _DAY_MILLIS + parts["nanos"] // _NANOS_PER_MILLI
    return len(decoded) == len(millis) and bool((decoded // _NANOS_PER_MILLI == millis).all())


FORMAT: Final = FileFormat("parquet", ParquetSource, open_sink, codec_of, sizes=SIZES)


MESSAGE_NAME: Final = b"paimon_schema"
_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8
_TYPE, _LENGTH, _REPETITION, _NAME, _CONVERTED, _LOGICAL = 1, 2, 3, 4, 6, 10
_INT96_TYPE, _FIXED_TYPE, _INT96_BYTES = 3, 7, 12
_GROUPS, _GROUP_COLUMNS, _CHUNK_META, _CHUNK_PATH, _CHUNK_STATISTICS = 4, 1, 3, 3, 12
_INDEX_OF_BOUNDS: Final = (6, 7)
"""Fields of a column chunk with the position and the bytes of its ColumnIndex."""
_CHUNK_BOUNDS: Final = frozenset({1, 2, 5, 6, 7, 8})
"""Fields of Statistics with bounds, and with whether they are exact."""
_TIME, _TIMESTAMP, _UTC, _UNIT, _MILLIS, _MICROS = 7, 8, 1, 2, 1, 2
_MAP_KEY_VALUE, _TIME_MILLIS, _TIMESTAMP_MILLIS, _TIMESTAMP_MICROS = 2, 7, 9, 10


def as_java(tail: bytes, schema: pa.Schema) -> bytes:
    """Return the end of a Parquet file with Java's schema elements.

    Args:
        tail: the end of the file: footer, its length, magic, and the bytes before it.
        schema: schema of the file.

    Raises:
        ValueError: the bytes are no end of a Parquet file of this schema.
    """
    if tail[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("not the end of a Parquet file")
    length = int.from_bytes(tail[-_TAIL_BYTES : -len(_MAGIC)], "little")
    start = len(tail) - _TAIL_BYTES - length
    reader, elements, begin = _parse(tail[start:-_TAIL_BYTES])
    elements[0][_NAME] = (thrift.BINARY, MESSAGE_NAME)
    elements[0].pop(_REPETITION, None)
    index = 1
    for field in schema:
        index = _describe(elements, index, field.type)
    if index != len(elements):
        raise ValueError("the footer has another schema than the file was written with")
    return tail[:start] + _build_tail(reader, elements, begin)


def _has_nested_floats(kind: pa.DataType) -> bool:
    return pa.types.is_nested(kind) and any(map(pa.types.is_floating, leaf_types(kind)))


def _columns_with_nan(values: ColumnValues) -> set[str]:
    """Return the floating point columns with NaN, which is the largest value in Java's order."""
    return {
        name
        for name, stats in values.items()
        if pa.types.is_floating(stats.maximum.type)
        and not stats.maximum.null_count
        and np.isnan(numpy_array(stats.maximum)[0])
    }


def _without_bounds_of_nan(tail: bytes, names: Collection[str]) -> bytes:
    """Return the end of a Parquet file without the bounds of columns with NaN, and of nested floating point columns.

    Arrow leaves NaN out of bounds, but Spark's filters count NaN as the largest value: they would skip its rows. As in
    parquet-mr, such columns have neither bounds nor a ColumnIndex. Nested columns are not searched for NaN.

    Args:
        tail: the end of the file: footer, its length, magic, and the bytes before it.
        names: top-level columns with NaN.
    """
    length = int.from_bytes(tail[-_TAIL_BYTES : -len(_MAGIC)], "little")
    start = len(tail) - _TAIL_BYTES - length
    fields, _ = split_struct(tail[start:-_TAIL_BYTES])
    top_level = {(name,) for name in names}

    def has_wrong_bounds(meta: Fields) -> bool:
        path = tuple(name.decode() for name in thrift.Reader(nested(meta, _CHUNK_PATH, thrift.LIST)).value(thrift.LIST))
        return path in top_level or (len(path) > 1 and number_of(meta, _TYPE, thrift.I32) in FLOATS)

    groups = []
    for encoded_group in split_structs(nested(fields, _GROUPS, thrift.LIST)):
        group, _ = split_struct(encoded_group)
        chunks = []
        for encoded_chunk in split_structs(nested(group, _GROUP_COLUMNS, thrift.LIST)):
            chunk, _ = split_struct(encoded_chunk)
            meta, _ = split_struct(nested(chunk, _CHUNK_META, thrift.STRUCT))
            if has_wrong_bounds(meta):
                for number in _INDEX_OF_BOUNDS:
                    chunk.pop(number, None)
                if _CHUNK_STATISTICS in meta:
                    statistics, _ = split_struct(nested(meta, _CHUNK_STATISTICS, thrift.STRUCT))
                    kept = {number: value for number, value in statistics.items() if number not in _CHUNK_BOUNDS}
                    meta[_CHUNK_STATISTICS] = thrift.STRUCT, join_fields(kept)
                chunk[_CHUNK_META] = thrift.STRUCT, join_fields(meta)
            chunks.append(join_fields(chunk))
        group[_GROUP_COLUMNS] = thrift.LIST, join_structs(chunks)
        groups.append(join_fields(group))
    fields[_GROUPS] = thrift.LIST, join_structs(groups)
    footer = join_fields(fields)
    return tail[:start] + footer + len(footer).to_bytes(4, "little") + _MAGIC


def int96_as_bytes(source: pa.NativeFile) -> FileMetaData:
    """Return the file's footer with INT96 columns declared as FIXED_LEN_BYTE_ARRAY(12).

    With this footer, Arrow returns the stored bytes of these columns.
    """
    size = source.size()
    source.seek(size - _TAIL_BYTES)
    length = int.from_bytes(source.read(4), "little")
    source.seek(size - _TAIL_BYTES - length)
    reader, elements, begin = _parse(source.read(length))
    for element in elements:
        if element.get(_TYPE) == (thrift.I32, _INT96_TYPE):
            element[_TYPE], element[_LENGTH] = (thrift.I32, _FIXED_TYPE), (thrift.I32, _INT96_BYTES)
    return open_reader(pa.BufferReader(_MAGIC + _build_tail(reader, elements, begin))).metadata


def schema_elements(footer: bytes) -> list[Struct]:
    """Return the schema elements of a footer, each as a mapping of field id to (Thrift type, value)."""
    return _elements(thrift.Reader(footer))[0]


def _parse(footer: bytes) -> tuple[thrift.Reader, list[Struct], int]:
    reader = thrift.Reader(footer)
    elements, begin = _elements(reader)
    return reader, elements, begin


def _build_tail(reader: thrift.Reader, elements: list[Struct], begin: int) -> bytes:
    """Return the end of a file: its footer with new schema elements, the footer's length, and the magic.

    Args:
        reader: reader of the old footer, positioned after its list of schema elements.
        elements: the new schema elements.
        begin: byte offset of the list of schema elements in the old footer.
    """
    written = b"".join(thrift.encode(element) for element in elements)
    footer = reader.data[:begin] + thrift.list_head(len(elements), thrift.STRUCT) + written + reader.data[reader.at :]
    return footer + len(footer).to_bytes(4, "little") + _MAGIC


def _elements(reader: thrift.Reader) -> tuple[list[Struct], int]:
    """Return all schema elements of a footer, and the byte offset of their list in the footer.

    Afterwards ``reader``, which must be at the footer's start, is positioned after the list.
    """
    if reader.field(0) != (1, thrift.I32):
        raise ValueError("a footer without version")
    reader.integer(thrift.I32)
    if reader.field(1) != (2, thrift.LIST):
        raise ValueError("a footer without schema")
    start = reader.at
    count, kind = reader.list_head()
    if kind != thrift.STRUCT:
        raise ValueError("a schema whose elements are no structs")
    return [reader.struct() for _ in range(count)], start


def _describe(elements: list[Struct], index: int, kind: pa.DataType) -> int:
    """Write the logical type of a column and its nested columns into the schema elements.

    Args:
        elements: all schema elements of the footer.
        index: index of the column's element.
        kind: Arrow type of the column.

    Returns:
        Index of the next column's first element.
    """
    element = elements[index]
    if pa.types.is_time(kind):
        _annotate(element, _TIME, _TIME_MILLIS, _MILLIS, utc=True)
    elif pa.types.is_timestamp(kind) and kind.unit != "ns":
        micros = kind.unit == "us"
        converted = _TIMESTAMP_MICROS if micros else _TIMESTAMP_MILLIS
        _annotate(element, _TIMESTAMP, converted, _MICROS if micros else _MILLIS, utc=kind.tz is not None)
    if not pa.types.is_nested(kind):
        return index + 1
    if pa.types.is_struct(kind):
        inner = index + 1
        children = [kind.field(i).type for i in range(kind.num_fields)]
    else:
        inner = index + 2  # below the repeated group
        if pa.types.is_map(kind):
            elements[index + 1][_CONVERTED] = (thrift.I32, _MAP_KEY_VALUE)
        children = [kind.key_type, kind.item_type] if pa.types.is_map(kind) else [kind.value_type]
    for child in children:
        inner = _describe(elements, inner, child)
    return inner


def _annotate(element: Struct, logical: int, converted: int, unit: int, *, utc: bool) -> None:
    element[_CONVERTED] = (thrift.I32, converted)
    inner: Struct = {
        _UTC: (thrift.TRUE if utc else thrift.FALSE, utc),
        _UNIT: (thrift.STRUCT, {unit: (thrift.STRUCT, {})}),
    }
    element[_LOGICAL] = (thrift.STRUCT, {logical: (thrift.STRUCT, inner)})
