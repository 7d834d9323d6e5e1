"""Expressions that hold for all rows of a manifest, partition or file, and the question whether a filter can hold under them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from lsm_core.format.schema import TableSchema
from lsm_core.read.predicate import ALWAYS, Predicate
from lsm_core.types import DataType, to_arrow

_NAN_SAFE: Final = frozenset({"=", "==", "<", "<=", ">", ">=", "in", "is null", "is not null"})
"""Tests that are never true for NaN, so that bounds which leave NaN out say enough."""


def possible(schema: TableSchema, guarantees: Sequence[pc.Expression], predicate: Predicate) -> np.ndarray[Any, Any]:
    """Mask of the guarantees under which the filter can still be true."""
    file_format, nowhere = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    mask = np.zeros(len(guarantees), dtype=bool)
    distinct: dict[int, list[int]] = {}
    for index, guarantee in enumerate(guarantees):  # many files share one object, ALWAYS above all
        distinct.setdefault(id(guarantee), []).append(index)
    groups = list(distinct.values())
    fragments = [
        file_format.make_fragment(str(number), nowhere, partition_expression=guarantees[group[0]])
        for number, group in enumerate(groups)
    ]
    dataset = ds.FileSystemDataset(fragments, schema.arrow_schema, file_format, nowhere)
    for fragment in dataset.get_fragments(predicate.expression):
        mask[groups[int(fragment.path)]] = True
    return mask


def conjoin(columns: Sequence[Iterable[pc.Expression]]) -> list[pc.Expression]:
    """Side by side: what holds for item i by every one of ``columns``."""
    total: list[pc.Expression] = []
    for parts in zip(*columns, strict=True):
        guarantee = ALWAYS
        for part in parts:
            if part is not ALWAYS:
                guarantee = part if guarantee is ALWAYS else guarantee & part
        total.append(guarantee)
    return total


def equalities(name: str, column: pa.Array) -> Iterator[pc.Expression]:
    """`name` is exactly this value (or null). Floats prove nothing here: NaN equals nothing."""
    field = pc.field(name)
    floating = pa.types.is_floating(column.type)
    for value in column:
        if not value.is_valid:
            yield field.is_null()
        else:
            yield ALWAYS if floating else field == value


def ranges(
    name: str,
    lows: pa.Array,
    highs: pa.Array,
    nulls: Iterable[int | None],
    rows: Iterable[int | None] = itertools.repeat(None),
) -> Iterator[pc.Expression]:
    """`name` lies between low and high or, as far as ``nulls`` (how many of ``rows``) allows, is null; unknown: always true.

    A NaN bound is unknown: Java up to 1.3, and ORC, leave NaN out where later writers make it the largest value.
    """
    field, is_null = pc.field(name), pc.field(name).is_null()
    if pa.types.is_floating(lows.type):
        lows, highs = (pc.if_else(pc.is_nan(side), None, side) for side in (lows, highs))
    for low, high, null_count, row_count in zip(lows, highs, nulls, rows, strict=False):
        if null_count is not None and row_count is not None and null_count >= row_count > 0:
            yield is_null
        elif not (low.is_valid and high.is_valid) or null_count is None:
            yield ALWAYS
        else:
            between = (field >= low) & (field <= high)
            yield between | is_null if null_count else between


def has_order(kind: DataType) -> bool:
    """Whether Arrow compares this type as Paimon orders it; floats only under :func:`orders_floats`."""
    arrow = to_arrow(kind)
    return not (pa.types.is_nested(arrow) or pa.types.is_floating(arrow))


def prunable(schema: TableSchema, predicate: Predicate, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that the filter uses in a way that bounds can answer."""
    wanted = set(names)
    return [
        name
        for name in predicate.columns
        if name in wanted and (has_order(schema.field(name).type) or _orders_floats(schema, predicate, name))
    ]


def _orders_floats(schema: TableSchema, predicate: Predicate, name: str) -> bool:
    """Whether every test of a FLOAT or DOUBLE column is one that NaN fails, wherever NaN stands in the order."""
    if predicate.groups is None or not pa.types.is_floating(to_arrow(schema.field(name).type)):
        return False
    return all(test.op in _NAN_SAFE for group in predicate.groups for test in group if test.column == name)


__all__ = ["conjoin", "equalities", "has_order", "possible", "prunable", "ranges"]
