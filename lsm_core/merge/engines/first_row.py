"""Merge engine first-row: the oldest version of a key is the result.

Source: ``FirstRowMergeFunction``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from lsm_core.errors import RetractNotSupported
from lsm_core.merge.keys import Ints, KeySpec
from lsm_core.merge.rows import Groups, retracts

REFUSAL: Final = "first-row does not support -U and -D; 'ignore-delete' = 'true' ignores them"


@dataclass(frozen=True)
class FirstRow:
    """Merge engine that returns the first row of each key in merge order.

    If a key has a single row, it is returned unchanged: Java does not call the merge function then.

    Attributes:
        key_spec: columns that order the table's rows.
        ignore_delete: whether retracts are ignored; otherwise they are an error.
        table: name of the table, for errors.
    """

    name: ClassVar[str] = "first-row"
    key_spec: KeySpec
    ignore_delete: bool = False
    table: str = ""

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Return the columns ``read`` unchanged: the order is decided by sequence numbers, not by columns."""
        return tuple(read)

    def takes_newest(self, kinds: npt.NDArray[np.int64] | None) -> bool:
        """Return False: the result is the oldest version."""
        return False

    def pick(self, groups: Groups, kinds: npt.NDArray[np.int64] | None, folded: bool) -> Ints:
        """Return the number of the row with each key's oldest version that is no retract; -1 for none.

        The only row of a key is returned even if it is a retract.

        Args:
            groups: rows of each key.
            kinds: row kinds; None if all rows are adds.
            folded: whether the first group begins with a row that represents several versions merged earlier.

        Raises:
            RetractNotSupported: a key with several versions has a retract, unless ``ignore_delete`` is set.
        """
        oldest = groups.order[groups.starts]
        if kinds is None or len(groups) == 0:
            return np.asarray(oldest, np.int64)
        is_retract = retracts(kinds)[groups.order]
        if not is_retract.any():
            return np.asarray(oldest, np.int64)
        versions = groups.ends - groups.starts
        versions[0] += folded
        add_places = np.where(is_retract, len(is_retract), np.arange(len(is_retract)))
        first = np.minimum.reduceat(add_places, groups.starts)
        several = versions > 1
        if not self.ignore_delete and np.logical_or.reduceat(is_retract, groups.starts)[several].any():
            raise RetractNotSupported(f"table {self.table}: {REFUSAL}")
        has_add = first < len(is_retract)
        picked = np.where(has_add, groups.order[np.minimum(first, len(is_retract) - 1)], -1)
        return np.where(several, picked, oldest)
