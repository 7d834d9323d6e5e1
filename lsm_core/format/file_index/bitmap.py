"""The index `bitmap`: rows per distinct value, with one dictionary (layout 1) or dictionary blocks (layout 2)."""

from __future__ import annotations

import bisect
import struct
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lsm_core.errors import CorruptFile
from lsm_core.format import roaring
from lsm_core.format.file_index.slices import read_bitmap
from lsm_core.format.file_index.values import (
    I64,
    Distinct,
    Key,
    ValueEncoding,
    entries_until,
    number,
    read_keys,
    take,
    write_keys,
)

_WORD: Final = 4
_PLAIN, _BLOCKS = 1, 2
_HEAD: Final = 1 + 2 * _WORD + 1
DEFAULT_BLOCK: Final = 16 * 1024
"""Size of a dictionary block in layout 2 (bytes)."""
Entries = tuple[list[Key], I64]


def encode_bitmap(distinct: Distinct, version: int = _BLOCKS, block_bytes: int = DEFAULT_BLOCK) -> bytes:
    """Return the index `bitmap` of a column of a file, with bitmaps in the order of the values.

    Java writes the bitmaps, and in layout 1 the values, in the order of its hash table; no reader depends on this
    order. A value that is larger than a block gets its own block; Java's writer fails for such a value.

    Args:
        distinct: distinct values with their rows.
        version: layout 1 or 2.
        block_bytes: size of a dictionary block in layout 2.

    Returns:
        The index.

    Source: ``BitmapFileIndex``.
    """
    rows, starts = distinct.rows_of_values()
    nulls = distinct.nulls()
    counts = np.diff(starts)
    has_several = counts > 1
    bitmap_rows = rows[np.repeat(has_several, counts)]
    bodies, body_offsets = roaring.encode_all(
        bitmap_rows, np.concatenate([[0], np.cumsum(counts[has_several])]).astype(np.int64)
    )
    null_bitmap = roaring.encode(BitMap(nulls), runs=True)
    null_body = null_bitmap if len(nulls) > 1 else b""
    numbers = np.empty((len(counts), 2), np.int64)
    numbers[has_several] = np.stack([body_offsets[:-1] + len(null_body), np.diff(body_offsets)], axis=1)
    numbers[~has_several, 0] = -1 - rows[starts[:-1][~has_several]].astype(np.int64)
    numbers[~has_several, 1] = -1
    head = [struct.pack(">Bii?", version, distinct.rows, len(counts), len(nulls) > 0)]
    if len(nulls):
        head.append(struct.pack(">i", 0 if len(nulls) > 1 else -1 - int(nulls[0])))
    if version == _PLAIN:
        entries, _ = write_keys(distinct.kind, distinct.keys, numbers[:, :1])
        return b"".join([*head, entries.tobytes(), null_body, bodies.tobytes()])
    if len(nulls):
        head.append(struct.pack(">i", len(null_bitmap)))
    entries, entry_offsets = write_keys(distinct.kind, distinct.keys, numbers)
    firsts: list[int] = []
    blocks: list[bytes] = []
    index = 0
    while index < len(counts):
        stop = max(index + 1, entries_until(entry_offsets, index, block_bytes - _WORD))
        firsts.append(index)
        blocks.append(struct.pack(">i", stop - index) + entries[entry_offsets[index] : entry_offsets[stop]].tobytes())
        index = stop
    offsets = np.cumsum([0, *map(len, blocks)])
    heads, _ = write_keys(distinct.kind, distinct.keys.take(pa.array(firsts, pa.int64())), offsets[:-1].reshape(-1, 1))
    head += [struct.pack(">i", len(firsts)), heads.tobytes(), struct.pack(">i", int(offsets[-1]))]
    return b"".join([*head, *blocks, null_body, bodies.tobytes()])


class BitmapIndex:
    """Decoded index `bitmap`; a negative offset of a value means that only row ``-1 - offset`` has the value.

    Source: ``BitmapFileIndex``.
    """

    def __init__(self, data: bytes | memoryview, kind: ValueEncoding, path: str) -> None:
        self._view, self._path, self.kind = memoryview(data), path, kind
        head = take(self._view, 0, _HEAD, path)
        self._version = int(head[0])
        if self._version not in (_PLAIN, _BLOCKS):
            raise CorruptFile(path, f"bitmap index of version {self._version}; known: {_PLAIN}, {_BLOCKS}")
        self.rows, count = number(self._view, 1, path), number(self._view, 1 + _WORD, path)
        if self.rows < 0 or count < 0:
            raise CorruptFile(path, f"bitmap index of {self.rows} rows and {count} values")
        position = _HEAD
        self._nulls: int | None = None
        if head[_HEAD - 1]:
            self._nulls = number(self._view, position, path)
            position += _WORD * self._version  # layout 2 adds the bitmap's length
        self._entries_of_block: dict[int, Entries] = {}
        if self._version == _PLAIN:
            keys, numbers, self._body = read_keys(self._view, position, count, kind, 1, path)
            order = sorted(range(len(keys)), key=keys.__getitem__)
            self._firsts: list[Key] = [keys[order[0]]] if keys else []
            self._entries_of_block[0] = ([keys[i] for i in order], numbers[order])
            self._places: I64 = np.zeros((len(self._firsts), 1), np.int64)
        else:
            blocks = number(self._view, position, path)
            if blocks < 0:
                raise CorruptFile(path, f"bitmap index of {blocks} blocks")
            self._firsts, self._places, position = read_keys(self._view, position + _WORD, blocks, kind, 1, path)
            self._entries_at = position + _WORD
            self._body = self._entries_at + number(self._view, position, path)

    def filled(self) -> BitMap:
        """Return the rows of the file in which the indexed column is not null."""
        all_rows = BitMap(range(self.rows))
        return all_rows if self._nulls is None else all_rows - self._rows_at(self._nulls)

    def equal(self, key: Key) -> BitMap:
        """Return the rows of the file in which the indexed column has the value ``key``.

        Raises:
            CorruptFile: A dictionary block or a bitmap of the index is invalid.
        """
        block = bisect.bisect_right(self._firsts, key) - 1
        if block < 0:
            return BitMap()
        if block not in self._entries_of_block:
            start = self._entries_at + int(self._places[block, 0])
            count = number(self._view, start, self._path)
            if count < 0:
                raise CorruptFile(self._path, f"a block of {count} entries in a bitmap index")
            keys, numbers, _ = read_keys(self._view, start + _WORD, count, self.kind, 2, self._path)
            self._entries_of_block[block] = (keys, numbers)
        keys, numbers = self._entries_of_block[block]
        index = bisect.bisect_left(keys, key)
        return self._rows_at(int(numbers[index, 0])) if index < len(keys) and keys[index] == key else BitMap()

    def below(self, key: Key) -> BitMap | None:
        """Return None, which means that this index cannot find the rows below ``key``; it only finds equal values."""
        return None

    def _rows_at(self, offset: int) -> BitMap:
        if offset >= 0:
            return read_bitmap(self._view, self._body + offset, self.rows, self._path)[0]
        if -1 - offset >= self.rows:
            raise CorruptFile(self._path, f"file index: row {-1 - offset} of {self.rows}")
        return BitMap([-1 - offset])
