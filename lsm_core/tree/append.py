"""Choice of files to concatenate in append tables: bins by size, or windows of adjacent files if rows have an order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from lsm_core.tree.model import DataFile, Decline, DeclineReason

Bins = list[list[DataFile]]
_MIN_FULL_FILES: Final = 3


def pick_small_files(
    files: Sequence[DataFile],
    target: int,
    small_below: int,
    min_file_num: int,
    open_cost: int,
    full: bool = False,
    marked: Collection[str] = (),
) -> Bins | Decline:
    """Return bins of small files of one partition of an unbucketed table; the files of a bin are rewritten together.

    Files are taken by ascending size. A bin of two or more is full once its bytes, plus ``open_cost`` per file, reach
    twice ``target``. The last bin needs ``min_file_num`` files (two if ``full``). Inside a bin, files are ordered by
    size, the smallest first, as in Java, because rows of these tables have no order.

    Args:
        files: live files of the partition.
        target: target size of a file (bytes).
        small_below: size below which a file is small (bytes).
        min_file_num: number of files that the last bin needs.
        open_cost: cost of opening a file (bytes).
        full: whether a full compaction is requested.
        marked: names of files with too many deleted rows, which are taken regardless of size, even alone.

    Returns:
        The bins, or a `Decline` with the reason why there is no bin.

    Source: ``AppendCompactCoordinator``.
    """
    small = sorted(
        (f for f in files if f.size < small_below or f.name in marked), key=lambda f: (f.size, *_arrival_order(f))
    )
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
    elif marked_files := [file for file in current if file.name in marked]:
        bins.append(marked_files)
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
    """Return windows of adjacent files of one ordered bucket; the files of a window are rewritten in the same order.

    A window moves over ``files`` by sequence number and is complete with ``min_file_num`` files (at least two). If a
    window reaches twice ``target`` bytes before it is complete, its oldest file is dropped (Java up to 1.3: once
    ``target``). Java stops after the first window and continues at the next flush; here the search continues at once.

    Args:
        files: live files of the bucket.
        target: target size of a file (bytes).
        min_file_num: number of files in a window.

    Returns:
        The windows, or a `Decline` with the reason why there is no window.

    Source: ``BucketedAppendCompactManager``.
    """
    ordered = sorted(files, key=_sequence_order)
    window_files = max(2, min_file_num)
    windows: Bins = []
    current: list[DataFile] = []
    weight = 0
    for file in ordered:
        current.append(file)
        weight += file.size
        if len(current) >= window_files:
            windows.append(current)
            current, weight = [], 0
        elif weight >= 2 * target:
            weight -= current.pop(0).size
    if windows:
        return windows
    facts = {"files": len(files), "small_files": len(current), "min_files": window_files, "target_bytes": target}
    return Decline(DeclineReason.TOO_FEW_SMALL_FILES if files else DeclineReason.EMPTY, facts)


def pick_full_window(
    files: Sequence[DataFile], big_from: int, force: bool = False, marked: Collection[str] = ()
) -> Bins | Decline:
    """Return one window with all files of an ordered bucket, starting at the first small or marked file.

    The window needs three files, and more small files than large files. With ``force``, or if the window contains a
    file in ``marked``, one file of any size is enough.

    Args:
        files: live files of the bucket.
        big_from: size from which a file is large (bytes).
        force: whether to take all files.
        marked: names of files with deletion vectors to remove.

    Returns:
        The window, or a `Decline` with the reason why there is no window.

    Source: ``FullCompactTask`` of append tables.
    """
    ordered = sorted(files, key=_sequence_order)
    is_candidate = [force or file.size < big_from or file.name in marked for file in ordered]
    first = is_candidate.index(True) if True in is_candidate else len(ordered)
    window = ordered[first:]
    small = sum(file.size < big_from for file in window)
    force = force or any(file.name in marked for file in window)
    if window and (force or (len(window) >= _MIN_FULL_FILES and small > len(window) - small)):
        return [window]
    facts = {"files": len(files), "small_files": small, "min_files": _MIN_FULL_FILES, "small_below_bytes": big_from}
    return Decline(DeclineReason.TOO_FEW_SMALL_FILES if files else DeclineReason.EMPTY, facts)


def _sequence_order(file: DataFile) -> tuple[int, int, str]:
    return file.min_sequence, file.creation_ms, file.name


def _arrival_order(file: DataFile) -> tuple[int, int, str]:
    return file.creation_ms, file.min_sequence, file.name
