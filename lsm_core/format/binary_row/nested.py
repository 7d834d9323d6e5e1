"""Nested values inside a BinaryRow: BinaryArray, BinaryMap, rows in rows, VARIANT (Java `BinaryArrayWriter`, `BinaryMap`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.format.binary_row.encode import assemble, parts_of
from lsm_core.format.binary_row.layout import I64, U8, U64, Bools, Kind, Layout, null_mask, offsets_from, ragged
from lsm_core.format.binary_row.values import Parts, byte_ranges, encode_values, pack_words

_COUNT_BYTES = 4


def encode_nested(array: pa.Array, layout: Layout) -> Parts:
    """Encode an array, map, row or variant column: all its values lie in the variable part, nulls take no room."""
    nulls = null_mask(array)
    keep = array if nulls is None else array.filter(pa.array(~nulls))
    sizes, payload = _ENCODERS[layout.kind](keep, layout)
    counts = (sizes + 7) >> 3
    if nulls is None:
        return Parts(sizes.view(np.uint64), None, counts, payload)
    slots = np.zeros(len(array), np.uint64)
    words = np.zeros(len(array), np.int64)
    slots[~nulls] = sizes.view(np.uint64)
    words[~nulls] = counts
    return Parts(slots, nulls, words, payload)


def _array(array: Any, layout: Layout) -> tuple[I64, U64]:
    offsets = _list_offsets(array)
    child = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return binary_arrays(offsets - offsets[0], child, layout.children[0])


def _list_offsets(array: pa.Array) -> I64:
    return np.frombuffer(array.buffers()[1], "<i4")[array.offset : array.offset + len(array) + 1].astype(np.int64)


def binary_arrays(offsets: I64, child: pa.Array, layout: Layout) -> tuple[I64, U64]:
    """BinaryArrays of a list column: (bytes of each, a multiple of 8; words of all)."""
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
        _set_null_bits(data, 8 * starts[:-1][owner] + _COUNT_BYTES, position, part.nulls)
    tail_start = fixed[owner] + before[:-1] - before[offsets[:-1]][owner]
    slots = part.slots
    if part.payload is not None:
        slots = slots | (np.where(child_words > 0, 8 * tail_start, 0).view(np.uint64) << np.uint64(32))
        out[ragged(starts[:-1] + fixed, tails)] = part.payload
    _store(data, (8 * starts[:-1] + headers)[owner] + position * layout.width, slots, layout.width)
    return 8 * np.diff(starts), out


def array_header(counts: I64) -> I64:
    """Bytes of the element count and null bits of a BinaryArray."""
    return _COUNT_BYTES + ((counts + 31) >> 5) * 4


def _without_reserved_nulls(part: Parts) -> Parts:
    """Null decimals and timestamps reserve room in rows, but not in arrays."""
    if part.nulls is None or part.words is None or part.payload is None or not part.words[part.nulls].any():
        return part
    keep = np.repeat(~part.nulls, part.words)
    words = np.where(part.nulls, 0, part.words)
    return Parts(np.where(part.nulls, np.uint64(0), part.slots), part.nulls, words, part.payload[keep])


def _set_null_bits(data: U8, bits_start: I64, position: I64, nulls: Bools) -> None:
    at = np.flatnonzero(nulls)
    masks = np.left_shift(1, position[at] & 7).astype(np.uint8)
    np.bitwise_or.at(data, bits_start[at] + (position[at] >> 3), masks)


def _store(data: U8, at: I64, slots: U64, width: int) -> None:
    """Write the low ``width`` bytes of each slot at byte positions that are multiples of min(width, 4)."""
    if width == 8:
        halves = data.view("<u4")
        halves[at >> 2] = slots.astype(np.uint32)
        halves[(at >> 2) + 1] = (slots >> np.uint64(32)).astype(np.uint32)
    else:
        data.view(f"<u{width}")[at // width] = slots.astype(f"<u{width}")


def _map(array: Any, layout: Layout) -> tuple[I64, U64]:
    offsets = _list_offsets(array)
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
    quads[ragged(at + 1, key_sizes >> 2)] = keys.view("<u4")
    quads[ragged(at + 1 + (key_sizes >> 2), item_sizes >> 2)] = items.view("<u4")
    return sizes, out


def _row(array: Any, layout: Layout) -> tuple[I64, U64]:
    if not layout.children:
        return np.full(len(array), 8, np.int64), np.zeros(len(array), np.uint64)
    parts, count = parts_of(array.flatten(), layout.children)
    words, offsets = assemble(parts, count)
    return 8 * np.diff(offsets), words


def _variant(array: Any, _layout: Layout) -> tuple[I64, U64]:
    """VARIANT: int32 length of the value, the value, the metadata."""
    (value, value_at, value_sizes), (meta, meta_at, meta_sizes) = (
        byte_ranges(array.field(index)) for index in range(2)
    )
    sizes = _COUNT_BYTES + value_sizes + meta_sizes
    starts = offsets_from(sizes)
    data = np.zeros(int(starts[-1]) + 8, np.uint8)
    prefix = value_sizes.astype("<u4").view(np.uint8)
    data[ragged(starts[:-1], np.full(len(array), _COUNT_BYTES, np.int64))] = prefix
    data[ragged(starts[:-1] + _COUNT_BYTES, value_sizes)] = value[ragged(value_at, value_sizes)]
    data[ragged(starts[:-1] + _COUNT_BYTES + value_sizes, meta_sizes)] = meta[ragged(meta_at, meta_sizes)]
    return sizes, pack_words(data, starts[:-1], sizes)[1]


_ENCODERS: dict[Kind, Callable[[Any, Layout], tuple[I64, U64]]] = {
    Kind.ARRAY: _array,
    Kind.MAP: _map,
    Kind.ROW: _row,
    Kind.VARIANT: _variant,
}
