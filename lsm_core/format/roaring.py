"""Roaring bitmaps in their portable form, walked and checked before the native library may touch them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lsm_core.arrays import I64, U8, offsets_from, places_within
from lsm_core.errors import CorruptFile

U32 = npt.NDArray[np.uint32]
_PLAIN_COOKIE: Final = 12346
_RUN_COOKIE: Final = 12347
_MOST_CONTAINERS: Final = 1 << 16
_CONTAINER_VALUES: Final = 1 << 16
_ARRAY_MOST: Final = 4096
_BITSET_BYTES: Final = 8192
_SLICE: Final = 1 << 20
_OFFSETS_FROM: Final = 4
"""Bitmaps with run containers list the containers' offsets only from this many on."""


def decode(data: bytes | memoryview, path: str) -> tuple[BitMap, int]:
    """The bitmap at the start of ``data`` and the bytes it takes; raises :class:`CorruptFile` naming ``path``.

    Every length and every order that the native code relies on is checked here first; nothing is allocated for
    more than the bytes at hand can describe.
    """
    end = measure(data, path)
    try:
        return BitMap.deserialize(bytes(data[:end])), end
    except Exception as error:  # the native library promises no particular type
        raise CorruptFile(path, f"roaring bitmap: {error}") from error


def encode(positions: BitMap, *, runs: bool = False) -> bytes:
    """Portable bytes; ``runs`` compresses stretches as Java's `runOptimize` does (and then keeps what is smaller)."""
    if runs:
        positions = BitMap(positions)
        positions.run_optimize()
    return bytes(positions.serialize())


def encode_all(positions: U32, starts: I64) -> tuple[U8, I64]:
    """Portable bytes of many bitmaps, one after another, and where each begins, with the end.

    Bitmap ``i`` has ``positions[starts[i]:starts[i + 1]]``, ascending; each is what :func:`encode` with ``runs`` makes of it.
    A dictionary of values has as many bitmaps as values: about a million positions are laid out at once, where the library takes
    one bitmap at a time.
    """
    parts: list[U8] = []
    begins = [np.zeros(1, np.int64)]
    at, last = 0, len(starts) - 1
    while at < last:
        until = max(at + 1, int(np.searchsorted(starts, starts[at] + _SLICE, "right")) - 1)
        data, ends = _encode_slice(positions[starts[at] : starts[until]], starts[at : until + 1] - starts[at])
        begins.append(ends[1:] + begins[-1][-1])
        parts.append(data)
        at = until
    return np.concatenate([np.zeros(0, np.uint8), *parts]), np.concatenate(begins)


def _encode_slice(positions: U32, starts: I64) -> tuple[U8, I64]:
    bitmaps = len(starts) - 1
    owner = np.repeat(np.arange(bitmaps, dtype=np.int64), np.diff(starts))
    high, low = positions >> np.uint32(16), positions.astype(np.uint16)
    first = np.ones(len(positions), np.bool_)
    first[1:] = (owner[1:] != owner[:-1]) | (high[1:] != high[:-1])
    heads = np.flatnonzero(first)
    sizes = np.diff(np.append(heads, len(positions)))
    breaks = first.copy()
    breaks[1:] |= positions[1:] != positions[:-1] + np.uint32(1)
    run_starts = np.flatnonzero(breaks)
    runs = np.diff(np.searchsorted(run_starts, np.append(heads, len(positions))))
    listed = np.where(sizes > _ARRAY_MOST, _BITSET_BYTES, 2 * sizes)
    is_run = listed > 2 + 4 * runs
    lengths = np.where(is_run, 2 + 4 * runs, listed)

    # Heads of the bitmaps: cookie, which containers are runs, keys and cardinalities, offsets.
    owners = owner[heads]
    containers = np.bincount(owners, minlength=bitmaps)
    with_runs = np.bincount(owners[is_run], minlength=bitmaps) > 0
    flags = np.where(with_runs, (containers + 7) // 8, 0)
    offsets_listed = ~with_runs | (containers >= _OFFSETS_FROM)
    head_bytes = np.where(with_runs, 4 + flags, 8) + 4 * containers + np.where(offsets_listed, 4 * containers, 0)
    bodies = offsets_from(lengths)
    per_bitmap = np.diff(bodies[offsets_from(containers)])
    begins = offsets_from(head_bytes + per_bitmap)
    data = np.zeros(int(begins[-1]), np.uint8)
    cookies = np.where(with_runs, _RUN_COOKIE | (containers - 1) << 16, _PLAIN_COOKIE)
    _put(data, begins[:-1], cookies, "<u4")
    _put(data, begins[:-1][~with_runs] + 4, containers[~with_runs], "<u4")
    number = places_within(containers)
    flagged = np.flatnonzero(is_run)
    np.bitwise_or.at(
        data,
        begins[owners[flagged]] + 4 + number[flagged] // 8,
        np.left_shift(np.uint8(1), (number[flagged] % 8).astype(np.uint8)),
    )
    described = begins[owners] + np.where(with_runs[owners], 4 + flags[owners], 8) + 4 * number
    _put(data, described, high[heads], "<u2")
    _put(data, described + 2, sizes - 1, "<u2")
    within = bodies[:-1] - bodies[offsets_from(containers)][owners]
    placed = begins[owners] + head_bytes[owners] + within
    declared = offsets_listed[owners]
    _put(data, (described + 4 * containers[owners])[declared], (placed - begins[owners])[declared], "<u4")

    # Containers: lists of values, runs of them, or sets of bits.
    container = np.cumsum(first) - 1
    is_list = ~is_run & (sizes <= _ARRAY_MOST)
    chosen = np.flatnonzero(is_list[container])
    _put(data, placed[container[chosen]] + 2 * (chosen - heads[container[chosen]]), low[chosen], "<u2")
    _put(data, placed[is_run], runs[is_run], "<u2")
    run_container = container[run_starts]
    kept = np.flatnonzero(is_run[run_container])
    place = placed[run_container[kept]] + 2 + 4 * (kept - np.searchsorted(run_starts, heads)[run_container[kept]])
    _put(data, place, low[run_starts[kept]], "<u2")
    _put(data, place + 2, np.diff(np.append(run_starts, len(positions)))[kept] - 1, "<u2")
    for at in np.flatnonzero(~is_run & (sizes > _ARRAY_MOST)):  # at most one for 4,097 positions
        bits = np.zeros(_CONTAINER_VALUES, np.bool_)
        bits[low[heads[at] : heads[at] + sizes[at]]] = True
        data[placed[at] : placed[at] + _BITSET_BYTES] = np.packbits(bits, bitorder="little")
    return data, begins


def _put(data: U8, places: I64, values: npt.NDArray[Any], kind: str) -> None:
    """Write each number, as type ``kind``, at its place."""
    width = np.dtype(kind).itemsize
    raw = np.ascontiguousarray(values.astype(kind)).view(np.uint8).reshape(-1, width)
    for byte in range(width):
        data[places + byte] = raw[:, byte]


def measure(data: bytes | memoryview, path: str) -> int:
    """Bytes that the bitmap at the start of ``data`` takes, all of them checked."""
    view = memoryview(data)
    at, count, is_run, offsets = _header(view, path)
    head = _words(view, at, 2 * count, path).reshape(-1, 2).astype(np.int64)
    at += 4 * count
    keys, sizes = head[:, 0], head[:, 1] + 1
    if (np.diff(keys) <= 0).any():
        raise CorruptFile(path, "roaring bitmap: keys of containers are not ascending")
    declared = np.frombuffer(_take(view, at, 4 * count if offsets else 0, path), "<u4")
    at += 4 * len(declared)
    for index in range(count):  # one container stands for up to 65,536 positions
        if offsets and int(declared[index]) != at:
            raise CorruptFile(path, f"roaring bitmap: container {index} is not where the header says")
        at += _container(view, at, int(sizes[index]), bool(is_run[index]), path)
    return at


def _header(view: memoryview, path: str) -> tuple[int, int, npt.NDArray[np.uint8], bool]:
    """(bytes so far, containers, which are runs, whether offsets follow)."""
    cookie = int.from_bytes(_take(view, 0, 4, path), "little")
    if cookie & 0xFFFF == _RUN_COOKIE:
        count = (cookie >> 16) + 1
        packed = np.frombuffer(_take(view, 4, (count + 7) // 8, path), np.uint8)
        return 4 + len(packed), count, np.unpackbits(packed, bitorder="little")[:count], count >= _OFFSETS_FROM
    if cookie != _PLAIN_COOKIE:
        raise CorruptFile(path, f"roaring bitmap: unknown cookie {cookie}")
    count = int.from_bytes(_take(view, 4, 4, path), "little")
    if count > _MOST_CONTAINERS:
        raise CorruptFile(path, f"roaring bitmap of {count} containers")
    # Every container has a header of 4 bytes and an offset of 4: ask for them before memory is taken for `count`.
    _take(view, 8, 8 * count, path)
    return 8, count, np.zeros(count, np.uint8), True


def _container(view: memoryview, at: int, values: int, is_run: bool, path: str) -> int:
    """Check one container; returns its bytes."""
    if is_run:
        runs = int(_words(view, at, 1, path)[0])
        pairs = _words(view, at + 2, 2 * runs, path).reshape(-1, 2).astype(np.int64)
        ends = pairs.sum(axis=1)
        if (
            (ends >= _CONTAINER_VALUES).any()
            or (pairs[1:, 0] <= ends[:-1]).any()
            or int(pairs[:, 1].sum()) + runs != values
        ):
            raise CorruptFile(path, "roaring bitmap: runs overlap, or their number of values is wrong")
        return 2 + 4 * runs
    if values > _ARRAY_MOST:
        bits = np.frombuffer(_take(view, at, _BITSET_BYTES, path), np.uint8)
        if int(np.unpackbits(bits).sum()) != values:
            raise CorruptFile(path, "roaring bitmap: a bit set's number of values is wrong")
        return _BITSET_BYTES
    if (np.diff(_words(view, at, values, path).astype(np.int64)) <= 0).any():
        raise CorruptFile(path, "roaring bitmap: values are not ascending")
    return 2 * values


def _words(view: memoryview, at: int, count: int, path: str) -> npt.NDArray[Any]:
    return np.frombuffer(_take(view, at, 2 * count, path), "<u2")


def _take(view: memoryview, at: int, length: int, path: str) -> memoryview:
    if at + length > len(view):
        raise CorruptFile(path, f"roaring bitmap ends after {len(view)} bytes, {at + length} are needed")
    return view[at : at + length]


__all__ = ["decode", "encode", "encode_all", "measure"]
