"""Roaring bitmaps in their portable form, validated before the native library reads them."""

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
_MAX_CONTAINERS: Final = 1 << 16
_CONTAINER_VALUES: Final = 1 << 16
_MAX_ARRAY_VALUES: Final = 4096
_BITSET_BYTES: Final = 8192
_SLICE: Final = 1 << 20
_MIN_OFFSET_CONTAINERS: Final = 4
"""Number of containers from which bitmaps with run containers list the containers' offsets."""


def decode(data: bytes | memoryview, path: str) -> tuple[BitMap, int]:
    """Decode the bitmap at the start of ``data``.

    Every length and every order that the native code relies on is validated first. Memory is allocated only for the
    available bytes.

    Returns:
        The bitmap and its size in bytes.

    Raises:
        CorruptFile: the bitmap is damaged; the message names ``path``.
    """
    end = measure(data, path)
    try:
        return BitMap.deserialize(bytes(data[:end])), end
    except Exception as error:  # the native library does not document its exceptions
        raise CorruptFile(path, f"roaring bitmap: {error}") from error


def encode(positions: BitMap, *, runs: bool = False) -> bytes:
    """Return the portable form of a bitmap.

    Args:
        positions: the bitmap.
        runs: whether to compress runs like Java's `runOptimize`, which keeps the smaller form.

    Returns:
        The bytes.
    """
    if runs:
        positions = BitMap(positions)
        positions.run_optimize()
    return bytes(positions.serialize())


def encode_all(positions: U32, starts: I64) -> tuple[U8, I64]:
    """Return the portable forms of many bitmaps, concatenated.

    Each bitmap has the bytes of :func:`encode` with ``runs``. The index of a column has as many bitmaps as distinct
    values. So about a million positions are encoded at once, while the library encodes one bitmap at a time.

    Args:
        positions: positions of all bitmaps, ascending within each.
        starts: bitmap ``i`` has ``positions[starts[i]:starts[i + 1]]``.

    Returns:
        The bytes, and the start of each bitmap in them; the last item is the end of the last bitmap.
    """
    parts: list[U8] = []
    offsets = [np.zeros(1, np.int64)]
    index, count = 0, len(starts) - 1
    while index < count:
        stop = max(index + 1, int(np.searchsorted(starts, starts[index] + _SLICE, "right")) - 1)
        data, ends = _encode_slice(positions[starts[index] : starts[stop]], starts[index : stop + 1] - starts[index])
        offsets.append(ends[1:] + offsets[-1][-1])
        parts.append(data)
        index = stop
    return np.concatenate([np.zeros(0, np.uint8), *parts]), np.concatenate(offsets)


def _encode_slice(positions: U32, starts: I64) -> tuple[U8, I64]:
    bitmaps = len(starts) - 1
    owner = np.repeat(np.arange(bitmaps, dtype=np.int64), np.diff(starts))
    high, low = positions >> np.uint32(16), positions.astype(np.uint16)
    is_start = np.ones(len(positions), np.bool_)
    is_start[1:] = (owner[1:] != owner[:-1]) | (high[1:] != high[:-1])
    container_starts = np.flatnonzero(is_start)
    sizes = np.diff(np.append(container_starts, len(positions)))
    breaks = is_start.copy()
    breaks[1:] |= positions[1:] != positions[:-1] + np.uint32(1)
    run_starts = np.flatnonzero(breaks)
    runs = np.diff(np.searchsorted(run_starts, np.append(container_starts, len(positions))))
    plain_lengths = np.where(sizes > _MAX_ARRAY_VALUES, _BITSET_BYTES, 2 * sizes)
    is_run = plain_lengths > 2 + 4 * runs
    lengths = np.where(is_run, 2 + 4 * runs, plain_lengths)

    # Headers of the bitmaps: cookie, flags of run containers, keys and cardinalities, offsets.
    owners = owner[container_starts]
    containers = np.bincount(owners, minlength=bitmaps)
    with_runs = np.bincount(owners[is_run], minlength=bitmaps) > 0
    flags = np.where(with_runs, (containers + 7) // 8, 0)
    offsets_listed = ~with_runs | (containers >= _MIN_OFFSET_CONTAINERS)
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
    descriptors = begins[owners] + np.where(with_runs[owners], 4 + flags[owners], 8) + 4 * number
    _put(data, descriptors, high[container_starts], "<u2")
    _put(data, descriptors + 2, sizes - 1, "<u2")
    offset_in_bitmap = bodies[:-1] - bodies[offsets_from(containers)][owners]
    container_offsets = begins[owners] + head_bytes[owners] + offset_in_bitmap
    has_offset = offsets_listed[owners]
    _put(
        data,
        (descriptors + 4 * containers[owners])[has_offset],
        (container_offsets - begins[owners])[has_offset],
        "<u4",
    )

    # Containers: lists of values, runs, or bit sets.
    container = np.cumsum(is_start) - 1
    is_list = ~is_run & (sizes <= _MAX_ARRAY_VALUES)
    listed_positions = np.flatnonzero(is_list[container])
    _put(
        data,
        container_offsets[container[listed_positions]]
        + 2 * (listed_positions - container_starts[container[listed_positions]]),
        low[listed_positions],
        "<u2",
    )
    _put(data, container_offsets[is_run], runs[is_run], "<u2")
    run_container = container[run_starts]
    run_indices = np.flatnonzero(is_run[run_container])
    run_offsets = (
        container_offsets[run_container[run_indices]]
        + 2
        + 4 * (run_indices - np.searchsorted(run_starts, container_starts)[run_container[run_indices]])
    )
    _put(data, run_offsets, low[run_starts[run_indices]], "<u2")
    _put(data, run_offsets + 2, np.diff(np.append(run_starts, len(positions)))[run_indices] - 1, "<u2")
    for at in np.flatnonzero(~is_run & (sizes > _MAX_ARRAY_VALUES)):  # at most one per 4,097 positions
        bits = np.zeros(_CONTAINER_VALUES, np.bool_)
        bits[low[container_starts[at] : container_starts[at] + sizes[at]]] = True
        data[container_offsets[at] : container_offsets[at] + _BITSET_BYTES] = np.packbits(bits, bitorder="little")
    return data, begins


def _put(data: U8, positions: I64, values: npt.NDArray[Any], kind: str) -> None:
    """Write each number as type ``kind`` at its position.

    Args:
        data: target bytes.
        positions: byte position of each number.
        values: the numbers.
        kind: NumPy type of the stored numbers, such as "<u2".
    """
    width = np.dtype(kind).itemsize
    raw = np.ascontiguousarray(values.astype(kind)).view(np.uint8).reshape(-1, width)
    for byte in range(width):
        data[positions + byte] = raw[:, byte]


def measure(data: bytes | memoryview, path: str) -> int:
    """Return the size in bytes of the bitmap at the start of ``data``, after validating it.

    Raises:
        CorruptFile: the bitmap is damaged; the message names ``path``.
    """
    view = memoryview(data)
    offset, count, is_run, offsets = _header(view, path)
    descriptors = _words(view, offset, 2 * count, path).reshape(-1, 2).astype(np.int64)
    offset += 4 * count
    keys, sizes = descriptors[:, 0], descriptors[:, 1] + 1
    if (np.diff(keys) <= 0).any():
        raise CorruptFile(path, "roaring bitmap: keys of containers are not ascending")
    declared = np.frombuffer(_take(view, offset, 4 * count if offsets else 0, path), "<u4")
    offset += 4 * len(declared)
    for index in range(count):  # one container holds up to 65,536 positions
        if offsets and int(declared[index]) != offset:
            raise CorruptFile(path, f"roaring bitmap: container {index} is not where the header says")
        offset += _container(view, offset, int(sizes[index]), bool(is_run[index]), path)
    return offset


def _header(view: memoryview, path: str) -> tuple[int, int, npt.NDArray[np.uint8], bool]:
    """Read the header at the start of ``view``.

    Returns:
        Position after the header in bytes, number of containers, flag of each container that is 1 for runs, and whether
        offsets of the containers follow.
    """
    cookie = int.from_bytes(_take(view, 0, 4, path), "little")
    if cookie & 0xFFFF == _RUN_COOKIE:
        count = (cookie >> 16) + 1
        packed = np.frombuffer(_take(view, 4, (count + 7) // 8, path), np.uint8)
        return 4 + len(packed), count, np.unpackbits(packed, bitorder="little")[:count], count >= _MIN_OFFSET_CONTAINERS
    if cookie != _PLAIN_COOKIE:
        raise CorruptFile(path, f"roaring bitmap: unknown cookie {cookie}")
    count = int.from_bytes(_take(view, 4, 4, path), "little")
    if count > _MAX_CONTAINERS:
        raise CorruptFile(path, f"roaring bitmap of {count} containers")
    # Every container has 4 bytes of header and 4 of offset; check that they exist before allocating memory for `count`.
    _take(view, 8, 8 * count, path)
    return 8, count, np.zeros(count, np.uint8), True


def _container(view: memoryview, at: int, values: int, is_run: bool, path: str) -> int:
    """Validate one container, and return its size in bytes.

    Args:
        view: the encoded bitmap.
        at: position of the container.
        values: number of values that the header states for the container.
        is_run: whether the container stores runs.
        path: path of the file, for messages.
    """
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
    if values > _MAX_ARRAY_VALUES:
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
