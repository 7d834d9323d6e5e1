"""Sources of the indexes of primary-key tables: the data files of one level that an index file covers.

A reader uses an index file only if its sources are exactly the compacted files of their level. Each index file covers
one column of one bucket. Positions in it count the rows of the sources, one source after the other in the order of
their names.

Source: ``PrimaryKeyIndexSourceMeta``, ``PrimaryKeyIndexSourcePolicy``, ``PkSortedBucketIndexState`` (Paimon 2.0).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

_VERSION: Final = 1
_HEAD: Final = struct.Struct(">iii")
_ROWS: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">H")


@dataclass(frozen=True)
class IndexSources:
    """Data files that one index file covers.

    Attributes:
        level: level of the data files, at least 1.
        files: (name, rows) of each data file, in the order of names.
    """

    level: int
    files: tuple[tuple[str, int], ...]

    @property
    def rows(self) -> int:
        """Number of rows of all data files, including deleted rows."""
        return sum(rows for _, rows in self.files)


def decode_sources(data: bytes) -> IndexSources | None:
    """Return the sources of an index file, or None if the bytes have another form.

    Data-evolution tables keep other bytes in the same field, and later versions may change the form.

    Args:
        data: field `_SOURCE_META` of the index manifest.
    """
    try:
        version, level, count = _HEAD.unpack_from(data)
        if version != _VERSION or level < 1 or not 0 < count <= len(data) // (_LENGTH.size + _ROWS.size):
            return None
        position, files = _HEAD.size, []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(data, position)
            start = position + _LENGTH.size
            (rows,) = _ROWS.unpack_from(data, start + length)
            files.append((data[start : start + length].decode("utf-8"), rows))
            position = start + length + _ROWS.size
    except (struct.error, UnicodeDecodeError):
        return None
    return IndexSources(level, tuple(files)) if position == len(data) and min(rows for _, rows in files) >= 0 else None
