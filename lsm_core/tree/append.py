"""Which files of append tables to concatenate: bins by size where order is free, windows by age where it is not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from lsm_core.tree.decision import Decline, DeclineReason
from lsm_core.tree.model import DataFile

Bins = list[list[DataFile]]
_FEWEST_IN_FULL: Final = 3


def pick_small_files(
    files: Sequence[DataFile],
    target: int,
    small_below: int,
    min_file_num: int,
    open_cost: int,
    full: bool = False,
    marked: Collection[str] = (),
) -> Bins | Decline:
    """Bins of small files of one partition of a table without buckets, each to become one rolling output.

    Source: Paimon's `AppendCompactCoordinator`.

    Files below ``small_below`` bytes are taken by ascending size; a bin of two or more is full once its bytes, plus
    ``open_cost`` for each file, reach twice ``target``. What is left needs ``min_file_num`` files (two when ``full``).
    Inside a bin files lie by size, the smallest first, as Java reads them: rows of such tables have no order. Sizes and costs are
    in bytes. ``marked`` names files that are taken whatever their size, be it alone: too many of their rows are deleted.
    """
    small = sorted((f for f in files if f.size < small_below or f.name in marked), key=lambda f: (f.size, *_arrival(f)))
    bins: Bins = []
    current: list[DataFile] = []
    weight = 0
    for file in small:
        current.append(file)
        weight += file.size + open_cost
        if len(current) > 1 and weight >= 2 * target:
            bins.append(current)
            current, weight = [], 0
    if len(current) >= (2 if full else max(min_file_num, 2)):
        bins.append(current)
    elif chosen := [file for file in current if file.name in marked]:
        bins.append(chosen)
    if bins:
        return bins
    facts = {
        "files": len(files),
        "small_files": len(small),
        "min_files": min_file_num,
        "small_below_bytes": small_below,
    }
    return Decline(DeclineReason.TOO_FEW_SMALL_FILES if files else DeclineReason.EMPTY, facts)


def pick_windows(files: Sequence[DataFile], target: int, min_file_num: int) -> Bins | Decline:
    """Neighbours of one bucket whose rows have an order, each window to become one rolling output in that order.

    A window slides over ``files`` by sequence number (Java `BucketedAppendCompactManager`): it fires at
    ``min_file_num`` files (two at least), and loses its oldest file when it reaches twice ``target`` bytes before (Java up to
    1.3: once). Java stops at the first window and asks again with every flush; here the next one starts behind it.
    """
    ordered = sorted(files, key=_sequence)
    fires_at = max(2, min_file_num)
    windows: Bins = []
    current: list[DataFile] = []
    weight = 0
    for file in ordered:
        current.append(file)
        weight += file.size
        if len(current) >= fires_at:
            windows.append(current)
            current, weight = [], 0
        elif weight >= 2 * target:
            weight -= current.pop(0).size
    if windows:
        return windows
    facts = {"files": len(files), "small_files": len(current), "min_files": fires_at, "target_bytes": target}
    return Decline(DeclineReason.TOO_FEW_SMALL_FILES if files else DeclineReason.EMPTY, facts)


def pick_full_window(
    files: Sequence[DataFile], big_from: int, force: bool = False, marked: Collection[str] = ()
) -> Bins | Decline:
    """All files of one ordered bucket from the first small one on, as one window (Java `FullCompactTask` of append tables).

    It takes three files, and more small ones than ones of ``big_from`` bytes; ``force`` takes everything there is. A file that is
    ``marked`` by a deletion vector counts as small, and is enough.
    """
    ordered = sorted(files, key=_sequence)
    wanted = [force or file.size < big_from or file.name in marked for file in ordered]
    first = wanted.index(True) if True in wanted else len(ordered)
    chosen = ordered[first:]
    small = sum(file.size < big_from for file in chosen)
    force = force or any(file.name in marked for file in chosen)
    if chosen and (force or (len(chosen) >= _FEWEST_IN_FULL and small > len(chosen) - small)):
        return [chosen]
    facts = {"files": len(files), "small_files": small, "min_files": _FEWEST_IN_FULL, "small_below_bytes": big_from}
    return Decline(DeclineReason.TOO_FEW_SMALL_FILES if files else DeclineReason.EMPTY, facts)


def _sequence(file: DataFile) -> tuple[int, int, str]:
    return file.min_sequence, file.creation_ms, file.name


def _arrival(file: DataFile) -> tuple[int, int, str]:
    return file.creation_ms, file.min_sequence, file.name
