"""BinaryRow, Paimon's serialised row, encoded and decoded by column for all rows at once (format.md 6).

Rows from files are untrusted: every offset is validated before use.

Source: ``BinaryRowWriter``, ``BinaryArrayWriter``, ``BinaryMap``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import (
    I64,
    U8,
    U64,
    Bools,
    arrow_array,
    arrow_scalar,
    big_endian_digits,
    decimal_limbs,
    limbs_from_big_endian,
    null_mask,
    numpy_array,
    offsets_from,
    one_array,
    places_within,
    slice_places,
    value_bytes,
    value_offsets,
    values_of,
)
from lsm_core.errors import CorruptFile, UnsupportedFeature, ValueTooLarge
from lsm_core.types import DataType, TypeRoot, to_arrow

if TYPE_CHECKING:
    from lsm_core.format.schema import TableSchema

_UNKNOWN_PATH = "(binary row)"
_PADDING = 16
# Largest distance from the epoch (ms) that Arrow's unit can represent with any fraction.
_MAX_MILLIS = {"us": (2**63 - 1) // 1000 - 1, "ns": (2**63 - 1) // 1_000_000 - 1}
_NANOS_PER_MILLI = 1_000_000
_MAX_NANOS = 999_999


@dataclass
class Source:
    """Bytes to decode, and the path of their file for messages.

    Attributes:
        data: the bytes, padded so that a word can be read at any valid position.
        path: path of the file, for messages.
    """

    data: U8
    path: str

    def check(self, good: bool, reason: str) -> None:
        """Raise CorruptFile, with ``reason`` in its message, unless ``good``."""
        if not good:
            raise CorruptFile(self.path, f"binary row: {reason}")

    def load(self, at: I64, width: int = 8) -> Any:
        """Return little-endian unsigned integers of ``width`` bytes at byte positions ``at`` (any alignment)."""
        view = np.ndarray((len(self.data) - width + 1,), f"<u{width}", self.data.data, strides=(1,))
        return view[at]


@dataclass
class Slots:
    """Positions of the slots of one column.

    The slots are fixed-length words of a BinaryRow or BinaryArray (the container). In valid data, variable-length parts
    never overlap. If their lengths exceed ``room`` in total, the data is invalid and is refused before memory is
    allocated.

    Attributes:
        at: byte position of each slot.
        base: start of the container, from which offsets are counted.
        limit: length of the container (bytes).
        nulls: mask of null values, or None.
        room: bytes of the container that are left for variable-length parts.
        offsets: index of each container's first slot, and the end of the last container, if a container has several
            slots of the column (arrays); None if each container has one.
    """

    at: I64
    base: I64
    limit: I64
    nulls: Bools | None
    room: I64
    offsets: I64 | None = None

    def regions(self, source: Source) -> tuple[I64, I64]:
        """Return (starts, lengths) of the variable-length parts in bytes, after validation; the length of null is 0.

        Raises:
            CorruptFile: a part reaches beyond its container, or parts overlap.
        """
        slots = source.load(self.at)
        lengths = (slots & np.uint64(0xFFFFFFFF)).astype(np.int64)
        offsets = (slots >> np.uint64(32)).astype(np.int64)
        return self.check_regions(source, offsets, lengths)

    def check_regions(self, source: Source, offsets: I64, lengths: I64) -> tuple[I64, I64]:
        """Validate the variable-length parts, and reduce `room` by their lengths.

        Args:
            source: the bytes to decode.
            offsets: offset of each part from its container's start (bytes), extracted from the slots.
            lengths: length of each part in bytes.

        Returns:
            Start of each part in the source, and its length; the length of null is 0.
        """
        if self.nulls is not None:
            offsets, lengths = np.where(self.nulls, 0, offsets), np.where(self.nulls, 0, lengths)
        source.check(not (offsets + lengths > self.limit).any(), "a value reaches beyond its row")
        if self.offsets is None:
            self.room -= lengths
        else:
            sums = offsets_from(lengths)
            self.room -= sums[self.offsets[1:]] - sums[self.offsets[:-1]]
        source.check(not (self.room < 0).any(), "values overlap")
        return self.base + offsets, lengths


def decode_rows(
    blobs: Any, types: Sequence[DataType], path: str = _UNKNOWN_PATH, with_arity: bool = True
) -> list[pa.Array]:
    """Return the Arrow columns (types of `to_arrow`) of serialised BinaryRows.

    Time and memory are proportional to rows x columns + bytes.

    Args:
        blobs: rows as a binary array or chunked array, without nulls.
        types: types of the columns.
        path: path of the file, for messages.
        with_arity: whether each row starts with its arity.

    Returns:
        One array per column.

    Raises:
        CorruptFile: a null row, wrong arity, an offset outside the row, overlapping values, invalid UTF-8, or a decimal
            beyond its precision; the message names ``path``.
        UnsupportedFeature: a nanosecond timestamp is outside 1677 to 2262.

    Source: `SerializationUtils.deserializeBinaryRow`, `BinaryRow`.
    """
    array = one_array(blobs, pa.binary())
    if array.null_count:
        raise CorruptFile(path, "binary row: missing")
    offsets = value_offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + _PADDING, np.uint8)
    data[: last - first] = value_bytes(array)[first:last]
    source = Source(data, path)
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    if with_arity:
        source.check(not (lengths < ARITY_BYTES).any(), "too short for its arity")
        arity = source.load(starts, 4).astype("<u4").byteswap()
        source.check(not (arity != len(types)).any(), f"arity is not {len(types)}")
        starts, lengths = starts + ARITY_BYTES, lengths - ARITY_BYTES
    return decode_region(source, starts, lengths, layouts_of(types))


def decode_region(source: Source, starts: I64, lengths: I64, layouts: Sequence[Layout]) -> list[pa.Array]:
    """Decode serialised rows that do not start with their arity; return one array for each column.

    Args:
        source: the bytes to decode.
        starts: position of each row in bytes.
        lengths: length of each row in bytes.
        layouts: layout of each column.
    """
    header = header_bytes(len(layouts))
    source.check(not (lengths < header + 8 * len(layouts)).any(), "too short for its columns")
    room = lengths - header - 8 * len(layouts)
    columns = []
    for index, layout in enumerate(layouts):
        bit = index + 8
        flags = source.data[starts + (bit >> 3)] >> np.uint8(bit & 7) & np.uint8(1)
        nulls = flags.astype(np.bool_) if flags.any() else None
        slots = Slots(starts + header + 8 * index, starts, lengths, nulls, room)
        columns.append(decode_values(source, slots, layout))
    return columns


def decode_values(source: Source, slots: Slots, layout: Layout) -> pa.Array:
    """Return one column, decoded from its values' slots.

    Args:
        source: the bytes to decode.
        slots: position of each value's slot, and its container.
        layout: layout of the column.
    """
    if layout.kind is ValueStorage.FIXED:
        return _decode_fixed(source, slots, layout)
    if layout.kind is ValueStorage.BYTES:
        return _decode_bytes(source, slots, layout)
    if layout.kind is ValueStorage.DECIMAL:
        return _decode_wide_decimal(source, slots, layout)
    if layout.kind is ValueStorage.TIMESTAMP:
        return _decode_wide_timestamp(source, slots, layout)
    return decode_nested(source, slots, layout)


def build(
    arrow: pa.DataType, nulls: Bools | None, count: int, buffers: Sequence[Any], children: Sequence[pa.Array] = ()
) -> pa.Array:
    """Return an Arrow array that consists of ``buffers`` and the mask of nulls.

    Args:
        arrow: type of the array.
        nulls: mask of nulls, or None.
        count: number of values.
        buffers: buffers after the validity bits, as objects with Python's buffer protocol, or None.
        children: arrays of the nested values.
    """
    validity = None if nulls is None else arrow_array(~nulls).buffers()[1]
    arrow_buffers = [None if item is None else pa.py_buffer(item) for item in buffers]
    return pa.Array.from_buffers(arrow, count, [validity, *arrow_buffers], children=list(children))


def _zero_nulls(values: Any, nulls: Bools | None) -> Any:
    return values if nulls is None else np.where(nulls, values.dtype.type(0), values)


def _decode_fixed(source: Source, slots: Slots, layout: Layout) -> pa.Array:
    arrow, count = layout.arrow, len(slots.at)
    values = _zero_nulls(source.load(slots.at, layout.width), slots.nulls)
    if pa.types.is_boolean(arrow):
        bits = arrow_array(values != 0).buffers()[1] if count else pa.py_buffer(b"")
        return build(arrow, slots.nulls, count, [bits])
    if pa.types.is_decimal(arrow):
        limbs = np.empty((count, 2), np.int64)
        limbs[:, 0] = values.view(np.int64)
        limbs[:, 1] = limbs[:, 0] >> 63
        return _validate(source, build(arrow, slots.nulls, count, [limbs]), "decimal")
    return build(arrow, slots.nulls, count, [values])


def _validate(source: Source, array: pa.Array, type_name: str) -> pa.Array:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptFile(source.path, f"binary row: {type_name} value: {error}") from error
    return array


def _decode_bytes(source: Source, slots: Slots, layout: Layout) -> pa.Array:
    words: U64 = source.load(slots.at)
    top = (words >> np.uint64(56)).astype(np.int64)
    inline = top >= 0x80
    lengths = np.where(inline, top & 0x7F, (words & np.uint64(0xFFFFFFFF)).astype(np.int64))
    offsets = np.where(inline, 0, (words >> np.uint64(32)).astype(np.int64))
    not_null = True if slots.nulls is None else ~slots.nulls
    source.check(not (inline & (lengths > 7) & not_null).any(), "an inline value is longer than 7 bytes")
    starts, _ = slots.check_regions(source, offsets, np.where(inline, 0, lengths))
    if slots.nulls is not None:
        lengths = np.where(slots.nulls, 0, lengths)
    starts = np.where(inline, slots.at, starts)
    return _validate(source, _gather(source, starts, lengths, slots.nulls, layout.arrow), "text")


def _gather(source: Source, starts: I64, lengths: I64, nulls: Bools | None, arrow: pa.DataType) -> pa.Array:
    ends = offsets_from(lengths)
    source.check(int(ends[-1]) < 2**31, "more than 2 GiB of text")
    data = source.data[slice_places(starts, lengths)]
    return build(arrow, nulls, len(lengths), [ends.astype(np.int32), data])


def _decode_wide_timestamp(source: Source, slots: Slots, layout: Layout) -> pa.Array:
    unit = layout.arrow.unit
    words = source.load(slots.at)
    nanos = (words & np.uint64(0xFFFFFFFF)).astype(np.int64)
    offsets = (words >> np.uint64(32)).astype(np.int64)
    starts, _ = slots.check_regions(source, offsets, np.full(len(words), 8, np.int64))
    millis = _zero_nulls(source.load(starts).view(np.int64), slots.nulls)
    nanos = _zero_nulls(nanos, slots.nulls)
    source.check(not (nanos > _MAX_NANOS).any(), "more than 999999 nanoseconds in a millisecond")
    out_of_range = (millis > _MAX_MILLIS[unit]) | (millis < -_MAX_MILLIS[unit])
    if unit == "ns" and out_of_range.any():
        # The first and the last millisecond are partly within the range of 64-bit nanoseconds.
        (first_milli, first_nanos), (last_milli, last_nanos) = (
            divmod(end, _NANOS_PER_MILLI) for end in (-(2**63), 2**63 - 1)
        )
        is_after_first = (millis > first_milli) | ((millis == first_milli) & (nanos >= first_nanos))
        out_of_range &= ~(is_after_first & ((millis < last_milli) | ((millis == last_milli) & (nanos <= last_nanos))))
    if unit == "ns" and out_of_range.any():
        # Valid Paimon data, but Arrow's nanoseconds cover only 1677 to 2262.
        raise UnsupportedFeature(f"timestamps of more than 6 digits outside 1677 to 2262 ({source.path})")
    source.check(not out_of_range.any(), f"a timestamp is outside the range of {layout.arrow}")
    per_milli, step = (1000, 1000) if unit == "us" else (1_000_000, 1)
    return build(layout.arrow, slots.nulls, len(words), [millis * per_milli + nanos // step])


def _decode_wide_decimal(source: Source, slots: Slots, layout: Layout) -> pa.Array:
    starts, lengths = slots.regions(source)
    count = len(starts)
    bad = (lengths > 16) | (lengths < 1)
    source.check(not (bad if slots.nulls is None else bad & ~slots.nulls).any(), "a decimal has no or over 16 bytes")
    limbs = limbs_from_big_endian(source.data, starts, lengths)
    return _validate(source, build(layout.arrow, slots.nulls, count, [limbs]), "decimal")


# -- nested values: every count and offset is validated against its container ------------------------------------------


def decode_nested(source: Source, slots: Slots, layout: Layout) -> pa.Array:
    """Return one array, map, row or variant column, decoded from its values' slots.

    Args:
        source: the bytes to decode.
        slots: position of each value's slot, and its container.
        layout: layout of the column.
    """
    starts, lengths = slots.regions(source)
    present = np.arange(len(starts)) if slots.nulls is None else np.flatnonzero(~slots.nulls)
    starts, lengths = starts[present], lengths[present]
    if layout.kind is ValueStorage.ROW:
        columns = decode_region(source, starts, lengths, layout.children)
        return _struct(columns, slots.nulls, len(starts), layout.arrow)
    if layout.kind is ValueStorage.VARIANT:
        source.check(not (lengths < _COUNT_BYTES).any(), "too short for a variant")
        value_sizes = source.load(starts, 4).astype(np.int64)
        source.check(not (value_sizes + _COUNT_BYTES > lengths).any(), "a variant's value does not fit")
        starts, lengths = starts + _COUNT_BYTES, lengths - _COUNT_BYTES
        parts = ((starts, value_sizes), (starts + value_sizes, lengths - value_sizes))
        columns = [_gather(source, at, sizes, None, pa.binary()) for at, sizes in parts]
        return _struct(columns, slots.nulls, len(starts), layout.arrow)
    source.check(not (lengths < _COUNT_BYTES).any(), "too short for a collection")
    if layout.kind is ValueStorage.ARRAY:
        counts, child = _arrays(source, starts, lengths, layout.children[0])
        return build(layout.arrow, slots.nulls, len(slots.at), [_list_ends(counts, present, slots)], [child])
    return _maps(source, starts, lengths, present, slots, layout)


def _list_ends(counts: I64, present: I64, slots: Slots) -> I64:
    every = np.zeros(len(slots.at), np.int64)
    every[present] = counts
    return offsets_from(every).astype(np.int32)


def _arrays(source: Source, starts: I64, lengths: I64, layout: Layout) -> tuple[I64, pa.Array]:
    """Return (number of elements of each BinaryArray, elements of all arrays one after another).

    Args:
        source: the bytes to decode.
        starts: position of each array in bytes.
        lengths: length of each array in bytes.
        layout: layout of the elements.
    """
    counts = source.load(starts, 4).astype(np.int64)
    # Checked before any multiplication, so that a huge count cannot overflow or allocate memory.
    source.check(not (counts > lengths).any() or layout.width == 0, "an array claims more elements than bytes")
    headers = array_header(counts)
    source.check(not (headers + counts * layout.width > lengths).any(), "an array claims more elements than bytes")
    offsets = offsets_from(counts)
    owner, position = np.repeat(np.arange(len(counts)), counts), places_within(counts)
    flags = source.data[starts[owner] + _COUNT_BYTES + (position >> 3)] >> (position & 7).astype(np.uint8) & np.uint8(1)
    nulls = flags.astype(np.bool_) if flags.any() else None
    at = (starts + headers)[owner] + position * layout.width
    room = lengths - headers - counts * layout.width
    return counts, decode_values(source, Slots(at, starts[owner], lengths[owner], nulls, room, offsets), layout)


def _maps(source: Source, starts: I64, lengths: I64, present: I64, slots: Slots, layout: Layout) -> pa.Array:
    key_bytes = source.load(starts, 4).astype(np.int64)
    source.check(
        not (key_bytes + 2 * _COUNT_BYTES > lengths).any() and not (key_bytes < _COUNT_BYTES).any(),
        "a map's keys do not fit",
    )
    key_starts = starts + _COUNT_BYTES
    counts, keys = _arrays(source, key_starts, key_bytes, layout.children[0])
    item_counts, items = _arrays(source, key_starts + key_bytes, lengths - key_bytes - _COUNT_BYTES, layout.children[1])
    source.check(not (counts != item_counts).any(), "a map has unequal numbers of keys and values")
    source.check(keys.null_count == 0, "a map has a null key")
    entry = pa.struct([layout.arrow.key_field, layout.arrow.item_field])
    entries = pa.Array.from_buffers(entry, len(keys), [None], children=[keys, items])
    return build(layout.arrow, slots.nulls, len(slots.at), [_list_ends(counts, present, slots)], [entries])


def _struct(columns: list[pa.Array], nulls: Bools | None, count: int, arrow: pa.DataType) -> pa.Array:
    """Return a struct array, with the null rows inserted.

    Args:
        columns: the fields' values of the rows that are not null.
        nulls: mask of null rows, or None.
        count: number of rows; used only without a mask.
        arrow: type of the array.
    """
    if nulls is None:
        return pa.Array.from_buffers(arrow, count, [None], children=columns)
    index = np.cumsum(~nulls) - 1
    row_index = arrow_array(np.maximum(index, 0), mask=nulls)
    expanded = [column.take(row_index) for column in columns]
    return build(arrow, nulls, len(nulls), [], expanded)


EMPTY_ROW: Final = bytes(12)
"""Serialised row of arity 0: the partition of unpartitioned tables, and keys of append files."""

ARITY_BYTES: Final = 4
COMPACT_DECIMAL: Final = 18


class ValueStorage(Enum):
    """How a value is stored in a BinaryRow; values of all kinds except FIXED may be in the variable-length part."""

    FIXED = auto()
    BYTES = auto()
    DECIMAL = auto()
    TIMESTAMP = auto()
    ARRAY = auto()
    MAP = auto()
    ROW = auto()
    VARIANT = auto()


@dataclass(frozen=True)
class Layout:
    """How values of one column type are stored in a BinaryRow.

    Attributes:
        kind: kind of storage.
        arrow: Arrow type of the values.
        width: size as an array element (bytes).
        children: layouts of the element, of key and value, or of the fields.
    """

    kind: ValueStorage
    arrow: pa.DataType
    width: int = 8
    children: tuple[Layout, ...] = ()


def header_bytes(arity: int) -> int:
    """Return the size of row kind and null bits in bytes (Java `BinaryRow.calculateBitSetWidthInBytes`)."""
    return (arity + 63 + 8) // 64 * 8


def layout_of(data_type: DataType) -> Layout:
    """Return the layout of a Paimon type."""
    arrow = to_arrow(data_type)
    root = data_type.root
    if root is TypeRoot.VARIANT:
        return Layout(ValueStorage.VARIANT, arrow)
    if pa.types.is_decimal(arrow):
        return Layout(ValueStorage.FIXED if arrow.precision <= COMPACT_DECIMAL else ValueStorage.DECIMAL, arrow)
    if pa.types.is_timestamp(arrow):
        return Layout(ValueStorage.FIXED if arrow.unit == "ms" else ValueStorage.TIMESTAMP, arrow)
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        return Layout(ValueStorage.BYTES, arrow)
    if root is TypeRoot.ROW:
        return Layout(ValueStorage.ROW, arrow, children=tuple(layout_of(field.type) for field in data_type.fields))
    inner = [layout_of(child) for child in (data_type.key, data_type.value, data_type.element) if child is not None]
    if root is TypeRoot.MULTISET:
        inner.append(Layout(ValueStorage.FIXED, pa.int32(), 4))  # a MULTISET is a map from its element to a count
    if pa.types.is_map(arrow):
        return Layout(ValueStorage.MAP, arrow, children=tuple(inner))
    if inner:
        return Layout(ValueStorage.ARRAY, arrow, children=tuple(inner))
    return Layout(ValueStorage.FIXED, arrow, width=1 if pa.types.is_boolean(arrow) else arrow.bit_width // 8)


def layouts_of(types: Sequence[DataType]) -> list[Layout]:
    """Return the layouts of a row's column types."""
    return [layout_of(data_type) for data_type in types]


_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
# Masks and tags by length modulo 8; mask 0 keeps the whole word.
_TAIL_MASK = np.array([_ALL_BITS] + [np.uint64((1 << (8 * n)) - 1) for n in range(1, 8)], dtype=np.uint64)
_INLINE_MASK = np.array([(1 << (8 * n)) - 1 for n in range(8)], dtype=np.uint64)
_INLINE_TAG = np.array([(0x80 | n) << 56 for n in range(8)], dtype=np.uint64)
_SLOT_BYTES = 8
_WIDE_DECIMAL_WORDS = 2
_PER_MILLI = {"us": 1000, "ns": 1_000_000}
_OFFSET_SHIFT = np.uint64(32)
_MAX_BYTES = 2**31 - 1
_COUNT_BYTES = 4


# -- rows --------------------------------------------------------------------------------------------------------------


def parts_of(columns: Sequence[Any], layouts: Sequence[Layout]) -> tuple[list[Parts], int]:
    """Encode columns; return the encoded columns and the number of rows.

    Args:
        columns: Arrow arrays or chunked arrays.
        layouts: layout of each column.

    Raises:
        ValueError: the columns do not match the layouts, or have unequal lengths.
    """
    if len(columns) != len(layouts):
        raise ValueError(f"{len(columns)} columns for {len(layouts)} types")
    arrays = [one_array(column, layout.arrow) for column, layout in zip(columns, layouts, strict=True)]
    count = len(arrays[0]) if arrays else 0
    if any(len(array) != count for array in arrays):
        raise ValueError(f"columns of unequal length: {[len(array) for array in arrays]}")
    return [encode_values(array, layout) for array, layout in zip(arrays, layouts, strict=True)], count


def header_words(parts: Sequence[Parts]) -> list[U64 | None]:
    """Return the 8-byte words with row kind and null bits that precede the slots; None for a word that is always 0."""
    words: list[U64 | None] = [None] * (header_bytes(len(parts)) // 8)
    for index, part in enumerate(parts):
        if part.nulls is None:
            continue
        word, bit = divmod(index + 8, 64)
        bits = part.nulls.astype(np.uint64) << np.uint64(bit)
        previous = words[word]
        words[word] = bits if previous is None else previous | bits
    return words


def assemble(parts: Sequence[Parts], count: int) -> tuple[U64, I64]:
    """Return all rows as 8-byte words without arity, and the word offset of each row (``count + 1`` values).

    Args:
        parts: the encoded columns.
        count: number of rows.

    Raises:
        ValueTooLarge: the rows exceed 2 GiB.
    """
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
        matrix = np.zeros((count, fixed), np.uint64)
        for index, header in enumerate(headers):
            if header is not None:
                matrix[:, index] = header
        for index, part in enumerate(parts, len(headers)):
            matrix[:, index] = part.slots
        return matrix.reshape(-1), offsets
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
            words[slice_places(starts + cursor, part.words)] = part.payload
            cursor += part.words
        words[starts + index] = slots
    return words, offsets


def serialise(words: U64, offsets: I64, arity: int | None) -> pa.BinaryArray:
    """Return rows of 8-byte words as Arrow binary values.

    Args:
        words: the words of all rows.
        offsets: start of each row in ``words``, and the end of the last row.
        arity: number to write before each row (big-endian, 4 bytes), or None.

    Raises:
        ValueTooLarge: the rows exceed 2 GiB.
    """
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
    """Return the serialised BinaryRows of Arrow columns.

    Args:
        columns: arrays or chunked arrays; other Arrow types than the layout's are cast safely.
        types: types of the columns.
        with_arity: whether each row starts with its 4-byte big-endian column count, as in manifests. Bucket hashes use
            rows without it.

    Returns:
        The rows. Without columns the number of rows is unknown and the result is empty; use `EMPTY_ROW` instead.

    Raises:
        ValueError: the columns have unequal lengths, or their number differs from that of ``types``.
        ArrowInvalid: a value does not fit its type.
        ValueTooLarge: the rows exceed 2 GiB.

    Source: `BinaryRowWriter`, `SerializationUtils.serializeBinaryRow`.
    """
    parts, count = parts_of(columns, layouts_of(types))
    words, offsets = assemble(parts, count)
    return serialise(words, offsets, len(types) if with_arity else None)


# -- columns -----------------------------------------------------------------------------------------------------------


@dataclass
class Parts:
    """One encoded column.

    Attributes:
        slots: slots of the values (uint64), without offsets.
        nulls: mask of null values, or None.
        words: number of 8-byte words of each value in the variable-length part, or None if the column never uses it.
            The offset of a value with words is added to the upper half of its slot.
        payload: words of all values, concatenated.
    """

    slots: U64
    nulls: Bools | None
    words: I64 | None = None
    payload: U64 | None = None


def encode_values(array: pa.Array, layout: Layout) -> Parts:
    """Encode one column, whose Arrow type is exactly ``layout.arrow``."""
    if layout.kind is ValueStorage.FIXED:
        return _encode_fixed(array, layout)
    if layout.kind is ValueStorage.BYTES:
        return _encode_bytes(array)
    if layout.kind is ValueStorage.DECIMAL:
        return _encode_wide_decimal(array)
    if layout.kind is ValueStorage.TIMESTAMP:
        return _encode_wide_timestamp(array)
    return encode_nested(array, layout)


def _encode_fixed(array: pa.Array, layout: Layout) -> Parts:
    arrow = layout.arrow
    if pa.types.is_boolean(arrow):
        filled = array.fill_null(arrow_scalar(value=False)) if array.null_count else array
        return Parts(numpy_array(filled).astype(np.uint64), null_mask(array))
    # Compact decimals: the unscaled value fits the lower half.
    slots = decimal_limbs(array)[1] if pa.types.is_decimal(arrow) else values_of(array, f"<u{layout.width}")
    nulls = null_mask(array)
    wide: U64 = slots.astype(np.uint64, copy=False)
    if nulls is not None:
        wide = np.where(nulls, np.uint64(0), wide)
    return Parts(wide, nulls)


def byte_ranges(array: pa.Array) -> tuple[U8, I64, I64]:
    """Return (bytes, starts, lengths) of the values of a string or binary array.

    The bytes are padded by 8 zeros. The length of a null is 0.
    """
    offsets = value_offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + _SLOT_BYTES, np.uint8)
    data[: last - first] = value_bytes(array)[first:last]
    lengths = np.diff(offsets)
    nulls = null_mask(array)
    if nulls is not None:
        lengths[nulls] = 0
    return data, offsets[:-1] - first, lengths


def word_view(data: U8) -> U64:
    """Return a view of the 8-byte little-endian words at every byte position of ``data`` (unaligned)."""
    view: U64 = np.ndarray((max(len(data) - 7, 0),), "<u8", data.data, strides=(1,))
    return view


def pack_words(data: U8, starts: I64, lengths: I64) -> tuple[I64, U64]:
    """Copy byte ranges into zero-padded 8-byte words.

    Args:
        data: the bytes, with at least 7 further bytes after the last range.
        starts: position of each range.
        lengths: length of each range in bytes.

    Returns:
        Number of words of each range, and all words.
    """
    counts = (lengths + 7) >> 3
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    source = np.repeat(starts - 8 * (ends - counts), counts)
    source += 8 * np.arange(total, dtype=np.int64)
    words = word_view(data)[source]
    has_words = counts > 0
    words[ends[has_words] - 1] &= _TAIL_MASK[lengths[has_words] & 7]
    return counts, words


def _encode_bytes(array: pa.Array) -> Parts:
    if len(array) == 0:
        return Parts(np.zeros(0, np.uint64), None)
    data, starts, lengths = byte_ranges(array)
    nulls = null_mask(array)
    short = lengths & 7
    slots = word_view(data)[starts]
    slots &= _INLINE_MASK[short]
    slots |= _INLINE_TAG[short]
    long = lengths > 7
    words: I64 | None = None
    payload: U64 | None = None
    if long.any():
        long_rows = np.flatnonzero(long)
        slots[long_rows] = lengths[long_rows].view(np.uint64)
        counts, payload = pack_words(data, starts[long_rows], lengths[long_rows])
        words = np.zeros(len(array), np.int64)
        words[long_rows] = counts
    if nulls is not None:
        slots[nulls] = 0
    return Parts(slots, nulls, words, payload)


def _encode_wide_timestamp(array: pa.Array) -> Parts:
    per_milli = _PER_MILLI[array.type.unit]
    nulls = null_mask(array)
    values = values_of(array, "<i8")
    if nulls is not None:
        values = np.where(nulls, 0, values)
    millis = values // per_milli
    nanos = (values - millis * per_milli) * (1_000_000 // per_milli)
    # A null keeps its 8 bytes and its offset, because Java's writer reserves the space first (format.md 6).
    return Parts(nanos.view(np.uint64), nulls, np.ones(len(array), np.int64), millis.view(np.uint64))


def _encode_wide_decimal(array: pa.Array) -> Parts:
    count = len(array)
    nulls = null_mask(array)
    high, low = decimal_limbs(array)
    if nulls is not None:
        high, low = np.where(nulls, 0, high), np.where(nulls, np.uint64(0), low)
    digits, sizes = big_endian_digits(high, low)
    payload = np.zeros((count, 16), np.uint8)
    rows = 16 * np.arange(count, dtype=np.int64)
    payload.reshape(-1)[slice_places(rows, sizes)] = digits[slice_places(rows + 16 - sizes, sizes)]
    if nulls is not None:
        sizes = np.where(nulls, 0, sizes)
        payload[nulls] = 0
    words = np.full(count, _WIDE_DECIMAL_WORDS, np.int64)
    return Parts(sizes.view(np.uint64), nulls, words, payload.reshape(-1).view("<u8"))


# -- nested values: BinaryArray, BinaryMap, rows in rows, VARIANT -----------------------------------------------------


def encode_nested(array: pa.Array, layout: Layout) -> Parts:
    """Encode an array, map, row or variant column; its values are in the variable-length part, nulls use no space."""
    nulls = null_mask(array)
    present = array if nulls is None else array.filter(pa.array(~nulls))
    sizes, payload = _ENCODERS[layout.kind](present, layout)
    counts = (sizes + 7) >> 3
    if nulls is None:
        return Parts(sizes.view(np.uint64), None, counts, payload)
    slots = np.zeros(len(array), np.uint64)
    words = np.zeros(len(array), np.int64)
    slots[~nulls] = sizes.view(np.uint64)
    words[~nulls] = counts
    return Parts(slots, nulls, words, payload)


def _array(array: Any, layout: Layout) -> tuple[I64, U64]:
    offsets = value_offsets(array)
    child = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return binary_arrays(offsets - offsets[0], child, layout.children[0])


def binary_arrays(offsets: I64, child: pa.Array, layout: Layout) -> tuple[I64, U64]:
    """Encode a list column as BinaryArrays.

    Args:
        offsets: first element of each list in ``child``, and the end of the last list.
        child: elements of all lists.
        layout: layout of the elements.

    Returns:
        The size of each array in bytes (a multiple of 8), and the 8-byte words of all arrays.
    """
    child = child if child.type == layout.arrow else child.cast(layout.arrow)
    part = _without_reserved_nulls(encode_values(child, layout))
    counts = np.diff(offsets)
    headers = array_header(counts)
    fixed = (headers + counts * layout.width + 7) >> 3
    child_words = part.words if part.words is not None else np.zeros(len(child), np.int64)
    before = offsets_from(child_words)
    tails = before[offsets[1:]] - before[offsets[:-1]]
    starts = offsets_from(fixed + tails)
    out = np.zeros(int(starts[-1]), np.uint64)
    data = out.view(np.uint8)
    out.view("<u4")[2 * starts[:-1]] = counts
    owner = np.repeat(np.arange(len(counts)), counts)
    position = np.arange(len(child), dtype=np.int64) - offsets[:-1][owner]
    if part.nulls is not None:
        null = np.flatnonzero(part.nulls)
        bits = np.left_shift(1, position[null] & 7).astype(np.uint8)
        np.bitwise_or.at(data, 8 * starts[:-1][owner[null]] + _COUNT_BYTES + (position[null] >> 3), bits)
    tail_start = fixed[owner] + before[:-1] - before[offsets[:-1]][owner]
    slots = part.slots
    if part.payload is not None:
        slots = slots | (np.where(child_words > 0, 8 * tail_start, 0).view(np.uint64) << np.uint64(32))
        out[slice_places(starts[:-1] + fixed, tails)] = part.payload
    # Write the low bytes of each slot; their positions are multiples of min(width, 4).
    at = (8 * starts[:-1] + headers)[owner] + position * layout.width
    if layout.width == 8:
        halves = out.view("<u4")
        halves[at >> 2] = slots.astype(np.uint32)
        halves[(at >> 2) + 1] = (slots >> np.uint64(32)).astype(np.uint32)
    else:
        data.view(f"<u{layout.width}")[at // layout.width] = slots.astype(f"<u{layout.width}")
    return 8 * np.diff(starts), out


def array_header(counts: I64) -> I64:
    """Return the header size in bytes (element count and null bits) of BinaryArrays with ``counts`` elements."""
    return _COUNT_BYTES + ((counts + 31) >> 5) * 4


def _without_reserved_nulls(part: Parts) -> Parts:
    """Remove the space of null decimals and timestamps, which is reserved in rows but not in arrays."""
    if part.nulls is None or part.words is None or part.payload is None or not part.words[part.nulls].any():
        return part
    keep = np.repeat(~part.nulls, part.words)
    words = np.where(part.nulls, 0, part.words)
    return Parts(np.where(part.nulls, np.uint64(0), part.slots), part.nulls, words, part.payload[keep])


def _map(array: Any, layout: Layout) -> tuple[I64, U64]:
    offsets = value_offsets(array)
    first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    sides = [array.keys.slice(first, length), array.items.slice(first, length)]
    encoded = [binary_arrays(offsets - first, side, child) for side, child in zip(sides, layout.children, strict=True)]
    (key_sizes, keys), (item_sizes, items) = encoded
    sizes = _COUNT_BYTES + key_sizes + item_sizes
    starts = offsets_from((sizes + 7) >> 3)
    out = np.zeros(int(starts[-1]), np.uint64)
    quads = out.view("<u4")
    at = 2 * starts[:-1]
    quads[at] = key_sizes
    quads[slice_places(at + 1, key_sizes >> 2)] = keys.view("<u4")
    quads[slice_places(at + 1 + (key_sizes >> 2), item_sizes >> 2)] = items.view("<u4")
    return sizes, out


def _row(array: Any, layout: Layout) -> tuple[I64, U64]:
    if not layout.children:
        return np.full(len(array), 8, np.int64), np.zeros(len(array), np.uint64)
    parts, count = parts_of(array.flatten(), layout.children)
    words, offsets = assemble(parts, count)
    return 8 * np.diff(offsets), words


def _variant(array: Any, _layout: Layout) -> tuple[I64, U64]:
    """Encode VARIANT as the int32 length of the value, the value, and the metadata.

    Returns:
        Size of each value in bytes, and all values as 8-byte words.
    """
    (value, value_at, value_sizes), (meta, meta_at, meta_sizes) = (
        byte_ranges(array.field(index)) for index in range(2)
    )
    sizes = _COUNT_BYTES + value_sizes + meta_sizes
    starts = offsets_from(sizes)
    data = np.zeros(int(starts[-1]) + 8, np.uint8)
    prefix = value_sizes.astype("<u4").view(np.uint8)
    data[slice_places(starts[:-1], np.full(len(array), _COUNT_BYTES, np.int64))] = prefix
    data[slice_places(starts[:-1] + _COUNT_BYTES, value_sizes)] = value[slice_places(value_at, value_sizes)]
    data[slice_places(starts[:-1] + _COUNT_BYTES + value_sizes, meta_sizes)] = meta[slice_places(meta_at, meta_sizes)]
    return sizes, pack_words(data, starts[:-1], sizes)[1]


_ENCODERS: dict[ValueStorage, Callable[[Any, Layout], tuple[I64, U64]]] = {
    ValueStorage.ARRAY: _array,
    ValueStorage.MAP: _map,
    ValueStorage.ROW: _row,
    ValueStorage.VARIANT: _variant,
}


def encode_row(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    """Return a serialised BinaryRow (with arity) of one Python value per type.

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
    """Return an Arrow array of type ``arrow`` that contains one Python value.

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
    """Return the rows of a batch as serialised BinaryRows; ``schema`` has the type of each column of the batch."""
    types = [schema.field(name).type for name in batch.schema.names]
    if not types:
        return arrow_array([EMPTY_ROW] * batch.num_rows, pa.binary())
    return encode_rows(batch.columns, types)
