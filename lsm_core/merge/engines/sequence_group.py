"""Sequence groups of partial-update: fields that are replaced together, by whoever has the newest ordering fields.

Within a key a row is *accepted* by a group if its ordering fields are not all null and not below those in force; nothing is
sorted again. Ordering compares field by field, nulls first (Java `PartialUpdateMergeFunction`, `fieldSeqComparators`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import valid_mask
from lsm_core.merge.comparable import (
    Ints,
    Mask,
    numbers,
)
from lsm_core.merge.engines.fold import DELETE, NO_ROW, FoldInput, GroupRows
from lsm_core.merge.functions.elements import dense
from lsm_core.merge.keys import order_parts

_LOWEST: Final = np.iinfo(np.int64).min
_LOOKS_BACK: Final = 6
"""Rows of a group that are looked at one by one before all of them are."""


@dataclass(frozen=True)
class SequenceGroup:
    """``ordering`` fields decide about themselves and the ``protected`` fields. ``removes``: an accepted -D deletes the row."""

    ordering: tuple[str, ...]
    protected: tuple[str, ...]
    removes: bool = False


@dataclass(frozen=True, eq=False)
class Segment:
    """What of each group still counts: the row it goes on from (NO_ROW: none) and the place of its first row after that."""

    base: Ints
    begin: Ints
    past: tuple[Segment, ...] = ()
    """What each group went on from before rows that deleted everything, oldest first."""

    def counts(self, inputs: GroupRows) -> Mask:
        """Which rows still count."""
        return np.asarray(inputs.places >= self.begin[inputs.group_of], np.bool_)


def accepted(
    group: SequenceGroup, window: FoldInput, inputs: GroupRows, segment: Segment, ignored: Mask | None = None
) -> tuple[Mask, Mask]:
    """Which rows a group accepts, and which it passes over (all ordering fields null, before the segment, or ``ignored``)."""
    count = len(inputs)
    # each group's row to go on from stands before its rows
    offsets = inputs.offsets + np.arange(count + 1)
    place = np.empty(len(inputs.rows) + count, np.int64)
    first = np.zeros(len(place), np.bool_)
    first[offsets[:-1]] = True
    place[first], place[~first] = segment.base, inputs.rows
    columns = [_at(window.whole(name), place) for name in group.ordering]
    empty = np.logical_and.reduce([np.asarray(column.is_null()) for column in columns])
    passed = empty[~first] | ~segment.counts(inputs)
    if ignored is not None:
        passed |= ignored
    hidden = empty.copy()
    hidden[~first] = passed
    ranks = np.where(hidden, -1, dense([part for column in columns for part in order_parts(column)]))
    # ranks of later groups lie above all of earlier ones: one running maximum serves all groups
    ranks += np.repeat(np.arange(count) * (int(ranks.max(initial=0)) + 2), np.diff(offsets))
    so_far = np.maximum.accumulate(ranks)
    return (ranks[1:] >= so_far[:-1])[~first[1:]] & ~passed, passed


def newest_of_inserts(group: SequenceGroup, window: FoldInput, inputs: GroupRows) -> Ints | None:
    """The place of the last row that holds each group's greatest ordering value, -1 for none; only adds, from nothing.

    None where this shortcut does not apply: several ordering fields, or one wider than eight bytes.
    """
    if len(group.ordering) > 1 or inputs.begun:
        return None
    column = _at(window.whole(group.ordering[0]), inputs.rows)
    kind = column.type
    fixed = pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_floating(kind)
    if not column.null_count:
        parts = order_parts(column)
    else:  # `numbers` says nothing of a null, and has only types of a fixed width of up to eight bytes
        parts = [numbers(column)] if fixed and not pa.types.is_float16(kind) else []
    if len(parts) != 1:
        return None
    valid = valid_mask(column)
    values = parts[0] if valid is None else np.where(valid, parts[0], _LOWEST)
    greatest = np.repeat(np.maximum.reduceat(values, inputs.offsets[:-1]), inputs.sizes)
    holds = values == greatest if valid is None else (values == greatest) & valid
    return last_place(inputs, holds)


def last_place(inputs: GroupRows, wanted: Mask) -> Ints:
    """The last place of each group for which ``wanted`` is true, -1 for none.

    Most groups are answered by their last rows, so looking there costs less than a pass over all of them.
    """
    begin, last = inputs.offsets[:-1], inputs.offsets[1:] - 1
    undecided = np.arange(len(last))
    for _ in range(_LOOKS_BACK):
        inside = last[undecided] >= begin[undecided]
        last[undecided[~inside]] = -1
        undecided = undecided[inside]
        undecided = undecided[~wanted[last[undecided]]]
        if not len(undecided):
            return last
        last[undecided] -= 1
    number = np.concatenate((np.full(1, -1), np.where(wanted, inputs.places, -1)))
    latest = np.maximum.accumulate(number)[inputs.offsets[1:][undecided]]
    last[undecided] = np.where(latest >= begin[undecided], latest, -1)
    return last


def removed(
    groups: list[SequenceGroup], window: FoldInput, inputs: GroupRows, segment: Segment
) -> tuple[Segment, Mask]:
    """Follow the -D rows that delete the whole row: each starts its key anew from its own values.

    Whether a -D is accepted depends on those before it, so every round settles the next one of all keys together. Returns
    what is left of each group, and whether its very last row was such a -D.
    """
    deletes = inputs.kinds == DELETE
    base, begin = segment.base, segment.begin
    past: list[Segment] = []
    while True:
        current = Segment(base, begin)
        hits = np.zeros(len(inputs.rows), np.bool_)
        for group in groups:
            hits |= accepted(group, window, inputs, current)[0]
        hits &= deletes & current.counts(inputs)
        number = np.append(np.where(hits, np.arange(len(hits)), len(hits)), len(hits))
        soonest = np.minimum.accumulate(number[::-1])[::-1][inputs.offsets[:-1]]
        found = np.flatnonzero(soonest < inputs.offsets[1:])
        if not len(found):
            break
        past.append(current)
        base, begin = base.copy(), begin.copy()
        base[found], begin[found] = inputs.rows[soonest[found]], soonest[found] + 1
    return Segment(base, begin, tuple(past)), (begin > segment.begin) & (begin == inputs.offsets[1:])


def _at(whole: pa.Array, rows: Ints) -> pa.Array:
    nothing = rows == NO_ROW
    return pc.take(whole, pa.array(rows, mask=nothing if nothing.any() else None), boundscheck=False)


__all__ = ["Segment", "SequenceGroup", "accepted", "last_place", "newest_of_inserts", "removed"]
