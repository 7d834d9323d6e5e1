"""Deletion vectors: which rows of a data file are gone, in both of Paimon's layouts (format.md 11.2)."""

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
"""Size in front and checksum behind, 4 bytes each."""
_WORD: Final = 4
_HIGH: Final = 32
_SLOT: Final = 1 << _HIGH
_LARGEST_V1: Final = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class DeletionVector:
    """Positions (from 0, counted over the whole data file) of deleted rows; ``parts``: by their high 32 bits, ascending."""

    parts: tuple[tuple[int, BitMap], ...] = ()

    @staticmethod
    def of(positions: Iterable[int] | npt.NDArray[np.integer[Any]]) -> DeletionVector:
        """The vector of these positions, in any order."""
        rows = np.unique(np.asarray(positions if isinstance(positions, np.ndarray) else list(positions), np.uint64))
        high = rows >> np.uint64(_HIGH)
        low = (rows & np.uint64(_SLOT - 1)).astype(np.uint32)
        return DeletionVector(tuple((int(key), BitMap(low[high == key])) for key in np.unique(high)))

    @staticmethod
    def union(vectors: Iterable[DeletionVector]) -> DeletionVector:
        """The rows that any of these marks."""
        found: dict[int, BitMap] = {}
        for vector in vectors:
            for key, bitmap in vector.parts:
                found[key] = found[key] | bitmap if key in found else bitmap
        return DeletionVector(tuple(sorted(found.items())))

    @staticmethod
    def from_bytes(data: bytes | memoryview, path: str, length: int | None = None) -> DeletionVector:
        """The vector in a blob from its size word to its checksum; ``length`` as the index manifest records it.

        Raises :class:`CorruptFile` naming ``path``: another magic, size or checksum, or a bitmap that is none.
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
            raise CorruptFile(path, f"a deletion vector of {size} bytes, the index manifest records {length}")
        if zlib.crc32(body) != int.from_bytes(view[_WORD + size : _FRAME + size], "big"):
            raise CorruptFile(path, "the checksum of a deletion vector is wrong")
        if magic == _MAGIC_V2:
            return DeletionVector(_several(body[_WORD:], path))
        bitmap, end = roaring.decode(body[_WORD:], path)
        if end != size - _WORD:
            raise CorruptFile(path, f"{size - _WORD - end} bytes behind a deletion vector's bitmap")
        return DeletionVector(((0, bitmap),))

    def to_bytes(self, *, bitmap64: bool = False) -> tuple[bytes, int]:
        """Blob with size and checksum, and the length that the index manifest records for it. ``bitmap64``: layout v2.

        Raises ValueError for a position that layout v1 cannot hold.
        """
        if bitmap64:
            known = dict(self.parts)
            slots = [known.get(key, BitMap()) for key in range(max(known, default=-1) + 1)]
            bodies = [key.to_bytes(_WORD, "little") + roaring.encode(slot, runs=True) for key, slot in enumerate(slots)]
            body = _MAGIC_V2 + len(slots).to_bytes(8, "little") + b"".join(bodies)
            return _framed(body), len(body) + _FRAME
        if self.max_position > _LARGEST_V1:
            raise ValueError(f"row {self.max_position} does not fit a 32-bit deletion vector")
        body = _MAGIC_V1 + roaring.encode(self.parts[0][1] if self.parts else BitMap())
        return _framed(body), len(body)

    @property
    def cardinality(self) -> int:
        """Number of deleted rows."""
        return sum(len(bitmap) for _, bitmap in self.parts)

    @property
    def max_position(self) -> int:
        """The last deleted row, -1 without any."""
        filled = [(key << _HIGH) + bitmap.max() for key, bitmap in self.parts if len(bitmap)]
        return filled[-1] if filled else -1

    def deleted_mask(self, first_row: int, rows: int) -> npt.NDArray[np.bool_]:
        """True at the deleted ones of the ``rows`` rows from position ``first_row`` on."""
        mask = np.zeros(rows, np.bool_)
        for key, bitmap in self.parts:
            start = key << _HIGH
            low, high = max(first_row - start, 0), min(first_row + rows - start, _SLOT)
            if low < high and len(bitmap):
                hit = np.asarray((bitmap & BitMap(range(low, high))).to_array(), np.int64)
                mask[hit + (start - first_row)] = True
        return mask

    def positions(self) -> npt.NDArray[np.int64]:
        """All deleted positions, ascending; as long as :attr:`cardinality` says."""
        found = [np.asarray(bitmap.to_array(), np.int64) + (key << _HIGH) for key, bitmap in self.parts]
        return np.concatenate(found) if found else np.zeros(0, np.int64)


def index_file(vectors: Sequence[DeletionVector], *, bitmap64: bool = False) -> tuple[bytes, list[tuple[int, int]]]:
    """Content of an index file and each vector's (offset, length) for the index manifest."""
    blobs, ranges, at = [bytes([INDEX_FILE_VERSION])], [], 1
    for vector in vectors:
        blob, length = vector.to_bytes(bitmap64=bitmap64)
        ranges.append((at, length))
        blobs.append(blob)
        at += len(blob)
    return b"".join(blobs), ranges


def _several(body: memoryview, path: str) -> tuple[tuple[int, BitMap], ...]:
    count = int.from_bytes(body[:8], "little")
    # A key and an empty bitmap are 12 bytes: no count beyond that is believed.
    if len(body) < 8 or count > (len(body) - 8) // (3 * _WORD):
        raise CorruptFile(path, f"{count} bitmaps in {len(body)} bytes of a deletion vector")
    found: list[tuple[int, BitMap]] = []
    at, last = 8, -1
    for _ in range(count):
        key = int.from_bytes(body[at : at + _WORD], "little")
        if key <= last:
            raise CorruptFile(path, "keys of a deletion vector's bitmaps are not ascending")
        bitmap, taken = roaring.decode(body[at + _WORD :], path)
        at, last = at + _WORD + taken, key
        if len(bitmap):
            found.append((key, bitmap))
    if at != len(body):
        raise CorruptFile(path, f"{len(body) - at} bytes behind a deletion vector's bitmaps")
    return tuple(found)


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(_WORD, "big") + body + zlib.crc32(body).to_bytes(_WORD, "big")


__all__ = ["INDEX_FILE_VERSION", "DeletionVector", "index_file"]
