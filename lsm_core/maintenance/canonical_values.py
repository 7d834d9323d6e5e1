"""One form for values that are equal, but may be stored in different forms.

The format leaves open the order of a map's entries, the order of sets (collect with `distinct`, nested tables with a
key) and the containers of a bitmap. Java's compaction may store another form than the rows before it, or than Dredge's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array, numpy_array, one_array
from lsm_core.format import roaring
from lsm_core.format.schema import TableSchema
from lsm_core.maintenance.reference.comparison import aggregate_function, is_set
from lsm_core.merge.digest import value_hashes
from lsm_core.merge.functions import roaring64

_BITMAPS: Final = frozenset({"rbm32", "rbm64"})


def canonical_rows(batch: pa.RecordBatch, schema: TableSchema, options: Mapping[str, str]) -> pa.RecordBatch:
    """Return rows whose equal sets and bitmaps are equal values, for a digest.

    Args:
        batch: rows with all table columns.
        schema: schema of the table.
        options: options of the table.

    Returns:
        The rows; a column of sets holds a 64-bit hash per set instead. Maps are unchanged, because a digest ignores the
        order of their entries.
    """
    for field in schema.fields:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            continue
        name = aggregate_function(field, options)
        column = batch.column(at)
        if pa.types.is_list(column.type) and is_set(field, options):
            batch = batch.set_column(at, field.name, _set_hashes(column))
        elif name in _BITMAPS:
            canonical = _bitmap32 if name == "rbm32" else _bitmap64
            values = [None if data is None else canonical(data) for data in column.to_pylist()]
            batch = batch.set_column(at, field.name, pa.array(values, pa.binary()))
    return batch


def sort_map_entries(column: pa.Array) -> pa.Array:
    """Return the values with the entries of all maps, also of inner ones, in the order of the hashes of their keys.

    Args:
        column: values of any type.
    """
    kind = column.type
    if not _holds_map(kind):
        return column
    mask = column.is_null()
    if pa.types.is_struct(kind):
        children = [sort_map_entries(child) for child in column.flatten()]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    offsets = numpy_array(column.offsets).astype(np.int32)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    places = arrow_array(offsets - first)
    if pa.types.is_list(kind):
        values = sort_map_entries(column.values.slice(first, count))
        return pa.ListArray.from_arrays(places, values, type=kind, mask=mask)
    keys, items = (sort_map_entries(side.slice(first, count)) for side in (column.keys, column.items))
    parents = np.repeat(np.arange(len(column)), np.diff(offsets))
    order = arrow_array(np.lexsort((value_hashes(keys), parents)))
    return pa.MapArray.from_arrays(places, keys.take(order), items.take(order), type=kind, mask=mask)


def _holds_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return pa.types.is_nested(kind) and any(_holds_map(kind.field(i).type) for i in range(kind.num_fields))


def _set_hashes(column: pa.Array) -> pa.Array:
    """Return a hash per list that does not depend on the order of the elements; null for null."""
    column = one_array(column)
    offsets = numpy_array(column.offsets).astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(value_hashes(column.values.slice(first, count)))))
    lengths = np.diff(offsets).astype(np.uint64)
    # Sums wrap around, and so do their differences.
    total = sums[offsets[1:] - first] - sums[offsets[:-1] - first] + lengths
    return pa.array(total.view(np.int64), mask=numpy_array(column.is_null()))


def _bitmap32(data: bytes) -> bytes:
    return roaring64.canonical_bytes(roaring.decode(data, "RoaringBitmap")[0])


def _bitmap64(data: bytes) -> bytes:
    return roaring64.encode(roaring64.decode(data))
