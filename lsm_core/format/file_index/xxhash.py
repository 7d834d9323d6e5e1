"""xxHash64 (seed 0) of a whole column of texts or bytes at once, as Java's bloom filters hash them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.format.binary_row.encode import byte_ranges, word_view

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_N1, _N2, _N3, _N4, _N5 = (np.uint64(prime) for prime in (_P1, _P2, _P3, _P4, _P5))
_MASK: Final = (1 << 64) - 1
_STRIPE: Final = 32
_FEW_ROWS: Final = 8
_START: Final = ((_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK)
_BLOCK_ROWS: Final = 16_384


def xxhash64(array: pa.Array) -> I64:
    """Hash of each value of a string or binary array (null: 0), as int64."""
    found = np.zeros(len(array), np.int64)
    for first in range(0, len(array), _BLOCK_ROWS):
        block = array.slice(first, _BLOCK_ROWS)
        found[first : first + len(block)] = _hash_block(*byte_ranges(block))
    return found


def _hash_block(data: U8, starts: I64, lengths: I64) -> I64:
    words = word_view(data)
    hashes = np.full(len(starts), _N5, np.uint64)
    long = np.flatnonzero(lengths >= _STRIPE)
    if len(long):
        hashes[long] = _stripes(words, data, starts[long], lengths[long])
    hashes += lengths.astype(np.uint64)
    _tails(hashes, words, data, starts, lengths)
    hashes ^= hashes >> np.uint64(33)
    hashes *= _N2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _N3
    hashes ^= hashes >> np.uint64(32)
    return hashes.view(np.int64)


def _stripes(words: U64, data: U8, starts: I64, lengths: I64) -> U64:
    """State after the whole stripes of 32 bytes; the longest rows first, so that those still at work are a prefix."""
    order = np.argsort(-lengths, kind="stable")
    begin, counts = starts[order], lengths[order] // _STRIPE
    lanes = [np.full(len(order), np.uint64(value), np.uint64) for value in _START]
    step, alive = 0, len(order)
    while alive > _FEW_ROWS:
        for index, lane in enumerate(lanes):
            lane[:alive] = _round(lane[:alive], words[begin[:alive] + (_STRIPE * step + 8 * index)])
        step += 1
        alive = int(np.searchsorted(-counts, -step, side="left"))
    for row in range(alive):  # only the few longest values are left: each goes on alone
        tail = data[begin[row] + _STRIPE * step : begin[row] + _STRIPE * int(counts[row])]
        after = _long_value([int(lane[row]) for lane in lanes], tail)
        for lane, value in zip(lanes, after, strict=True):
            lane[row] = value
    state = sum((_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint64(0))
    for lane in lanes:
        state = (state ^ _round(np.zeros_like(lane), lane)) * _N1 + _N4
    found = np.empty(len(order), np.uint64)
    found[order] = state
    return found


def _long_value(lanes: list[int], tail: U8) -> list[int]:
    """The same rounds in plain integers for the rest of one value."""
    with np.errstate(over="ignore"):
        scaled = np.ascontiguousarray(tail).view("<u8") * _N2
    for lane in range(4):
        value = lanes[lane]
        for word in scaled[lane::4].tolist():
            value = (value + word) & _MASK
            value = (((value << 31) | (value >> 33)) * _P1) & _MASK
        lanes[lane] = value
    return lanes


def _tails(hashes: U64, words: U64, data: U8, starts: I64, lengths: I64) -> None:
    """What is left behind the stripes: words of 8 bytes, one of 4, single bytes."""
    at = starts + (lengths // _STRIPE) * _STRIPE
    left = lengths % _STRIPE
    while (rows := np.flatnonzero(left >= 8)).size:
        mixed = hashes[rows] ^ _round(np.zeros(len(rows), np.uint64), words[at[rows]])
        hashes[rows] = _rotate(mixed, 27) * _N1 + _N4
        at[rows] += 8
        left[rows] -= 8
    rows = np.flatnonzero(left >= 4)
    if rows.size:
        quads = words[at[rows]] & np.uint64(0xFFFFFFFF)
        hashes[rows] = _rotate(hashes[rows] ^ (quads * _N1), 23) * _N2 + _N3
        at[rows] += 4
        left[rows] -= 4
    while (rows := np.flatnonzero(left > 0)).size:
        mixed = hashes[rows] ^ (data[at[rows]].astype(np.uint64) * _N5)
        hashes[rows] = _rotate(mixed, 11) * _N1
        at[rows] += 1
        left[rows] -= 1


def _round(lane: U64, words: U64) -> U64:
    return _rotate(lane + words * _N2, 31) * _N1


def _rotate(values: U64, bits: int) -> U64:
    rotated: U64 = (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
    return rotated


__all__ = ["xxhash64"]
