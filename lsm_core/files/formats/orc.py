"""ORC as Paimon's Java writes and reads it: types, `paimon.id` of every field, and batches instead of whole stripes.

Differences of ORC that readers of the table never see: TIME is an int of milliseconds, and Arrow decodes timestamps as
nanoseconds, so that those outside 1677 to 2262 are refused on both ways rather than wrapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array
from lsm_core.errors import CorruptFile, InvalidData, InvalidOption, UnsupportedFeature
from lsm_core.files.formats.gather import ValueGatherer
from lsm_core.files.formats.guard import (
    TailOutput,
    check_rows,
    checked,
    creating,
    disk_full_named,
    named,
    opening,
    quietly_abort,
    quietly_close,
)
from lsm_core.files.formats.leaves import leaf_arrays, leaf_types, map_field
from lsm_core.files.formats.orc_footer import BATCH_BYTES, checked_sizes
from lsm_core.files.formats.protocol import FileFormat, WholeFileSource
from lsm_core.format.stats import ColumnValues
from lsm_core.options import TableOptions
from lsm_core.storage import FileIO, Kept
from lsm_core.types.nesting import refit_table

STRIPE_SIZE: Final = 16 * 1024 * 1024
"""Encoded bytes of a stripe: what a writer holds back, and about what a reader holds."""
_CODECS: Final = {"zstd": "zstd", "zlib": "zlib", "snappy": "snappy", "lz4": "lz4", "none": "uncompressed"}
_BLOCK_SIZE: Final = 128 * 1024
SIZES: Final = ("orc.stripe.size", "orc.compress.size")
"""Sizes in bytes, of at least 1, that the writer is told by options of ORC's own."""
_ROW_INDEX_STRIDE: Final = 10_000
_DICTIONARY_SHARE: Final = 0.5
"""Distinct values per value up to which a text column gets a dictionary."""
_BATCH_ROWS: Final = 8_192
_TEXT_ID, _ID = b"PARQUET:field_id", b"paimon.id"
_OUT_OF_RANGE: Final = "out of range for nanosecond"
_RANGE: Final = "timestamps outside 1677-09-21 to 2262-04-11 in ORC files"
_HEAD_BYTES: Final = 64
"""More than what is written before the first stripe is."""
_NANOS: Final = 1_000_000_000
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": _NANOS}
_LEAST_NANOS, _MOST_NANOS = -(2**63) + 1, 2**63 - 1
_FIRST_GUESS: Final = 0.5
"""Encoded bytes per decoded byte before anything was encoded."""


class OrcSink:
    """One ORC file being written. Never overwrites; nothing is published until :meth:`close` returned."""

    def __init__(self, file_io: FileIO, path: str, sample: pa.Table, *, table: str, **settings: Any) -> None:
        """Open ``path``; ``sample`` gives the schema, ``settings`` are those of ``pyarrow.orc.ORCWriter``."""
        self.path = path
        self.rows = 0
        self._table = table
        self._stored = pa.schema([map_field(field, _stored_field) for field in sample.schema])
        self._gathered = ValueGatherer(sample.column_names)
        self._encoded = self._flushed = self._pending = 0
        with creating(file_io, path) as self._output:
            self._held = TailOutput(self._output)
            self._stream: Any = pa.PythonFile(self._held, mode="w")
            from pyarrow import orc  # only tables of ORC files wait for it

            self._writer: Any = orc.ORCWriter(self._stream, **settings)

    @property
    def position(self) -> int:
        """Bytes written so far and, by the share seen until now, those that the open stripe will take."""
        share = self._encoded / self._flushed if self._flushed else _FIRST_GUESS
        return self._encoded + int(share * self._pending)

    def write(self, rows: pa.Table) -> None:
        """Append ``rows``. Raises :class:`StorageFull`, and :class:`InvalidData` for a timestamp that Arrow could not read back."""
        refused = unwritable(rows)
        if refused:
            raise InvalidData(self._table, *refused)
        stored = _whole_rows(refit_table(rows, self._stored))
        with disk_full_named(self.path):
            self._writer.write(stored)
            written = int(self._output.tell())
        self._gathered.add(rows)
        self.rows += rows.num_rows
        self._pending += rows.nbytes
        if written > self._encoded + _HEAD_BYTES:
            self._flushed, self._pending, self._encoded = self._flushed + self._pending, 0, written

    def close(self) -> tuple[int, ColumnValues]:
        """Finish the file; returns its exact size in bytes and what is known of its columns' values."""
        with disk_full_named(self.path):
            self._writer.close()
            size = int(self._output.tell())
            self._stream.close()
            self._output.close()
        return size, self._gathered.values()

    def discard(self) -> None:
        """Give up after a failure: close the handle and remove the unfinished file."""
        self._held.hold()
        quietly_close(self._writer)
        quietly_close(self._stream)
        quietly_abort(self._output)


def unwritable(rows: pa.Table) -> tuple[str, str] | None:
    """(column, reason) of the first column whose values would not come back from an ORC file that Arrow wrote, if any."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if _structs_deep(column.type) > 1:
            # Found with random rows: nulls of the inner one end up in other rows.
            return name, "a ROW inside a ROW in ORC files"
        if not any(map(pa.types.is_timestamp, leaf_types(column.type))):
            continue
        for chunk in column.chunks:
            for leaf in leaf_arrays(chunk):
                reason = _unwritable(leaf) if pa.types.is_timestamp(leaf.type) and len(leaf) > leaf.null_count else None
                if reason:
                    return name, reason
    return None


def _structs_deep(kind: pa.DataType) -> int:
    """How many structs lie around each other at most."""
    if not pa.types.is_nested(kind):
        return 0
    if pa.types.is_map(kind):
        return max(_structs_deep(kind.key_type), _structs_deep(kind.item_type))
    inner = max((_structs_deep(kind.field(i).type) for i in range(kind.num_fields)), default=0)
    return inner + (1 if pa.types.is_struct(kind) else 0)


def _whole_rows(rows: pa.Table) -> pa.Table:
    """``rows`` with columns that hold structs copied: Arrow's ORC writer takes a wrong part of those that are slices."""
    for position, column in enumerate(rows.columns):
        if _structs_deep(column.type) and column.num_chunks:
            joined = column.combine_chunks()
            copied = joined.take(pa.array(np.arange(len(joined))))
            rows = rows.set_column(position, rows.schema.field(position), copied)
    return rows


def _unwritable(times: pa.Array) -> str | None:
    """The reason for which ``times`` (at least one that is not null) cannot be written to ORC; None where they can."""
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
    """The field as ORC holds it, with Paimon's id as the attribute that Java looks for."""
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
    """A sink with the table's settings: `file.*`, and those of `orc.*` that ORC's C++ writer knows."""
    del dictionary, delta  # Parquet alone has these
    stripe = options.get("file.block-size") or options.given_size("orc.stripe.size", STRIPE_SIZE)
    return OrcSink(
        file_io,
        path,
        sample,
        table=options.table,
        compression=codec_of(codec, options.table),
        stripe_size=int(stripe),
        compression_block_size=options.given_size("orc.compress.size", _BLOCK_SIZE),
        row_index_stride=_ROW_INDEX_STRIDE,
        dictionary_key_size_threshold=_DICTIONARY_SHARE,
        batch_size=_BATCH_ROWS,
    )


def codec_of(name: str, table: str = "") -> str:
    """ORC's name of the codec that option `file.compression` names; raises :class:`InvalidOption`."""
    codec = _CODECS.get(name)
    if codec is None:
        raise InvalidOption("file.compression", name, f"for ORC: {', '.join(_CODECS)}", table)
    return codec


class OrcSource(WholeFileSource):
    """One ORC file being read: opened, checked against its metadata, streamed in batches."""

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
        """Open ``path``; raises :class:`CorruptFile` when it is missing or not what ``size``/``rows`` say."""
        del kept  # of what it reads when opened nothing is remembered
        self.path = path
        self._table = table
        with opening(file_io, path, "ORC", size) as self._input:
            self._sizes = checked_sizes(self._input, path, table)
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
        """Batches of at most ``batch_rows`` rows of ``columns`` (file order); the whole file is the one row group."""
        del dictionaries  # none are told of
        if row_groups is not None and not row_groups:
            return
        seen = 0
        row = sum(self._sizes.get(name, 0.0) for name in columns)
        batch_rows = max(1, min(batch_rows, int(BATCH_BYTES / max(row, 1.0))))
        with self._decoding():
            chosen = {name: pc.field(name) for name in columns}
            stream = self._fragment.to_batches(
                self.schema, columns=chosen, batch_size=batch_rows, use_threads=False, batch_readahead=0
            )
        while True:
            with self._decoding():
                batch = next(stream, None)
                if batch is not None:
                    batch.validate(full=True)
            if batch is None:
                break
            if batch.num_rows:
                seen += batch.num_rows
                yield checked(batch, self.path)
        if seen != self.rows:
            raise CorruptFile(self.path, f"gave {seen} rows, its footer says {self.rows}")

    def close(self) -> None:
        """Release the file handle."""
        quietly_close(self._input)

    def _decoding(self) -> _decoding:
        return _decoding(self.path, self._table)


class _decoding(named):  # noqa: N801 - reads as a statement where it is used
    """As :class:`named`, but an honest value that Arrow cannot hold does not make the file a corrupt one."""

    def __init__(self, path: str, table: str) -> None:
        super().__init__(path, "ORC")
        self._table = table

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pa.ArrowException) and _OUT_OF_RANGE in str(error):
            raise UnsupportedFeature(f"{_RANGE} ({self._path})", self._table) from error
        super().__exit__(kind, error, trace)


FORMAT: Final = FileFormat("orc", OrcSource, open_sink, codec_of, sizes=SIZES, unwritable=unwritable)

__all__ = ["FORMAT", "OrcSink", "OrcSource", "open_sink", "unwritable"]
