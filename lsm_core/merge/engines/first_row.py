"""Merge engine first-row: the oldest version of a key stays (Java `FirstRowMergeFunction`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from lsm_core.errors import RetractNotSupported
from lsm_core.merge.comparable import Ints
from lsm_core.merge.order import Groups
from lsm_core.merge.rows import retracts
from lsm_core.merge.sort_key import KeySpec

REFUSAL: Final = "first-row does not take -U or -D; 'ignore-delete' = 'true' lets it ignore them"


@dataclass(frozen=True)
class FirstRow:
    """The first row of each key in merge order. Retracts are refused, or passed over with ``ignore_delete``.

    A lone row passes as it is, because Java does not ask the merge function about single rows.
    """

    name: ClassVar[str] = "first-row"
    key_spec: KeySpec
    ignore_delete: bool = False
    table: str = ""

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """The columns read: sequence numbers alone decide."""
        return tuple(read)

    def takes_newest(self, kinds: npt.NDArray[np.int64] | None) -> bool:
        """Never: the oldest stays."""
        return False

    def pick(self, groups: Groups, kinds: npt.NDArray[np.int64] | None, folded: bool) -> Ints:
        """Row index of each group's oldest version that is no retract; -1 for none. Raises RetractNotSupported."""
        oldest = groups.order[groups.starts]
        if kinds is None or len(groups) == 0:
            return np.asarray(oldest, np.int64)
        back = retracts(kinds)[groups.order]
        if not back.any():
            return np.asarray(oldest, np.int64)
        versions = groups.ends - groups.starts
        versions[0] += folded
        shown = np.where(back, len(back), np.arange(len(back)))
        first = np.minimum.reduceat(shown, groups.starts)
        several = versions > 1
        if not self.ignore_delete and np.logical_or.reduceat(back, groups.starts)[several].any():
            raise RetractNotSupported(f"table {self.table}: {REFUSAL}")
        found = first < len(back)
        picked = np.where(found, groups.order[np.minimum(first, len(back) - 1)], -1)
        return np.where(several, picked, oldest)
