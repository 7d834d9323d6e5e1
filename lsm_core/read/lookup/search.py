"""Finding sorted keys among sorted keys, all at once: halving for whole columns of keys (pure)."""

from __future__ import annotations

import numpy as np

from lsm_core.arrays import slice_places
from lsm_core.merge import ByteKeys, IntKeys, NormalisedKeys
from lsm_core.merge.comparable import Ints

_WORD = 8


def lower_bound(keys: NormalisedKeys, wanted: NormalisedKeys) -> Ints:
    """For each of ``wanted`` the number of ``keys`` (ascending) below it. Both are of one kind (same column types)."""
    return _bound(keys, wanted, through=False)


def upper_bound(keys: NormalisedKeys, wanted: NormalisedKeys) -> Ints:
    """As :func:`lower_bound`, but the number of ``keys`` not above it."""
    return _bound(keys, wanted, through=True)


def places_of(keys: NormalisedKeys, wanted: NormalisedKeys) -> tuple[Ints, Ints]:
    """Rows of ``keys`` (ascending, may repeat) that are among ``wanted`` (ascending, distinct), and which one each is.

    Both outcomes ascend: (row of ``keys``, row of ``wanted``) per hit.
    """
    if not len(keys) or not len(wanted):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts = lower_bound(keys, wanted)
    counts = upper_bound(keys, wanted) - starts
    which = np.flatnonzero(counts)
    if not len(which):
        return np.zeros(0, np.int64), which
    starts, counts = starts[which], counts[which]
    if int(counts.max()) == 1:
        return starts, which
    return slice_places(starts, counts), np.repeat(which, counts)


def take(keys: NormalisedKeys, rows: Ints) -> NormalisedKeys:
    """The keys at ``rows``."""
    if isinstance(keys, IntKeys):
        return IntKeys(keys.values[rows])
    return ByteKeys(keys.data, keys.starts[rows], keys.lengths[rows])


def _bound(keys: NormalisedKeys, wanted: NormalisedKeys, *, through: bool) -> Ints:
    if isinstance(keys, IntKeys) and isinstance(wanted, IntKeys):
        return np.asarray(np.searchsorted(keys.values, wanted.values, "right" if through else "left"), np.int64)
    assert isinstance(keys, ByteKeys)
    assert isinstance(wanted, ByteKeys)
    return _halved(keys, wanted, np.arange(len(wanted)), through=through)


def _halved(keys: ByteKeys, wanted: ByteKeys, rows: Ints, *, through: bool) -> Ints:
    """Binary search of every row of ``wanted`` at once: log2(keys) steps of one comparison each."""
    low = np.zeros(len(rows), np.int64)
    high = np.full(len(rows), len(keys), np.int64)
    active = np.flatnonzero(low < high)
    while len(active):
        middle = (low[active] + high[active]) >> 1
        order = _compared(keys, middle, wanted, rows[active])
        up = order <= 0 if through else order < 0
        low[active] = np.where(up, middle + 1, low[active])
        high[active] = np.where(up, high[active], middle)
        active = active[low[active] < high[active]]
    return low


def _compared(left: ByteKeys, left_rows: Ints, right: ByteKeys, right_rows: Ints) -> Ints:
    """-1, 0 or 1 per pair of keys, comparing eight bytes at a time as long as they are equal."""
    lengths = left.lengths[left_rows], right.lengths[right_rows]
    order = np.sign(lengths[0] - lengths[1])
    shorter = int(np.minimum(*lengths).max(initial=0))
    tied = np.arange(len(left_rows))
    decided = np.zeros(len(left_rows), np.int64)
    position = 0
    while len(tied) and position < shorter:
        mine, theirs = left.words(position, left_rows[tied]), right.words(position, right_rows[tied])
        decided[tied] = (mine > theirs).astype(np.int64) - (mine < theirs)
        tied = tied[mine == theirs]
        position += _WORD
    decided[tied] = order[tied]
    return decided


__all__ = ["lower_bound", "places_of", "take", "upper_bound"]
