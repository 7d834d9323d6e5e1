"""Division of files into key-disjoint sections, each with the fewest sorted runs.

Source: ``IntervalPartition``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from typing import Any

from lsm_core.tree.model import DataFile, SortedRun


def interval_partition(files: Iterable[DataFile]) -> list[list[SortedRun]]:
    """Return sections in key order: no key is in two sections, and a section has as few runs as its overlap allows.

    Key ranges are closed: files that share an endpoint belong to one section and to different runs.
    """
    ordered = sorted(files, key=lambda f: (f.min_key, f.max_key))
    sections: list[list[SortedRun]] = []
    current: list[DataFile] = []
    reach: Any = None
    for file in ordered:
        if current and file.min_key > reach:
            sections.append(_split_into_runs(current))
            current = []
        reach = file.max_key if not current or file.max_key > reach else reach
        current.append(file)
    if current:
        sections.append(_split_into_runs(current))
    return sections


def _split_into_runs(section: list[DataFile]) -> list[SortedRun]:
    """Assign each file (by ascending smallest key) to the run that ends first.

    A new run is used if that one overlaps the file.
    """
    ticket = count()
    heap: list[tuple[_Key, int, list[DataFile]]] = []
    for file in section:
        if heap and heap[0][0].value < file.min_key:
            _, _, files = heapq.heappop(heap)
        else:
            files = []
        files.append(file)
        heapq.heappush(heap, (_Key(file.max_key), next(ticket), files))
    runs = [files for _, _, files in heap]
    runs.sort(key=lambda files: (files[0].min_key, files[0].max_key))
    return [SortedRun(tuple(files)) for files in runs]


class _Key:
    """Wrapper that makes heap entries compare by key only, for any totally ordered type."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value: Any = value

    def __lt__(self, other: _Key) -> bool:
        return bool(self.value < other.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]
