"""Rows to be merged: slices of the inputs, with the values that decide ties; other columns are gathered late."""

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
from lsm_core.types.dictionaries import batch_of, concat_columns, plain, take_rows

OUTPUT_ROWS = 131_072
PART_ROWS = 131_072


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows of one input.

    Attributes:
        batch: the rows.
        keys: their normalised keys.
        level: level of their file.
        age: age rank of their file; larger is newer.
        row_bytes: average bytes of a row of the batch that the piece was cut from.
        climbing: whether every key is known to be larger than the one before.
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
        """Return the rows from ``start`` up to, but not including, ``stop``, without copying."""
        batch, keys = self.batch.slice(start, stop - start), self.keys.slice(start, stop)
        return Piece(batch, keys, self.level, self.age, self.row_bytes, self.climbing)


@dataclass(frozen=True, eq=False)
class Rows:
    """Pieces joined end to end; a row number counts over all pieces.

    Attributes:
        pieces: the pieces.
        keys: keys of all rows.
        offsets: number of the first row of each piece, and the end.
    """

    pieces: tuple[Piece, ...]
    keys: NormalisedKeys
    offsets: Ints

    @staticmethod
    def of(pieces: Sequence[Piece]) -> Rows:
        """Return the rows of all ``pieces`` (at least one) in order."""
        sizes = np.array([0, *(len(piece) for piece in pieces)], dtype=np.int64)
        return Rows(tuple(pieces), concat_keys([piece.keys for piece in pieces]), np.cumsum(sizes))

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def has(self, name: str) -> bool:
        """Return whether the rows have the column ``name``."""
        return bool(self.pieces[0].batch.schema.get_field_index(name) >= 0)

    def integers(self, name: str, dtype: npt.DTypeLike) -> npt.NDArray[np.int64]:
        """Return a NOT NULL integer system column of all rows.

        Raises:
            InvalidData: the column holds a null.
        """
        parts = []
        for piece in self.pieces:
            column = piece.batch.column(name)
            if column.null_count:
                raise InvalidData("", name, "a system column holds a null")
            parts.append(values_of(column, dtype))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def column(self, name: str, rows: Ints) -> pa.Array:
        """Return the values of column ``name`` of the given rows.

        Raises:
            InvalidData: the rows lack the column.
        """
        if self.pieces[0].batch.schema.get_field_index(name) < 0:
            raise InvalidData("", name, "the batch lacks this sequence column")
        return one_array(self.whole_column(name).take(arrow_array(rows)))

    def whole_column(self, name: str) -> pa.ChunkedArray:
        """Return one column of all rows.

        Args:
            name: name of the column.

        Returns:
            One chunk a piece; plain text where only some pieces have dictionaries.
        """
        chunks = [piece.batch.column(name) for piece in self.pieces]
        kinds = {str(chunk.type) for chunk in chunks}
        return pa.chunked_array([plain(chunk) for chunk in chunks] if len(kinds) > 1 else chunks)

    def piece_of(self, rows: Ints) -> Ints:
        """Return the index of the piece of each of the given rows."""
        return np.asarray(np.searchsorted(self.offsets, rows, side="right") - 1, dtype=np.int64)

    def piece_at(self, row: int) -> Piece:
        """Return the piece of ``row``."""
        return self.pieces[int(self.piece_of(np.array([row], np.int64))[0])]

    def span(self, start: int, stop: int) -> list[pa.RecordBatch]:
        """Return consecutive rows without copying.

        Args:
            start: first row.
            stop: end of the rows (exclusive).

        Returns:
            Batches of at most 131,072 rows.
        """
        batches = []
        for piece, offset in zip(self.pieces, self.offsets.tolist(), strict=False):
            low, high = max(start - offset, 0), min(stop - offset, len(piece))
            batches += [
                piece.batch.slice(first, min(OUTPUT_ROWS, high - first)) for first in range(low, high, OUTPUT_ROWS)
            ]
        return batches


def retracts(kinds: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return a mask of the row kinds that take a row back: -U (1) and -D (3)."""
    return np.asarray((kinds & 1) == 1, dtype=np.bool_)


def emit(rows: Rows, picked: Ints) -> list[pa.RecordBatch]:
    """Return rows as batches of at most 131,072 rows.

    Args:
        rows: the rows.
        picked: row numbers, in output order.

    Returns:
        The batches; a column of dictionaries may be returned as plain text.
    """
    if len(picked) == 0:
        return []
    first, last = int(picked[0]), int(picked[-1])
    if len(picked) == last - first + 1 and bool((np.diff(picked) == 1).all()):
        return rows.span(first, last + 1)
    # 32-bit row numbers halve the index, which is read for every column; windows are far below four billion rows
    index = picked.astype(np.uint32, copy=False) if len(rows) < 1 << 32 else picked
    parts = [arrow_array(index[start : start + OUTPUT_ROWS]) for start in range(0, len(index), OUTPUT_ROWS)]
    schema = rows.pieces[0].batch.schema
    columns: list[list[pa.Array]] = []
    for column_number in range(len(schema)):
        # column by column, so that the joined copy of one column is freed before the next one is made
        whole = concat_columns([piece.batch.column(column_number) for piece in rows.pieces])
        columns.append([take_rows(whole, part) for part in parts])
    return [batch_of([column[i] for column in columns], schema) for i in range(len(parts))]


def window_parts(pieces: Sequence[Piece]) -> deque[list[Piece]]:
    """Cut a window between keys into parts of about :data:`PART_ROWS` rows, which merge within the processor's caches.

    Args:
        pieces: rows of the window.

    Returns:
        Pieces of each part. All rows of a key are in one part, so only the last part's last key can stay open. An empty
        window is one empty part.
    """
    count = -(-sum(len(piece) for piece in pieces) // PART_ROWS)
    remaining = list(pieces)
    parts: deque[list[Piece]] = deque()
    if count > 1:
        lead = max(pieces, key=len).keys
        for bound in [lead.scalar(len(lead) * number // count) for number in range(1, count)]:
            below = [(piece, piece.keys.bisect(bound, right=False)) for piece in remaining]
            part = [piece.slice(0, rows) for piece, rows in below if rows]
            remaining = [piece.slice(rows, len(piece)) for piece, rows in below if rows < len(piece)]
            if part:
                parts.append(part)
    if remaining or not parts:
        parts.append(remaining)
    return parts
