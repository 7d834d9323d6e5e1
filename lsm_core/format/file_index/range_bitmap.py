"""The index `range-bitmap`.

A sorted dictionary in chunks numbers the values, and bit slices contain each row's number.
"""

from __future__ import annotations

import bisect
import struct
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lsm_core.errors import CorruptFile
from lsm_core.format import roaring
from lsm_core.format.file_index.slices import Slices, encode_digits, read_bitmap
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
_VERSION: Final = 1
_CHUNK_NUMBERS: Final = 5
_LONG_DIGITS: Final = 64


def default_chunk(kind: ValueEncoding) -> int:
    """Return the default size of a dictionary chunk (bytes).

    As in Java, types of one or two bytes have one value per chunk.
    """
    return 0 if kind.stored is not None and kind.stored.itemsize <= _WORD // 2 else 16 * 1024


def encode_range(distinct: Distinct, chunk_bytes: int) -> bytes:
    """Encode the range-bitmap index of a column: header, chunked dictionary of values, bit-sliced index of their ranks.

    Source: ``RangeBitmap.Appender``.
    """
    count = len(distinct.keys)
    rows = np.flatnonzero(distinct.codes >= 0).astype(np.uint32)
    # Without values Java uses the digits of -1.
    digits = max((count - 1).bit_length(), 1) if count else _LONG_DIGITS
    slices = encode_digits(rows, distinct.codes[rows], digits)
    filled = roaring.encode(BitMap(rows), runs=True)
    ends = np.cumsum([0, *map(len, slices)])
    places = np.stack([ends[:-1], np.diff(ends)], axis=1).astype(">i4").tobytes()
    bits = _frame(struct.pack(">BBii", _VERSION, digits, len(filled), len(places)) + places)
    dictionary = _encode_dictionary(distinct, chunk_bytes)
    bounds = distinct.keys.take(pa.array([0, count - 1])) if count else distinct.keys
    bound_bytes, _ = write_keys(distinct.kind, bounds, np.empty((len(bounds), 0), np.int64))
    head = (
        struct.pack(">Bii", _VERSION, distinct.rows, count) + bound_bytes.tobytes() + struct.pack(">i", len(dictionary))
    )
    return b"".join([_frame(head), dictionary, bits, filled, *slices])


def _encode_dictionary(distinct: Distinct, chunk_bytes: int) -> bytes:
    """Return the dictionary of a column: its sorted distinct values in chunks.

    The first value of a chunk is in the chunk's head, and the following values are in its body.

    Args:
        distinct: the column's distinct values.
        chunk_bytes: largest size of a chunk's body in bytes.
    """
    count = len(distinct.keys)
    keys, begins = write_keys(distinct.kind, distinct.keys, np.empty((count, 0), np.int64))
    heads: list[bytes] = []
    bodies: list[bytes] = []
    index = keys_at = 0
    while index < count:
        stop = entries_until(begins, index + 1, chunk_bytes) if index + 1 < count else count
        offsets = b""
        if distinct.kind.stored is None:
            # Offsets of texts are stored before them, in additional space.
            stop = min(stop, index + 1 + chunk_bytes // _WORD)
            offsets = (begins[index + 1 : stop] - begins[index + 1]).astype(">i4").tobytes()
        body = keys[begins[index + 1] : begins[stop]].tobytes()
        lengths = (len(body), distinct.kind.stored.itemsize) if distinct.kind.stored else (len(offsets), len(body))
        first = keys[begins[index] : begins[index + 1]].tobytes()
        heads.append(
            struct.pack(">B", _VERSION) + first + struct.pack(">5i", index, keys_at, stop - index - 1, *lengths)
        )
        bodies += [offsets, body]
        keys_at += len(offsets) + len(body)
        index = stop
    places = np.cumsum([0, *map(len, heads)])
    head_offsets = places[:-1].astype(">i4").tobytes()
    head = struct.pack(">Biii", _VERSION, len(heads), len(head_offsets), int(places[-1]))
    return b"".join([_frame(head), head_offsets, *heads, *bodies])


def _frame(head: bytes) -> bytes:
    return struct.pack(">i", len(head)) + head


class RangeIndex:
    """Decoded index `range-bitmap`: rows by the rank of their value among the distinct values.

    Source: ``RangeBitmap``, ``ChunkedDictionary``, ``BitSliceIndexBitmap``.
    """

    def __init__(self, data: bytes | memoryview, kind: ValueEncoding, path: str) -> None:
        self._view, self._path, self.kind = memoryview(data), path, kind
        at, head_end = _head(self._view, 0, path)
        self.rows, self._count = number(self._view, at, path), number(self._view, at + _WORD, path)
        if self.rows < 0 or self._count < 0:
            raise CorruptFile(path, f"range index of {self.rows} rows and {self._count} values")
        # The smallest and largest value follow, which the dictionary contains too.
        dictionary = number(self._view, head_end - _WORD, path)
        self._dictionary_at, self._slices_at = head_end, head_end + dictionary
        self._chunks: tuple[list[Key], I64, int] | None = None
        self._slices: Slices | None = None

    def filled(self) -> BitMap:
        """Return the rows of the file in which the indexed column is not null."""
        return BitMap(self._read_slices().filled) if self._count else BitMap()

    def equal(self, key: Key) -> BitMap:
        """Return the rows of the file in which the indexed column has the value ``key``."""
        rank, exists = self._rank(key)
        return self._read_slices().equal(rank) if exists else BitMap()

    def below(self, key: Key) -> BitMap:
        """Return the rows of the file in which the value of the indexed column is below ``key``."""
        return self._read_slices().below(self._rank(key)[0]) if self._count else BitMap()

    def _rank(self, key: Key) -> tuple[int, bool]:
        """Return (number of distinct values smaller than ``key``, whether ``key`` is one of the distinct values)."""
        if not self._count:
            return 0, False
        firsts, numbers, keys_at = self._read_chunks()
        chunk = bisect.bisect_right(firsts, key) - 1
        if chunk < 0:
            return 0, False
        code, offset, count, head, _ = (int(n) for n in numbers[chunk])
        if firsts[chunk] == key:
            return code, True
        # The first value of a chunk is in its head. Fixed-length values follow directly, texts after their offsets.
        at = keys_at + offset + (0 if self.kind.stored is not None else head)
        others, _, _ = read_keys(self._view, at, count, self.kind, 0, self._path)
        place = bisect.bisect_left(others, key)
        return code + 1 + place, place < count and others[place] == key

    def _read_chunks(self) -> tuple[list[Key], I64, int]:
        """Return (first value of each chunk, numbers of each chunk, start of the chunk bodies).

        Each chunk has five numbers: the rank of its first value, the offset of its body, the number of values in its
        body, and two lengths in bytes. For texts, these are the lengths of the texts' offsets and of the texts. For
        other types, they are the lengths of the body and of one value.
        """
        if self._chunks is None:
            view, path = self._view, self._path
            at, body = _head(view, self._dictionary_at, path)
            count, offsets, chunks = (number(view, at + _WORD * i, path) for i in range(3))
            if count < 1 or offsets < 0 or chunks < 0 or count > len(view) // _WORD:
                raise CorruptFile(path, f"a range index's dictionary of {count} chunks")
            places = np.frombuffer(take(view, body, _WORD * count, path), ">i4").tolist()
            keys: list[Key] = []
            numbers = np.empty((count, _CHUNK_NUMBERS), np.int64)
            for index, place in enumerate(places):
                start = body + offsets + place
                if int(take(view, start, 1, path)[0]) != _VERSION:
                    raise CorruptFile(path, f"a chunk of version {view[start]} in a range index; known: {_VERSION}")
                key, chunk_numbers, _ = read_keys(view, start + 1, 1, self.kind, _CHUNK_NUMBERS, path)
                keys += key
                numbers[index] = chunk_numbers[0]
            if (numbers < 0).any():
                raise CorruptFile(path, "a negative length in a range index's dictionary")
            self._chunks = (keys, numbers, body + offsets + chunks)
        return self._chunks

    def _read_slices(self) -> Slices:
        if self._slices is None:
            view, path = self._view, self._path
            at, body = _head(view, self._slices_at, path)
            count, filled_length = int(take(view, at, 1, path)[0]), number(view, at + 1, path)
            places = np.frombuffer(take(view, at + 1 + 2 * _WORD, 2 * _WORD * count, path), ">i4").reshape(-1, 2)
            filled, _ = read_bitmap(view, body, self.rows, path, filled_length)
            base = body + filled_length
            digits = [read_bitmap(view, base + int(s), self.rows, path, int(n))[0] for s, n in places]
            self._slices = Slices(filled, digits)
        return self._slices


def _head(view: memoryview, at: int, path: str) -> tuple[int, int]:
    """Return (position of the fields of the header at ``at``, position of the header's end).

    The fields follow the header's length and version.
    """
    length = number(view, at, path)
    head = take(view, at + _WORD, length, path)
    if length < 1 + 2 * _WORD or head[0] != _VERSION:
        raise CorruptFile(path, f"range index: a head of {length} bytes, or of a version other than {_VERSION}")
    return at + _WORD + 1, at + _WORD + length
