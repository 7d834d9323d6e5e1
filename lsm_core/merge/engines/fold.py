"""Common parts of merge engines that build rows: they merge the versions of each key to one row.

Only keys with two or more versions are computed. All other keys, and columns whose result is one of the inputs, are
kept as row numbers and taken once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array, offsets_from, slice_places, valid_mask, values_of
from lsm_core.format.schema import VALUE_KIND
from lsm_core.merge.keys import Ints, Mask
from lsm_core.merge.rows import OUTPUT_ROWS, Groups, Piece, Rows

NO_ROW: Final = -1
INSERT: Final = 0
DELETE: Final = 3
_MOST_LAYERS: Final = 64
"""Largest number of versions of a key for which all keys are folded together, one version at a time."""


@dataclass(frozen=True, eq=False)
class OpenState:
    """Result so far of a key that may have further rows in the next window (range of keys).

    Attributes:
        piece: one row: the only version so far, or the accumulators of several versions.
        versions: number of versions so far.
        flags: additional state of the merge engine for this key.
    """

    piece: Piece
    versions: int
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FoldInput:
    """Rows of a window (a range of keys) to fold to one row per key.

    Attributes:
        rows: all rows of the window. If there is a ``state``, its row is row 0 and the first row of the first group.
        groups: the rows of each key in merge order; group g has the rows of the g-th key.
        kinds: row kinds; None if all rows are +I.
        state: result so far of the previous window's last key, if that key may have further rows here; None for none.
        open_end: whether the last group may have further rows in the next window.
        bypass: whether a key with one version returns that version unchanged, as in Java's readers. Java's lookups call
            the merge engine for such keys too.
    """

    rows: Rows
    groups: Groups
    kinds: npt.NDArray[np.int64] | None
    state: OpenState | None = None
    open_end: bool = False
    bypass: bool = True

    _kept: list[tuple[str, pa.Array, Mask | None]] = field(default_factory=list)

    def whole(self, name: str) -> pa.Array:
        """Return column ``name`` of all rows as one array.

        Only the last returned column is cached, so that copies of two columns never exist at a time.
        """
        return self._column(name)[1]

    def _column(self, name: str) -> tuple[str, pa.Array, Mask | None]:
        if not self._kept or self._kept[0][0] != name:
            self._kept.clear()
            parts = [piece.batch.column(name) for piece in self.rows.pieces]
            whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
            self._kept.append((name, whole, valid_mask(whole)))
        return self._kept[0]

    def take(self, name: str, chosen: Ints) -> pa.Array:
        """Return the values of column ``name`` in the rows numbered ``chosen``."""
        return pc.take(self.whole(name), arrow_array(chosen), boundscheck=False)

    def take_fast(self, name: str, rows: Ints, some_null: bool = False) -> pa.Array:
        """Return the values of column ``name`` in the given rows; much faster than :meth:`take` for numbers.

        Args:
            name: name of the column.
            rows: row numbers.
            some_null: whether ``rows`` may contain NO_ROW, which gives null.
        """
        _, whole, valid = self._column(name)
        kind = whole.type
        fixed = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
        if not fixed or pa.types.is_interval(kind) or not len(whole):
            return _take(whole, rows, some_null)
        values = values_of(whole, np.dtype(f"i{kind.bit_width // 8}"))[rows]
        present = None if valid is None else valid[rows]
        if some_null:
            present = rows >= 0 if present is None else present & (rows >= 0)
        bits = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(kind, len(rows), [bits, pa.py_buffer(values)])

    def valid(self, name: str) -> Mask | None:
        """Return a mask of the rows that are not null in a column.

        Args:
            name: name of the column.

        Returns:
            Mask of the rows, or None if no row is null.
        """
        return self._column(name)[2]

    @property
    def accumulated(self) -> bool:
        """Whether row 0 is an accumulator (the result of several earlier versions), not a version."""
        return self.state is not None and self.state.versions > 1

    @cached_property
    def multiple(self) -> Mask:
        """Mask of the groups to merge: groups of two or more versions, or all groups if ``bypass`` is False."""
        if not self.bypass:
            return np.ones(len(self.groups), np.bool_)
        several = self.groups.ends - self.groups.starts > 1
        if self.accumulated:
            several[0] = True
        return np.asarray(several, np.bool_)

    @cached_property
    def inputs(self) -> GroupRows:
        """The rows of the groups in :attr:`multiple`; an accumulator is not included."""
        groups = np.flatnonzero(self.multiple)
        starts, ends = self.groups.starts[groups].copy(), self.groups.ends[groups]
        if self.accumulated:
            starts[0] += 1
        sizes = ends - starts
        offsets, rows = offsets_from(sizes), self.groups.order[slice_places(starts, sizes)]
        kinds = np.zeros(len(rows), np.int64) if self.kinds is None else self.kinds[rows]
        return GroupRows(groups, rows, offsets, kinds, self.accumulated)


@dataclass(frozen=True, eq=False)
class GroupRows:
    """Rows of some groups of a `FoldInput`; a group has the rows of one key.

    Attributes:
        groups: numbers of the groups.
        rows: row numbers; group ``groups[i]`` has ``rows[offsets[i]:offsets[i + 1]]``.
        offsets: position in ``rows`` of each group's first row, and the end of the last group.
        kinds: row kind of each row.
        begun: whether the first group continues from row 0 of the `FoldInput`, an accumulator.
    """

    groups: Ints
    rows: Ints
    offsets: Ints
    kinds: npt.NDArray[np.int64]
    begun: bool

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def sizes(self) -> Ints:
        """Number of rows of each group."""
        return np.diff(self.offsets)

    @cached_property
    def places(self) -> Ints:
        """The numbers 0, 1, ..., one per row: the position of each row in ``rows``."""
        return np.arange(len(self.rows))

    @cached_property
    def full(self) -> bool:
        """Whether every group of the window has at least one of these rows."""
        return bool(self.sizes.all())

    @cached_property
    def group_of(self) -> Ints:
        """For each row, the position of its group in ``groups``."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def layers(self) -> Layers | None:
        """The first rows of all groups (or the accumulator), the second rows, and so on.

        None if a group has no row or more than 64 rows.
        """
        sizes = self.sizes.copy()
        sizes[: int(self.begun)] += 1
        if not len(sizes) or not sizes.all() or int(sizes.max()) > _MOST_LAYERS:
            return None
        largest_first = np.argsort(-sizes.astype(np.int16), kind="stable")
        ordered = sizes[largest_first]
        first = self.offsets[:-1][largest_first]
        first[largest_first == 0] -= int(self.begun)
        layers = []
        for place in range(int(ordered[0])):
            count = int(np.searchsorted(-ordered, -place, side="left"))
            places = first[:count] + place
            rows = self.rows[places]
            if self.begun and place == 0:
                rows[places < 0] = 0
            layers.append(rows)
        return Layers(largest_first, tuple(layers))

    @cached_property
    def _from_newest(self) -> Layers | None:
        """The last rows of all groups, the second last rows, and so on; None if a group has more than 64 rows."""
        if not len(self) or int(self.sizes.max()) > _MOST_LAYERS:
            return None
        largest_first = np.argsort(-self.sizes.astype(np.int16), kind="stable")
        ordered, last = self.sizes[largest_first], self.offsets[1:][largest_first] - 1
        counts = [int(np.searchsorted(-ordered, -place, side="left")) for place in range(int(ordered[0]))]
        return Layers(largest_first, tuple(self.rows[last[:count] - place] for place, count in enumerate(counts)))

    def newest_with(self, valid: Mask) -> Ints | None:
        """Return the newest ``valid`` row of each group; undefined (any row or NO_ROW) for a group without valid rows.

        Returns:
            The rows, or None if a group has more than 64 rows.
        """
        layers = self._from_newest
        if layers is None:
            return None
        rows_by_group = np.full(len(self), NO_ROW, np.int64)
        undecided = np.arange(len(self))
        for rows in layers.rows:
            undecided = undecided[: int(np.searchsorted(undecided, len(rows)))]
            candidates = rows if len(undecided) == len(rows) else rows[undecided]
            missing = ~valid[candidates]
            rows_by_group[undecided] = candidates  # a later round replaces rows without a value
            undecided = undecided[missing]
            if not len(undecided):
                break
        result = np.empty(len(self), np.int64)
        result[layers.groups] = rows_by_group
        return result

    @property
    def before(self) -> Ints:
        """Number of the row from which each group continues: 0 if the group has an accumulator, else NO_ROW."""
        rows = np.full(len(self), NO_ROW, np.int64)
        rows[: int(self.begun)] = 0
        return rows


@dataclass(frozen=True, eq=False)
class Layers:
    """Rows of groups by position within the group.

    Attributes:
        groups: the groups, largest first.
        rows: ``rows[k]`` are the k-th rows of all groups that have more than k rows.
    """

    groups: Ints
    rows: tuple[Ints, ...]


@dataclass(eq=False)
class ResultColumns:
    """Merged row of every group (the rows of one key) of a window (range of keys), built column by column.

    Columns that are neither picked nor computed are those of the newest version.

    Attributes:
        window: rows of the keys to merge.
        kinds: row kind of each group with several versions.
        flags: values that the open key needs besides its accumulators.
        alone: mask of the groups that some function computed one by one; None for none.
    """

    window: FoldInput
    kinds: npt.NDArray[np.int8]
    flags: dict[str, Any] = field(default_factory=dict)
    alone: Mask | None = None
    _columns: dict[str, pa.Array] = field(default_factory=dict)

    def pick(self, name: str, rows: Ints) -> None:
        """Set column ``name`` to values of chosen rows of the window (range of keys).

        Args:
            name: name of the column.
            rows: for each group with several versions the row that supplies its value; NO_ROW for null.
        """
        index = self.window.groups.newest.copy()
        index[self.window.inputs.groups] = rows
        self._columns[name] = self.window.take_fast(name, index, bool((rows < 0).any()))

    def compute(self, name: str, values: pa.Array, alone: Mask | None = None) -> None:
        """Set column ``name`` to computed values.

        Args:
            name: name of the column.
            values: one value for each group with several versions.
            alone: mask of the groups whose values were computed one by one; None for none.
        """
        if alone is not None:
            self.alone = alone if self.alone is None else self.alone | alone
        whole, window = self.window.whole(name), self.window
        if _plain(whole) and _plain(values):
            result = values_of(whole, whole.type.to_pandas_dtype())[window.groups.newest]
            result[window.inputs.groups] = numpy_array(values)
            self._columns[name] = arrow_array(result, whole.type)
            return
        index = window.groups.newest.copy()
        index[window.inputs.groups] = np.arange(len(whole), len(whole) + len(values))
        self._columns[name] = _take(pa.concat_arrays([whole, values]), index)

    def fold_plain(
        self, name: str, fold: Callable[[npt.NDArray[Any], Sequence[Ints]], npt.NDArray[Any] | None]
    ) -> bool:
        """Set a column of numbers without nulls to the results of ``fold``.

        Args:
            name: name of the column.
            fold: called with the column's values of all rows, and `Layers.rows`: the row numbers by position in their
                group. It returns one value for each group of `Layers.groups`, or None if it cannot fold the values.

        Returns:
            True if the column was set. False if it has nulls or is no column of numbers, if a group has no row or more
            than 64 rows, or if ``fold`` returned None.
        """
        layers, whole = self.window.inputs.layers, self.window.whole(name)
        if layers is None or not _plain(whole):
            return False
        numbers = values_of(whole, whole.type.to_pandas_dtype())
        folded = fold(numbers, layers.rows)
        if folded is None:
            return False
        result = numbers[self.window.groups.newest]
        result[self.window.inputs.groups[layers.groups]] = folded
        self._columns[name] = arrow_array(result, whole.type)
        return True

    def column(self, name: str) -> pa.Array:
        """Return the finished column; a picked or computed column can be returned only once, to free its memory."""
        if name in self._columns:
            return self._columns.pop(name)
        newest = self.window.take_fast(name, self.window.groups.newest)
        if name != VALUE_KIND:
            return newest
        kinds = numpy_array(newest).copy()
        kinds[self.window.inputs.groups] = self.kinds
        return arrow_array(kinds, newest.type)


@dataclass(frozen=True, eq=False)
class FoldOutput:
    """Merged rows of the complete keys of a window (key range), and the state of an incomplete last key.

    Attributes:
        batches: the merged rows, in key order.
        state: result so far of the last key, if it may have further rows in the next window; None for none.
        folded: number of keys whose versions were combined; keys with a single version usually are not counted.
        alone: number of keys that a function computed one key at a time, instead of all keys at once.
    """

    batches: list[pa.RecordBatch]
    state: OpenState | None
    folded: int = 0
    alone: int = 0


def finish(result: ResultColumns) -> FoldOutput:
    """Return the merged rows of a window (range of keys), and the state of its last key, from the computed columns.

    Args:
        result: columns of all groups.

    Returns:
        The merged rows of complete keys as batches of at most 131,072 rows, and the state of a last key that may have
        further rows.
    """
    window = result.window
    schema = window.rows.pieces[0].batch.schema
    batch = pa.RecordBatch.from_arrays([result.column(name) for name in schema.names], schema=schema)
    closed = len(window.groups) - window.open_end
    batches = [batch.slice(at, min(OUTPUT_ROWS, closed - at)) for at in range(0, closed, OUTPUT_ROWS)]
    state = _open_state(result, batch.slice(closed, 1)) if window.open_end else None
    folded = int((window.inputs.sizes > 0).sum())
    return FoldOutput(batches, state, folded, 0 if result.alone is None else int(result.alone.sum()))


def _plain(values: pa.Array) -> bool:
    """Return whether values are integers, floats or doubles without nulls, which NumPy reads without a copy."""
    kind = values.type
    return not values.null_count and (
        pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    )


def _take(whole: pa.Array, index: Ints, some_null: bool = False) -> pa.Array:
    return pc.take(whole, arrow_array(index, mask=index < 0 if some_null else None), boundscheck=False)


def _open_state(result: ResultColumns, row: pa.RecordBatch) -> OpenState:
    window = result.window
    newest = int(window.groups.newest[-1])
    place = window.rows.piece_at(newest)
    versions = len(window.groups.order) - int(window.groups.starts[-1])
    if len(window.groups) == 1 and window.state is not None:
        versions += window.state.versions - 1
    # copied: a slice would keep its whole window in memory
    copies = [pa.concat_arrays([column.take(arrow_array([0]))]) for column in row.columns]
    own = pa.RecordBatch.from_arrays(copies, schema=row.schema)
    offset = int(window.rows.offsets[int(window.rows.piece_of(np.array([newest], np.int64))[0])])
    keys = place.keys.slice(newest - offset, newest - offset + 1)
    piece = Piece(own, keys, place.level, place.age, float(own.nbytes))
    return OpenState(piece, versions, result.flags if versions > 1 else {})
