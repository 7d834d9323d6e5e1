"""The question behind all pruning: given bounds of columns, where can the filter be true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from lsm_core.format.schema import TableSchema
from lsm_core.read.predicate import ALWAYS, Predicate
from lsm_core.read.prune.bounds import Bounds, Mask
from lsm_core.types import DataType, to_arrow

_NAN_SAFE: Final = frozenset({"=", "==", "<", "<=", ">", ">=", "in", "is null", "is not null"})
"""Tests that are never true for NaN, so that bounds which leave NaN out say enough."""


def possible(schema: TableSchema, bounds: Mapping[str, Bounds], count: int, predicate: Predicate) -> Mask:
    """Mask of the ``count`` items for which the filter can still be true.

    A filter given as tuples is asked test by test, over all items at once; a bare Arrow expression is simplified by Arrow
    under each item's guarantee, which costs far more.
    """
    if predicate.groups is None:
        return _simplified(schema, bounds, count, predicate)
    found = np.zeros(count, dtype=bool)
    for group in predicate.groups:
        whole = np.ones(count, dtype=bool)
        for test in group:
            if test.column in bounds:
                whole &= bounds[test.column].may_hold(test)
        found |= whole
    return found


def _simplified(schema: TableSchema, bounds: Mapping[str, Bounds], count: int, predicate: Predicate) -> Mask:
    file_format, nowhere = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    guarantees = conjoin([known.expressions(name) for name, known in bounds.items()]) if bounds else [ALWAYS] * count
    fragments = [
        file_format.make_fragment(str(index), nowhere, partition_expression=guarantee)
        for index, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, schema.arrow_schema, file_format, nowhere)
    mask = np.zeros(count, dtype=bool)
    mask[[int(fragment.path) for fragment in dataset.get_fragments(predicate.expression)]] = True
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


def prunable(schema: TableSchema, predicate: Predicate, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that the filter uses in a way that bounds can answer."""
    wanted = set(names)
    return [
        name
        for name in predicate.columns
        if name in wanted and (_has_order(schema.field(name).type) or _orders_floats(schema, predicate, name))
    ]


def _has_order(kind: DataType) -> bool:
    """Whether Arrow compares this type as Paimon orders it; floats only under :func:`_orders_floats`."""
    arrow = to_arrow(kind)
    return not (pa.types.is_nested(arrow) or pa.types.is_floating(arrow))


def _orders_floats(schema: TableSchema, predicate: Predicate, name: str) -> bool:
    """Whether every test of a FLOAT or DOUBLE column is one that NaN fails, wherever NaN stands in the order."""
    if predicate.groups is None or not pa.types.is_floating(to_arrow(schema.field(name).type)):
        return False
    return all(test.op in _NAN_SAFE for group in predicate.groups for test in group if test.column == name)


__all__ = ["conjoin", "possible", "prunable"]
