"""BinaryRow, Paimon's serialised row, encoded and decoded by column (format.md 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.format.binary_row.layout import EMPTY_ROW, header_bytes
from lsm_core.format.binary_row.row_decoder import decode_rows
from lsm_core.format.binary_row.row_encoder import encode_rows
from lsm_core.types import DataType, to_arrow

if TYPE_CHECKING:
    from lsm_core.format.schema import TableSchema


def encode_row(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    """Return one serialised BinaryRow (with arity) of Python values.

    The values have any form that `pa.array` accepts for `to_arrow(type)`.

    Raises:
        ValueError: the numbers of values and types differ.
        ArrowInvalid: a value does not fit its type; TypeError is possible too.
    """
    if len(values) != len(types):
        raise ValueError(f"{len(values)} values for {len(types)} types")
    if not types:
        return EMPTY_ROW
    columns = [one_value(value, to_arrow(kind)) for value, kind in zip(values, types, strict=True)]
    encoded: bytes = encode_rows(columns, types)[0].as_py()
    return encoded


def one_value(value: Any, arrow: pa.DataType) -> pa.Array:
    """Return an Arrow array of one Python value.

    Raises:
        ArrowInvalid: the value does not fit; TypeError and other errors of Arrow are possible too.
    """
    if isinstance(value, np.datetime64) and pa.types.is_timestamp(arrow) and arrow.tz is not None:
        # Arrow accepts NumPy's timestamps for local times only, but these are already in UTC.
        return arrow_array([value], pa.timestamp(arrow.unit)).cast(pa.int64()).cast(arrow)
    return arrow_array([value], arrow)


def decode_row(data: bytes, types: Sequence[DataType], path: str = "(binary row)") -> tuple[Any, ...]:
    """Return the Python values of one serialised BinaryRow; nanosecond timestamps are np.datetime64.

    Raises:
        CorruptFile: the bytes are invalid; the message names ``path``.
    """
    values = []
    for column in decode_rows(arrow_array([data], pa.binary()), types, path):
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            # datetime has no nanoseconds, and pandas may not be installed.
            value = column.cast(pa.int64())[0].as_py()
            values.append(None if value is None else np.datetime64(value, "ns"))
        else:
            values.append(column[0].as_py())
    return tuple(values)


def binary_row(schema: TableSchema, batch: pa.RecordBatch | pa.Table) -> pa.BinaryArray:
    """Return serialised BinaryRows of a batch's columns, with the types that ``schema`` has for their names."""
    types = [schema.field(name).type for name in batch.schema.names]
    if not types:
        return arrow_array([EMPTY_ROW] * batch.num_rows, pa.binary())
    return encode_rows(batch.columns, types)
