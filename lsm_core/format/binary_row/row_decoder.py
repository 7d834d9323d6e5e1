"""Decoding of serialised rows to Arrow columns; every offset is validated before use, as the bytes are untrusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.arrays import (
    I64,
    U8,
    U64,
    Bools,
    arrow_array,
    limbs_from_big_endian,
    offsets_from,
    one_array,
    places_within,
    slice_places,
    value_bytes,
    value_offsets,
)
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.format.binary_row.layout import ARITY_BYTES, Layout, ValueStorage, header_bytes, layouts_of
from lsm_core.format.binary_row.row_encoder import array_header
from lsm_core.types import DataType

_UNKNOWN_PATH = "(binary row)"
_PADDING = 16
_COUNT_BYTES = 4
# Largest distance from the epoch (ms) that Arrow's unit can represent with any fraction.
_MAX_MILLIS = {"us": (2**63 - 1) // 1000 - 1, "ns": (2**63 - 1) // 1_000_000 - 1}
_NANOS_PER_MILLI = 1_000_000
_MAX_NANOS = 999_999


@dataclass
class Source:
    """The bytes to decode and their file.

    Attributes:
        data: the bytes, padded so that a word can be read at any valid position.
        path: path of the file, for messages.
    """

    data: U8
    path: str

    def check(self, good: bool, reason: str) -> None:
        """Raise CorruptFile unless ``good``."""
        if not good:
            raise CorruptFile(self.path, f"binary row: {reason}")

    def load(self, at: I64, width: int = 8) -> Any:
        """Return little-endian unsigned integers of ``width`` bytes at byte positions ``at`` (any alignment)."""
        view = np.ndarray((len(self.data) - width + 1,), f"<u{width}", self.data.data, strides=(1,))
        return view[at]


@dataclass
class Slots:
    """Positions of the slots of one column.

    Regions of a correct writer never overlap, so lengths that exceed ``room`` are a forgery. They are refused before
    they can multiply memory.

    Attributes:
        at: byte position of each slot.
        base: start of the container, from which offsets are counted.
        limit: length of the container (bytes).
        nulls: mask of null values, or None.
        room: bytes of the container that are left for variable-length parts.
        offsets: first slot of each container if it has several, or None.
    """

    at: I64
    base: I64
    limit: I64
    nulls: Bools | None
    room: I64
    offsets: I64 | None = None

    def regions(self, source: Source) -> tuple[I64, I64]:
        """Return validated start and length of each variable-length part (bytes); 0 and 0 for null."""
        slots = source.load(self.at)
        lengths = (slots & np.uint64(0xFFFFFFFF)).astype(np.int64)
        offsets = (slots >> np.uint64(32)).astype(np.int64)
        return self.check_regions(source, offsets, lengths)

    def check_regions(self, source: Source, offsets: I64, lengths: I64) -> tuple[I64, I64]:
        """Validate offsets and lengths that are already split; see :meth:`regions`."""
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

    The work is bounded by rows x columns + bytes.

    Args:
        blobs: rows as a binary array or chunked array, without nulls.
        types: types of the columns.
        path: path of the file, for messages.
        with_arity: whether each row starts with its arity.

    Returns:
        One array per column.

    Raises:
        CorruptFile: wrong arity, an offset outside the row, overlapping values, invalid UTF-8, or a decimal beyond its
            precision; the message names ``path``.
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
    """Return the columns of rows (without arity) at positions ``starts`` with ``lengths`` bytes."""
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
    """Return one column from its slots."""
    if layout.kind is ValueStorage.FIXED:
        return _fixed(source, slots, layout)
    if layout.kind is ValueStorage.BYTES:
        return _bytes(source, slots, layout)
    if layout.kind is ValueStorage.DECIMAL:
        return _wide_decimal(source, slots, layout)
    if layout.kind is ValueStorage.TIMESTAMP:
        return _wide_timestamp(source, slots, layout)
    return decode_nested(source, slots, layout)


def build(
    arrow: pa.DataType, nulls: Bools | None, count: int, buffers: Sequence[Any], children: Sequence[pa.Array] = ()
) -> pa.Array:
    """Return an Arrow array from its buffers, with the validity bits of ``nulls``."""
    validity = None if nulls is None else arrow_array(~nulls).buffers()[1]
    arrow_buffers = [None if item is None else pa.py_buffer(item) for item in buffers]
    return pa.Array.from_buffers(arrow, count, [validity, *arrow_buffers], children=list(children))


def _zero_nulls(values: Any, nulls: Bools | None) -> Any:
    return values if nulls is None else np.where(nulls, values.dtype.type(0), values)


def _fixed(source: Source, slots: Slots, layout: Layout) -> pa.Array:
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


def _bytes(source: Source, slots: Slots, layout: Layout) -> pa.Array:
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


def _wide_timestamp(source: Source, slots: Slots, layout: Layout) -> pa.Array:
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


def _wide_decimal(source: Source, slots: Slots, layout: Layout) -> pa.Array:
    starts, lengths = slots.regions(source)
    count = len(starts)
    bad = (lengths > 16) | (lengths < 1)
    source.check(not (bad if slots.nulls is None else bad & ~slots.nulls).any(), "a decimal has no or over 16 bytes")
    limbs = limbs_from_big_endian(source.data, starts, lengths)
    return _validate(source, build(layout.arrow, slots.nulls, count, [limbs]), "decimal")


# -- nested values: every count and offset is validated against its container ------------------------------------------


def decode_nested(source: Source, slots: Slots, layout: Layout) -> pa.Array:
    """Return one nested column from its slots."""
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
    """Return the element counts and all elements of the BinaryArrays at ``starts``."""
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
    """Return a struct array of the columns of its present rows, with the null rows inserted."""
    if nulls is None:
        return pa.Array.from_buffers(arrow, count, [None], children=columns)
    index = np.cumsum(~nulls) - 1
    row_index = arrow_array(np.maximum(index, 0), mask=nulls)
    expanded = [column.take(row_index) for column in columns]
    return build(arrow, nulls, len(nulls), [], expanded)
