"""Merge engine aggregation: every column has a function of its own (Java `AggregateMergeFunction`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, offsets_from
from lsm_core.format.schema import TableSchema
from lsm_core.merge.comparable import Ints, Mask
from lsm_core.merge.engines.errors import named_error
from lsm_core.merge.engines.fold import DELETE, INSERT, NO_ROW, Answer, FoldInput, FoldOutput, GroupRows, finish
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
from lsm_core.merge.sort_key import KeySpec

DEFAULT_FUNCTION: Final = "last_non_null_value"
_FUNCTION: Final = "aggregate-function"


def functions_of(
    schema: TableSchema, options: Mapping[str, str], sequence_fields: Sequence[str], table: str = ""
) -> dict[str, AggregateFunction]:
    """The function of every column. Raises InvalidOption for an unknown one, or one that does not take the column's type."""
    chosen = {}
    for column in schema.fields:
        name = options.get(
            f"fields.{column.name}.{_FUNCTION}", options.get(f"fields.default-{_FUNCTION}", DEFAULT_FUNCTION)
        )
        if column.name in sequence_fields:
            name = "last_value"
        if column.name in schema.primary_keys:
            name = "primary-key"
        # `count` is kept in the files as a sum; writing turned its inputs into 1, 0 and -1
        name = "sum" if name == "count" else name
        chosen[column.name] = aggregate_function(name, column.type, column.name, options, table)
    return chosen


@dataclass(frozen=True)
class Aggregation:
    """Folds every column with its own function. A lone row passes as it is, even a retract.

    ``remove_on_delete``: a -D resets the row to its values, and is the result if nothing follows.
    """

    name: ClassVar[str] = "aggregation"
    key_spec: KeySpec
    functions: Mapping[str, AggregateFunction]
    remove_on_delete: bool = False
    table: str = ""

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """The columns read, and the user's sequence fields, which decide the order."""
        return (*read, *(column for column in self.key_spec.sequence_columns if column not in read))

    def fold(self, window: FoldInput) -> FoldOutput:
        """One row a key. Raises RetractNotSupported, ArithmeticOverflow naming table, column and key."""
        inputs = window.inputs
        if not len(inputs.rows):  # nothing to fold: at most an accumulator that is complete now
            kinds = np.full(len(inputs), INSERT, np.int8)
            flags = window.state.flags if window.accumulated and window.state is not None else {}
            kinds[:1] = DELETE if flags.get("deleted") else INSERT
            return finish(Answer(window, kinds, dict(flags)))
        reset = _Reset.of(inputs) if self.remove_on_delete else None
        deleted = np.zeros(len(inputs), np.bool_) if reset is None else reset.is_last
        if window.accumulated and window.state is not None and reset is not None and not inputs.sizes[0]:
            deleted[0] = window.state.flags["deleted"]
        answer = Answer(window, np.where(deleted, DELETE, INSERT).astype(np.int8))
        seen = {}
        for name in window.rows.pieces[0].batch.schema.names:
            if name in self.functions:
                seen[name] = bool(self._column(answer, inputs, reset, name)[-1])
        answer.flags = {"seen": seen, "deleted": bool(deleted[-1])}
        return finish(answer)

    def _column(self, answer: Answer, inputs: GroupRows, reset: _Reset | None, name: str) -> Mask:
        """Answer for one column; returns whether its function was given something, for each group."""
        function, window = self.functions[name], answer.window
        seen = np.zeros(len(inputs), np.bool_)
        if inputs.begun and window.state is not None:
            seen[0] = window.state.flags["seen"][name]
        back = (inputs.kinds & 1) == 1
        ops = np.where(back, RETRACT, AGG).astype(np.int8) if back.any() else None
        before = inputs.before
        if reset is not None:
            # what came before the last -D is gone; only that the function was called stays
            seen |= reset.began
            ops = np.where(reset.gone, SKIP, AGG if ops is None else ops).astype(np.int8) if reset.gone.any() else ops
            before = np.where(reset.last >= 0, inputs.rows[reset.last], before)
        if ops is None and (
            takes_newest(function, window.valid(name)) or answer.fold_plain(name, function.fold_layers)
        ):
            return seen | (inputs.sizes > 0)
        try:
            if isinstance(function, PickAggregate) and not function.computes:
                return _picked(answer, inputs, function, ops, before, seen)
            initial = pc.take(window.whole(name), arrow_array(before, mask=before < 0), boundscheck=False)
            values = window.taken(name, inputs.rows)
            folded = function.fold_ops(values, inputs.offsets, ops, Accumulators(initial, seen))
        except GroupError as error:
            raise named_error(error, self.table, name, window, inputs, self.key_spec) from error
        answer.compute(name, folded.values, folded.alone)
        return folded.seen


def _picked(
    answer: Answer, inputs: GroupRows, function: PickAggregate, ops: Operations | None, before: Ints, seen: Mask
) -> Mask:
    """Choose the row that supplies each group's value; most functions only look at which values are null."""
    window, name = answer.window, function.field
    valid = window.valid(name)
    initial = None
    if function.needs_values:
        present, filled = (
            window.taken(name, inputs.rows),
            before >= 0 if valid is None else (before >= 0) & valid[before],
        )
        initial = window.taken(name, np.maximum(before, 0)) if filled.any() else None
    elif valid is None:
        present, filled = arrow_array(np.zeros(len(inputs.rows), np.int8)), before >= 0
    else:
        present = arrow_array(np.zeros(len(inputs.rows), np.int8), mask=~valid[inputs.rows])
        filled = (before >= 0) & valid[before]
    folding = function.prepared(present, inputs.offsets, ops)
    picks, seen = function.pick(folding, filled, seen, initial)
    rows = inputs.rows[folding.original(np.maximum(picks, 0))] if len(folding.values) else picks
    answer.pick(name, np.where(picks >= 0, rows, np.where(picks == KEEP, before, NO_ROW)))
    return seen


@dataclass(frozen=True, eq=False)
class _Reset:
    """Where rows of each group were reset by a -D: ``last`` is the place of the last one among the rows, -1 for none."""

    last: Ints
    gone: Mask
    began: Mask
    is_last: Mask

    @staticmethod
    def of(inputs: GroupRows) -> _Reset:
        place = np.arange(len(inputs.rows))
        number = np.concatenate((np.full(1, -1), np.where(inputs.kinds == DELETE, place, -1)))
        last = np.maximum.accumulate(number)[inputs.offsets[1:]]
        last = np.where(last >= inputs.offsets[:-1], last, -1)
        gone = place <= last[inputs.group_of] if len(place) else np.zeros(0, np.bool_)
        shown = offsets_from(inputs.kinds != DELETE)
        began = (last >= 0) & (shown[np.maximum(last, 0)] > shown[inputs.offsets[:-1]])
        return _Reset(last, gone, began, (last >= 0) & (last == inputs.offsets[1:] - 1))
