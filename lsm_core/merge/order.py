"""The one order of versions of a key, shared by reads, compactions and write buffers.

Rows sort by (key, user sequence fields, sequence number, retracts before adds, higher level first, age). One stable argsort
of the key does most of it; only groups of several rows that are not ascending already are looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lsm_core.arrays import values_of
from lsm_core.format.kv_layout import SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.merge.comparable import (
    Ints,
    Mask,
    flat,
    is_text,
)
from lsm_core.merge.keys import IntKeys, order_parts
from lsm_core.merge.rows import Piece, Rows, retracts
from lsm_core.merge.sort_key import KeySpec

_DENSE: Final = 4
"""A slot for every number between the smallest and the largest key is worth it up to so many slots a row."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows in merge order, grouped by key: group g is ``order[starts[g]:starts[g + 1]]``, its last row the newest."""

    order: Ints
    starts: Ints

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def ends(self) -> Ints:
        """Position behind the last row of each group."""
        return np.append(self.starts[1:], len(self.order))

    @cached_property
    def newest(self) -> Ints:
        """Row index of the newest version of each key."""
        return self.order[self.ends - 1]

    @property
    def last_size(self) -> int:
        """Rows of the last key."""
        return len(self.order) - int(self.starts[-1])


@dataclass(frozen=True, eq=False)
class Newest:
    """The newest version of each key, in key order, and nothing of the others; ``last_size``: rows of the last key."""

    newest: Ints
    last_size: int

    def __len__(self) -> int:
        return len(self.newest)


def newest_versions(rows: Rows, spec: KeySpec) -> Newest | None:
    """The newest version of each key, found without ordering anything; None where that does not go.

    It goes where integer keys lie close together and sequence numbers say that versions of a key come one after the other: each
    row is put into the slot of its key, where only the last one stays, or that with the largest sequence fields (no text).
    A tenth of what sorting costs.
    """
    if not isinstance(rows.keys, IntKeys):
        return None
    keys = rows.keys.values
    low, high = int(keys.min()), int(keys.max())
    if high - low >= _DENSE * len(keys) or not _numbered_in_order(rows, int(keys[0]) == low):
        return None
    slots = np.full(high - low + 1, -1, np.int32)
    if not spec.sequence_columns:
        slots[keys - np.int64(low)] = np.arange(len(keys), dtype=np.int32)
    elif not _keep_largest(slots, keys - np.int64(low), rows, spec):
        return None
    newest: npt.NDArray[Any] = slots[slots >= 0]
    if len(rows.pieces[0]) == 1:
        # carried over from the window before: the one row that may be newer than what comes after it
        first = np.flatnonzero(keys == np.int64(low))
        _order_versions(rows, spec, first, np.ones(len(first) - 1, np.bool_))
        newest[0] = first[-1]
    return Newest(newest, int(np.count_nonzero(keys == np.int64(high))))


def _keep_largest(slots: npt.NDArray[np.int32], places: Ints, rows: Rows, spec: KeySpec) -> bool:
    """Put into the slot of each key the row with the largest sequence fields, of equal ones the last; False where that does not go.

    ``places``: the slot of each row. Each piece holds a key once, so a piece at a time is compared with what its slots hold.
    """
    if not all(rows.has(name) for name in (SEQUENCE_NUMBER, *spec.sequence_columns)):
        return False
    columns = [rows.whole_column(name) for name in spec.sequence_columns]
    if any(is_text(column.type) for column in columns):
        return False
    parts = [part for column in columns for part in order_parts(flat(column), spec.sequence_descending)]
    stop = 0
    for piece in rows.pieces:
        start, stop = stop, stop + len(piece)
        slot = places[start:stop]
        held = slots[slot]
        wins = np.ones(len(piece), np.bool_)
        for part in reversed(parts):
            mine, theirs = part[start:stop], part[held]
            wins &= mine == theirs
            wins |= mine > theirs
        wins |= held < 0  # an empty slot, whatever lies at the end of `part`
        won = np.flatnonzero(wins)
        slots[slot[won]] = start + won
    return True


def merge_order(rows: Rows, spec: KeySpec, *, sorted_runs: bool = True) -> Groups:
    """Order ``rows`` and find the groups of equal keys."""
    order, same = rows.keys.order(sorted_runs)
    if same.any():
        _order_versions(rows, spec, order, same)
    starts = np.flatnonzero(np.concatenate((np.ones(min(len(order), 1), np.bool_), ~same)))
    return Groups(order, starts)


def _order_versions(rows: Rows, spec: KeySpec, order: Ints, same: Mask) -> None:
    """Bring the versions of each key into order, in place."""
    if not spec.sequence_columns and _numbered_in_order(rows, order[0] == 0):
        # the argsort was stable, so only the key carried over from the window before can be out of order
        first_group = int(np.argmin(np.append(same, False))) + 1
        order, same = order[:first_group], same[: first_group - 1]
        if not len(same):
            return
    member = np.zeros(len(order), np.bool_)
    member[1:] |= same
    member[:-1] |= same
    at = np.flatnonzero(member)
    within = np.zeros(len(at), np.bool_)
    within[1:] = same[at[1:] - 1]
    bad = _descents(rows, spec, order[at], within)
    if not bad.any():
        return
    first = np.flatnonzero(~within)
    sizes = np.diff(np.append(first, len(at)))
    group = np.repeat(np.arange(len(first)), sizes)
    pair = bad & (sizes[group] == 2)
    later = np.flatnonzero(pair)
    order[at[later]], order[at[later - 1]] = order[at[later - 1]], order[at[later]]
    broken = np.zeros(len(first), np.bool_)
    broken[group[bad & ~pair]] = True
    chosen = broken[group]
    at, group = at[chosen], group[chosen]
    if len(at):
        # parts that say nothing are not worth a sort
        parts = [part for part in version_parts(rows, spec, order[at]) if (part != part[0]).any()]
        order[at] = order[at][np.lexsort((*reversed(parts), group))]


def _numbered_in_order(rows: Rows, starts_lowest: bool) -> bool:
    """Whether versions of a key lie in the order of their sequence numbers as they are, but for one row of the first key.

    ``starts_lowest``: the first row has the smallest key.
    """
    pieces = rows.pieces[1:] if len(rows.pieces[0]) == 1 and starts_lowest else rows.pieces
    if rows.has(SEQUENCE_NUMBER):
        return sequences_climb(pieces)
    return all((-a.level, a.age) <= (-b.level, b.age) for a, b in pairwise(pieces))


def sequences_climb(pieces: Sequence[Piece]) -> bool:
    """Whether a later version of a key always has a larger sequence number, going by the range of each piece.

    Neighbours that follow each other in key, as batches of one file do, have no key in common: they count as one piece.
    """
    last_key: int | bytes | None = None
    before = here = np.iinfo(np.int64).min
    for piece in pieces:
        column = piece.batch.column(SEQUENCE_NUMBER)
        if not (piece.climbing or piece.keys.climbing()) or column.null_count:
            return False
        if last_key is None or not last_key < piece.keys.scalar(0):  # type: ignore[operator]
            before = here
        last_key = piece.keys.scalar(len(piece) - 1)
        numbers = values_of(column, np.int64)
        if int(numbers.min()) <= before:
            return False
        here = max(here, int(numbers.max()))
    return True


def _descents(rows: Rows, spec: KeySpec, chosen: Ints, within: Mask) -> Mask:
    """Where a version is older than the one before it. Ties alone ask for the next, dearer part of the order."""
    bad = np.zeros(len(chosen), np.bool_)
    undecided = within
    for part in version_parts(rows, spec, chosen):
        bad[1:] |= undecided[1:] & (part[1:] < part[:-1])
        tied = np.zeros(len(chosen), np.bool_)
        tied[1:] = undecided[1:] & (part[1:] == part[:-1])
        undecided = tied
        if not undecided.any():
            break
    return bad


def version_parts(rows: Rows, spec: KeySpec, chosen: Ints) -> Iterator[npt.NDArray[Any]]:
    """The parts of the order within one key, most significant first, for the ``chosen`` rows.

    Without a sequence column (files whose ranges are disjoint) level, age and arrival tell the order.
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
    """Sequence numbers."""
    return rows.integers(SEQUENCE_NUMBER, np.int64)[chosen]


def kind_part(rows: Rows, chosen: Ints) -> Ints:
    """Retracts before adds: 0 and 1."""
    if not rows.has(VALUE_KIND):
        return np.ones(len(chosen), np.int64)
    return (~retracts(rows.integers(VALUE_KIND, np.int8)[chosen])).astype(np.int64)


def level_part(rows: Rows, chosen: Ints) -> Ints:
    """Higher levels first: they are older."""
    levels = np.array([-piece.level for piece in rows.pieces], dtype=np.int64)
    return levels[rows.piece_of(chosen)]


def age_part(rows: Rows, chosen: Ints) -> Ints:
    """Ages: larger is newer."""
    ages = np.array([piece.age for piece in rows.pieces], dtype=np.int64)
    return ages[rows.piece_of(chosen)]
