"""The index `bitmap`: the rows of every distinct value, found by a dictionary (layout 1) or by blocks of one (layout 2)."""

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
    Kind,
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
"""Bytes of one block of the dictionary in layout 2."""
Entries = tuple[list[Key], I64]


def encode_bitmap(found: Distinct, version: int = _BLOCKS, block_bytes: int = DEFAULT_BLOCK) -> bytes:
    """The index of a file's values in layout 1 or 2 (Java `BitmapFileIndex`), bitmaps in the order of the values.

    Java lists the bitmaps, and in layout 1 the values, in the order of its hash table; nothing reads anything out of that.
    A value that alone is larger than a block, at which Java's writer fails, has a block of its own.
    """
    rows, starts = found.rows_of_values()
    nulls = found.nulls()
    counts = np.diff(starts)
    several = counts > 1
    chosen = rows[np.repeat(several, counts)]
    bodies, begins = roaring.encode_all(chosen, np.concatenate([[0], np.cumsum(counts[several])]).astype(np.int64))
    of_nulls = roaring.encode(BitMap(nulls), runs=True)
    before = of_nulls if len(nulls) > 1 else b""
    extra = np.empty((len(counts), 2), np.int64)
    extra[several] = np.stack([begins[:-1] + len(before), np.diff(begins)], axis=1)
    extra[~several, 0] = -1 - rows[starts[:-1][~several]].astype(np.int64)
    extra[~several, 1] = -1
    head = [struct.pack(">Bii?", version, found.rows, len(counts), len(nulls) > 0)]
    if len(nulls):
        head.append(struct.pack(">i", 0 if len(nulls) > 1 else -1 - int(nulls[0])))
    if version == _PLAIN:
        entries, _ = write_keys(found.kind, found.keys, extra[:, :1])
        return b"".join([*head, entries.tobytes(), before, bodies.tobytes()])
    if len(nulls):
        head.append(struct.pack(">i", len(of_nulls)))
    entries, places = write_keys(found.kind, found.keys, extra)
    firsts: list[int] = []
    blocks: list[bytes] = []
    at = 0
    while at < len(counts):
        until = max(at + 1, entries_until(places, at, block_bytes - _WORD))
        firsts.append(at)
        blocks.append(struct.pack(">i", until - at) + entries[places[at] : places[until]].tobytes())
        at = until
    offsets = np.cumsum([0, *map(len, blocks)])
    heads, _ = write_keys(found.kind, found.keys.take(pa.array(firsts, pa.int64())), offsets[:-1].reshape(-1, 1))
    head += [struct.pack(">i", len(firsts)), heads.tobytes(), struct.pack(">i", int(offsets[-1]))]
    return b"".join([*head, *blocks, before, bodies.tobytes()])


class BitmapIndex:
    """Rows by value (Java `BitmapFileIndex`). A negative offset stands for the one row ``-1 - offset``."""

    def __init__(self, data: bytes | memoryview, kind: Kind, path: str) -> None:
        self._view, self._path, self.kind = memoryview(data), path, kind
        head = take(self._view, 0, _HEAD, path)
        self._version = int(head[0])
        if self._version not in (_PLAIN, _BLOCKS):
            raise CorruptFile(path, f"bitmap index of version {self._version}; known: {_PLAIN}, {_BLOCKS}")
        self.rows, count = number(self._view, 1, path), number(self._view, 1 + _WORD, path)
        if self.rows < 0 or count < 0:
            raise CorruptFile(path, f"bitmap index of {self.rows} rows and {count} values")
        at = _HEAD
        self._nulls: int | None = None
        if head[_HEAD - 1]:
            self._nulls = number(self._view, at, path)
            at += _WORD * self._version  # layout 2 adds the bitmap's length
        self._known: dict[int, Entries] = {}
        if self._version == _PLAIN:
            keys, numbers, self._body = read_keys(self._view, at, count, kind, 1, path)
            order = sorted(range(len(keys)), key=keys.__getitem__)
            self._firsts: list[Key] = [keys[order[0]]] if keys else []
            self._known[0] = ([keys[i] for i in order], numbers[order])
            self._places: I64 = np.zeros((len(self._firsts), 1), np.int64)
        else:
            blocks = number(self._view, at, path)
            if blocks < 0:
                raise CorruptFile(path, f"bitmap index of {blocks} blocks")
            self._firsts, self._places, at = read_keys(self._view, at + _WORD, blocks, kind, 1, path)
            self._entries_at = at + _WORD
            self._body = self._entries_at + number(self._view, at, path)

    def filled(self) -> BitMap:
        """Rows that are not null."""
        everything = BitMap(range(self.rows))
        return everything if self._nulls is None else everything - self._rows_at(self._nulls)

    def equal(self, key: Key) -> BitMap:
        """Rows of this value."""
        block = bisect.bisect_right(self._firsts, key) - 1
        if block < 0:
            return BitMap()
        if block not in self._known:
            start = self._entries_at + int(self._places[block, 0])
            count = number(self._view, start, self._path)
            if count < 0:
                raise CorruptFile(self._path, f"a block of {count} entries in a bitmap index")
            keys, numbers, _ = read_keys(self._view, start + _WORD, count, self.kind, 2, self._path)
            self._known[block] = (keys, numbers)
        keys, numbers = self._known[block]
        at = bisect.bisect_left(keys, key)
        return self._rows_at(int(numbers[at, 0])) if at < len(keys) and keys[at] == key else BitMap()

    def below(self, key: Key) -> BitMap | None:
        """None: the dictionary does not answer ranges."""
        return None

    def _rows_at(self, offset: int) -> BitMap:
        if offset >= 0:
            return read_bitmap(self._view, self._body + offset, self.rows, self._path)[0]
        if -1 - offset >= self.rows:
            raise CorruptFile(self._path, f"file index: row {-1 - offset} of {self.rows}")
        return BitMap([-1 - offset])


__all__ = ["DEFAULT_BLOCK", "BitmapIndex", "encode_bitmap"]
