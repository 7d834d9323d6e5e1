"""Columns to serialised rows: slots and variable parts of all columns laid out at once (Java `BinaryRowWriter`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.errors import ValueTooLarge
from lsm_core.format.binary_row.layout import (
    I64,
    U64,
    Layout,
    header_bytes,
    layouts_of,
    offsets_from,
    ragged,
    single_array,
)
from lsm_core.format.binary_row.values import Parts, encode_values
from lsm_core.types import DataType

_OFFSET_SHIFT = np.uint64(32)
_MAX_BYTES = 2**31 - 1


def column_parts(columns: Sequence[Any], types: Sequence[DataType]) -> tuple[list[Parts], int]:
    """Encoded columns and the number of rows; raises ValueError when columns and types do not match."""
    return parts_of(columns, layouts_of(types))


def parts_of(columns: Sequence[Any], layouts: Sequence[Layout]) -> tuple[list[Parts], int]:
    """As :func:`column_parts`, for layouts already known."""
    if len(columns) != len(layouts):
        raise ValueError(f"{len(columns)} columns for {len(layouts)} types")
    arrays = [single_array(column, layout.arrow) for column, layout in zip(columns, layouts, strict=True)]
    count = len(arrays[0]) if arrays else 0
    if any(len(array) != count for array in arrays):
        raise ValueError(f"columns of unequal length: {[len(array) for array in arrays]}")
    return [encode_values(array, layout) for array, layout in zip(arrays, layouts, strict=True)], count


def header_words(parts: Sequence[Parts]) -> list[U64 | None]:
    """Words of row kind and null bits in front of the slots; None where a word is 0 in every row."""
    words: list[U64 | None] = [None] * (header_bytes(len(parts)) // 8)
    for index, part in enumerate(parts):
        if part.nulls is None:
            continue
        word, bit = divmod(index + 8, 64)
        bits = part.nulls.astype(np.uint64) << np.uint64(bit)
        known = words[word]
        words[word] = bits if known is None else known | bits
    return words


def assemble(parts: Sequence[Parts], count: int) -> tuple[U64, I64]:
    """All rows as 8-byte words without arity, and the word offset of each row (``count + 1`` of them)."""
    headers = header_words(parts)
    fixed = len(headers) + len(parts)
    sizes = np.full(count, fixed, np.int64)
    for part in parts:
        if part.words is not None:
            sizes += part.words
    offsets = offsets_from(sizes)
    if int(offsets[-1]) * 8 > _MAX_BYTES:
        raise ValueTooLarge(f"{count} rows take {int(offsets[-1]) * 8} bytes as binary rows, more than {_MAX_BYTES}")
    if all(part.words is None for part in parts):
        return _assemble_fixed(headers, parts, count), offsets
    words = np.zeros(int(offsets[-1]), np.uint64)
    starts = offsets[:-1]
    for index, header in enumerate(headers):
        if header is not None:
            words[starts + index] = header
    cursor = np.full(count, fixed, np.int64)
    for index, part in enumerate(parts, len(headers)):
        slots = part.slots
        if part.words is not None and part.payload is not None:
            byte_offset = np.where(part.words > 0, cursor * 8, 0).view(np.uint64)
            slots = slots | (byte_offset << _OFFSET_SHIFT)
            words[ragged(starts + cursor, part.words)] = part.payload
            cursor += part.words
        words[starts + index] = slots
    return words, offsets


def _assemble_fixed(headers: Sequence[U64 | None], parts: Sequence[Parts], count: int) -> U64:
    matrix = np.zeros((count, len(headers) + len(parts)), np.uint64)
    for index, header in enumerate(headers):
        if header is not None:
            matrix[:, index] = header
    for index, part in enumerate(parts, len(headers)):
        matrix[:, index] = part.slots
    return matrix.reshape(-1)


def serialise(words: U64, offsets: I64, arity: int | None) -> pa.BinaryArray:
    """Rows of words as Arrow binary values, each behind its big-endian arity unless that is None."""
    count = len(offsets) - 1
    if arity is None:
        ends = offsets * 8
        data = words.view(np.uint8)
    else:
        prefix = np.uint32(int.from_bytes(arity.to_bytes(4, "big"), "little"))
        quads = np.empty(2 * len(words) + count, np.uint32)
        is_prefix = np.zeros(len(quads), np.bool_)
        is_prefix[2 * offsets[:-1] + np.arange(count)] = True
        quads[is_prefix] = prefix
        quads[~is_prefix] = words.view(np.uint32)
        ends = offsets * 8 + 4 * np.arange(count + 1)
        data = quads.view(np.uint8)
    if int(ends[-1]) > _MAX_BYTES:
        raise ValueTooLarge(f"{count} rows take {int(ends[-1])} bytes as binary rows, more than {_MAX_BYTES}")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def encode_rows(columns: Sequence[Any], types: Sequence[DataType], with_arity: bool = True) -> pa.BinaryArray:
    """Serialised BinaryRows of Arrow columns (arrays or chunked arrays; other Arrow types are cast safely).

    With ``with_arity`` each row has its 4-byte big-endian column count in front, as manifests store it; without, it is
    what bucket hashes are computed over. Raises ValueError for unequal columns, pa.ArrowInvalid for a value that does not
    fit its type, :class:`ValueTooLarge` over 2 GiB. A row of no columns has no length here: use `EMPTY_ROW`.
    Java: `BinaryRowWriter`, `SerializationUtils.serializeBinaryRow`.
    """
    parts, count = column_parts(columns, types)
    words, offsets = assemble(parts, count)
    return serialise(words, offsets, len(types) if with_arity else None)
