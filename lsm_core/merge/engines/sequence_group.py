"""Sequence groups of partial-update: fields that are replaced together, by the row with the newest ordering fields.

Within a key, a group *accepts* a row if its ordering fields are not all null and not below the current ones; rows are
not sorted again. Ordering compares field by field, nulls first.

Source: ``PartialUpdateMergeFunction`` (``fieldSeqComparators``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import valid_mask
from lsm_core.merge.engines.fold import DELETE, NO_ROW, FoldInput, GroupRows
from lsm_core.merge.functions.elements import dense
from lsm_core.merge.keys import (
    Ints,
    Mask,
    numbers,
    order_parts,
)

_LOWEST: Final = np.iinfo(np.int64).min
_MOST_LOOKBACKS: Final = 6
"""Number of a group's last rows that are checked one by one before all its rows are checked at once."""


@dataclass(frozen=True)
class SequenceGroup:
    """Sequence group of a table.

    Attributes:
        ordering: ordering fields; a row that the group accepts replaces these and the protected fields.
        protected: fields of the group that are not ordering fields.
        removes: whether an accepted -D deletes the whole row.
    """

    ordering: tuple[str, ...]
    protected: tuple[str, ...]
    removes: bool = False


@dataclass(frozen=True, eq=False)
class Segment:
    """For each key, the part of its rows that affects the result.

    Attributes:
        base: number of the row whose values each key starts with; NO_ROW for none.
        begin: position of each key's first row after ``base``.
        past: earlier segments, each of which ended at a -D that deleted the whole row, oldest first.
    """

    base: Ints
    begin: Ints
    past: tuple[Segment, ...] = ()

    def counts(self, inputs: GroupRows) -> Mask:
        """Return a mask of the rows of ``inputs`` that affect the result."""
        return np.asarray(inputs.places >= self.begin[inputs.group_of], np.bool_)


def accept_rows(
    group: SequenceGroup, window: FoldInput, inputs: GroupRows, segment: Segment, ignored: Mask | None = None
) -> tuple[Mask, Mask]:
    """Return masks of the rows that a sequence group accepts, and of the rows that it skips.

    A row that is not skipped is accepted if its ordering fields are not smaller than the greatest ones before it.

    Args:
        group: the sequence group.
        window: rows of the keys to merge.
        inputs: rows of the keys with several versions.
        segment: the part of each key's rows that affects the result.
        ignored: mask of rows to skip; None for none.

    Returns:
        Mask of accepted rows, and mask of skipped rows: all ordering fields null, before the segment, or ignored.
    """
    count = len(inputs)
    # each group's base row is placed before its rows
    offsets = inputs.offsets + np.arange(count + 1)
    place = np.empty(len(inputs.rows) + count, np.int64)
    first = np.zeros(len(place), np.bool_)
    first[offsets[:-1]] = True
    place[first], place[~first] = segment.base, inputs.rows
    columns = [_take_or_null(window.whole(name), place) for name in group.ordering]
    empty = np.logical_and.reduce([np.asarray(column.is_null()) for column in columns])
    is_skipped = empty[~first] | ~segment.counts(inputs)
    if ignored is not None:
        is_skipped |= ignored
    hidden = empty.copy()
    hidden[~first] = is_skipped
    ranks = np.where(hidden, -1, dense([part for column in columns for part in order_parts(column)]))
    # ranks of later groups are above all ranks of earlier ones, so one running maximum serves all groups
    ranks += np.repeat(np.arange(count) * (int(ranks.max(initial=0)) + 2), np.diff(offsets))
    running_max = np.maximum.accumulate(ranks)
    return (ranks[1:] >= running_max[:-1])[~first[1:]] & ~is_skipped, is_skipped


def newest_of_inserts(group: SequenceGroup, window: FoldInput, inputs: GroupRows) -> Ints | None:
    """Return the position of each key's last row with the key's greatest ordering value; -1 if all values are null.

    All rows must be adds.

    Returns:
        The positions. None if the first key continues from an accumulator, the sequence group has several ordering
        fields, or the field is wider than eight bytes.
    """
    if len(group.ordering) > 1 or inputs.begun:
        return None
    column = _take_or_null(window.whole(group.ordering[0]), inputs.rows)
    kind = column.type
    fixed = pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_floating(kind)
    if not column.null_count:
        parts = order_parts(column)
    else:  # `numbers` is undefined for nulls, and supports only types of a fixed width of up to eight bytes
        parts = [numbers(column)] if fixed and not pa.types.is_float16(kind) else []
    if len(parts) != 1:
        return None
    valid = valid_mask(column)
    values = parts[0] if valid is None else np.where(valid, parts[0], _LOWEST)
    greatest = np.repeat(np.maximum.reduceat(values, inputs.offsets[:-1]), inputs.sizes)
    holds = values == greatest if valid is None else (values == greatest) & valid
    return last_place(inputs, holds)


def last_place(inputs: GroupRows, rows: Mask) -> Ints:
    """Return the position of each key's last row that is in the mask ``rows``.

    For most keys this is one of the last rows, so checking those first costs less than a pass over all rows.

    Args:
        inputs: rows of the keys.
        rows: mask of the rows to consider.

    Returns:
        Position in ``inputs.rows`` for each key; -1 for a key without such a row.
    """
    begin, last = inputs.offsets[:-1], inputs.offsets[1:] - 1
    undecided = np.arange(len(last))
    for _ in range(_MOST_LOOKBACKS):
        inside = last[undecided] >= begin[undecided]
        last[undecided[~inside]] = -1
        undecided = undecided[inside]
        undecided = undecided[~rows[last[undecided]]]
        if not len(undecided):
            return last
        last[undecided] -= 1
    number = np.concatenate((np.full(1, -1), np.where(rows, inputs.places, -1)))
    latest = np.maximum.accumulate(number)[inputs.offsets[1:][undecided]]
    last[undecided] = np.where(latest >= begin[undecided], latest, -1)
    return last


def apply_removals(
    groups: list[SequenceGroup], window: FoldInput, inputs: GroupRows, segment: Segment
) -> tuple[Segment, Mask]:
    """Apply the -D rows that delete the whole row: after such a row, its key starts again with the values of the -D.

    Whether a -D is accepted depends on earlier -D rows. So each round handles the next -D of all keys together.

    Returns:
        The part of each key's rows after its last deleting -D, and a mask of the keys whose last row is such a -D.
    """
    deletes = inputs.kinds == DELETE
    base, begin = segment.base, segment.begin
    past: list[Segment] = []
    while True:
        current = Segment(base, begin)
        hits = np.zeros(len(inputs.rows), np.bool_)
        for group in groups:
            hits |= accept_rows(group, window, inputs, current)[0]
        hits &= deletes & current.counts(inputs)
        number = np.append(np.where(hits, np.arange(len(hits)), len(hits)), len(hits))
        soonest = np.minimum.accumulate(number[::-1])[::-1][inputs.offsets[:-1]]
        deleting = np.flatnonzero(soonest < inputs.offsets[1:])
        if not len(deleting):
            break
        past.append(current)
        base, begin = base.copy(), begin.copy()
        base[deleting], begin[deleting] = inputs.rows[soonest[deleting]], soonest[deleting] + 1
    return Segment(base, begin, tuple(past)), (begin > segment.begin) & (begin == inputs.offsets[1:])


def _take_or_null(whole: pa.Array, rows: Ints) -> pa.Array:
    is_missing = rows == NO_ROW
    return pc.take(whole, pa.array(rows, mask=is_missing if is_missing.any() else None), boundscheck=False)
