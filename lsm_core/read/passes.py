"""How more inputs than may be open at once are merged: which are read into memory first, and which in passes before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_IN_MEMORY: Final = 1_024
"""Inputs held in memory at once: every one costs a little whatever its size."""


def in_memory(sizes: Sequence[float], threshold: int) -> set[int]:
    """Positions of the inputs that are read as a whole before merging: the smallest ones beyond ``threshold``.

    One of the places stays free for reading them, one after another.
    """
    excess = len(sizes) - threshold + 1 if len(sizes) > threshold else 0
    return set(sorted(range(len(sizes)), key=lambda at: sizes[at])[:excess])


def fits(sizes: Sequence[float], threshold: int, limit: float) -> bool:
    """Whether all inputs merge at once: at most ``threshold`` open, the others together at most ``limit`` decoded bytes."""
    chosen = in_memory(sizes, threshold)
    return len(chosen) <= MOST_IN_MEMORY and sum(sizes[at] for at in chosen) <= limit


def next_pass(sizes: Sequence[float], threshold: int, limit: float) -> list[range]:
    """Neighbours (ranges of positions) to merge into one input each, in order.

    A little more than ``threshold`` inputs: only the cheapest neighbours that make up for the excess. Very many: all of
    them, in groups that fit, so that every input is read only about log(n) / log(threshold) times.
    """
    count = len(sizes)
    if count <= threshold * threshold:
        width = min(threshold, count - threshold + 1)
        start = min(range(count - width + 1), key=lambda at: sum(sizes[at : at + width]))
        return [range(start, start + width)]
    groups: list[range] = []
    start = 0
    while start < count:
        stop = min(count, start + threshold)
        total = sum(sizes[start:stop])
        while stop < count and stop - start < MOST_IN_MEMORY and total + sizes[stop] <= limit:
            total += sizes[stop]
            stop += 1
        groups.append(range(start, stop))
        start = stop
    return groups
