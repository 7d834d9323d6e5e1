"""Where in its file a decoded row lies: deletion vectors count rows of the whole file, also when only parts are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lsm_core.files.formats import FileSource


class Deleted(Protocol):
    """Positions of one file's deleted rows, as deletion vectors hold them."""

    def deleted_mask(self, first_row: int, rows: int) -> npt.NDArray[np.bool_]:
        """For ``rows`` rows from position ``first_row`` on: whether each is deleted."""
        ...


class Unwanted:
    """Rows of one file that a filter's indexes rule out, and those that a deletion vector marks."""

    def __init__(self, ruled_out: npt.NDArray[np.bool_], deleted: Deleted | None) -> None:
        self._ruled_out, self._deleted = ruled_out, deleted

    def deleted_mask(self, first_row: int, rows: int) -> npt.NDArray[np.bool_]:
        """As :class:`Deleted`."""
        mask = self._ruled_out[first_row : first_row + rows]
        return mask if self._deleted is None else mask | self._deleted.deleted_mask(first_row, rows)

    def groups_left(self, source: FileSource) -> Sequence[int]:
        """The row groups of the file with a row that is not ruled out."""
        counts = np.asarray(source.group_rows, np.int64)
        starts = np.cumsum(counts) - counts
        filled = np.flatnonzero(counts > 0)
        wanted = np.add.reduceat(~self._ruled_out, starts[filled], dtype=np.int64)
        return [int(group) for group in filled[wanted > 0]]


class RowPositions:
    """Follows the rows of the chosen row groups as they are decoded, in file order."""

    def __init__(self, group_rows: Sequence[int], row_groups: Sequence[int] | None) -> None:
        counts = np.asarray(group_rows, np.int64)
        starts = np.cumsum(counts) - counts
        chosen = list(range(len(counts)) if row_groups is None else row_groups)
        self._ranges: list[list[int]] = []
        for group in chosen:
            first, rows = int(starts[group]), int(counts[group])
            if self._ranges and sum(self._ranges[-1]) == first:
                self._ranges[-1][1] += rows  # neighbours are one range: batches may span them
            else:
                self._ranges.append([first, rows])
        self._at = 0

    def next_ranges(self, rows: int) -> list[tuple[int, int]]:
        """Positions of the next ``rows`` decoded rows, as ranges: (first position, number of rows)."""
        found = []
        while rows > 0:
            first, left = self._ranges[self._at]
            take = min(rows, left)
            if take:
                found.append((first, take))
            self._ranges[self._at] = [first + take, left - take]
            self._at += take == left
            rows -= take
        return found


def deleted_mask(ranges: Sequence[tuple[int, int]], deleted: Deleted) -> npt.NDArray[np.bool_]:
    """Of the rows in ``ranges``, whether each is deleted."""
    parts = [deleted.deleted_mask(first, rows) for first, rows in ranges]
    return np.concatenate(parts) if parts else np.zeros(0, np.bool_)


def places_of(ranges: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """The positions of the rows in ``ranges``."""
    parts = [np.arange(first, first + rows, dtype=np.int64) for first, rows in ranges]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


__all__ = ["Deleted", "RowPositions", "Unwanted", "deleted_mask", "places_of"]
