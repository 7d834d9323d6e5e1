"""Merge engine partial-update: later versions fill in or replace single fields.

Source: ``PartialUpdateMergeFunction``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import InvalidData, RetractNotSupported
from lsm_core.format.schema import KEY_PREFIX, LEVEL, SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.merge.engines.errors import key_of, named_error
from lsm_core.merge.engines.fold import (
    DELETE,
    INSERT,
    NO_ROW,
    FoldInput,
    FoldOutput,
    GroupRows,
    ResultColumns,
    finish,
)
from lsm_core.merge.engines.sequence_group import (
    Segment,
    SequenceGroup,
    accept_rows,
    apply_removals,
    last_place,
    newest_of_inserts,
)
from lsm_core.merge.functions import AGG, LATE, RETRACT, SKIP, Accumulators, AggregateFunction, GroupError
from lsm_core.merge.keys import KeySpec, Mask

REFUSAL: Final = (
    "partial-update does not support -U and -D; "
    "allow it with 'ignore-delete', 'partial-update.remove-record-on-delete' or a sequence group"
)


@dataclass(frozen=True)
class PartialUpdate:
    """Merge engine in which fields outside sequence groups keep their last value that is not null.

    Sequence groups are described in :mod:`sequence_group`. If the first version of a key is a retract, the row starts
    with the values of this retract.

    Attributes:
        key_spec: columns that order the table's rows.
        groups: sequence groups.
        functions: aggregate functions of protected fields.
        ignore_delete: whether -U and -D are ignored, with or without sequence groups.
        remove_on_delete: in a table without sequence groups, whether -D deletes the row. If a table has no sequence
            groups and neither ``ignore_delete`` nor ``remove_on_delete`` is set, -U and -D are an error.
        required: columns that are NOT NULL, without the primary key.
        table: name of the table, for errors.
    """

    name: ClassVar[str] = "partial-update"
    key_spec: KeySpec
    groups: tuple[SequenceGroup, ...] = ()
    functions: Mapping[str, AggregateFunction] = field(default_factory=dict)
    ignore_delete: bool = False
    remove_on_delete: bool = False
    required: frozenset[str] = frozenset()
    table: str = ""

    @cached_property
    def group_of(self) -> dict[str, SequenceGroup]:
        """Sequence group of each ordering or protected field, by field name."""
        return {name: group for group in self.groups for name in (*group.ordering, *group.protected)}

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Return the columns to read so that the columns ``read`` can be merged.

        These are ``read``, the ordering fields of their sequence groups, the ordering fields of sequence groups that
        delete rows, and the columns of `sequence.field`.
        """
        removing = [name for group in self.groups if group.removes for name in group.ordering]
        needed = [name for column in read if column in self.group_of for name in self.group_of[column].ordering]
        needed += removing
        extra = dict.fromkeys([*needed, *self.key_spec.sequence_columns])
        return (*read, *(name for name in extra if name not in read))

    def fold(self, window: FoldInput) -> FoldOutput:
        """Return one merged row for each complete key, and the state of the key that may have further rows.

        Raises:
            RetractNotSupported: the engine does not support a retract.
            ArithmeticOverflow: a result leaves the range of its type.
            InvalidData: a NOT NULL column is null, or a column is missing; each error names table, column and key.
        """
        inputs = window.inputs
        flags = window.state.flags if window.accumulated and window.state is not None else {}
        if not len(inputs.rows):  # no row to fold: at most an accumulator that is complete now
            is_deleted = bool(flags) and (flags["deleted"] or not flags["met_insert"])
            return finish(
                ResultColumns(window, np.full(len(inputs), DELETE if is_deleted else INSERT, np.int8), dict(flags))
            )
        backs = (inputs.kinds & 1) == 1
        segment, deleted = self._segments(window, inputs, backs)
        if inputs.begun and not inputs.sizes[0]:
            deleted[0] = flags["deleted"]
        has_insert = last_place(inputs, ~backs) >= 0
        has_insert[0] |= flags.get("met_insert", False)
        result = ResultColumns(window, np.where(deleted | ~has_insert, DELETE, INSERT).astype(np.int8))
        seen: dict[str, bool] = {}
        if self.ignore_delete and backs.any() and window.rows.has(SEQUENCE_NUMBER):
            # the row does not get the sequence number of ignored deletes; a key of only these has 0, as in Java
            numbers = np.asarray(window.rows.integers(SEQUENCE_NUMBER, np.int64))
            last = last_place(inputs, ~backs)
            source = np.where(last >= 0, inputs.rows[last], inputs.before)
            result.compute(SEQUENCE_NUMBER, pa.array(np.where(source >= 0, numbers[source], 0), pa.int64()))
        self._ungrouped_fields(result, inputs, segment, ~backs)
        for group in self.groups:
            seen |= self._group_fields(result, inputs, segment, backs, group, flags.get("seen", {}))
        result.flags = {"deleted": bool(deleted[-1]), "met_insert": bool(has_insert[-1]), "seen": seen}
        return finish(result)

    def _segments(self, window: FoldInput, inputs: GroupRows, backs: Mask) -> tuple[Segment, Mask]:
        """Return the rows of each key that affect its result, and a mask of the keys whose last row deletes the row.

        ``backs``: mask of the rows of ``inputs`` that are retracts.
        """
        base, begin = inputs.before, inputs.offsets[:-1].copy()
        not_deleted = np.zeros(len(inputs), np.bool_)
        if not backs.any():
            return Segment(base, begin), not_deleted
        fresh = np.flatnonzero((base == NO_ROW) & (inputs.sizes > 0))
        fresh = fresh[backs[begin[fresh]]]
        base[fresh] = inputs.rows[begin[fresh]]
        if self.ignore_delete:
            return Segment(base, begin), not_deleted
        if self.groups:
            removing = [group for group in self.groups if group.removes]
            segment = Segment(base, begin)
            return apply_removals(removing, window, inputs, segment) if removing else (segment, not_deleted)
        if not self.remove_on_delete:
            key = key_of(window, inputs, int(inputs.group_of[int(np.argmax(backs))]), self.key_spec)
            raise RetractNotSupported(f"table {self.table}, key {key}: {REFUSAL}")
        last = last_place(inputs, inputs.kinds == DELETE)
        hit = last >= 0
        base[hit], begin[hit] = inputs.rows[last[hit]], last[hit] + 1
        return Segment(base, begin), hit & (begin == inputs.offsets[1:])

    def _ungrouped_fields(self, result: ResultColumns, inputs: GroupRows, segment: Segment, adds: Mask) -> None:
        """Set the fields outside sequence groups: the last non-null value of an add, else the key's initial value.

        ``adds``: mask of the rows of ``inputs`` that are no retracts.
        """
        window = result.window
        shown = adds & segment.counts(inputs)
        all_shown = bool(shown.all()) and not inputs.begun
        keys = self.key_spec.key_columns
        for name in window.rows.pieces[0].batch.schema.names:
            if name in _SYSTEM or name in self.group_of or name in keys or name.startswith(KEY_PREFIX):
                continue
            valid = window.valid(name)
            if valid is None and all_shown:
                continue  # the newest version has it
            if name in self.required and not self.groups:
                nulls = np.zeros(0, np.bool_) if valid is None else shown & ~valid[inputs.rows]
                if nulls.any():
                    key = key_of(window, inputs, int(inputs.group_of[int(np.argmax(nulls))]), self.key_spec)
                    raise InvalidData(self.table, name, f"null in a NOT NULL column, key {key}")
            newest = inputs.newest_with(valid) if all_shown and valid is not None else None
            if newest is not None:
                result.pick(name, newest)
                continue
            last = last_place(inputs, shown if valid is None else shown & valid[inputs.rows])
            result.pick(name, np.where(last >= 0, inputs.rows[last], segment.base))

    def _group_fields(
        self,
        result: ResultColumns,
        inputs: GroupRows,
        segment: Segment,
        backs: Mask,
        group: SequenceGroup,
        seen: Mapping[str, bool],
    ) -> dict[str, bool]:
        """Set the fields of a sequence group in the merged rows.

        Args:
            result: columns of the result.
            inputs: rows of the keys of this window (range of keys).
            segment: the part of each key's rows that affects the result.
            backs: mask of the rows that are retracts.
            group: the sequence group.
            seen: for each aggregated field, whether its function received an input of the first key in earlier windows.

        Returns:
            For each aggregated field, whether its function received an input of the last key, for the next window.

        Raises:
            InvalidData: the window lacks an ordering field of the group.
        """
        window = result.window
        present = set(window.rows.pieces[0].batch.schema.names)
        fields = [name for name in (*group.ordering, *group.protected) if name in present]
        if not fields:
            return {}
        missing = [name for name in group.ordering if name not in present]
        if missing:
            raise InvalidData(self.table, missing[0], f"is needed to merge column '{fields[0]}' of its sequence group")
        aggregated = [name for name in fields if name in self.functions]
        simple = not aggregated and not backs.any()
        last = newest_of_inserts(group, window, inputs) if simple else None
        is_accepted = is_skipped = np.zeros(0, np.bool_)
        if last is None:
            is_accepted, is_skipped = accept_rows(group, window, inputs, segment, backs if self.ignore_delete else None)
            last = last_place(inputs, is_accepted)
        rows = np.where(last >= 0, inputs.rows[last], segment.base)
        nulled = (last >= 0) & backs[last] if backs.any() else np.zeros(len(last), np.bool_)
        for name in fields:
            if name not in self.functions:
                result.pick(name, rows if name in group.ordering else np.where(nulled, NO_ROW, rows))
        if not aggregated:
            return {}
        ops = np.where(backs, RETRACT, np.where(is_accepted, AGG, LATE))
        ops = np.where(is_skipped, SKIP, ops).astype(np.int8)
        begun = {name: self._begun(window, inputs, segment, group, name, seen) for name in aggregated}
        return {name: self._aggregate(result, inputs, segment, ops, name, begun[name]) for name in aggregated}

    def _aggregate(
        self,
        result: ResultColumns,
        inputs: GroupRows,
        segment: Segment,
        ops: npt.NDArray[np.int8],
        name: str,
        begun: Mask,
    ) -> bool:
        window = result.window
        initial = self._initial(window, segment, name)
        try:
            values = window.take(name, inputs.rows)
            folded = self.functions[name].fold_ops(values, inputs.offsets, ops, Accumulators(initial, begun))
        except GroupError as error:
            raise named_error(error, self.table, name, window, inputs, self.key_spec) from error
        result.compute(name, folded.values, folded.alone)
        return bool(folded.seen[-1])

    @staticmethod
    def _initial(window: FoldInput, segment: Segment, name: str) -> pa.Array:
        no_row = segment.base == NO_ROW
        return pc.take(window.whole(name), pa.array(segment.base, mask=no_row), boundscheck=False)

    def _begun(
        self,
        window: FoldInput,
        inputs: GroupRows,
        segment: Segment,
        group: SequenceGroup,
        name: str,
        seen: Mapping[str, bool],
    ) -> Mask:
        """Return a mask of the keys whose function received an input before ``segment``.

        Inputs of earlier segments, which a -D ended, count only for functions that remember whether they received an
        input (`AggregateFunction.remembers`).

        Args:
            window: rows of the keys to merge.
            inputs: rows of the keys.
            segment: the part of each key's rows that affects the result.
            group: sequence group of the column.
            name: column whose aggregate function is meant.
            seen: for each column, whether its function has received an input of the open key in earlier windows (range
                of keys).
        """
        begun = np.zeros(len(inputs), np.bool_)
        begun[0] = inputs.begun and seen.get(name, False)
        function = self.functions[name]
        if not segment.past or not function.remembers:
            return begun
        backs = (inputs.kinds & 1) == 1
        values = window.take(name, inputs.rows)
        for before, after in pairwise((*segment.past, segment)):
            is_accepted, is_skipped = accept_rows(group, window, inputs, before)
            is_hidden = backs | is_skipped | (inputs.places >= (after.begin - 1)[inputs.group_of])
            ops = np.where(is_hidden, SKIP, np.where(is_accepted, AGG, LATE)).astype(np.int8)
            initial = Accumulators(self._initial(window, before, name), begun)
            begun = function.fold_ops(values, inputs.offsets, ops, initial).seen
        return begun


_SYSTEM: Final = frozenset({SEQUENCE_NUMBER, VALUE_KIND, LEVEL})
