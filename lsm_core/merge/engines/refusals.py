"""Checks that reject rows before they are written, because the merge engine cannot merge them.

Such rows are unsupported retracts, and invalid bitmaps or sketches. A key with only this row causes no error, because
single rows bypass the merge function. Once the key has a second row, every read and compaction would fail. Java rejects
such a row only if two rows of the key are in the same flush.
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
from lsm_core.merge.engines import first_row, partial_update
from lsm_core.merge.engines.aggregation import Aggregation
from lsm_core.merge.engines.first_row import FirstRow
from lsm_core.merge.engines.partial_update import PartialUpdate
from lsm_core.merge.function import MergeFunction
from lsm_core.merge.functions.binary_union import BinaryUnion
from lsm_core.merge.keys import Mask
from lsm_core.types import RowKind, is_retract


@dataclass(frozen=True)
class RefusedRetracts:
    """Rule for retracts that the merge engine cannot merge: -U rows, and in some tables -D rows.

    Attributes:
        reason: the reason, for the error.
        column: column whose function is the cause; empty for none.
        deletes: whether -D rows are rejected too.
        ordering: ordering fields of a sequence group: only rows with a value in one of them are rejected, because the
            group skips the others.
        removing: ordering fields of groups that delete rows: a -D with a value in one of them may delete the whole row,
            so it is not rejected.
    """

    reason: str
    column: str = ""
    deletes: bool = True
    ordering: tuple[str, ...] = ()
    removing: tuple[tuple[str, ...], ...] = ()

    def among(self, rows: pa.Table, kinds: np.ndarray[Any, Any]) -> Mask:
        """Return a mask of the rejected ``rows``.

        Args:
            rows: retracts.
            kinds: row kind of each row.
        """
        is_delete = kinds == RowKind.DELETE
        refused = np.ones(len(kinds), np.bool_) if self.deletes else ~is_delete
        if self.ordering:
            refused &= _has_value(rows, self.ordering)
        for ordering in self.removing:
            refused &= ~(is_delete & _has_value(rows, ordering))
        return refused


@dataclass(frozen=True)
class Refusals:
    """Rules by which a table rejects rows; they are derived from the table's merge function.

    Attributes:
        retracts: rules for retracts.
        decoded: functions whose values must be decodable.
        keys: columns of the primary key, for errors.
        table: name of the table, for errors.
    """

    retracts: tuple[RefusedRetracts, ...]
    decoded: tuple[BinaryUnion, ...]
    keys: tuple[str, ...]
    table: str

    @staticmethod
    def of(function: MergeFunction, schema: TableSchema, table: str) -> Refusals:
        """Return the rules of a primary-key table."""
        aggregates = function.functions.values() if isinstance(function, (Aggregation, PartialUpdate)) else ()
        decoded = tuple(aggregate for aggregate in aggregates if isinstance(aggregate, BinaryUnion))
        return Refusals(tuple(_retract_rules(function)), decoded, tuple(schema.primary_keys), table)

    def require_mergeable(self, rows: pa.Table, kinds: pa.Array) -> None:
        """Check that all retracts among the rows can be merged.

        Args:
            rows: the rows to write, with the columns of the table.
            kinds: row kind of each row, int8.

        Raises:
            RetractNotSupported: a retract cannot be merged; the error names table, column and key of the first.
        """
        if not self.retracts:
            return
        places = np.flatnonzero(is_retract(kinds))
        if not len(places):
            return
        retract_kinds = numpy_array(kinds)[places]
        needed = [name for rule in self.retracts for group in (rule.ordering, *rule.removing) for name in group]
        retract_rows = rows.select(list(dict.fromkeys([*self.keys, *needed]))).take(pa.array(places))
        for rule in self.retracts:
            refused = rule.among(retract_rows, retract_kinds)
            if refused.any():
                first = int(np.argmax(refused))
                column = f", column '{rule.column}'" if rule.column else ""
                description = f"a {RowKind(int(retract_kinds[first])).text} row: {rule.reason}"
                raise RetractNotSupported(
                    f"table {self.table}{column}, key {self._key(retract_rows, first)}: {description}"
                )

    def require_readable(self, rows: pa.Table, ignored: Mask | None, row_name: Callable[[int], str]) -> None:
        """Check that all bitmaps and sketches can be decoded; each distinct value is decoded, as merging would do.

        Args:
            rows: the rows to write, with the columns of the table.
            ignored: mask of rows to skip; None for none.
            row_name: returns the name of a row for errors.

        Raises:
            InvalidData: a value cannot be decoded; the error names column, row and key.
        """
        for function in self.decoded:
            column = rows.column(function.field)
            if ignored is not None:
                column = pc.if_else(pa.array(ignored), pa.scalar(None, column.type), column)
            unreadable = function.unreadable(column.unique())
            if unreadable is not None:
                value, reason = unreadable
                row = int(pc.index(column, value).as_py())
                message = f"{row_name(row)}, key {self._key(rows, row)}: {reason}"
                raise InvalidData(self.table, function.field, message)

    def _key(self, rows: pa.Table, row: int) -> dict[str, Any]:
        return {name: rows.column(name)[row].as_py() for name in self.keys}


def _retract_rules(function: MergeFunction) -> Iterator[RefusedRetracts]:
    """Yield the rules for retracts that the merge engine cannot merge.

    An aggregation table has at most one rule, for its first column whose function does not support retracts. The same
    holds for each sequence group of a partial-update table.
    """
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
            refusals = ((name, aggregate.refusal) for name, aggregate in aggregates if aggregate is not None)
            name, reason = next(((name, reason) for name, reason in refusals if reason is not None), ("", ""))
            if reason:
                yield RefusedRetracts(reason, name, ordering=group.ordering, removing=removing)


def _has_value(rows: pa.Table, names: Sequence[str]) -> Mask:
    valid = [numpy_array(pc.is_valid(rows.column(name))) for name in names]
    return np.asarray(np.logical_or.reduce(valid), np.bool_)
