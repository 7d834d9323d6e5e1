"""Row files (`.row`) as Paimon 2.x writes them: blocks of compact rows, compressed with Zstandard; the source only.

A file has blocks, the index of the blocks, and a footer of 32 bytes. It has neither column names nor checksums. All
rows of a file are decoded column by column; each step moves the read positions of all rows at once. The positions after
the last column must be the starts of the next rows, which finds most damage.

Source: `RowFileFormat`, `RowBlockReader` (Paimon 2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import batch_of
from lsm_core.errors import CorruptFile
from lsm_core.files.formats.guard import check_rows, check_values, decoding_errors, open_checked, quietly_close
from lsm_core.files.formats.layout import LayoutOf
from lsm_core.files.formats.protocol import WholeFileSource
from lsm_core.files.formats.row_values import RowValues
from lsm_core.storage import FileIO, Kept

I64 = npt.NDArray[np.int64]
_FOOTER: Final = np.dtype(
    [
        ("rows", "<i8"),
        ("blocks", "<i4"),
        ("index_offset", "<i8"),
        ("index_length", "<i4"),
        ("version", "i1"),
        ("reserved", "V3"),
        ("magic", "<i4"),
    ]
)
_MAGIC: Final = 0x524F5753
_VERSION: Final = 1
_OFFSET_BYTES: Final = 4
_BATCH_BYTES: Final = 4 << 20
"""Decompressed bytes after which no further block is added to a batch."""
_MOST_BLOCK_BYTES: Final = 1 << 31
_MOST_RATIO: Final = 1 << 15
"""Largest ratio of decompressed to compressed bytes that Zstandard reaches."""


class RowSource(WholeFileSource):
    """Row file that is being read: footer and index are checked at opening, and blocks are decoded in batches."""

    by_column = False

    def __init__(
        self,
        file_io: FileIO,
        path: str,
        *,
        size: int | None,
        rows: int | None,
        layout: LayoutOf,
        table: str = "",
        kept: Kept | None = None,
    ) -> None:
        """Open the file ``path``.

        Args:
            file_io: access to the files.
            path: path of the file.
            size: expected size in bytes, or None if unknown.
            rows: expected number of rows, or None if unknown.
            layout: function that returns the columns of the file.
            table: name of the table, for messages; unused.
            kept: cache of footers, or None; unused.

        Raises:
            CorruptFile: the file is missing, damaged, or not of ``size`` bytes and ``rows`` rows.
        """
        del table, kept
        self.path = path
        self._layout = layout()
        self.schema = self._layout.schema
        with open_checked(file_io, path, "row", size) as self._input:
            self._read_index()
            check_rows(path, self.rows, rows)
            self.group_rows = [self.rows]

    def _read_index(self) -> None:
        """Read footer and block index, and check that they agree with the file's size.

        Raises:
            CorruptFile: the footer or the index is damaged.
        """
        size = int(self._input.size())
        if size < _FOOTER.itemsize:
            raise CorruptFile(self.path, f"has {size} bytes, fewer than the footer of a row file")
        footer = np.frombuffer(self._input.read_at(_FOOTER.itemsize, size - _FOOTER.itemsize), _FOOTER)[0]
        if footer["magic"] != _MAGIC or footer["version"] != _VERSION:
            raise CorruptFile(self.path, "its footer is not that of a row file of version 1")
        start, length, blocks = int(footer["index_offset"]), int(footer["index_length"]), int(footer["blocks"])
        if start < 0 or length < 0 or start + length + _FOOTER.itemsize != size:
            raise CorruptFile(self.path, "its block index and its footer do not fit its size")
        index = np.frombuffer(self._input.read_at(length, start), np.uint8)
        arrays, place = [], 0
        for _ in range(3):
            part_length, place = _read_varint(index, place, self.path)
            arrays.append(_decode_deltas(index[place : place + part_length], self.path))
            place += part_length
        self.rows = int(footer["rows"])
        packed, unpacked, starts = arrays
        if place != length or not len(packed) == len(unpacked) == len(starts) == blocks:
            raise CorruptFile(self.path, f"its block index does not describe {blocks} blocks")
        counts = np.diff(starts, append=self.rows)
        if blocks and (starts[0] != 0 or (counts <= 0).any()):
            raise CorruptFile(self.path, "its block index has row numbers that do not increase")
        if (packed <= 0).any() or packed.sum() != start or (not blocks and self.rows):
            raise CorruptFile(self.path, "its block index has sizes that do not fit the file")
        if (unpacked <= 0).any() or (unpacked > np.minimum(packed * _MOST_RATIO, _MOST_BLOCK_BYTES)).any():
            raise CorruptFile(self.path, "its block index has decompressed sizes that no block has")
        self._packed, self._unpacked, self._counts = packed, unpacked, counts
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(packed)])

    def batches(
        self,
        columns: Sequence[str],
        batch_rows: int,
        row_groups: Sequence[int] | None = None,
        *,
        dictionaries: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of at most ``batch_rows`` rows of ``columns`` in file order; the whole file is one row group.

        Raises:
            CorruptFile: the file is damaged.
            UnsupportedFeature: Arrow cannot represent a timestamp.
        """
        del dictionaries  # repeating_texts returns none
        if row_groups is not None and not row_groups:
            return
        for first, end in pairwise(self._batch_bounds(batch_rows)):
            with decoding_errors(self.path, "row"):
                batch = self._decode(first, end, columns)
            yield from (batch.slice(start, batch_rows) for start in range(0, batch.num_rows, batch_rows))

    def _batch_bounds(self, batch_rows: int) -> list[int]:
        """Return the first block of each batch, and the number of blocks as the last value."""
        bounds, rows, size = [0], 0, 0
        for block in range(len(self._packed)):
            count, length = int(self._counts[block]), int(self._unpacked[block])
            if rows and (rows + count > batch_rows or size + length > _BATCH_BYTES):
                bounds.append(block)
                rows = size = 0
            rows, size = rows + count, size + length
        return [*bounds, len(self._packed)] if len(self._packed) else []

    def _decode(self, first: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Decode the blocks from ``first`` up to, but not including, ``end``."""
        start, stop = int(self._starts[first]), int(self._starts[end])
        packed = memoryview(self._input.read_at(stop - start, start))
        codec = pa.Codec("zstd")
        blocks, positions, ends, base = [], [], [], 0
        for block in range(first, end):
            place = int(self._starts[block]) - start
            size, count = int(self._unpacked[block]), int(self._counts[block])
            data = np.frombuffer(
                codec.decompress(packed[place : place + int(self._packed[block])], decompressed_size=size), np.uint8
            )
            offsets = self._row_offsets(data, count)
            blocks.append(data)
            positions.append(offsets[:-1] + base)
            ends.append(offsets[1:] + base)
            base += size
        values = RowValues(np.concatenate(blocks), self.path)
        cursor = np.concatenate(positions)
        wanted = set(columns)
        fields = [
            (field.type, kind, field.name in wanted)
            for field, kind in zip(self.schema, self._layout.types, strict=True)
        ]
        arrays, cursor = values.read_fields(fields, cursor)
        if not np.array_equal(cursor, np.concatenate(ends)):
            raise CorruptFile(self.path, "its rows do not have the lengths that their table's columns have")
        decoded = dict(zip(self.schema.names, arrays, strict=True))
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), len(cursor), [None]))
        schema = pa.schema([self.schema.field(name).with_nullable(nullable=True) for name in columns])
        return check_values(batch_of([decoded[name] for name in columns], schema), self.path)

    def _row_offsets(self, data: npt.NDArray[np.uint8], count: int) -> I64:
        """Return the starts of a block's rows and the end of the last row.

        Raises:
            CorruptFile: the block does not have ``count`` rows, or an offset is outside it.
        """
        end = len(data) - _OFFSET_BYTES * (count + 1)
        if end < 0 or int(data[-_OFFSET_BYTES:].view("<i4")[0]) != count:
            raise CorruptFile(self.path, f"a block does not have the {count} rows that the block index says")
        offsets = data[end:-_OFFSET_BYTES].view("<i4").astype(np.int64)
        if offsets.min() < 0 or offsets.max() > end:
            raise CorruptFile(self.path, "a block has rows that start outside it")
        return np.append(offsets, end)

    def close(self) -> None:
        """Release the file handle."""
        quietly_close(self._input)


def _read_varint(data: npt.NDArray[np.uint8], place: int, path: str) -> tuple[int, int]:
    """Return the unsigned LEB128 number at ``place``, and the position after it.

    Raises:
        CorruptFile: the number has more than five bytes, or the data ends inside it.
    """
    value = 0
    for step, byte in enumerate(bytes(data[place : place + 5])):
        value |= (byte & 0x7F) << (7 * step)
        if byte < 0x80:
            return value, place + step + 1
    raise CorruptFile(path, "its block index has a broken length")


def _decode_deltas(data: npt.NDArray[np.uint8], path: str) -> I64:
    """Return the numbers of which `DeltaVarintCompressor` stored the first and the differences, as zigzag varints.

    Raises:
        CorruptFile: the data ends inside a number, or a number has more than ten bytes.
    """
    if not len(data):
        return np.zeros(0, np.int64)
    last = np.flatnonzero(data < 0x80)
    lengths = np.diff(last, prepend=-1)
    if not len(last) or last[-1] != len(data) - 1 or lengths.max() > 10:
        raise CorruptFile(path, "its block index has a broken number")
    starts = last - lengths + 1
    steps = np.arange(len(data)) - np.repeat(starts, lengths)
    parts = (data & 0x7F).astype(np.uint64) << (7 * steps).astype(np.uint64)
    zigzag = np.bitwise_or.reduceat(parts, starts)
    deltas = (zigzag >> np.uint64(1)).view(np.int64) ^ -(zigzag & np.uint64(1)).view(np.int64)
    return np.cumsum(deltas)
