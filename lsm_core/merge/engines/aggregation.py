"""Merge engine aggregation: each column has a function of its own.

Source: ``AggregateMergeFunction``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, offsets_from
from lsm_core.format.schema import TableSchema
from lsm_core.merge.engines.errors import named_error
from lsm_core.merge.engines.fold import DELETE, INSERT, NO_ROW, FoldInput, FoldOutput, GroupRows, ResultColumns, finish
from lsm_core.merge.functions import (
    AGG,
    KEEP,
    RETRACT,
    SKIP,
    Accumulators,
    AggregateFunction,
    GroupError,
    PickAggregate,
    aggregate_function,
    takes_newest,
)
from lsm_core.merge.functions.base import Operations
from lsm_core.merge.keys import Ints, KeySpec, Mask

DEFAULT_FUNCTION: Final = "last_non_null_value"
_FUNCTION: Final = "aggregate-function"


def functions_of(
    schema: TableSchema, options: Mapping[str, str], sequence_fields: Sequence[str], table: str = ""
) -> dict[str, AggregateFunction]:
    """Return the aggregate function of every column.

    Args:
        schema: schema of the table.
        options: options of the table.
        sequence_fields: columns of `sequence.field`, which keep the last value.
        table: name of the table, for errors.

    Raises:
        InvalidOption: a function is unknown, or does not accept the column's type.
    """
    chosen = {}
    for column in schema.fields:
        name = options.get(
            f"fields.{column.name}.{_FUNCTION}", options.get(f"fields.default-{_FUNCTION}", DEFAULT_FUNCTION)
        )
        if column.name in sequence_fields:
            name = "last_value"
        if column.name in schema.primary_keys:
            name = "primary-key"
        # `count` is stored in the files as a sum; writing converted its inputs to 1, 0 and -1
        name = "sum" if name == "count" else name
        chosen[column.name] = aggregate_function(name, column.type, column.name, options, table)
    return chosen


@dataclass(frozen=True)
class Aggregation:
    """Merge engine that aggregates every column with the column's aggregate function.

    If a key has a single row, this row is returned unchanged, even a retract.

    Attributes:
        key_spec: columns that order the table's rows.
        functions: function of each column.
        remove_on_delete: whether a -D discards all earlier values of its key, so that aggregation restarts from the
            values of the -D. If no row follows the -D, the result is a delete.
        table: name of the table, for errors.
    """

    name: ClassVar[str] = "aggregation"
    key_spec: KeySpec
    functions: Mapping[str, AggregateFunction]
    remove_on_delete: bool = False
    table: str = ""

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Return the columns to read so that ``read`` can be merged: ``read``, and sequence fields for the order."""
        return (*read, *(column for column in self.key_spec.sequence_columns if column not in read))

    def fold(self, window: FoldInput) -> FoldOutput:
        """Return one merged row for each complete key, and the state of the key that may have further rows.

        Raises:
            RetractNotSupported: a function does not support retracts.
            ArithmeticOverflow: a result leaves the range of its type.
            InvalidData: a value cannot be aggregated; each error names table, column and key.
        """
        inputs = window.inputs
        if not len(inputs.rows):  # no row to fold: at most an accumulator that is complete now
            kinds = np.full(len(inputs), INSERT, np.int8)
            flags = window.state.flags if window.accumulated and window.state is not None else {}
            kinds[:1] = DELETE if flags.get("deleted") else INSERT
            return finish(ResultColumns(window, kinds, dict(flags)))
        reset = _Reset.of(inputs) if self.remove_on_delete else None
        deleted = np.zeros(len(inputs), np.bool_) if reset is None else reset.is_last
        if window.accumulated and window.state is not None and reset is not None and not inputs.sizes[0]:
            deleted[0] = window.state.flags["deleted"]
        result = ResultColumns(window, np.where(deleted, DELETE, INSERT).astype(np.int8))
        seen = {}
        for name in window.rows.pieces[0].batch.schema.names:
            if name in self.functions:
                seen[name] = bool(self._column(result, inputs, reset, name)[-1])
        result.flags = {"seen": seen, "deleted": bool(deleted[-1])}
        return finish(result)

    def _column(self, result: ResultColumns, inputs: GroupRows, reset: _Reset | None, name: str) -> Mask:
        """Compute column ``name`` of the merged rows.

        Args:
            result: columns of the merged rows, in which the column is set.
            inputs: rows of the groups; a group has the rows of one key.
            reset: effect of -D rows on the groups, or None for no effect.
            name: name of the column.

        Returns:
            A mask of the groups for which the column's function has received an input.
        """
        function, window = self.functions[name], result.window
        seen = np.zeros(len(inputs), np.bool_)
        if inputs.begun and window.state is not None:
            seen[0] = window.state.flags["seen"][name]
        is_retract = (inputs.kinds & 1) == 1
        ops = np.where(is_retract, RETRACT, AGG).astype(np.int8) if is_retract.any() else None
        before = inputs.before
        if reset is not None:
            # rows before the last -D are discarded; only the fact that the function was called is kept
            seen |= reset.has_called
            ops = (
                np.where(reset.discarded, SKIP, AGG if ops is None else ops).astype(np.int8)
                if reset.discarded.any()
                else ops
            )
            before = np.where(reset.last >= 0, inputs.rows[reset.last], before)
        if ops is None and (
            takes_newest(function, window.valid(name)) or result.fold_plain(name, function.fold_layers)
        ):
            return seen | (inputs.sizes > 0)
        try:
            if isinstance(function, PickAggregate) and not function.computes:
                return _pick_rows(result, inputs, function, ops, before, seen)
            initial = pc.take(window.whole(name), arrow_array(before, mask=before < 0), boundscheck=False)
            values = window.take(name, inputs.rows)
            folded = function.fold_ops(values, inputs.offsets, ops, Accumulators(initial, seen))
        except GroupError as error:
            raise named_error(error, self.table, name, window, inputs, self.key_spec) from error
        result.compute(name, folded.values, folded.alone)
        return folded.seen


def _pick_rows(
    result: ResultColumns, inputs: GroupRows, function: PickAggregate, ops: Operations | None, before: Ints, seen: Mask
) -> Mask:
    """Set a column of the merged rows to values of chosen rows: one row for each group (the rows of one key).

    Most functions choose by the nulls alone, so that no values are read.

    Args:
        result: columns of the merged rows, in which the column is set.
        inputs: rows of the groups.
        function: aggregate function of the column.
        ops: operation of each input; None if all are AGG.
        before: row of each group's initial accumulator, or a negative number for none.
        seen: mask of the groups whose function has received an input before.

    Returns:
        A mask of the groups whose function has received an input.
    """
    window, name = result.window, function.field
    valid = window.valid(name)
    initial = None
    if function.needs_values:
        present, has_value = (
            window.take(name, inputs.rows),
            before >= 0 if valid is None else (before >= 0) & valid[before],
        )
        initial = window.take(name, np.maximum(before, 0)) if has_value.any() else None
    elif valid is None:
        present, has_value = arrow_array(np.zeros(len(inputs.rows), np.int8)), before >= 0
    else:
        present = arrow_array(np.zeros(len(inputs.rows), np.int8), mask=~valid[inputs.rows])
        has_value = (before >= 0) & valid[before]
    folding = function.prepare(present, inputs.offsets, ops)
    picks, seen = function.pick(folding, has_value, seen, initial)
    rows = inputs.rows[folding.original(np.maximum(picks, 0))] if len(folding.values) else picks
    result.pick(name, np.where(picks >= 0, rows, np.where(picks == KEEP, before, NO_ROW)))
    return seen


@dataclass(frozen=True, eq=False)
class _Reset:
    """Effect of -D rows on each group (the rows of one key), if a -D discards all earlier values.

    Attributes:
        last: position of each group's last -D among the rows of all groups; -1 for none.
        discarded: per row, whether it is the group's last -D or a row before it.
        has_called: per group, whether the function received an input before the last -D.
        is_last: per group, whether its last row is a -D.
    """

    last: Ints
    discarded: Mask
    has_called: Mask
    is_last: Mask

    @staticmethod
    def of(inputs: GroupRows) -> _Reset:
        place = np.arange(len(inputs.rows))
        number = np.concatenate((np.full(1, -1), np.where(inputs.kinds == DELETE, place, -1)))
        last = np.maximum.accumulate(number)[inputs.offsets[1:]]
        last = np.where(last >= inputs.offsets[:-1], last, -1)
        discarded = place <= last[inputs.group_of] if len(place) else np.zeros(0, np.bool_)
        shown = offsets_from(inputs.kinds != DELETE)
        has_called = (last >= 0) & (shown[np.maximum(last, 0)] > shown[inputs.offsets[:-1]])
        return _Reset(last, discarded, has_called, (last >= 0) & (last == inputs.offsets[1:] - 1))
