"""Merge engine deduplicate: the newest version of a key is the result, deletes included.

Source: ``DeduplicateMergeFunction``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from lsm_core.merge.keys import Ints, KeySpec
from lsm_core.merge.rows import Groups, retracts


@dataclass(frozen=True)
class Deduplicate:
    """Merge engine that returns the last row of each key in merge order.

    If a key has a single row, it is returned unchanged, even a delete: Java does not call the merge function then.

    Attributes:
        key_spec: columns that order the table's rows.
        ignore_delete: whether retracts are ignored if a key has several versions; a key with only retracts has no
            result.
    """

    name: ClassVar[str] = "deduplicate"
    key_spec: KeySpec
    ignore_delete: bool = False

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Return the columns to read so that ``read`` can be merged: ``read``, and sequence fields for the order."""
        missing = [column for column in self.key_spec.sequence_columns if column not in read]
        return (*read, *missing)

    def takes_newest(self, kinds: npt.NDArray[np.int64] | None) -> bool:
        """Return whether :meth:`pick` returns the newest version of each key for rows of these kinds."""
        return not self.ignore_delete or kinds is None or not retracts(kinds).any()

    def pick(self, groups: Groups, kinds: npt.NDArray[np.int64] | None, folded: bool) -> Ints:
        """Return the number of the row that is each key's result, its newest version; -1 for a key without result.

        Under ``ignore_delete`` the result of a key with several versions is its newest version that is no retract.

        Args:
            groups: rows of each key.
            kinds: row kinds; None if all rows are adds.
            folded: whether the first group begins with a row that represents several versions merged earlier.
        """
        newest = groups.newest
        if not self.ignore_delete or kinds is None or len(groups) == 0:
            return newest
        adds = ~retracts(kinds)[groups.order]
        last_add = np.maximum.reduceat(np.where(adds, np.arange(len(adds)), -1), groups.starts)
        versions = groups.ends - groups.starts
        versions[0] += folded
        return np.where(last_add >= 0, groups.order[last_add], np.where(versions == 1, newest, -1))
