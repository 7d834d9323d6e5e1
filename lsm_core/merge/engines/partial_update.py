"""Merge engine partial-update: later versions fill in or replace single fields (Java `PartialUpdateMergeFunction`)."""

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
from lsm_core.format.kv_layout import KEY_PREFIX, LEVEL, SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.merge.comparable import Mask
from lsm_core.merge.engines.errors import key_of, named_error
from lsm_core.merge.engines.fold import (
    DELETE,
    INSERT,
    NO_ROW,
    Answer,
    FoldInput,
    FoldOutput,
    GroupRows,
    finish,
)
from lsm_core.merge.engines.sequence_group import (
    Segment,
    SequenceGroup,
    accepted,
    last_place,
    newest_of_inserts,
    removed,
)
from lsm_core.merge.functions import AGG, LATE, RETRACT, SKIP, Accumulators, AggregateFunction, GroupError
from lsm_core.merge.sort_key import KeySpec

REFUSAL: Final = (
    "partial-update does not take -U or -D; "
    "allow it with 'ignore-delete', 'partial-update.remove-record-on-delete' or a sequence group"
)


@dataclass(frozen=True)
class PartialUpdate:
    """Fields outside sequence groups keep their last value that is not null; groups see :mod:`sequence_group`.

    ``functions``: aggregates of protected fields. ``ignore_delete``, ``remove_on_delete``: what -U and -D do where there are
    no groups; otherwise they are refused. A retract that is the first version of a key starts the row with its values.
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
        """The group of each ordering or protected field."""
        return {name: group for group in self.groups for name in (*group.ordering, *group.protected)}

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """The columns read, the ordering fields of their groups and of those that delete rows, the user's sequence fields."""
        removing = [name for group in self.groups if group.removes for name in group.ordering]
        needed = [name for column in read if column in self.group_of for name in self.group_of[column].ordering]
        needed += removing
        extra = dict.fromkeys([*needed, *self.key_spec.sequence_columns])
        return (*read, *(name for name in extra if name not in read))

    def fold(self, window: FoldInput) -> FoldOutput:
        """One row a key. Raises RetractNotSupported, ArithmeticOverflow, InvalidData naming table, column and key."""
        inputs = window.inputs
        flags = window.state.flags if window.accumulated and window.state is not None else {}
        if not len(inputs.rows):  # nothing to fold: at most an accumulator that is complete now
            gone = bool(flags) and (flags["deleted"] or not flags["met_insert"])
            return finish(Answer(window, np.full(len(inputs), DELETE if gone else INSERT, np.int8), dict(flags)))
        backs = (inputs.kinds & 1) == 1
        segment, deleted = self._segments(window, inputs, backs)
        if inputs.begun and not inputs.sizes[0]:
            deleted[0] = flags["deleted"]
        met = last_place(inputs, ~backs) >= 0
        met[0] |= flags.get("met_insert", False)
        answer = Answer(window, np.where(deleted | ~met, DELETE, INSERT).astype(np.int8))
        seen: dict[str, bool] = {}
        if self.ignore_delete and backs.any() and window.rows.has(SEQUENCE_NUMBER):
            # ignored deletes do not lend the row their sequence number; a key of nothing else has 0, as in Java
            numbers = np.asarray(window.rows.integers(SEQUENCE_NUMBER, np.int64))
            last = last_place(inputs, ~backs)
            source = np.where(last >= 0, inputs.rows[last], inputs.before)
            answer.compute(SEQUENCE_NUMBER, pa.array(np.where(source >= 0, numbers[source], 0), pa.int64()))
        self._loose(answer, inputs, segment, ~backs)
        for group in self.groups:
            seen |= self._group(answer, inputs, segment, backs, group, flags.get("seen", {}))
        answer.flags = {"deleted": bool(deleted[-1]), "met_insert": bool(met[-1]), "seen": seen}
        return finish(answer)

    def _segments(self, window: FoldInput, inputs: GroupRows, backs: Mask) -> tuple[Segment, Mask]:
        """From which row and place on each key counts, and whether its last row deleted it."""
        base, begin = inputs.before, inputs.offsets[:-1].copy()
        none = np.zeros(len(inputs), np.bool_)
        if not backs.any():
            return Segment(base, begin), none
        fresh = np.flatnonzero((base == NO_ROW) & (inputs.sizes > 0))
        fresh = fresh[backs[begin[fresh]]]
        base[fresh] = inputs.rows[begin[fresh]]
        if self.ignore_delete:
            return Segment(base, begin), none
        if self.groups:
            removing = [group for group in self.groups if group.removes]
            segment = Segment(base, begin)
            return removed(removing, window, inputs, segment) if removing else (segment, none)
        if not self.remove_on_delete:
            key = key_of(window, inputs, int(inputs.group_of[int(np.argmax(backs))]), self.key_spec)
            raise RetractNotSupported(f"table {self.table}, key {key}: {REFUSAL}")
        last = last_place(inputs, inputs.kinds == DELETE)
        hit = last >= 0
        base[hit], begin[hit] = inputs.rows[last[hit]], last[hit] + 1
        return Segment(base, begin), hit & (begin == inputs.offsets[1:])

    def _loose(self, answer: Answer, inputs: GroupRows, segment: Segment, adds: Mask) -> None:
        """Fields outside all groups: the last add that is not null, else what the key began with."""
        window = answer.window
        shown = adds & segment.counts(inputs)
        everything = bool(shown.all()) and not inputs.begun
        keys = self.key_spec.key_columns
        for name in window.rows.pieces[0].batch.schema.names:
            if name in _SYSTEM or name in self.group_of or name in keys or name.startswith(KEY_PREFIX):
                continue
            valid = window.valid(name)
            if valid is None and everything:
                continue  # the newest version has it
            if name in self.required and not self.groups:
                nulls = np.zeros(0, np.bool_) if valid is None else shown & ~valid[inputs.rows]
                if nulls.any():
                    key = key_of(window, inputs, int(inputs.group_of[int(np.argmax(nulls))]), self.key_spec)
                    raise InvalidData(self.table, name, f"null in a NOT NULL column, key {key}")
            newest = inputs.newest_with(valid) if everything and valid is not None else None
            if newest is not None:
                answer.pick(name, newest)
                continue
            last = last_place(inputs, shown if valid is None else shown & valid[inputs.rows])
            answer.pick(name, np.where(last >= 0, inputs.rows[last], segment.base))

    def _group(
        self,
        answer: Answer,
        inputs: GroupRows,
        segment: Segment,
        backs: Mask,
        group: SequenceGroup,
        seen: Mapping[str, bool],
    ) -> dict[str, bool]:
        """The fields of one group; returns whether the functions of the last key were given something."""
        window = answer.window
        here = set(window.rows.pieces[0].batch.schema.names)
        fields = [name for name in (*group.ordering, *group.protected) if name in here]
        if not fields:
            return {}
        missing = [name for name in group.ordering if name not in here]
        if missing:
            raise InvalidData(self.table, missing[0], f"is needed to merge column '{fields[0]}' of its sequence group")
        aggregated = [name for name in fields if name in self.functions]
        simple = not aggregated and not backs.any()
        last = newest_of_inserts(group, window, inputs) if simple else None
        took = passed = np.zeros(0, np.bool_)
        if last is None:
            took, passed = accepted(group, window, inputs, segment, backs if self.ignore_delete else None)
            last = last_place(inputs, took)
        rows = np.where(last >= 0, inputs.rows[last], segment.base)
        nulled = (last >= 0) & backs[last] if backs.any() else np.zeros(len(last), np.bool_)
        for name in fields:
            if name not in self.functions:
                answer.pick(name, rows if name in group.ordering else np.where(nulled, NO_ROW, rows))
        if not aggregated:
            return {}
        ops = np.where(backs, RETRACT, np.where(took, AGG, LATE))
        ops = np.where(passed, SKIP, ops).astype(np.int8)
        begun = {name: self._begun(window, inputs, segment, group, name, seen) for name in aggregated}
        return {name: self._aggregate(answer, inputs, segment, ops, name, begun[name]) for name in aggregated}

    def _aggregate(
        self,
        answer: Answer,
        inputs: GroupRows,
        segment: Segment,
        ops: npt.NDArray[np.int8],
        name: str,
        begun: Mask,
    ) -> bool:
        window = answer.window
        initial = self._initial(window, segment, name)
        try:
            values = window.taken(name, inputs.rows)
            folded = self.functions[name].fold_ops(values, inputs.offsets, ops, Accumulators(initial, begun))
        except GroupError as error:
            raise named_error(error, self.table, name, window, inputs, self.key_spec) from error
        answer.compute(name, folded.values, folded.alone)
        return bool(folded.seen[-1])

    @staticmethod
    def _initial(window: FoldInput, segment: Segment, name: str) -> pa.Array:
        nothing = segment.base == NO_ROW
        return pc.take(window.whole(name), pa.array(segment.base, mask=nothing), boundscheck=False)

    def _begun(
        self,
        window: FoldInput,
        inputs: GroupRows,
        segment: Segment,
        group: SequenceGroup,
        name: str,
        seen: Mapping[str, bool],
    ) -> Mask:
        """Whether a function was given something before: it remembers that across rows that deleted everything."""
        begun = np.zeros(len(inputs), np.bool_)
        begun[0] = inputs.begun and seen.get(name, False)
        function = self.functions[name]
        if not segment.past or not function.remembers:
            return begun
        backs = (inputs.kinds & 1) == 1
        values = window.taken(name, inputs.rows)
        for before, after in pairwise((*segment.past, segment)):
            took, passed = accepted(group, window, inputs, before)
            gone = backs | passed | (inputs.places >= (after.begin - 1)[inputs.group_of])
            ops = np.where(gone, SKIP, np.where(took, AGG, LATE)).astype(np.int8)
            given = Accumulators(self._initial(window, before, name), begun)
            begun = function.fold_ops(values, inputs.offsets, ops, given).seen
        return begun


_SYSTEM: Final = frozenset({SEQUENCE_NUMBER, VALUE_KIND, LEVEL})
