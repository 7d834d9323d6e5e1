"""xxHash64 (seed 0) of a whole column of texts or bytes, as in Java's bloom filters.

The package xxhash hashes one value per call. For texts of 10 bytes that is 2.5 times slower than hashing whole columns.
For values of 128 bytes and more the package is faster, so long values use it (`python -m bench hash` prints both).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import xxhash

from lsm_core.arrays import I64, U8, U64
from lsm_core.format.binary_row import byte_ranges, word_view

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
_LONG: Final = 128
"""Length in bytes from which a call of the package xxhash per value is faster."""
_START: Final = ((_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK)
_BLOCK_ROWS: Final = 16_384


def xxhash64(array: pa.Array) -> I64:
    """Return the hash of each value of a string or binary array as int64; a null has the hash of the empty value."""
    hashes = np.zeros(len(array), np.int64)
    for first in range(0, len(array), _BLOCK_ROWS):
        block = array.slice(first, _BLOCK_ROWS)
        hashes[first : first + len(block)] = _hash_block(*byte_ranges(block))
    return hashes


def _hash_block(data: U8, starts: I64, lengths: I64) -> I64:
    long = np.flatnonzero(lengths >= _LONG)
    if not len(long):
        return _hash_short(data, starts, lengths)
    short = np.flatnonzero(lengths < _LONG)
    hashes = np.empty(len(starts), np.int64)
    hashes[short] = _hash_short(data, starts[short], lengths[short])
    view = data.data
    ranges = zip(starts[long].tolist(), lengths[long].tolist(), strict=True)
    digests = (xxhash.xxh64_intdigest(view[at : at + size]) for at, size in ranges)
    hashes[long] = np.fromiter(digests, np.uint64, len(long)).view(np.int64)
    return hashes


def _hash_short(data: U8, starts: I64, lengths: I64) -> I64:
    words = word_view(data)
    hashes = np.full(len(starts), _N5, np.uint64)
    striped = np.flatnonzero(lengths >= _STRIPE)
    if len(striped):
        hashes[striped] = _stripes(words, starts[striped], lengths[striped] // _STRIPE)
    hashes += lengths.astype(np.uint64)
    _tails(hashes, words, data, starts, lengths)
    hashes ^= hashes >> np.uint64(33)
    hashes *= _N2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _N3
    hashes ^= hashes >> np.uint64(32)
    return hashes.view(np.int64)


def _stripes(words: U64, starts: I64, counts: I64) -> U64:
    """Return the hash state of each value after its complete stripes of 32 bytes.

    Args:
        words: 8-byte words at every byte position of the data.
        starts: position of each value.
        counts: number of complete stripes of each value.
    """
    lanes = [np.full(len(starts), np.uint64(value), np.uint64) for value in _START]
    for step in range(int(counts.max())):
        rows = np.flatnonzero(counts > step)
        for index, lane in enumerate(lanes):
            lane[rows] = _round(lane[rows], words[starts[rows] + (_STRIPE * step + 8 * index)])
    state = sum((_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint64(0))
    for lane in lanes:
        state = (state ^ _round(np.zeros_like(lane), lane)) * _N1 + _N4
    return np.asarray(state, np.uint64)


def _tails(hashes: U64, words: U64, data: U8, starts: I64, lengths: I64) -> None:
    """Mix the bytes after the last stripe into ``hashes``: words of 8 bytes, one of 4, single bytes.

    Args:
        hashes: hash of each value so far, changed in place.
        words: 8-byte words at every byte position of the data.
        data: bytes of all values.
        starts: position of each value.
        lengths: length of each value in bytes.
    """
    positions = starts + (lengths // _STRIPE) * _STRIPE
    remaining = lengths % _STRIPE
    while (rows := np.flatnonzero(remaining >= 8)).size:
        mixed = hashes[rows] ^ _round(np.zeros(len(rows), np.uint64), words[positions[rows]])
        hashes[rows] = _rotate(mixed, 27) * _N1 + _N4
        positions[rows] += 8
        remaining[rows] -= 8
    rows = np.flatnonzero(remaining >= 4)
    if rows.size:
        quads = words[positions[rows]] & np.uint64(0xFFFFFFFF)
        hashes[rows] = _rotate(hashes[rows] ^ (quads * _N1), 23) * _N2 + _N3
        positions[rows] += 4
        remaining[rows] -= 4
    while (rows := np.flatnonzero(remaining > 0)).size:
        mixed = hashes[rows] ^ (data[positions[rows]].astype(np.uint64) * _N5)
        hashes[rows] = _rotate(mixed, 11) * _N1
        positions[rows] += 1
        remaining[rows] -= 1


def _round(lane: U64, words: U64) -> U64:
    return _rotate(lane + words * _N2, 31) * _N1


def _rotate(values: U64, bits: int) -> U64:
    rotated: U64 = (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
    return rotated
