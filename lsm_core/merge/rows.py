"""Rows about to be merged: slices of the inputs side by side, with what ties need and what is gathered late."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import arrow_array, one_array, values_of
from lsm_core.errors import InvalidData
from lsm_core.merge.comparable import (
    Ints,
)
from lsm_core.merge.keys import NormalisedKeys, concat_keys
from lsm_core.types.dictionaries import batch_of, joined, plain, taken

OUTPUT_ROWS = 131_072
PART_ROWS = 131_072


@dataclass(frozen=True, eq=False)
class Piece:
    """Some consecutive rows of one input, their normalised keys, and the level and age of the file they come from.

    ``row_bytes``: bytes of a row, on average over the batch that the piece was cut from. ``climbing``: every key is known to be
    larger than the one before.
    """

    batch: pa.RecordBatch
    keys: NormalisedKeys
    level: int
    age: int
    row_bytes: float = 0.0
    climbing: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, stop: int) -> Piece:
        """Rows ``start`` to before ``stop``, without copying."""
        batch, keys = self.batch.slice(start, stop - start), self.keys.slice(start, stop)
        return Piece(batch, keys, self.level, self.age, self.row_bytes, self.climbing)


@dataclass(frozen=True, eq=False)
class Rows:
    """Pieces laid end to end: a row is named by its index in them."""

    pieces: tuple[Piece, ...]
    keys: NormalisedKeys
    offsets: Ints

    @staticmethod
    def of(pieces: Sequence[Piece]) -> Rows:
        """Rows of all ``pieces`` in order; at least one."""
        sizes = np.array([0, *(len(piece) for piece in pieces)], dtype=np.int64)
        return Rows(tuple(pieces), concat_keys([piece.keys for piece in pieces]), np.cumsum(sizes))

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def has(self, name: str) -> bool:
        """Whether the rows carry the column ``name``."""
        return bool(self.pieces[0].batch.schema.get_field_index(name) >= 0)

    def integers(self, name: str, dtype: npt.DTypeLike) -> npt.NDArray[np.int64]:
        """A NOT NULL integer system column of all rows."""
        parts = []
        for piece in self.pieces:
            column = piece.batch.column(name)
            if column.null_count:
                raise InvalidData("", name, "a system column holds a null")
            parts.append(values_of(column, dtype))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def column(self, name: str, rows: Ints) -> pa.Array:
        """Values of the column ``name`` of the given rows."""
        if self.pieces[0].batch.schema.get_field_index(name) < 0:
            raise InvalidData("", name, "the batch lacks this sequence column")
        return one_array(self.whole_column(name).take(arrow_array(rows)))

    def whole_column(self, name: str) -> pa.ChunkedArray:
        """The column ``name`` of all rows, a chunk a piece; plain text where only some of the pieces have dictionaries."""
        chunks = [piece.batch.column(name) for piece in self.pieces]
        kinds = {str(chunk.type) for chunk in chunks}
        return pa.chunked_array([plain(chunk) for chunk in chunks] if len(kinds) > 1 else chunks)

    def piece_of(self, rows: Ints) -> Ints:
        """Index of the piece that each of the given rows lies in."""
        return np.asarray(np.searchsorted(self.offsets, rows, side="right") - 1, dtype=np.int64)

    def piece_at(self, row: int) -> Piece:
        """The piece that ``row`` lies in."""
        return self.pieces[int(self.piece_of(np.array([row], np.int64))[0])]

    def span(self, start: int, stop: int) -> list[pa.RecordBatch]:
        """Rows ``start`` to before ``stop`` where they lie, in batches of at most 131,072 rows."""
        found = []
        for piece, offset in zip(self.pieces, self.offsets.tolist(), strict=False):
            low, high = max(start - offset, 0), min(stop - offset, len(piece))
            found += [piece.batch.slice(at, min(OUTPUT_ROWS, high - at)) for at in range(low, high, OUTPUT_ROWS)]
        return found


def retracts(kinds: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """True for row kinds that take back: -U (1) and -D (3)."""
    return np.asarray((kinds & 1) == 1, dtype=np.bool_)


def emit(rows: Rows, picked: Ints) -> list[pa.RecordBatch]:
    """The ``picked`` rows, in that order, as batches of at most 131,072 rows; a column of dictionaries may come as plain text."""
    if len(picked) == 0:
        return []
    first, last = int(picked[0]), int(picked[-1])
    if len(picked) == last - first + 1 and bool((np.diff(picked) == 1).all()):
        return rows.span(first, last + 1)
    # half the index is read for every column: windows are far smaller than four billion rows
    index = picked.astype(np.uint32, copy=False) if len(rows) < 1 << 32 else picked
    parts = [arrow_array(index[at : at + OUTPUT_ROWS]) for at in range(0, len(index), OUTPUT_ROWS)]
    schema = rows.pieces[0].batch.schema
    columns: list[list[pa.Array]] = []
    for place in range(len(schema)):
        # column by column: the copy that lies end to end is gone before the next one is made
        whole = joined([piece.batch.column(place) for piece in rows.pieces])
        columns.append([taken(whole, part) for part in parts])
    return [batch_of([column[i] for column in columns], schema) for i in range(len(parts))]


def window_parts(pieces: Sequence[Piece]) -> deque[list[Piece]]:
    """A window cut between keys into parts of about :data:`PART_ROWS` rows, which merge within the processor's caches.

    All rows of a key lie in one part, so only the last part's last key can stay open. An empty window is one empty part.
    """
    count = -(-sum(len(piece) for piece in pieces) // PART_ROWS)
    left = list(pieces)
    parts: deque[list[Piece]] = deque()
    if count > 1:
        lead = max(pieces, key=len).keys
        for bound in [lead.scalar(len(lead) * number // count) for number in range(1, count)]:
            below = [(piece, piece.keys.bisect(bound, right=False)) for piece in left]
            part = [piece.slice(0, rows) for piece, rows in below if rows]
            left = [piece.slice(rows, len(piece)) for piece, rows in below if rows < len(piece)]
            if part:
                parts.append(part)
    if left or not parts:
        parts.append(left)
    return parts
