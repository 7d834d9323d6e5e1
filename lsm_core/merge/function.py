"""Which merge function a table has: the factory over merge engines, and what every engine offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import TableSchema
from lsm_core.merge.comparable import Ints
from lsm_core.merge.deduplicate import Deduplicate
from lsm_core.merge.order import Groups
from lsm_core.merge.sort_key import KeySpec
from lsm_core.options import TableOptions


class MergeFunction(Protocol):
    """Folds the versions of a key, given in merge order, into at most one row."""

    @property
    def name(self) -> str:
        """The engine, as option `merge-engine` names it."""
        ...

    @property
    def key_spec(self) -> KeySpec:
        """What the table's rows are ordered by."""
        ...

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Value columns that must be read so that merging answers for the columns ``read``."""
        ...

    def pick(self, groups: Groups, kinds: npt.NDArray[np.int64] | None, folded: bool) -> Ints:
        """Row index of each group's result, -1 for none. ``kinds`` None: all rows are adds.

        ``folded``: the first group begins with a row that stands for several versions merged earlier.
        """
        ...


def merge_function(schema: TableSchema, options: Mapping[str, str], table: str = "") -> MergeFunction:
    """The merge function of a table (Java `MergeFunctionFactory`).

    Raises UnsupportedFeature naming table and engine for engines other than deduplicate.
    """
    typed = TableOptions(options, table)
    if typed.merge_engine != Deduplicate.name:
        raise UnsupportedFeature(f"merge engine {typed.merge_engine}", table)
    spec = KeySpec.of(schema, typed.sequence_field, typed.sequence_descending, table)
    return Deduplicate(spec, typed.ignore_delete)
