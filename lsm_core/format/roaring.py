"""Roaring bitmaps in their portable form, walked and checked before the native library may touch them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lsm_core.errors import CorruptFile

_PLAIN_COOKIE: Final = 12346
_RUN_COOKIE: Final = 12347
_MOST_CONTAINERS: Final = 1 << 16
_CONTAINER_VALUES: Final = 1 << 16
_ARRAY_MOST: Final = 4096
_BITSET_BYTES: Final = 8192
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


__all__ = ["decode", "encode", "measure"]
