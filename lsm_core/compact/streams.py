"""Hash of a stream of rows, in order and to the bit.

One hash a column over its values, independent of batch boundaries.

It is stronger than the digest of a content, which ignores order, and ten times as fast. It needs types whose values
Parquet returns unchanged; nested types and other formats are compared by digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from lsm_core.format.kv_layout import SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.types.dictionaries import longest_value, plain

_DECODED_BYTES: Final = 64 << 20
"""Bytes of a dictionary's values that are decoded at a time."""


class Streams:
    """Hashes of rows: all table columns, and `_SEQUENCE_NUMBER` and `_VALUE_KIND` where a batch has them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.rows = 0
        self._columns = {name: _Column() for name in (SEQUENCE_NUMBER, VALUE_KIND, *names)}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; columns of other names are ignored."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self.add_column(name, column, self.rows)
        self.rows += batch.num_rows

    def add_column(self, name: str, column: pa.Array, row: int) -> None:
        """Add the values of one column from row number ``row`` on; a column of another name is ignored.

        A caller that adds columns one by one sets :attr:`rows` at the end.
        """
        if name in self._columns:
            self._columns[name].add(column, row)

    @property
    def value(self) -> int:
        """One number of 128 bits for all columns and their order."""
        whole = xxhash.xxh3_128()
        for name, column in self._columns.items():
            whole.update(b"\0".join([name.encode(), *column.value]))
        return whole.intdigest()

    def differing(self, other: Streams) -> list[str]:
        """Return the names of the columns whose values or order differ from those of ``other``."""
        return [name for name, column in self._columns.items() if column.value != other._columns[name].value]


class _Column:
    """Hashes of null positions, text lengths and all values of a column, which together determine it."""

    def __init__(self) -> None:
        self._nulls, self._lengths, self._values = xxhash.xxh3_128(), xxhash.xxh3_128(), xxhash.xxh3_128()

    @property
    def value(self) -> tuple[bytes, ...]:
        return self._nulls.digest(), self._lengths.digest(), self._values.digest()

    def add(self, column: pa.Array, row: int) -> None:
        """Add rows from number ``row`` on; a dictionary is decoded in parts that fit into memory."""
        if pa.types.is_dictionary(column.type):
            rows = max(1, _DECODED_BYTES // max(1, longest_value(column)))
            for start in range(0, len(column), rows):
                self._add(plain(column.slice(start, rows)), row + start)
        else:
            self._add(column, row)

    def _add(self, column: pa.Array, row: int) -> None:
        if column.null_count:
            missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            self._nulls.update((missing + row).data)
            column = column.drop_null()  # values under nulls are undefined
        if not len(column):
            return
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            _, offsets, data = column.buffers()
            ends = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4)
            self._lengths.update(np.diff(ends).data)
            if data is not None:
                self._values.update(memoryview(data)[int(ends[0]) : int(ends[-1])])
            return
        if pa.types.is_boolean(column.type):
            self._values.update(memoryview(column.to_numpy(zero_copy_only=False)))
            return
        width = int(column.type.bit_width) // 8
        value_bytes = memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width]
        if pa.types.is_floating(column.type):
            values: npt.NDArray[Any] = np.frombuffer(value_bytes, np.float64 if width == 8 else np.float32)
            if np.isnan(values).any():  # all NaNs hash equally
                value_bytes = np.where(np.isnan(values), values.dtype.type(np.nan), values).data
        self._values.update(value_bytes)


def keeps_every_bit(kind: pa.DataType) -> bool:
    """Return whether Parquet returns values of this type unchanged: those of a fixed width, and bytes."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
    )
