"""Which merge function a table has: the factory over merge engines, and what every engine offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lsm_core.errors import InvalidOption
from lsm_core.format.schema import TableSchema
from lsm_core.merge.comparable import Ints
from lsm_core.merge.engines.deduplicate import Deduplicate
from lsm_core.merge.engines.first_row import FirstRow
from lsm_core.merge.order import Groups
from lsm_core.merge.sort_key import KeySpec
from lsm_core.options import TableOptions

if TYPE_CHECKING:
    from lsm_core.merge.engines.fold import FoldInput, FoldOutput

_BUILDING: Final = ("partial-update", "aggregation")
"""Engines that build rows. Their modules are imported when a table has one of them."""


class PickFunction(Protocol):
    """Chooses one of the versions of a key, given in merge order, or none."""

    @property
    def name(self) -> str:
        """The engine, as option `merge-engine` names it."""
        ...

    @property
    def key_spec(self) -> KeySpec:
        """The columns that order the table's rows: key, sequence fields."""
        ...

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Value columns that must be read so that merging answers for the columns ``read``."""
        ...

    def takes_newest(self, kinds: npt.NDArray[np.int64] | None) -> bool:
        """Whether the newest version of each key is what :meth:`pick` gives, for rows of these kinds."""
        ...

    def pick(self, groups: Groups, kinds: npt.NDArray[np.int64] | None, folded: bool) -> Ints:
        """Row index of each group's result, -1 for none. ``kinds`` None: all rows are adds.

        ``folded``: the first group begins with a row that stands for several versions merged earlier.
        """
        ...


@runtime_checkable
class FoldFunction(Protocol):
    """Builds a new row from the versions of a key, given in merge order."""

    @property
    def name(self) -> str:
        """The engine, as option `merge-engine` names it."""
        ...

    @property
    def key_spec(self) -> KeySpec:
        """The columns that order the table's rows: key, sequence fields."""
        ...

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Value columns that must be read so that merging answers for the columns ``read``."""
        ...

    def fold(self, window: FoldInput) -> FoldOutput:
        """The rows of the keys that are complete, and the one that is not."""
        ...


MergeFunction = PickFunction | FoldFunction


def merge_function(schema: TableSchema, options: Mapping[str, str], table: str = "") -> MergeFunction:
    """The merge function of a table (Java `MergeFunctionFactory`).

    Raises InvalidOption for an unknown engine, and for options that contradict each other or the columns they name.
    """
    typed = TableOptions(options, table, stored=True)
    spec = KeySpec.of(schema, typed.sequence_field, typed.sequence_descending, table)
    engine = typed.merge_engine
    if engine == Deduplicate.name:
        return Deduplicate(spec, typed.ignore_delete)
    if engine == FirstRow.name:
        if spec.sequence_columns:
            raise InvalidOption("sequence.field", ",".join(spec.sequence_columns), "nothing with first-row", table)
        return FirstRow(spec, typed.ignore_delete, table)
    if engine in _BUILDING:  # most tables have none of these
        from lsm_core.merge.engines.setup import aggregation, partial_update

        if engine == "partial-update":
            return partial_update(schema, typed, spec, table)
        return aggregation(schema, typed, spec, table)
    known = ", ".join((Deduplicate.name, FirstRow.name, *_BUILDING))
    raise InvalidOption("merge-engine", engine, known, table)
