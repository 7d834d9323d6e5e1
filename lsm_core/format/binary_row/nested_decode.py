"""Nested values out of a BinaryRow: the inverse of `nested`, with every count and offset checked against its container."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lsm_core.format.binary_row.decode import (
    Slots,
    Source,
    build,
    decode_region,
    decode_values,
    gather_bytes,
)
from lsm_core.format.binary_row.layout import I64, Bools, Kind, Layout, offsets_from, ragged
from lsm_core.format.binary_row.nested import array_header

_COUNT_BYTES = 4


def decode_nested(source: Source, slots: Slots, layout: Layout) -> pa.Array:
    """One nested column from its slots."""
    starts, lengths = slots.regions(source)
    present = np.arange(len(starts)) if slots.nulls is None else np.flatnonzero(~slots.nulls)
    starts, lengths = starts[present], lengths[present]
    if layout.kind is Kind.ROW:
        return _rows(source, starts, lengths, slots.nulls, layout)
    if layout.kind is Kind.VARIANT:
        return _variants(source, starts, lengths, slots.nulls, layout)
    source.check(not (lengths < _COUNT_BYTES).any(), "too short for a collection")
    if layout.kind is Kind.ARRAY:
        counts, child = _arrays(source, starts, lengths, layout.children[0])
        return build(layout.arrow, slots.nulls, len(slots.at), [_list_ends(counts, present, slots)], [child])
    return _maps(source, starts, lengths, present, slots, layout)


def _list_ends(counts: I64, present: I64, slots: Slots) -> I64:
    every = np.zeros(len(slots.at), np.int64)
    every[present] = counts
    return offsets_from(every).astype(np.int32)


def _arrays(source: Source, starts: I64, lengths: I64, layout: Layout) -> tuple[I64, pa.Array]:
    """Element counts and all elements of the BinaryArrays at ``starts``."""
    counts = source.load(starts, 4).astype(np.int64)
    # Compared before any product, so that a huge count cannot overflow or allocate.
    source.check(not (counts > lengths).any() or layout.width == 0, "an array claims more elements than bytes")
    headers = array_header(counts)
    source.check(not (headers + counts * layout.width > lengths).any(), "an array claims more elements than bytes")
    offsets = offsets_from(counts)
    owner = np.repeat(np.arange(len(counts)), counts)
    position = np.arange(int(offsets[-1]), dtype=np.int64) - offsets[:-1][owner]
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


def _rows(source: Source, starts: I64, lengths: I64, nulls: Bools | None, layout: Layout) -> pa.Array:
    columns = decode_region(source, starts, lengths, layout.children)
    return _struct(columns, nulls, len(starts), layout.arrow)


def _struct(columns: list[pa.Array], nulls: Bools | None, count: int, arrow: pa.DataType) -> pa.Array:
    """A struct array of the columns of its present rows, null rows put back between them."""
    if nulls is None:
        return pa.Array.from_buffers(arrow, count, [None], children=columns)
    index = np.cumsum(~nulls) - 1
    where = pa.array(np.maximum(index, 0), mask=nulls)
    spread = [column.take(where) for column in columns]
    return build(arrow, nulls, len(nulls), [], spread)


def _variants(source: Source, starts: I64, lengths: I64, nulls: Bools | None, layout: Layout) -> pa.Array:
    source.check(not (lengths < _COUNT_BYTES).any(), "too short for a variant")
    value_bytes = source.load(starts, 4).astype(np.int64)
    source.check(not (value_bytes + _COUNT_BYTES > lengths).any(), "a variant's value does not fit")
    values = gather_bytes(source, starts + _COUNT_BYTES, value_bytes)
    metadata = gather_bytes(source, starts + _COUNT_BYTES + value_bytes, lengths - _COUNT_BYTES - value_bytes)
    return _struct([values, metadata], nulls, len(starts), layout.arrow)


__all__ = ["decode_nested", "ragged"]
