"""Comparison of the rows merged by the kernels with the rows merged by the reference.

Both must be equal, except for what the specification leaves open: the order of sets (collect with `distinct`, nested
tables with a key), the bytes of equal bitmaps and sketches, and the last bits of sums and products of floats, which
depend on the order of adding.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from datasketches import compact_theta_sketch, hll_sketch
from pyroaring import BitMap

from lsm_core.format.schema import DataField, TableSchema
from lsm_core.maintenance.reference.functions.binary import numbers64
from lsm_core.maintenance.reference.versions import Row, same
from lsm_core.types import TypeRoot

_EPSILON: Final = {TypeRoot.FLOAT: 2.0**-23, TypeRoot.DOUBLE: sys.float_info.epsilon}
Form = Callable[[Any], Any]


def aggregate_function(field: DataField, options: Mapping[str, str]) -> str:
    """Return the name of a column's aggregate function in the table's options, or "".

    Args:
        field: the column.
        options: options of the table.
    """
    own = options.get(f"fields.{field.name}.aggregate-function")
    return own or options.get("fields.default-aggregate-function") or ""


def is_set(field: DataField, options: Mapping[str, str]) -> bool:
    """Return whether the order of the elements of a column's arrays has no meaning.

    Args:
        field: the column.
        options: options of the table.
    """
    collects = aggregate_function(field, options) == "collect"
    is_distinct = options.get(f"fields.{field.name}.distinct", "false").lower() == "true"
    return bool((collects and is_distinct) or options.get(f"fields.{field.name}.nested-key"))


class ResultComparison:
    """Comparison of merge results of one table."""

    def __init__(self, schema: TableSchema, options: Mapping[str, str]) -> None:
        self._forms: list[Form] = []
        self._roundings: dict[int, float] = {}
        for i, field in enumerate(schema.fields):
            name = aggregate_function(field, options)
            self._forms.append(_form(field, name, options))
            if name in {"sum", "product"} and field.type.root in _EPSILON:
                self._roundings[i] = _EPSILON[field.type.root]

    def same(self, expected: Row, actual: Row, inputs: Sequence[Row] = ()) -> bool:
        """Return whether two merged rows are equal.

        Args:
            expected: row of the reference.
            actual: row to compare with it.
            inputs: versions that were merged. If given, float sums and products may differ in their last bits.
        """
        if (expected.sequence, expected.kind) != (actual.sequence, actual.kind):
            return False
        pairs = zip(expected.values, actual.values, strict=True)
        return all(self._same_value(i, mine, theirs, inputs) for i, (mine, theirs) in enumerate(pairs))

    def differing(
        self, places: Sequence[int], expected: Sequence[Any], actual: Sequence[Any], inputs: Sequence[Row] = ()
    ) -> list[int]:
        """Return the indexes of the columns in which two rows differ.

        Args:
            places: index, among the table's columns, of each compared column.
            expected: values of the compared columns in the reference's row.
            actual: values of the compared columns in the kernel's row.
            inputs: versions that were merged. If given, float sums and products may differ in their last bits.
        """
        pairs = zip(places, expected, actual, strict=True)
        return [i for i, mine, theirs in pairs if not self._same_value(i, mine, theirs, inputs)]

    def _same_value(self, i: int, mine: Any, theirs: Any, inputs: Sequence[Row]) -> bool:
        if mine is None or theirs is None:
            return mine is theirs
        if self._forms[i](mine) == self._forms[i](theirs):
            return True
        if i not in self._roundings or not math.isfinite(mine) or not math.isfinite(theirs):
            return False
        share = len(inputs) * self._roundings[i]
        weight = sum(abs(row.values[i]) for row in inputs if row.values[i] is not None)
        return bool(abs(mine - theirs) <= share * max(weight, abs(mine)))


def _form(field: DataField, function: str, options: Mapping[str, str]) -> Form:
    """Return a function that converts a value of a column to a form for comparison.

    Two values count as equal if their forms are equal. For example, a bitmap becomes the tuple of its numbers.
    """
    if function == "rbm32":
        return lambda data: tuple(BitMap.deserialize(data))
    if function == "rbm64":
        return numbers64
    if function == "theta_sketch":
        return lambda data: tuple(sorted(compact_theta_sketch.deserialize(data)))
    if function == "hll_sketch":
        return lambda data: round(float(hll_sketch.deserialize(data).get_estimate()), 3)
    if is_set(field, options):
        return _to_multiset
    return same


def _to_multiset(values: Any) -> Any:
    """Return a list as a multiset, so that its order does not count."""
    return frozenset(Counter(same(value) for value in values).items()) if isinstance(values, list) else same(values)
