"""Normalised keys: the key columns of a batch as one value that compares fast and as in Java (int64, else bytes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, text_parts, valid_mask
from lsm_core.errors import InvalidData, InvalidOption
from lsm_core.format.schema import KEY_PREFIX, TableSchema
from lsm_core.merge.comparable import (
    Bytes,
    any_null,
    big_endian,
    flat,
    is_text,
    numbers,
    width_of,
)
from lsm_core.merge.keys import ByteKeys, IntKeys, NormalisedKeys


@dataclass(frozen=True)
class KeySpec:
    """Columns that order the rows of a table.

    A batch has a key column as `_KEY_<name>`, or as `<name>` where it was decoded only once.

    Attributes:
        key_columns: names in the table.
        sequence_columns: the user's sequence fields.
        sequence_descending: whether smaller sequence fields are newer.
        table: name of the table, for errors.
    """

    key_columns: tuple[str, ...]
    sequence_columns: tuple[str, ...] = ()
    sequence_descending: bool = False
    table: str = ""

    @staticmethod
    def of(
        schema: TableSchema, sequence_field: Sequence[str] = (), descending: bool = False, table: str = ""
    ) -> KeySpec:
        """Return the order of a primary-key table: its trimmed primary key, then `sequence.field`.

        Raises:
            InvalidOption: a sequence field does not exist. Java stores invalid options if they were edited by hand or
                before checks existed.
        """
        for name in sequence_field:
            if not schema.has_field(name):
                raise InvalidOption("sequence.field", name, f"columns: {', '.join(schema.field_names)}", table)
        return KeySpec(schema.trimmed_primary_keys, tuple(sequence_field), descending, table)

    def key_fields(self, schema: pa.Schema) -> list[str]:
        """Return the column of ``schema`` that holds each key column.

        Raises:
            InvalidData: a key column is missing.
        """
        names = set(schema.names)
        fields = []
        for key in self.key_columns:
            name = KEY_PREFIX + key if KEY_PREFIX + key in names else key
            if name not in names:
                raise InvalidData(self.table, key, "the batch lacks this key column")
            fields.append(name)
        return fields

    def keys(self, batch: pa.RecordBatch | pa.Table) -> NormalisedKeys:
        """Return the normalised keys of the rows of ``batch``.

        Raises:
            InvalidData: a key is null; the error names the column.
        """
        fields = self.key_fields(batch.schema)
        columns = [flat(batch.column(name)) for name in fields]
        null = any_null(columns)
        if null is not None:
            raise InvalidData(self.table, self.key_columns[null], "a key is null")
        return normalise_keys(columns)


def normalise_keys(columns: Sequence[pa.Array]) -> NormalisedKeys:
    """Return keys of rows without nulls that order as Java's comparison of the key row.

    Args:
        columns: key columns, most significant first.

    Returns:
        Fixed-width columns of at most 8 bytes together become int64; a single text column is used unchanged; all other
        keys become bytes that compare as the rows do. The form depends only on the types, so keys of different batches
        compare.

    Raises:
        InvalidData: a key is null, or the keys are too large.
    """
    columns = [flat(column) for column in columns]
    if not columns:
        raise InvalidData("", "", "a key has no columns")
    if any_null(columns) is not None:
        raise InvalidData("", "", "a key is null")
    if len(columns) == 1:
        if is_text(columns[0].type):
            return ByteKeys.of(*text_parts(columns[0]))
        if _sort_width(columns[0].type) <= 8:
            return IntKeys(numbers(columns[0]))
    widths = [None if is_text(column.type) else _sort_width(column.type) for column in columns]
    fixed = [width for width in widths if width is not None]
    if len(fixed) < len(columns):
        return ByteKeys.of(*text_parts(_join_parts(columns, nulls=False)))
    rows, width = len(columns[0]), sum(fixed)
    matrix = np.zeros((rows, max(width, 8)), np.uint8)
    offset = matrix.shape[1] - width
    for column in columns:
        part = big_endian(column)
        matrix[:, offset : offset + part.shape[1]] = part
        offset += part.shape[1]
    if width <= 8:
        return IntKeys(
            (matrix.view(np.dtype(">u8")).reshape(rows) ^ np.uint64(1 << 63)).astype(np.uint64).view(np.int64)
        )
    starts = np.arange(rows, dtype=np.int64) * width
    return ByteKeys.of(matrix.reshape(-1), starts, np.full(rows, width, np.int64))


def _sort_width(kind: pa.DataType) -> int:
    width = width_of(kind)
    assert width is not None
    return 8 if pa.types.is_floating(kind) else width


def key_bytes(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Return memcomparable bytes of each row, for smallest and largest keys of files.

    Python's order of bytes is the keys' order.

    For each column these are a null byte (nulls first), then big-endian sign-flipped numbers, floats in Java's order,
    or text escaped (00 -> 00 FF) and terminated (00).

    Raises:
        UnsupportedFeature: a type has no order.
    """
    return _join_parts([flat(column) for column in columns], nulls=True)


def _join_parts(columns: Sequence[pa.Array], nulls: bool) -> pa.BinaryArray:
    """Join fixed parts and escaped texts; the last text has no terminator, because no part follows it."""
    rows = len(columns[0])
    parts: list[pa.Array] = []
    pending: list[Bytes] = []
    for index, column in enumerate(columns):
        if nulls:
            valid = valid_mask(column)
            pending.append(np.ones((rows, 1), np.uint8) if valid is None else valid.astype(np.uint8)[:, None])
        if not is_text(column.type):
            pending.append(big_endian(column))
            continue
        if pending:
            parts.append(_fixed_array(np.hstack(pending)))
        last = index == len(columns) - 1
        parts.append(_text_array(column, escape=not last))
        # the byte after a terminator must be below FF: the next null byte is, else a second zero is added
        pending = [] if last else [np.zeros((rows, 1 if nulls else 2), np.uint8)]
    if pending:
        parts.append(_fixed_array(np.hstack(pending)))
    if len(parts) == 1:
        return parts[0].cast(pa.binary())
    try:
        keys = pc.binary_join_element_wise(*parts, arrow_scalar(b""))
    except pa.ArrowInvalid as error:
        raise InvalidData("", "", f"keys too large to compare: {error}") from error
    return keys


def _fixed_array(matrix: Bytes) -> pa.Array:
    rows, width = matrix.shape
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(width))
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, offsets, data])


def _text_array(column: pa.Array, escape: bool) -> pa.Array:
    raw = column.cast(pa.binary()) if not pa.types.is_binary(column.type) else column
    raw = raw.fill_null(b"") if raw.null_count else raw
    data, starts, lengths = text_parts(raw)
    if not escape or len(raw) == 0:
        return raw
    used_bytes = data[starts[0] : starts[-1] + lengths[-1]]
    return pc.replace_substring(raw, b"\x00", b"\x00\xff") if (used_bytes == 0).any() else raw
