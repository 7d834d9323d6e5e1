"""Merge engine deduplicate: the newest version of a key wins, deletes included (Java `DeduplicateMergeFunction`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from lsm_core.merge.comparable import Ints
from lsm_core.merge.order import Groups
from lsm_core.merge.rows import retracts
from lsm_core.merge.sort_key import KeySpec


@dataclass(frozen=True)
class Deduplicate:
    """The last row of each key in merge order.

    ``ignore_delete``: retracts of keys with several versions are passed over; a key that has nothing else vanishes. A lone
    row passes as it is, even a delete, because Java does not ask the merge function about single rows.
    """

    name: ClassVar[str] = "deduplicate"
    key_spec: KeySpec
    ignore_delete: bool = False

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """The columns read, and the user's sequence fields, which decide who wins."""
        missing = [column for column in self.key_spec.sequence_columns if column not in read]
        return (*read, *missing)

    def takes_newest(self, kinds: npt.NDArray[np.int64] | None) -> bool:
        """Whether the newest version of each key is all that :meth:`pick` would look at."""
        return not self.ignore_delete or kinds is None or not retracts(kinds).any()

    def pick(self, groups: Groups, kinds: npt.NDArray[np.int64] | None, folded: bool) -> Ints:
        """Row index of each group's newest version, or of its newest add under ``ignore_delete``; -1 for none."""
        newest = groups.newest
        if not self.ignore_delete or kinds is None or len(groups) == 0:
            return newest
        adds = ~retracts(kinds)[groups.order]
        last_add = np.maximum.reduceat(np.where(adds, np.arange(len(adds)), -1), groups.starts)
        versions = groups.ends - groups.starts
        versions[0] += folded
        return np.where(last_add >= 0, groups.order[last_add], np.where(versions == 1, newest, -1))
