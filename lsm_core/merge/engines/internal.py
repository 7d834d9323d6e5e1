"""Merges that no table asks for: every version in order, for passes and write buffers, and the keys on which two answers differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lsm_core.arrays import arrow_array
from lsm_core.format.kv_layout import KEY_PREFIX, LEVEL, SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.merge.engines.fold import FoldInput, FoldOutput, OpenState
from lsm_core.merge.rows import Piece, emit
from lsm_core.merge.sort_key import KeySpec

_NOT_VALUES = frozenset({SEQUENCE_NUMBER, VALUE_KIND, LEVEL})


@dataclass(frozen=True)
class AllVersions:
    """Passes every row on. Folding some runs of a key first can change what engines that build rows make of it."""

    name: ClassVar[str] = "all-versions"
    key_spec: KeySpec

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """The columns read, and the user's sequence fields, which decide the order."""
        return (*read, *(column for column in self.key_spec.sequence_columns if column not in read))

    def fold(self, window: FoldInput) -> FoldOutput:
        """All rows in merge order; no key stays open, as windows give the versions of a key in order."""
        return FoldOutput(emit(window.rows, window.groups.order), None)


@dataclass(frozen=True)
class Differences:
    """Merges two inputs without repeated keys; a key comes out, once, if their rows differ in a value column.

    Sequence numbers and kinds are no values; null equals null and NaN equals NaN.
    """

    name: ClassVar[str] = "differences"
    key_spec: KeySpec

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Just the columns read."""
        return tuple(read)

    def fold(self, window: FoldInput) -> FoldOutput:
        """The newest row of every key that differs. A key that may go on is kept as it is."""
        from lsm_core.merge.functions.elements import codes  # reads and compactions, who import this, need none of it

        groups, rows = window.groups, window.rows
        pairs = np.flatnonzero(groups.ends - groups.starts == 2)
        differs = np.ones(len(groups), np.bool_)
        older, newer = groups.order[groups.starts[pairs]], groups.newest[pairs]
        same = np.ones(len(pairs), np.bool_)
        for name in rows.pieces[0].batch.schema.names:
            if name in _NOT_VALUES or name.startswith(KEY_PREFIX):
                continue
            code = codes(window.taken(name, np.concatenate((older, newer))))
            same &= code[: len(pairs)] == code[len(pairs) :]
        differs[pairs] = ~same
        state = None
        # one row so far: the other answer's may follow; two rows: all there will be
        if window.open_end and int(groups.ends[-1] - groups.starts[-1]) == 1:
            differs[-1] = False
            row = int(groups.newest[-1])
            place = rows.piece_at(row)
            at = row - int(rows.offsets[int(rows.piece_of(np.array([row], np.int64))[0])])
            batch = place.batch.slice(at, 1).take(arrow_array(np.zeros(1, np.int64)))
            state = OpenState(Piece(batch, self.key_spec.keys(batch), place.level, place.age), 1)
        return FoldOutput(emit(rows, groups.newest[differs]), state)


__all__ = ["AllVersions", "Differences"]
