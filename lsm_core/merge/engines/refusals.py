"""What a table's merge engine cannot take, told of rows before they are written: retracts, and bytes that are no bitmap or sketch.

Merged with another row of its key such a row raises, in every read and compaction from then on; alone for its key it passes,
because single rows bypass the merge function. Java refuses it only where two rows of the key meet in one flush.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array
from lsm_core.errors import InvalidData, RetractNotSupported
from lsm_core.format.schema import TableSchema
from lsm_core.merge.comparable import Mask
from lsm_core.merge.engines import first_row, partial_update
from lsm_core.merge.engines.aggregation import Aggregation
from lsm_core.merge.engines.first_row import FirstRow
from lsm_core.merge.engines.partial_update import PartialUpdate
from lsm_core.merge.function import MergeFunction
from lsm_core.merge.functions.one_by_one import OneByOne
from lsm_core.types import RowKind, is_retract


@dataclass(frozen=True)
class RefusedRetracts:
    """-U rows, and -D rows if ``deletes``, that no row of their key can be merged with, for ``reason``.

    ``column``: whose function is at fault, if it is one's. ``ordering``: only rows with a value in one of these fields, because
    a sequence group passes the others over. ``removing``: ordering fields of groups, each of which may accept a -D with a
    value there, and then the whole row is removed: such a -D is not among them.
    """

    reason: str
    column: str = ""
    deletes: bool = True
    ordering: tuple[str, ...] = ()
    removing: tuple[tuple[str, ...], ...] = ()

    def among(self, rows: pa.Table, kinds: np.ndarray[Any, Any]) -> Mask:
        """Which of ``rows``, all of them retracts, are refused."""
        is_delete = kinds == RowKind.DELETE
        refused = np.ones(len(kinds), np.bool_) if self.deletes else ~is_delete
        if self.ordering:
            refused &= _has_value(rows, self.ordering)
        for ordering in self.removing:
            refused &= ~(is_delete & _has_value(rows, ordering))
        return refused


@dataclass(frozen=True)
class Refusals:
    """What one table refuses; decided once, from its merge function."""

    retracts: tuple[RefusedRetracts, ...]
    decoded: tuple[OneByOne, ...]
    keys: tuple[str, ...]
    table: str

    @staticmethod
    def of(function: MergeFunction, schema: TableSchema, table: str) -> Refusals:
        """Of a primary-key table."""
        aggregates = function.functions.values() if isinstance(function, (Aggregation, PartialUpdate)) else ()
        decoded = tuple(aggregate for aggregate in aggregates if isinstance(aggregate, OneByOne))
        return Refusals(tuple(_refused(function)), decoded, tuple(schema.primary_keys), table)

    def require_mergeable(self, rows: pa.Table, kinds: pa.Array) -> None:
        """Raise RetractNotSupported, naming table, column and key, for the first retract that cannot be merged.

        ``rows``: columns of the table; ``kinds``: int8, one a row.
        """
        if not self.retracts:
            return
        places = np.flatnonzero(is_retract(kinds))
        if not len(places):
            return
        found = numpy_array(kinds)[places]
        needed = [name for rule in self.retracts for group in (rule.ordering, *rule.removing) for name in group]
        given = rows.select(list(dict.fromkeys([*self.keys, *needed]))).take(pa.array(places))
        for rule in self.retracts:
            refused = rule.among(given, found)
            if refused.any():
                first = int(np.argmax(refused))
                column = f", column '{rule.column}'" if rule.column else ""
                what = f"a {RowKind(int(found[first])).text} row: {rule.reason}"
                raise RetractNotSupported(f"table {self.table}{column}, key {self._key(given, first)}: {what}")

    def require_readable(self, rows: pa.Table, ignored: Mask | None, row_name: Callable[[int], str]) -> None:
        """Raise InvalidData, naming column, row and key, for bytes that are not what the column's function merges.

        Every distinct value of rows that are not ``ignored`` is decoded, as merging would. ``row_name``: what a row is called.
        """
        for function in self.decoded:
            column = rows.column(function.field)
            if ignored is not None:
                column = pc.if_else(pa.array(ignored), pa.scalar(None, column.type), column)
            found = function.unreadable(column.unique())
            if found is not None:
                value, reason = found
                row = int(pc.index(column, value).as_py())
                said = f"{row_name(row)}, key {self._key(rows, row)}: {reason}"
                raise InvalidData(self.table, function.field, said)

    def _key(self, rows: pa.Table, row: int) -> dict[str, Any]:
        return {name: rows.column(name)[row].as_py() for name in self.keys}


def _refused(function: MergeFunction) -> Iterator[RefusedRetracts]:
    """What the table's merge engine cannot take back; of a sequence group the first function that cannot speaks for it."""
    if isinstance(function, FirstRow) and not function.ignore_delete:
        yield RefusedRetracts(first_row.REFUSAL)
    if isinstance(function, Aggregation):
        for name, aggregate in function.functions.items():
            if aggregate.refusal is not None:
                yield RefusedRetracts(aggregate.refusal, name, deletes=not function.remove_on_delete)
                return
    if isinstance(function, PartialUpdate) and not function.ignore_delete:
        if not function.groups and not function.remove_on_delete:
            yield RefusedRetracts(partial_update.REFUSAL)
        removing = tuple(group.ordering for group in function.groups if group.removes)
        for group in function.groups:
            aggregates = ((name, function.functions.get(name)) for name in group.protected)
            found = ((name, aggregate.refusal) for name, aggregate in aggregates if aggregate is not None)
            name, reason = next(((name, reason) for name, reason in found if reason is not None), ("", ""))
            if reason:
                yield RefusedRetracts(reason, name, ordering=group.ordering, removing=removing)


def _has_value(rows: pa.Table, names: Sequence[str]) -> Mask:
    valid = [numpy_array(pc.is_valid(rows.column(name))) for name in names]
    return np.asarray(np.logical_or.reduce(valid), np.bool_)


__all__ = ["Refusals", "RefusedRetracts"]
