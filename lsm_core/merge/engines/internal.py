"""Internal merge engines, which no table can select by its option `merge-engine`.

`AllVersions` returns all versions in merge order, for intermediate merges and write buffers. `Differences` returns the
keys in which two inputs differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lsm_core.arrays import arrow_array
from lsm_core.format.schema import KEY_PREFIX, LEVEL, SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.merge.engines.fold import FoldInput, FoldOutput, OpenState
from lsm_core.merge.keys import KeySpec
from lsm_core.merge.rows import Piece, emit

_NOT_VALUES = frozenset({SEQUENCE_NUMBER, VALUE_KIND, LEVEL})


@dataclass(frozen=True)
class AllVersions:
    """Merge engine that returns every row, in merge order.

    Intermediate merges of some of the sorted runs use this engine. A merge engine that builds rows could give a
    different result if some versions of a key were merged before all versions are known.

    Attributes:
        name: name of the engine.
        key_spec: columns that order the rows.
    """

    name: ClassVar[str] = "all-versions"
    key_spec: KeySpec

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Return the columns to read so that ``read`` can be merged: ``read``, and sequence fields for the order."""
        return (*read, *(column for column in self.key_spec.sequence_columns if column not in read))

    def fold(self, window: FoldInput) -> FoldOutput:
        """Return all rows of the window (range of keys) in merge order; no row is carried over into the next window."""
        return FoldOutput(emit(window.rows, window.groups.order), None)


@dataclass(frozen=True)
class Differences:
    """Merge engine for two inputs without repeated keys.

    It returns each key once if its rows differ in a value column.

    Sequence numbers and kinds are no values; null equals null and NaN equals NaN.

    Attributes:
        name: name of the engine.
        key_spec: columns that order the rows.
    """

    name: ClassVar[str] = "differences"
    key_spec: KeySpec

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """Return the columns ``read`` unchanged: no further column is needed to compare rows."""
        return tuple(read)

    def fold(self, window: FoldInput) -> FoldOutput:
        """Return the newest row of every key that differs, and the state of a last key that may have a further row."""
        from lsm_core.merge.functions.elements import codes  # imported here: reads and compactions do not need it

        groups, rows = window.groups, window.rows
        pairs = np.flatnonzero(groups.ends - groups.starts == 2)
        differs = np.ones(len(groups), np.bool_)
        older, newer = groups.order[groups.starts[pairs]], groups.newest[pairs]
        same = np.ones(len(pairs), np.bool_)
        for name in rows.pieces[0].batch.schema.names:
            if name in _NOT_VALUES or name.startswith(KEY_PREFIX):
                continue
            code = codes(window.take(name, np.concatenate((older, newer))))
            same &= code[: len(pairs)] == code[len(pairs) :]
        differs[pairs] = ~same
        state = None
        # after one row the other input's row may follow; after two rows the key is complete
        if window.open_end and int(groups.ends[-1] - groups.starts[-1]) == 1:
            differs[-1] = False
            row = int(groups.newest[-1])
            place = rows.piece_at(row)
            at = row - int(rows.offsets[int(rows.piece_of(np.array([row], np.int64))[0])])
            batch = place.batch.slice(at, 1).take(arrow_array(np.zeros(1, np.int64)))
            state = OpenState(Piece(batch, self.key_spec.keys(batch), place.level, place.age), 1)
        return FoldOutput(emit(rows, groups.newest[differs]), state)
