"""Merge of more inputs than may be open at once.

`in_memory` chooses the inputs that are read into memory, `next_pass` those that are merged in an earlier pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_IN_MEMORY: Final = 1_024
"""Largest number of inputs held in memory at once: each has a fixed cost whatever its size."""


def in_memory(sizes: Sequence[float], threshold: int) -> set[int]:
    """Return the positions of the inputs that are read as a whole before merging.

    The smallest ones beyond ``threshold``.

    One place stays free, through which these inputs are read one after another.

    Args:
        sizes: decoded bytes of each input.
        threshold: inputs that may be open at once.
    """
    excess = len(sizes) - threshold + 1 if len(sizes) > threshold else 0
    return set(sorted(range(len(sizes)), key=lambda position: sizes[position])[:excess])


def fits(sizes: Sequence[float], threshold: int, limit: float) -> bool:
    """Return whether all inputs can be merged at once.

    Args:
        sizes: decoded bytes of each input.
        threshold: inputs that may be open at once.
        limit: decoded bytes of the inputs in memory.
    """
    chosen = in_memory(sizes, threshold)
    return len(chosen) <= MOST_IN_MEMORY and sum(sizes[position] for position in chosen) <= limit


def next_pass(sizes: Sequence[float], threshold: int, limit: float) -> list[range]:
    """Return ranges of neighbouring inputs to merge into one input each, in order.

    For slightly more than ``threshold`` inputs, only the cheapest neighbours that remove the excess are merged. For
    very many, all inputs are merged in groups that fit, so each is read only about log(n) / log(threshold) times.

    Args:
        sizes: decoded bytes of each input.
        threshold: inputs that may be open at once.
        limit: decoded bytes of inputs in memory.
    """
    count = len(sizes)
    if count <= threshold * threshold:
        width = min(threshold, count - threshold + 1)
        start = min(range(count - width + 1), key=lambda position: sum(sizes[position : position + width]))
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
