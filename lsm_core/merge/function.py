"""Merge function of a table: the factory of merge engines, and the protocols of engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lsm_core.errors import InvalidOption
from lsm_core.format.schema import TableSchema
from lsm_core.merge.engines.deduplicate import Deduplicate
from lsm_core.merge.engines.first_row import FirstRow
from lsm_core.merge.keys import Ints, KeySpec
from lsm_core.merge.rows import Groups
from lsm_core.options import TableOptions

if TYPE_CHECKING:
    from lsm_core.merge.engines.fold import FoldInput, FoldOutput

_BUILDING: Final = ("partial-update", "aggregation")
"""Engines that build rows; their modules are imported only for tables that use them."""


class PickFunction(Protocol):
    """Merge engine that chooses one version of a key, or none; versions are in merge order."""

    @property
    def name(self) -> str:
        """Name of the engine in option `merge-engine`."""
        ...

    @property
    def key_spec(self) -> KeySpec:
        """Columns that order the table's rows: key, sequence fields."""
        ...

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Return the value columns that must be read so that merging returns the columns ``read``."""
        ...

    def takes_newest(self, kinds: npt.NDArray[np.int64] | None) -> bool:
        """Return whether :meth:`pick` returns the newest version of each key, for rows of these kinds."""
        ...

    def pick(self, groups: Groups, kinds: npt.NDArray[np.int64] | None, folded: bool) -> Ints:
        """Return the number of the row that is each group's result; -1 for a group without result.

        Args:
            groups: rows of each key.
            kinds: row kinds; None if all rows are adds.
            folded: whether the first group begins with a row that represents several versions merged earlier.
        """
        ...


@runtime_checkable
class FoldFunction(Protocol):
    """Merge engine that builds a new row from the versions of a key; versions are in merge order."""

    @property
    def name(self) -> str:
        """Name of the engine in option `merge-engine`."""
        ...

    @property
    def key_spec(self) -> KeySpec:
        """Columns that order the table's rows: key, sequence fields."""
        ...

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Return the value columns that must be read so that merging returns the columns ``read``."""
        ...

    def fold(self, window: FoldInput) -> FoldOutput:
        """Merge the rows of a window (key range): one row per complete key, and the state of an incomplete last key."""
        ...


MergeFunction = PickFunction | FoldFunction


def merge_function(schema: TableSchema, options: Mapping[str, str], table: str = "") -> MergeFunction:
    """Return the merge function of a table.

    Args:
        schema: schema of the table.
        options: options of the table.
        table: name of the table, for errors.

    Raises:
        InvalidOption: the engine is unknown, or options contradict each other or the columns that they name.

    Source: ``MergeFunctionFactory``.
    """
    table_options = TableOptions(options, table, stored=True)
    spec = KeySpec.of(schema, table_options.sequence_field, table_options.sequence_descending, table)
    engine = table_options.merge_engine
    if engine == Deduplicate.name:
        return Deduplicate(spec, table_options.ignore_delete)
    if engine == FirstRow.name:
        if spec.sequence_columns:
            raise InvalidOption("sequence.field", ",".join(spec.sequence_columns), "nothing with first-row", table)
        return FirstRow(spec, table_options.ignore_delete, table)
    if engine in _BUILDING:  # most tables have none of these
        from lsm_core.merge.engines.setup import aggregation, partial_update

        if engine == "partial-update":
            return partial_update(schema, table_options, spec, table)
        return aggregation(schema, table_options, spec, table)
    engine_names = ", ".join((Deduplicate.name, FirstRow.name, *_BUILDING))
    raise InvalidOption("merge-engine", engine, engine_names, table)
