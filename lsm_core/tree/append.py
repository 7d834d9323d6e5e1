"""Small files of append tables, packed into bins that are worth rewriting (Java `AppendCompactCoordinator`)."""

from __future__ import annotations

from collections.abc import Sequence

from lsm_core.tree.decision import Decline, DeclineReason
from lsm_core.tree.model import DataFile


def pick_small_files(
    files: Sequence[DataFile],
    target: int,
    small_below: int,
    min_file_num: int,
    open_cost: int,
    full: bool = False,
) -> list[list[DataFile]] | Decline:
    """Bins of small files of one partition, each to become one rolling output.

    Files below ``small_below`` bytes are taken by ascending size; a bin of two or more is full once its bytes, plus
    ``open_cost`` for each file, reach twice ``target``. What is left needs ``min_file_num`` files (two when ``full``).
    Inside a bin files lie in arrival order, so rows keep theirs. Sizes and costs are in bytes.
    """
    small = sorted((f for f in files if f.size < small_below), key=lambda f: (f.size, *_arrival(f)))
    bins: list[list[DataFile]] = []
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
    if bins:
        return [sorted(chosen, key=_arrival) for chosen in bins]
    facts = {
        "files": len(files),
        "small_files": len(small),
        "min_files": min_file_num,
        "small_below_bytes": small_below,
    }
    return Decline(DeclineReason.TOO_FEW_SMALL_FILES if files else DeclineReason.EMPTY, facts)


def _arrival(file: DataFile) -> tuple[int, int, str]:
    return file.creation_ms, file.min_sequence, file.name
