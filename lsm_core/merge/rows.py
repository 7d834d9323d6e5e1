"""Rows to be merged, and their merge order, which reads, compactions and write buffers use.

Rows are slices of the inputs; value columns are only copied for the result. The merge order is (key, user sequence
fields, sequence number, retracts before adds, higher level first, older file first). One stable argsort of the key does
most of the work; only keys whose versions are not in order yet are sorted again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import arrow_array, batch_of, concat_columns, one_array, plain, take_rows, values_of
from lsm_core.errors import InvalidData
from lsm_core.format.schema import SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.merge.keys import (
    IntKeys,
    Ints,
    KeySpec,
    Mask,
    NormalisedKeys,
    concat_keys,
    flat,
    is_text,
    order_parts,
)

OUTPUT_ROWS = 131_072
PART_ROWS = 131_072


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows of one merge input (a sorted run), with their keys.

    Attributes:
        batch: the rows.
        keys: normalised keys of the rows.
        level: level of the rows' file.
        age: age rank of the rows' file; larger is newer.
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
    """Rows of several pieces (batches of merge inputs), one after the other; row numbers count over all pieces.

    Attributes:
        pieces: consecutive rows of one input each, with their keys.
        offsets: number of the first row of each piece, and the end.
    """

    pieces: tuple[Piece, ...]
    offsets: Ints

    @staticmethod
    def of(pieces: Sequence[Piece]) -> Rows:
        """Return the rows of all ``pieces`` (at least one) as one object, in order."""
        sizes = np.array([0, *(len(piece) for piece in pieces)], dtype=np.int64)
        return Rows(tuple(pieces), np.cumsum(sizes))

    @cached_property
    def keys(self) -> NormalisedKeys:
        """Keys of all rows; they are copied when they are first used."""
        return concat_keys([piece.keys for piece in self.pieces])

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def has(self, name: str) -> bool:
        """Return whether the rows have the column ``name``."""
        return bool(self.pieces[0].batch.schema.get_field_index(name) >= 0)

    def integers(self, name: str, dtype: npt.DTypeLike) -> npt.NDArray[np.int64]:
        """Return the integers of the NOT NULL system column ``name`` for all rows.

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
        """Return the values of column ``name`` in the rows numbered ``rows``.

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
            One chunk per piece; if only some pieces have dictionaries, these are decoded.
        """
        chunks = [piece.batch.column(name) for piece in self.pieces]
        kinds = {str(chunk.type) for chunk in chunks}
        return pa.chunked_array([plain(chunk) for chunk in chunks] if len(kinds) > 1 else chunks)

    def piece_of(self, rows: Ints) -> Ints:
        """Return, for each row number in ``rows``, the index of the piece that contains the row."""
        return np.asarray(np.searchsorted(self.offsets, rows, side="right") - 1, dtype=np.int64)

    def piece_at(self, row: int) -> Piece:
        """Return the piece that contains row number ``row``."""
        return self.pieces[int(self.piece_of(np.array([row], np.int64))[0])]

    def span(self, start: int, stop: int, columns: Sequence[int] | None = None) -> list[pa.RecordBatch]:
        """Return consecutive rows without copying.

        Args:
            start: number of the first row to return.
            stop: end of the rows (exclusive).
            columns: indexes of the columns to return; None for all.

        Returns:
            Batches of at most 131,072 rows.
        """
        batches = []
        for piece, offset in zip(self.pieces, self.offsets.tolist(), strict=False):
            low, high = max(start - offset, 0), min(stop - offset, len(piece))
            batch = piece.batch if columns is None else piece.batch.select(columns)
            batches += [batch.slice(first, min(OUTPUT_ROWS, high - first)) for first in range(low, high, OUTPUT_ROWS)]
        return batches


def retracts(kinds: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return a mask of the row kinds that retract a row: -U (1) and -D (3)."""
    return np.asarray((kinds & 1) == 1, dtype=np.bool_)


def emit(rows: Rows, picked: Ints, names: Collection[str] | None = None) -> list[pa.RecordBatch]:
    """Return the rows numbered ``picked`` as batches of at most 131,072 rows.

    Args:
        rows: the rows.
        picked: row numbers, in output order.
        names: columns to return, in the order of the rows' columns; None for all.

    Returns:
        The batches; a column of dictionaries may be returned as plain text.
    """
    if len(picked) == 0:
        return []
    schema = rows.pieces[0].batch.schema
    chosen = [index for index, name in enumerate(schema.names) if names is None or name in names]
    first, last = int(picked[0]), int(picked[-1])
    if len(picked) == last - first + 1 and bool((np.diff(picked) == 1).all()):
        return rows.span(first, last + 1, None if len(chosen) == len(schema) else chosen)
    # 32-bit row numbers halve the index, which is read for every column; windows are far below four billion rows
    index = picked.astype(np.uint32, copy=False) if len(rows) < 1 << 32 else picked
    parts = [arrow_array(index[start : start + OUTPUT_ROWS]) for start in range(0, len(index), OUTPUT_ROWS)]
    columns: list[list[pa.Array]] = []
    for column_number in chosen:
        # column by column, so that the joined copy of one column is freed before the next one is made
        whole = concat_columns([piece.batch.column(column_number) for piece in rows.pieces])
        columns.append([take_rows(whole, part) for part in parts])
    schema = pa.schema([schema.field(index) for index in chosen], schema.metadata)
    return [batch_of([column[i] for column in columns], schema) for i in range(len(parts))]


def window_parts(pieces: Sequence[Piece]) -> deque[list[Piece]]:
    """Divide the rows of a window (a range of keys) into parts of about :data:`PART_ROWS` rows, in key order.

    A part of this size is merged within the processor's caches.

    Args:
        pieces: rows of the window (range of keys), one batch per piece.

    Returns:
        Pieces of each part. All rows of a key are in one part, so only the last key of the last part may have further
        rows in the next window. An empty window is one empty part.
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


_SLOTS_PER_ROW: Final = 4
"""Largest ratio of slots (one per integer from the smallest to the largest key) to rows for `newest_versions`."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows in merge order, grouped by key.

    Attributes:
        order: row numbers; group g is ``order[starts[g]:starts[g + 1]]``, and its last row is the newest.
        starts: position in ``order`` of each group's first row.
    """

    order: Ints
    starts: Ints

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def ends(self) -> Ints:
        """End position (exclusive) of each group in ``order``."""
        return np.append(self.starts[1:], len(self.order))

    @cached_property
    def newest(self) -> Ints:
        """Number of the row with the newest version of each key."""
        return self.order[self.ends - 1]

    @property
    def last_size(self) -> int:
        """Number of rows of the last key."""
        return len(self.order) - int(self.starts[-1])


@dataclass(frozen=True, eq=False)
class Newest:
    """The newest version of each key, in key order, without the other versions.

    Attributes:
        newest: number of the row with each key's newest version.
        last_size: number of rows of the last key.
    """

    newest: Ints
    last_size: int

    def __len__(self) -> int:
        return len(self.newest)


def newest_versions(rows: Rows, spec: KeySpec) -> Newest | None:
    """Return the newest version of each key without sorting, at a tenth of the cost.

    This requires dense integer keys, and sequence numbers that show that later rows are newer. Each row is put into the
    slot of its key. The slot keeps the last row, or the row with the largest sequence fields (no text).

    Args:
        rows: the rows.
        spec: columns that order the rows.

    Returns:
        The newest versions, or None if the keys or sequence numbers do not allow this method.
    """
    keys = [piece.keys.values for piece in rows.pieces if isinstance(piece.keys, IntKeys)]
    if len(keys) < len(rows.pieces):
        return None
    low, high = min(int(part[0]) for part in keys), max(int(part[-1]) for part in keys)
    if high - low >= _SLOTS_PER_ROW * len(rows) or not _numbered_in_order(rows, int(keys[0][0]) == low):
        return None
    slots = np.full(high - low + 1, -1, np.int32)
    if not spec.sequence_columns:
        numbers = np.arange(len(rows), dtype=np.int32)
        stop = 0
        for part in keys:
            start, stop = stop, stop + len(part)
            slots[part - np.int64(low)] = numbers[start:stop]
    elif not _keep_largest(slots, [part - np.int64(low) for part in keys], rows, spec):
        return None
    newest: npt.NDArray[Any] = slots[np.flatnonzero(slots >= 0)]
    if len(rows.pieces[0]) == 1:
        # the row carried over from the previous window is the only one that may be newer than later rows
        first = np.flatnonzero(rows.keys.values == np.int64(low))  # type: ignore[union-attr]
        _order_versions(rows, spec, first, np.ones(len(first) - 1, np.bool_))
        newest[0] = first[-1]
    return Newest(newest, sum(len(part) - int(np.searchsorted(part, np.int64(high))) for part in keys))


def _keep_largest(slots: npt.NDArray[np.int32], places: Sequence[Ints], rows: Rows, spec: KeySpec) -> bool:
    """Store in each key's slot the number of its row with the largest sequence fields; of equal rows, the last.

    Rows arrive in pieces, each with at most one row per key. So one piece at a time is compared with the rows in the
    slots.

    Args:
        slots: row number for each key, negative for none; changed in place.
        places: the slots of the rows of each piece.
        rows: the rows.
        spec: columns that order the rows.

    Returns:
        False if the fields cannot be compared.
    """
    if not all(rows.has(name) for name in spec.sequence_columns):
        return False
    if not all(piece.climbing or piece.keys.climbing() for piece in rows.pieces):
        return False
    columns = [rows.whole_column(name) for name in spec.sequence_columns]
    if any(is_text(column.type) for column in columns):
        return False
    *others, last = [part for column in columns for part in order_parts(flat(column), spec.sequence_descending)]
    stop = 0
    for slots_of_piece in places:
        start, stop = stop, stop + len(slots_of_piece)
        current = slots[slots_of_piece]
        is_larger = last[start:stop] >= last[current]
        for part in reversed(others):
            piece_values, current_values = part[start:stop], part[current]
            is_larger &= piece_values == current_values
            is_larger |= piece_values > current_values
        is_larger |= current < 0  # an empty slot; the comparison above read the last value of the column
        winners = np.flatnonzero(is_larger)
        slots[slots_of_piece[winners]] = (winners + start).astype(np.int32)
    return True


def merge_order(rows: Rows, spec: KeySpec, *, sorted_runs: bool = True) -> Groups:
    """Return the numbers of ``rows`` in merge order: by key and, within a key, from the oldest to the newest version.

    Args:
        rows: the rows.
        spec: columns that order the rows.
        sorted_runs: whether the rows are a few ascending runs.
    """
    order, same = rows.keys.order(sorted_runs)
    if same.any():
        _order_versions(rows, spec, order, same)
    starts = np.flatnonzero(np.concatenate((np.ones(min(len(order), 1), np.bool_), ~same)))
    return Groups(order, starts)


def _order_versions(rows: Rows, spec: KeySpec, order: Ints, same: Mask) -> None:
    """Sort the versions of each key in ``order``, in place.

    Args:
        rows: the rows.
        spec: columns that order the rows.
        order: row numbers, sorted by key.
        same: mask of the positions i at which rows ``order[i]`` and ``order[i + 1]`` have the same key.
    """
    if not spec.sequence_columns and _numbered_in_order(rows, order[0] == 0):
        # the argsort was stable, so only the key carried over from the previous window can be out of order
        first_group = int(np.argmin(np.append(same, False))) + 1
        order, same = order[:first_group], same[: first_group - 1]
        if not len(same):
            return
    member = np.zeros(len(order), np.bool_)
    member[1:] |= same
    member[:-1] |= same
    positions = np.flatnonzero(member)
    within = np.zeros(len(positions), np.bool_)
    within[1:] = same[positions[1:] - 1]
    is_descent = _descents(rows, spec, order[positions], within)
    if not is_descent.any():
        return
    first = np.flatnonzero(~within)
    sizes = np.diff(np.append(first, len(positions)))
    group = np.repeat(np.arange(len(first)), sizes)
    is_swap = is_descent & (sizes[group] == 2)
    swapped_positions = np.flatnonzero(is_swap)
    order[positions[swapped_positions]], order[positions[swapped_positions - 1]] = (
        order[positions[swapped_positions - 1]],
        order[positions[swapped_positions]],
    )
    broken = np.zeros(len(first), np.bool_)
    broken[group[is_descent & ~is_swap]] = True
    chosen = broken[group]
    positions, group = positions[chosen], group[chosen]
    if len(positions):
        # parts with only one value do not affect the order
        parts = [part for part in version_parts(rows, spec, order[positions]) if (part != part[0]).any()]
        order[positions] = order[positions][np.lexsort((*reversed(parts), group))]


def _numbered_in_order(rows: Rows, starts_lowest: bool) -> bool:
    """Return whether versions of a key are already in the order of their sequence numbers.

    If the first piece is a single row with the smallest key, it may be carried over from the previous window (range of
    keys) and is ignored.

    ``starts_lowest``: whether the first row has the smallest key.
    """
    pieces = rows.pieces[1:] if len(rows.pieces[0]) == 1 and starts_lowest else rows.pieces
    if rows.has(SEQUENCE_NUMBER):
        return sequences_climb(pieces)
    return all((-a.level, a.age) <= (-b.level, b.age) for a, b in pairwise(pieces))


def sequences_climb(pieces: Sequence[Piece]) -> bool:
    """Return whether every row surely has a larger sequence number than rows of its key in earlier ``pieces``.

    This is decided by the smallest and largest sequence number of each piece. Adjacent pieces that follow each other in
    key order without a common key, for example batches of one file, are treated as one piece.
    """
    last_key: int | bytes | None = None
    previous_most = most = np.iinfo(np.int64).min
    for piece in pieces:
        column = piece.batch.column(SEQUENCE_NUMBER)
        if not (piece.climbing or piece.keys.climbing()) or column.null_count:
            return False
        if last_key is None or not last_key < piece.keys.scalar(0):  # type: ignore[operator]
            previous_most = most
        last_key = piece.keys.scalar(len(piece) - 1)
        numbers = values_of(column, np.int64)
        if int(numbers.min()) <= previous_most:
            return False
        most = max(most, int(numbers.max()))
    return True


def _descents(rows: Rows, spec: KeySpec, chosen: Ints, within: Mask) -> Mask:
    """Return a mask of the versions that are older than the version before them, although they come later.

    Sequence fields, sequence number, row kind, level and age are compared in this order; later ones are computed only
    if versions are still equal.

    ``chosen``: row numbers of the versions. ``within``: mask of the versions that have the same key as the version
    before them.
    """
    is_descent = np.zeros(len(chosen), np.bool_)
    undecided = within
    for part in version_parts(rows, spec, chosen):
        is_descent[1:] |= undecided[1:] & (part[1:] < part[:-1])
        tied = np.zeros(len(chosen), np.bool_)
        tied[1:] = undecided[1:] & (part[1:] == part[:-1])
        undecided = tied
        if not undecided.any():
            break
    return is_descent


def version_parts(rows: Rows, spec: KeySpec, chosen: Ints) -> Iterator[npt.NDArray[Any]]:
    """Yield the arrays of numbers by which versions of one key are sorted, most significant first.

    The arrays are those of the sequence fields, then sequence number, row kind, level and age. If the rows were read
    without the sequence number, level, age and row number replace it.

    Args:
        rows: the rows.
        spec: columns that order the rows.
        chosen: row numbers to order.
    """
    for name in spec.sequence_columns:
        yield from order_parts(rows.column(name, chosen), spec.sequence_descending)
    if rows.has(SEQUENCE_NUMBER):
        yield sequence_part(rows, chosen)
    else:
        yield level_part(rows, chosen)
        yield age_part(rows, chosen)
        yield chosen
    yield kind_part(rows, chosen)
    yield level_part(rows, chosen)
    yield age_part(rows, chosen)


def sequence_part(rows: Rows, chosen: Ints) -> Ints:
    """Return the sequence numbers of the rows numbered ``chosen``."""
    return rows.integers(SEQUENCE_NUMBER, np.int64)[chosen]


def kind_part(rows: Rows, chosen: Ints) -> Ints:
    """Return 0 for each retract and 1 for each add among the rows numbered ``chosen``: retracts come first."""
    if not rows.has(VALUE_KIND):
        return np.ones(len(chosen), np.int64)
    return (~retracts(rows.integers(VALUE_KIND, np.int8)[chosen])).astype(np.int64)


def level_part(rows: Rows, chosen: Ints) -> Ints:
    """Return the negated levels of the rows numbered ``chosen``: higher levels sort first, because they are older."""
    levels = np.array([-piece.level for piece in rows.pieces], dtype=np.int64)
    return levels[rows.piece_of(chosen)]


def age_part(rows: Rows, chosen: Ints) -> Ints:
    """Return the age ranks of the rows numbered ``chosen``; larger is newer."""
    ages = np.array([piece.age for piece in rows.pieces], dtype=np.int64)
    return ages[rows.piece_of(chosen)]
