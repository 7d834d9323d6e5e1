"""Choice of files to join in data-evolution tables: neighbours by row id, so that each output has consecutive row ids.

Files with the same row ids form a group, whose columns are joined into one file.

Source: ``DataEvolutionCompactCoordinator`` of Paimon 2.0.
"""

from __future__ import annotations

from collections.abc import Sequence

from lsm_core.tree.append import Bins
from lsm_core.tree.model import DataFile, Decline, DeclineReason


def pick_row_ranges(
    files: Sequence[DataFile], target: int, min_file_num: int, open_cost: int, full: bool = False
) -> Bins | Decline:
    """Return bins of whole groups with adjacent row ids; the files of a bin become one file with the same row ids.

    Groups are added to a bin until its bytes, at least ``open_cost`` per file, exceed ``target``. A group that exceeds
    the target alone is a bin of its own, so that its columns are joined. A bin needs ``min_file_num`` files (two if
    ``full``), counted over its groups. Groups whose files have different ranges of row ids are left out.

    Args:
        files: live files of the partition, without files of BLOB values.
        target: target size of a file (bytes).
        min_file_num: number of files that a bin needs.
        open_cost: least weight of a file (bytes).
        full: whether a full compaction is requested.

    Returns:
        The bins, each ascending by row id, or a `Decline` with the reason why there is no bin.
    """
    least = 2 if full else max(min_file_num, 2)
    candidates: Bins = []
    current: list[DataFile] = []
    weight, expected = 0, None
    for group in group_by_row_id(files):
        start, end = _row_range(group[0])
        if any(_row_range(file) != (start, end) for file in group):
            candidates.append(current)
            current, weight, expected = [], 0, None
            continue
        group_weight = sum(max(file.size, open_cost) for file in group)
        if current and (start != expected or group_weight > target):
            candidates.append(current)
            current, weight = [], 0
        current, weight, expected = [*current, *group], weight + group_weight, end
        if weight > target:
            candidates.append(current)
            current, weight = [], 0
    candidates.append(current)
    bins = [chosen for chosen in candidates if len(chosen) >= least]
    if bins:
        return bins
    facts = {
        "files": len(files),
        "small_files": max((len(chosen) for chosen in candidates), default=0),
        "min_files": least,
        "target_bytes": target,
    }
    return Decline(DeclineReason.TOO_FEW_SMALL_FILES if files else DeclineReason.EMPTY, facts)


def group_by_row_id(files: Sequence[DataFile]) -> Bins:
    """Return the files in groups whose ranges of row ids overlap, ascending by row id.

    Args:
        files: files of one partition; files without row ids are left out.
    """
    groups: Bins = []
    reached = -1
    tracked = [file for file in files if file.first_row_id is not None]
    for file in sorted(tracked, key=lambda file: (_row_range(file), file.max_sequence, file.name)):
        start, end = _row_range(file)
        if start >= reached:
            groups.append([])
        groups[-1].append(file)
        reached = max(reached, end)
    return groups


def _row_range(file: DataFile) -> tuple[int, int]:
    """Return the first row id of a file, and the row id after its last row."""
    assert file.first_row_id is not None
    return file.first_row_id, file.first_row_id + file.row_count
