"""Arrow columns to Avro records without a Python loop over records: a manifest of 100,000 files is written in a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lsm_core.arrays import I64, U8, U64, null_mask, offsets_from, slice_places, value_bytes, value_offsets

_VARINT_BYTES = 10


@dataclass(frozen=True)
class Piece:
    """Bytes of one field of all records: ``lengths[i]`` bytes for record i, one record's after another's in ``data``."""

    lengths: I64
    data: U8


def join(pieces: Sequence[Piece]) -> Piece:
    """Fields side by side: each record's bytes of the first piece, then of the second, and so on."""
    lengths: I64 = np.sum([piece.lengths for piece in pieces], axis=0, dtype=np.int64)
    starts = offsets_from(lengths)
    data = np.empty(int(starts[-1]), np.uint8)
    at = starts[:-1].copy()
    for piece in pieces:
        # Most fields are small numbers of one byte each.
        single = len(piece.data) == len(at) and bool((piece.lengths == 1).all())
        data[at if single else slice_places(at, piece.lengths)] = piece.data
        at += piece.lengths
    return Piece(lengths, data)


def constant(value: int, count: int) -> Piece:
    """The same int or long for every record."""
    return long_values(np.full(count, value, np.int64))


def long_values(values: I64) -> Piece:
    """Zig-zag variable-length integers (Avro int and long are written alike)."""
    zigzag: U64 = ((values << 1) ^ (values >> 63)).view(np.uint64)
    widest = zigzag.max() if len(zigzag) else np.uint64(0)
    lengths = np.ones(len(values), np.int64)
    width = 1
    while width < _VARINT_BYTES and int(widest) >> (7 * width):
        lengths += zigzag >= np.uint64(1 << (7 * width))
        width += 1
    if width == 1:
        return Piece(lengths, zigzag.astype(np.uint8))
    places = np.arange(width)
    groups = (zigzag[:, None] >> (7 * places).astype(np.uint64)).astype(np.uint8) & np.uint8(0x7F)
    groups |= np.where(places < lengths[:, None] - 1, np.uint8(0x80), np.uint8(0))
    return Piece(lengths, groups[places < lengths[:, None]])


def encode(array: pa.Array, *, nullable: bool) -> list[Piece]:
    """Avro bytes, side by side, of an Arrow column of integers, strings, binaries, or lists of them (numbers in lists may be null).

    ``nullable`` is the Avro type's: a union of null and the value, in this order. Raises ValueError for a null elsewhere.
    """
    if not nullable:
        if array.null_count:
            raise ValueError(f"{array.null_count} nulls in a required Avro field")
        return _values(array)
    nulls = null_mask(array)
    if nulls is None:
        return [constant(1, len(array)), *_values(array)]
    present = join(_values(array.filter(pa.array(~nulls))))
    lengths = np.zeros(len(array), np.int64)
    lengths[~nulls] = present.lengths
    return [long_values((~nulls).astype(np.int64)), Piece(lengths, present.data)]


def _values(array: pa.Array) -> list[Piece]:
    if pa.types.is_list(array.type):
        return _lists(array)
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        offsets = value_offsets(array)
        lengths = np.diff(offsets)
        return [long_values(lengths), Piece(lengths, value_bytes(array)[offsets[0] : offsets[-1]])]
    return [long_values(array.cast(pa.int64()).to_numpy(zero_copy_only=False))]


def _lists(array: pa.Array) -> list[Piece]:
    """An array is one block (count, items) and an end mark; an empty one is the end mark alone."""
    offsets = value_offsets(array)
    counts = np.diff(offsets)
    child = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    items = join(encode(child, nullable=pa.types.is_integer(child.type)))
    ends = offsets_from(items.lengths)[offsets - offsets[0]]
    mark = Piece((counts > 0).astype(np.int64), np.zeros(int((counts > 0).sum()), np.uint8))
    return [long_values(counts), Piece(np.diff(ends), items.data), mark]
