"""Bounds of column values of manifests, buckets or files, and the test whether a filter can be true within them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array
from lsm_core.format.schema import TableSchema
from lsm_core.read.predicate import ALWAYS, Conjunct, Predicate, prefix_end
from lsm_core.types import to_arrow

Mask = np.ndarray[Any, Any]
_LONG_LIST: Final = 64
"""An `in` of more values than this is tested by its smallest and largest value only."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of one column; each item is a manifest, bucket or file.

    Attributes:
        lows: lower bound of all values that are not null; null if unknown.
        highs: upper bound of all values that are not null; null if unknown.
        nulls: whether some values may be null.
        only_nulls: whether all values are null.
    """

    lows: pa.Array
    highs: pa.Array
    nulls: Mask
    only_nulls: Mask

    @staticmethod
    def of(
        lows: pa.Array, highs: pa.Array, null_counts: Sequence[int | None] | Mask | None, rows: Mask | None = None
    ) -> Bounds:
        """Return the bounds that statistics give.

        A NaN bound is unknown: Java up to 1.3, and ORC, leave NaN out, where later writers make it the largest value.

        Args:
            lows: smallest values; null if unknown.
            highs: largest values; null if unknown.
            null_counts: nulls of each item; without a count the bounds are unknown. None if no item has nulls.
            rows: rows of each item; None if unknown.
        """
        count = len(lows)
        counts = np.zeros(count) if null_counts is None else np.array(null_counts, dtype=np.float64)
        if pa.types.is_floating(lows.type):
            lows, highs = (pc.if_else(pc.is_nan(side), arrow_scalar(None), side) for side in (lows, highs))
        is_known = numpy_array(pc.and_(pc.is_valid(lows), pc.is_valid(highs))) & ~np.isnan(counts)
        lows, highs = (
            side if is_known.all() else pc.if_else(arrow_array(is_known), side, arrow_scalar(None))
            for side in (lows, highs)
        )
        only = np.zeros(count, np.bool_) if rows is None else (counts >= rows) & (rows > 0)
        return Bounds(lows, highs, ~(counts == 0), only)

    @staticmethod
    def exactly(values: pa.Array) -> Bounds:
        """Return the bounds of items whose rows all have one value, or null."""
        missing = numpy_array(pc.is_null(values))
        return Bounds.of(values, values, missing.astype(np.float64), np.ones(len(values)))

    @staticmethod
    def absent(kind: pa.DataType, count: int) -> Bounds:
        """Return the bounds of items whose rows are all null."""
        nulls, all_true = pa.nulls(count, kind), np.ones(count, np.bool_)
        return Bounds(nulls, nulls, all_true, all_true)

    @staticmethod
    def unknown(kind: pa.DataType, count: int) -> Bounds:
        """Return the bounds of items about which nothing is known."""
        nulls = pa.nulls(count, kind)
        return Bounds(nulls, nulls, np.ones(count, np.bool_), np.zeros(count, np.bool_))

    def take(self, places: pa.Array) -> Bounds:
        """Return the items at ``places``."""
        at = numpy_array(places)
        return Bounds(self.lows.take(places), self.highs.take(places), self.nulls[at], self.only_nulls[at])

    @staticmethod
    def concat(parts: Sequence[Bounds]) -> Bounds:
        """Return the items of all ``parts``, one after the other."""
        lows, highs = (pa.concat_arrays([getattr(p, side) for p in parts]) for side in ("lows", "highs"))
        return Bounds(lows, highs, *(np.concatenate([getattr(p, m) for p in parts]) for m in ("nulls", "only_nulls")))

    def expressions(self, name: str) -> Iterator[pc.Expression]:
        """Yield for each item an expression that is true for all of its rows."""
        field, is_null = pc.field(name), pc.field(name).is_null()
        for low, high, null, only in zip(self.lows, self.highs, self.nulls, self.only_nulls, strict=True):
            if only:
                yield is_null
            elif not low.is_valid or not high.is_valid:
                yield ALWAYS
            else:
                between = (field >= low) & (field <= high)
                yield between | is_null if null else between

    def may_hold(self, test: Conjunct) -> Mask:
        """Return a mask of the items in which some row can pass ``test``."""
        if test.op == "is null":
            return self.nulls | self.only_nulls
        if test.op == "is not null":
            return ~self.only_nulls
        try:
            matches = self._by_value(test)
        except pa.ArrowException:  # values that do not compare with the bounds exclude nothing
            return ~self.only_nulls
        # Unknown bounds and NaN compare to null; an unknown comparison excludes nothing.
        return numpy_array(pc.fill_null(matches, arrow_scalar(value=True))) & ~self.only_nulls

    def _by_value(self, test: Conjunct) -> Any:
        nothing = arrow_scalar(value=False)
        if test.op in ("in", "not in"):
            return self._among(test)
        assert isinstance(test.value, pa.Scalar)
        if not test.value.is_valid:
            return arrow_array(np.zeros(len(self.lows), np.bool_))
        if test.op == "starts with":
            end = prefix_end(test.value.as_py())
            below = pc.less(self.lows, arrow_scalar(end)) if end is not None else pc.is_valid(self.lows)
            return pc.and_kleene(pc.greater_equal(self.highs, test.value), pc.or_kleene(below, pc.is_null(self.lows)))
        return _COMPARE[test.op](self.lows, self.highs, test.value) if test.op in _COMPARE else nothing

    def _among(self, test: Conjunct) -> Any:
        values = list(test.others) if test.value is None else test.value
        if test.op == "not in":
            if test.value is None:
                return pa.nulls(len(self.lows), pa.bool_())
            single = pc.equal(self.lows, self.highs)
            return pc.invert(pc.and_kleene(single, pc.is_in(self.lows, value_set=test.value)))
        if isinstance(values, pa.Array) and len(values) > _LONG_LIST:
            ends = pc.min_max(values)
            return pc.and_kleene(pc.less_equal(self.lows, ends["max"]), pc.greater_equal(self.highs, ends["min"]))
        matches = arrow_array(np.zeros(len(self.lows), np.bool_))
        for value in values:
            matches = pc.or_kleene(matches, _inside(self.lows, self.highs, value))
        return matches


def _inside(lows: pa.Array, highs: pa.Array, value: pa.Scalar) -> Any:
    return pc.and_kleene(pc.less_equal(lows, value), pc.greater_equal(highs, value))


_COMPARE: Final[dict[str, Callable[[pa.Array, pa.Array, pa.Scalar], Any]]] = {
    "=": _inside,
    "==": _inside,
    "!=": lambda lows, highs, v: pc.invert(pc.and_kleene(pc.equal(lows, v), pc.equal(highs, v))),
    "<>": lambda lows, highs, v: pc.invert(pc.and_kleene(pc.equal(lows, v), pc.equal(highs, v))),
    "<": lambda lows, _, v: pc.less(lows, v),
    "<=": lambda lows, _, v: pc.less_equal(lows, v),
    ">": lambda _, highs, v: pc.greater(highs, v),
    ">=": lambda _, highs, v: pc.greater_equal(highs, v),
}


_NAN_SAFE: Final = frozenset({"=", "==", "<", "<=", ">", ">=", "in", "is null", "is not null"})
"""Tests that are never true for NaN, so bounds without NaN are sufficient."""


def possible(schema: TableSchema, bounds: Mapping[str, Bounds], count: int, predicate: Predicate) -> Mask:
    """Return a mask of the ``count`` items for which the filter can be true.

    Tests of a filter of tuples are evaluated over all items at once. An Arrow expression is simplified under each
    item's guarantee, which costs far more.

    Args:
        schema: schema of the table.
        bounds: bounds of some columns, by name.
        count: number of items.
        predicate: the filter.
    """
    mask = np.zeros(count, dtype=bool)
    if predicate.groups is None:
        import pyarrow.dataset as ds  # slow to import, and most filters are tuples
        import pyarrow.fs as pafs

        file_format, nowhere = ds.ParquetFileFormat(), pafs.LocalFileSystem()
        guarantees = [bound.expressions(name) for name, bound in bounds.items()]
        fragments = [
            file_format.make_fragment(str(index), nowhere, partition_expression=guarantee)
            for index, guarantee in enumerate(conjoin(guarantees) if guarantees else [ALWAYS] * count)
        ]
        dataset = ds.FileSystemDataset(fragments, schema.arrow_schema, file_format, nowhere)
        mask[[int(fragment.path) for fragment in dataset.get_fragments(predicate.expression)]] = True
        return mask
    for group in predicate.groups:
        group_mask = np.ones(count, dtype=bool)
        for test in group:
            if test.column in bounds:
                group_mask &= bounds[test.column].may_hold(test)
        mask |= group_mask
    return mask


def conjoin(columns: Sequence[Iterable[pc.Expression]]) -> list[pc.Expression]:
    """Return for each item the conjunction of its expressions in all ``columns``."""
    total: list[pc.Expression] = []
    for parts in zip(*columns, strict=True):
        guarantee = ALWAYS
        for part in parts:
            if part is not ALWAYS:
                guarantee = part if guarantee is ALWAYS else guarantee & part
        total.append(guarantee)
    return total


def prunable(schema: TableSchema, predicate: Predicate, names: Iterable[str]) -> list[str]:
    """Return those of ``names`` that the filter uses in a way that bounds can decide."""
    wanted = set(names)

    def is_comparable(name: str) -> bool:
        """Return whether Arrow orders the column's type as Paimon does."""
        kind = to_arrow(schema.field(name).type)
        if pa.types.is_floating(kind):
            # Only if NaN fails every test, wherever NaN is in the order.
            tests = [test for group in predicate.groups or () for test in group if test.column == name]
            return predicate.groups is not None and all(test.op in _NAN_SAFE for test in tests)
        return not pa.types.is_nested(kind)

    return [name for name in predicate.columns if name in wanted and is_comparable(name)]
