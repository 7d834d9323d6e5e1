"""Deletion vectors: the deleted rows of a data file, in both of Paimon's layouts (format.md 11.2)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lsm_core.errors import CorruptFile
from lsm_core.format import roaring

INDEX_FILE_VERSION: Final = 1
"""First byte of an index file of deletion vectors."""
_MAGIC_V1: Final = (1581511376).to_bytes(4, "big")
_MAGIC_V2: Final = (1681511377).to_bytes(4, "little")
_FRAME: Final = 8
"""Number of bytes around an encoded vector in an index file: 4 for the size before it, 4 for the checksum after it."""
_WORD: Final = 4
_HIGH_SHIFT: Final = 32
_SLOT_ROWS: Final = 1 << _HIGH_SHIFT
_MAX_POSITION_V1: Final = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class DeletionVector:
    """Positions of deleted rows, counted from 0 over the whole data file.

    Attributes:
        parts: bitmaps by the high 32 bits of the positions, ascending.
    """

    parts: tuple[tuple[int, BitMap], ...] = ()

    @staticmethod
    def of(positions: Iterable[int] | npt.NDArray[np.integer[Any]]) -> DeletionVector:
        """Return the deletion vector that marks the rows at these positions, which may be in any order."""
        rows = np.unique(np.asarray(positions if isinstance(positions, np.ndarray) else list(positions), np.uint64))
        high = rows >> np.uint64(_HIGH_SHIFT)
        low = (rows & np.uint64(_SLOT_ROWS - 1)).astype(np.uint32)
        return DeletionVector(tuple((int(key), BitMap(low[high == key])) for key in np.unique(high)))

    @staticmethod
    def union(vectors: Iterable[DeletionVector]) -> DeletionVector:
        """Return the union of vectors: a vector of the rows that at least one of ``vectors`` marks."""
        bitmaps: dict[int, BitMap] = {}
        for vector in vectors:
            for key, bitmap in vector.parts:
                bitmaps[key] = bitmaps[key] | bitmap if key in bitmaps else bitmap
        return DeletionVector(tuple(sorted(bitmaps.items())))

    @staticmethod
    def from_bytes(data: bytes | memoryview, path: str, length: int | None = None) -> DeletionVector:
        """Decode a vector.

        Args:
            data: encoded vector, from its size field to its checksum.
            path: path of the index file, for messages.
            length: length in the index manifest, or None if unknown.

        Returns:
            The vector.

        Raises:
            CorruptFile: magic, size, checksum or a bitmap is wrong; the message names ``path``.
        """
        view = memoryview(data)
        size = int.from_bytes(view[:_WORD], "big")
        if len(view) < _FRAME + _WORD or size + _FRAME > len(view):
            raise CorruptFile(path, f"a deletion vector of {size} bytes in {len(view)} bytes")
        body = view[_WORD : _WORD + size]
        magic = bytes(body[:_WORD])
        if magic not in (_MAGIC_V1, _MAGIC_V2):
            raise CorruptFile(path, f"unknown magic {magic.hex()} of a deletion vector")
        if length is not None and length != (size if magic == _MAGIC_V1 else size + _FRAME):
            raise CorruptFile(path, f"a deletion vector of {size} bytes, but the index manifest records {length}")
        if zlib.crc32(body) != int.from_bytes(view[_WORD + size : _FRAME + size], "big"):
            raise CorruptFile(path, "the checksum of a deletion vector is wrong")
        if magic == _MAGIC_V2:
            return DeletionVector(_decode_parts(body[_WORD:], path))
        bitmap, end = roaring.decode(body[_WORD:], path)
        if end != size - _WORD:
            raise CorruptFile(path, f"{size - _WORD - end} bytes behind a deletion vector's bitmap")
        return DeletionVector(((0, bitmap),))

    def to_bytes(self, *, bitmap64: bool = False) -> tuple[bytes, int]:
        """Encode the vector with size and checksum.

        Args:
            bitmap64: whether to use layout v2 with 64-bit positions.

        Returns:
            The bytes, and the length for the index manifest.

        Raises:
            ValueError: a position does not fit layout v1.
        """
        if bitmap64:
            bitmaps = dict(self.parts)
            slots = [bitmaps.get(key, BitMap()) for key in range(max(bitmaps, default=-1) + 1)]
            bodies = [key.to_bytes(_WORD, "little") + roaring.encode(slot, runs=True) for key, slot in enumerate(slots)]
            body = _MAGIC_V2 + len(slots).to_bytes(8, "little") + b"".join(bodies)
            return _frame(body), len(body) + _FRAME
        if self.max_position > _MAX_POSITION_V1:
            raise ValueError(f"row {self.max_position} does not fit a 32-bit deletion vector")
        body = _MAGIC_V1 + roaring.encode(self.parts[0][1] if self.parts else BitMap())
        return _frame(body), len(body)

    @property
    def cardinality(self) -> int:
        """Number of deleted rows."""
        return sum(len(bitmap) for _, bitmap in self.parts)

    @property
    def max_position(self) -> int:
        """Position of the last deleted row, or -1 if no row is deleted."""
        filled = [(key << _HIGH_SHIFT) + bitmap.max() for key, bitmap in self.parts if len(bitmap)]
        return filled[-1] if filled else -1

    def deleted_mask(self, first_row: int, rows: int) -> npt.NDArray[np.bool_]:
        """Return a mask that is True for deleted rows, for ``rows`` rows starting at position ``first_row``."""
        mask = np.zeros(rows, np.bool_)
        for key, bitmap in self.parts:
            start = key << _HIGH_SHIFT
            low, high = max(first_row - start, 0), min(first_row + rows - start, _SLOT_ROWS)
            if low < high and len(bitmap):
                deleted = np.asarray((bitmap & BitMap(range(low, high))).to_array(), np.int64)
                mask[deleted + (start - first_row)] = True
        return mask

    def positions(self) -> npt.NDArray[np.int64]:
        """Return all deleted positions, ascending; :attr:`cardinality` is their number."""
        parts = [np.asarray(bitmap.to_array(), np.int64) + (key << _HIGH_SHIFT) for key, bitmap in self.parts]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def index_file(vectors: Sequence[DeletionVector], *, bitmap64: bool = False) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the content of an index file with deletion vectors.

    Args:
        vectors: the vectors in their order.
        bitmap64: whether to use layout v2 with 64-bit positions.

    Returns:
        The bytes, and offset and length of each vector for the index manifest.
    """
    blobs, ranges, offset = [bytes([INDEX_FILE_VERSION])], [], 1
    for vector in vectors:
        blob, length = vector.to_bytes(bitmap64=bitmap64)
        ranges.append((offset, length))
        blobs.append(blob)
        offset += len(blob)
    return b"".join(blobs), ranges


def _decode_parts(body: memoryview, path: str) -> tuple[tuple[int, BitMap], ...]:
    count = int.from_bytes(body[:8], "little")
    # A key and an empty bitmap take 12 bytes, so a larger count must be wrong.
    if len(body) < 8 or count > (len(body) - 8) // (3 * _WORD):
        raise CorruptFile(path, f"{count} bitmaps in {len(body)} bytes of a deletion vector")
    parts: list[tuple[int, BitMap]] = []
    offset, last_key = 8, -1
    for _ in range(count):
        key = int.from_bytes(body[offset : offset + _WORD], "little")
        if key <= last_key:
            raise CorruptFile(path, "keys of a deletion vector's bitmaps are not ascending")
        bitmap, bitmap_bytes = roaring.decode(body[offset + _WORD :], path)
        offset, last_key = offset + _WORD + bitmap_bytes, key
        if len(bitmap):
            parts.append((key, bitmap))
    if offset != len(body):
        raise CorruptFile(path, f"{len(body) - offset} bytes behind a deletion vector's bitmaps")
    return tuple(parts)


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(_WORD, "big") + body + zlib.crc32(body).to_bytes(_WORD, "big")
