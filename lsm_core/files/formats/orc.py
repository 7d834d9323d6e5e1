"""ORC data files as Paimon's Java writes and reads them.

The files have Paimon's types and the `paimon.id` of every field. They are read in batches, not in whole stripes.

Two properties of ORC are hidden from readers. TIME is stored as an int of milliseconds. Arrow decodes timestamps as
nanoseconds, so reads and writes reject timestamps outside 1677 to 2262.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array
from lsm_core.errors import CorruptFile, InvalidData, InvalidOption, UnsupportedFeature
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
from lsm_core.files.formats.orc_footer import BATCH_BYTES, decoded_sizes
from lsm_core.files.formats.protocol import FileFormat, WholeFileSource
from lsm_core.files.formats.stats_collector import ColumnStatsCollector, leaf_arrays, leaf_types, map_field
from lsm_core.files.formats.writer_settings import orc_settings
from lsm_core.format.stats import ColumnValues
from lsm_core.options import TableOptions
from lsm_core.storage import FileIO, Kept
from lsm_core.types.arrow import refit_table

STRIPE_SIZE: Final = 16 * 1024 * 1024
"""Encoded bytes of a stripe: the bytes that a writer buffers, and about the bytes that a reader holds."""
_CODECS: Final = {"zstd": "zstd", "zlib": "zlib", "snappy": "snappy", "lz4": "lz4", "none": "uncompressed"}
_BLOCK_SIZE: Final = 128 * 1024
SIZES: Final = ("orc.stripe.size", "orc.compress.size", "orc.row.index.stride")
"""ORC options that are sizes in bytes, or numbers of rows, at least 1."""
_ROW_INDEX_STRIDE: Final = 10_000
_DICTIONARY_SHARE: Final = 0.5
"""Largest ratio of distinct values to all values for which a text column gets a dictionary."""
_BATCH_ROWS: Final = 8_192
_TEXT_ID, _ID = b"PARQUET:field_id", b"paimon.id"
_OUT_OF_RANGE: Final = "out of range for nanosecond"
_RANGE: Final = "timestamps outside 1677-09-21 to 2262-04-11 in ORC files"
_HEAD_BYTES: Final = 64
"""Upper bound of the bytes that are written before the first stripe."""
_NANOS: Final = 1_000_000_000
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": _NANOS}
_LEAST_NANOS, _MOST_NANOS = -(2**63) + 1, 2**63 - 1
_FIRST_GUESS: Final = 0.5
"""Encoded bytes per decoded byte, used before any row was encoded."""


class OrcSink:
    """ORC file that is being written.

    The sink never overwrites a file. The file is complete only after :meth:`close` has returned.
    """

    def __init__(self, file_io: FileIO, path: str, sample: pa.Table, *, table: str, **settings: Any) -> None:
        """Create the file ``path``.

        Args:
            file_io: file system of the file.
            path: path of the file.
            sample: first rows, with the schema.
            table: name of the table, for errors.
            settings: arguments of ``pyarrow.orc.ORCWriter``.
        """
        self.path = path
        self.rows = 0
        self._table = table
        self._stored = pa.schema([map_field(field, _stored_field) for field in sample.schema])
        self._stats_collector = ColumnStatsCollector(sample.column_names)
        self._encoded = self._flushed = self._pending = 0
        with create_output(file_io, path) as self._output:
            self._held = TailOutput(self._output)
            self._stream: Any = pa.PythonFile(self._held, mode="w")
            from pyarrow import orc  # imported here, because only tables of ORC files need it

            self._writer: Any = orc.ORCWriter(self._stream, **settings)

    @property
    def position(self) -> int:
        """Bytes written so far, plus an estimate for the open stripe by the compression ratio so far."""
        share = self._encoded / self._flushed if self._flushed else _FIRST_GUESS
        return self._encoded + int(share * self._pending)

    def write(self, rows: pa.Table) -> None:
        """Append ``rows``.

        Raises:
            StorageFull: the disk is full.
            InvalidData: a column cannot be stored in ORC (:func:`unwritable`).
        """
        unwritable_column = unwritable(rows)
        if unwritable_column:
            raise InvalidData(self._table, *unwritable_column)
        stored = _copy_structs(refit_table(rows, self._stored))
        with disk_full_errors(self.path):
            self._writer.write(stored)
            written = int(self._output.tell())
        self._stats_collector.add(rows)
        self.rows += rows.num_rows
        self._pending += rows.nbytes
        if written > self._encoded + _HEAD_BYTES:
            self._flushed, self._pending, self._encoded = self._flushed + self._pending, 0, written

    def close(self) -> tuple[int, ColumnValues]:
        """Finish the file; return its exact size in bytes and the bounds and null counts of its columns."""
        with disk_full_errors(self.path):
            self._writer.close()
            size = int(self._output.tell())
            self._stream.close()
            self._output.close()
        return size, self._stats_collector.values()

    def discard(self) -> None:
        """Close and remove the unfinished file after a failure."""
        self._held.hold()
        quietly_close(self._writer)
        quietly_close(self._stream)
        quietly_abort(self._output)


def unwritable(rows: pa.Table) -> tuple[str, str] | None:
    """Find a column whose values Arrow and Java could not read back unchanged from an ORC file that Arrow wrote.

    Returns:
        Name of the column and the reason, or None if all columns can be written.
    """
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if _struct_depth(column.type) > 1:
            # Random tests showed that nulls of the inner struct move to other rows.
            return name, "a ROW inside a ROW in ORC files"
        if not any(map(pa.types.is_timestamp, leaf_types(column.type))):
            continue
        for chunk in column.chunks:
            for leaf in leaf_arrays(chunk):
                reason = (
                    _unwritable_reason(leaf)
                    if pa.types.is_timestamp(leaf.type) and len(leaf) > leaf.null_count
                    else None
                )
                if reason:
                    return name, reason
    return None


def _struct_depth(kind: pa.DataType) -> int:
    """Return the largest number of structs nested in each other."""
    if not pa.types.is_nested(kind):
        return 0
    if pa.types.is_map(kind):
        return max(_struct_depth(kind.key_type), _struct_depth(kind.item_type))
    inner = max((_struct_depth(kind.field(i).type) for i in range(kind.num_fields)), default=0)
    return inner + (1 if pa.types.is_struct(kind) else 0)


def _copy_structs(rows: pa.Table) -> pa.Table:
    """Copy the columns with structs, because Arrow's ORC writer writes wrong rows of slices."""
    for position, column in enumerate(rows.columns):
        if _struct_depth(column.type) and column.num_chunks:
            whole = column.combine_chunks()
            copied = whole.take(pa.array(np.arange(len(whole))))
            rows = rows.set_column(position, rows.schema.field(position), copied)
    return rows


def _unwritable_reason(times: pa.Array) -> str | None:
    """Return the reason why ``times`` (at least one not null) cannot be written to ORC, or None."""
    counts = numpy_array(times.drop_null().cast(pa.int64()))
    second = _PER_SECOND[times.type.unit]
    low, high = int(counts.min()), int(counts.max())
    if low * (_NANOS // second) < _LEAST_NANOS or high * (_NANOS // second) > _MOST_NANOS:
        return _RANGE
    # Arrow stores them with negative nanoseconds, on which Java's reader fails.
    if low < 0 and (counts[counts < 0] % second).any():
        return "timestamps before 1970 with fractions of a second in ORC files"
    return None


def _stored_field(field: pa.Field) -> pa.Field:
    """Return the field as stored in ORC, with Paimon's id as the attribute that Java reads."""
    kind = pa.int32() if pa.types.is_time(field.type) else field.type
    number = (field.metadata or {}).get(_TEXT_ID)
    return field.with_type(kind).with_metadata({_ID: number} if number else None)


def open_sink(
    file_io: FileIO,
    path: str,
    sample: pa.Table,
    options: TableOptions,
    *,
    codec: str,
    dictionary: Sequence[str] = (),
    delta: Sequence[str] = (),
) -> OrcSink:
    """Create an ORC file with the table's options `file.*` and the options `orc.*` that ORC's C++ writer supports.

    Args:
        file_io: file system of the file.
        path: path of the file, which must not exist.
        sample: first rows of the file, with its schema.
        options: options of the table.
        codec: value of option `file.compression`.
        dictionary: columns that get a dictionary in any case (Parquet); ignored.
        delta: columns that are delta-encoded (Parquet); ignored.
    """
    del dictionary, delta  # only Parquet uses these
    stripe = options.get("file.block-size") or options.given_size("orc.stripe.size", STRIPE_SIZE)
    return OrcSink(
        file_io,
        path,
        sample,
        table=options.table,
        compression=codec_of(codec, options.table),
        stripe_size=int(stripe),
        compression_block_size=options.given_size("orc.compress.size", _BLOCK_SIZE),
        row_index_stride=options.given_size("orc.row.index.stride", _ROW_INDEX_STRIDE),
        batch_size=_BATCH_ROWS,
        **{"dictionary_key_size_threshold": _DICTIONARY_SHARE, **orc_settings(options, sample.schema)},
    )


def codec_of(name: str, table: str = "") -> str:
    """Return ORC's name of the codec that option `file.compression` names.

    Raises:
        InvalidOption: ORC does not have the codec.
    """
    codec = _CODECS.get(name)
    if codec is None:
        raise InvalidOption("file.compression", name, f"for ORC: {', '.join(_CODECS)}", table)
    return codec


class OrcSource(WholeFileSource):
    """ORC file that is being read: opened, checked against its metadata, streamed in batches."""

    by_column = True

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
        """Open the file ``path``.

        Args:
            file_io: access to the files.
            path: path of the file.
            size: expected size in bytes, or None if unknown.
            rows: expected number of rows, or None if unknown.
            table: name of the table, for messages.
            kept: cache of footers, or None; unused here.

        Raises:
            CorruptFile: the file is missing, damaged, or not of ``size`` bytes and ``rows`` rows.
        """
        del kept  # nothing read at opening is cached
        self.path = path
        self._table = table
        with open_checked(file_io, path, "ORC", size) as self._input:
            self._sizes = decoded_sizes(self._input, path, table)
            import pyarrow.dataset as ds
            from pyarrow import orc

            file: Any = orc.ORCFile(self._input)
            self.schema: pa.Schema = file.schema
            self.rows = int(file.nrows)
            self._fragment: Any = ds.OrcFileFormat().make_fragment(self._input)
            check_rows(path, self.rows, rows)
            self.group_rows = [self.rows]

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
            CorruptFile: the file is damaged, or does not have the number of rows in its footer.
            UnsupportedFeature: Arrow cannot represent a timestamp.
        """
        del dictionaries  # repeating_texts returns none
        if row_groups is not None and not row_groups:
            return
        seen = 0
        row = sum(self._sizes.get(name, 0.0) for name in columns)
        batch_rows = max(1, min(batch_rows, int(BATCH_BYTES / max(row, 1.0))))
        with self._errors_of_decoding():
            chosen = {name: pc.field(name) for name in columns}
            stream = self._fragment.to_batches(
                self.schema, columns=chosen, batch_size=batch_rows, use_threads=False, batch_readahead=0
            )
        while True:
            with self._errors_of_decoding():
                batch = next(stream, None)
                if batch is not None:
                    batch.validate(full=True)
            if batch is None:
                break
            if batch.num_rows:
                seen += batch.num_rows
                yield check_values(batch, self.path)
        if seen != self.rows:
            raise CorruptFile(self.path, f"gave {seen} rows, its footer says {self.rows}")

    def close(self) -> None:
        """Release the file handle."""
        quietly_close(self._input)

    def _errors_of_decoding(self) -> _orc_decoding_errors:
        return _orc_decoding_errors(self.path, self._table)


class _orc_decoding_errors(decoding_errors):  # noqa: N801 - reads as a statement where it is used
    """Context that raises decoding errors as CorruptFile, values that Arrow cannot represent as UnsupportedFeature."""

    def __init__(self, path: str, table: str) -> None:
        super().__init__(path, "ORC")
        self._table = table

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pa.ArrowException) and _OUT_OF_RANGE in str(error):
            raise UnsupportedFeature(f"{_RANGE} ({self._path})", self._table) from error
        super().__exit__(kind, error, trace)


FORMAT: Final = FileFormat("orc", OrcSource, open_sink, codec_of, sizes=SIZES, unwritable=unwritable)
