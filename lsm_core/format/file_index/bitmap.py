"""The index `bitmap`: the rows of every distinct value, found by a dictionary (layout 1) or by blocks of one (layout 2)."""

from __future__ import annotations

import bisect
from typing import Final

import numpy as np
from pyroaring import BitMap

from lsm_core.errors import CorruptFile
from lsm_core.format.file_index.slices import read_bitmap
from lsm_core.format.file_index.values import I64, Key, Kind, number, read_keys, take

_WORD: Final = 4
_PLAIN, _BLOCKS = 1, 2
_HEAD: Final = 1 + 2 * _WORD + 1
Entries = tuple[list[Key], I64]


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


__all__ = ["BitmapIndex"]
