"""Search for the key ranges that ascending keys meet: ranges of files or of row groups, and the gaps between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lsm_core.merge.keys import NormalisedKeys

Scalar = int | bytes
"""One normalised key, as `NormalisedKeys.scalar` returns it."""


class RangeRows(NamedTuple):
    """Rows of a batch in one key range and in the gap before it.

    Attributes:
        number: index of the range; the number of ranges for the gap after the last one.
        gap: first row in the gap before the range.
        start: first row in the range, and end of the gap; not above ``gap`` if the gap has no rows.
        stop: end of the rows in the range; ``start`` if the range has none.
    """

    number: int
    gap: int
    start: int
    stop: int


def rows_by_range(keys: NormalisedKeys, lows: Sequence[Scalar], highs: Sequence[Scalar]) -> Iterator[RangeRows]:
    """Yield the rows of each key range and gap that ascending keys reach, in key order.

    Args:
        keys: ascending keys.
        lows: smallest key of each range, ascending.
        highs: largest key of each range, ascending; a range may begin with the largest key of the range before it.
    """
    if not len(keys):
        return
    last = keys.scalar(len(keys) - 1)
    row, number = 0, bisect_left(highs, keys.scalar(0))
    while number < len(lows) and (row < len(keys) or lows[number] <= last):  # type: ignore[operator]
        start = keys.bisect(lows[number], right=False)
        stop = keys.bisect(highs[number], right=True) if start < len(keys) else start
        yield RangeRows(number, row, start, stop)
        row, number = max(row, stop, start), number + 1
    if row < len(keys):
        yield RangeRows(number, row, len(keys), len(keys))
