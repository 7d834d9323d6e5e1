"""Positions of decoded rows in their file.

Deletion vectors count rows of the whole file, also when only parts are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lsm_core.files.formats import FileSource


class Deleted(Protocol):
    """Set of the positions of one file's deleted rows; deletion vectors have this interface."""

    def deleted_mask(self, first_row: int, rows: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the deleted rows, for ``rows`` rows from position ``first_row`` on."""
        ...


class Unwanted:
    """Rows of one file to leave out: excluded by file indexes for a filter, or marked by a deletion vector."""

    def __init__(self, excluded: npt.NDArray[np.bool_], deleted: Deleted | None) -> None:
        self._excluded, self._deleted = excluded, deleted

    def deleted_mask(self, first_row: int, rows: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that are left out, for ``rows`` rows from position ``first_row`` on."""
        mask = self._excluded[first_row : first_row + rows]
        return mask if self._deleted is None else mask | self._deleted.deleted_mask(first_row, rows)

    def groups_left(self, source: FileSource) -> Sequence[int]:
        """Return the indexes of the file's row groups with a row that is not excluded by file indexes."""
        counts = np.asarray(source.group_rows, np.int64)
        starts = np.cumsum(counts) - counts
        filled = np.flatnonzero(counts > 0)
        rows_left = np.add.reduceat(~self._excluded, starts[filled], dtype=np.int64)
        return [int(group) for group in filled[rows_left > 0]]


class RowPositions:
    """Tracker of the file positions of rows while the chosen row groups are decoded in file order."""

    def __init__(self, group_rows: Sequence[int], row_groups: Sequence[int] | None) -> None:
        counts = np.asarray(group_rows, np.int64)
        starts = np.cumsum(counts) - counts
        chosen = list(range(len(counts)) if row_groups is None else row_groups)
        self._ranges: list[list[int]] = []
        for group in chosen:
            first, rows = int(starts[group]), int(counts[group])
            if self._ranges and sum(self._ranges[-1]) == first:
                self._ranges[-1][1] += rows  # adjacent groups are one range: batches may span them
            else:
                self._ranges.append([first, rows])
        self._at = 0

    def next_ranges(self, rows: int) -> list[tuple[int, int]]:
        """Return the positions in the file of the next ``rows`` decoded rows.

        Returns:
            Ranges of rows: (first position, number of rows).
        """
        ranges = []
        while rows > 0:
            first, remaining = self._ranges[self._at]
            take = min(rows, remaining)
            if take:
                ranges.append((first, take))
            self._ranges[self._at] = [first + take, remaining - take]
            self._at += take == remaining
            rows -= take
        return ranges


def deleted_mask(ranges: Sequence[tuple[int, int]], deleted: Deleted) -> npt.NDArray[np.bool_]:
    """Return a mask of the deleted rows, for the rows in ``ranges``: (first position, number of rows)."""
    parts = [deleted.deleted_mask(first, rows) for first, rows in ranges]
    return np.concatenate(parts) if parts else np.zeros(0, np.bool_)


def places_of(ranges: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Return the file positions of all rows in ``ranges``: (first position, number of rows)."""
    parts = [np.arange(first, first + rows, dtype=np.int64) for first, rows in ranges]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
