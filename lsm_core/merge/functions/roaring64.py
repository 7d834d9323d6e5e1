"""Bitmaps of 64-bit integers as Java's `Roaring64Bitmap` writes them: a radix tree over the upper 48 bits, and containers.

This is not the portable layout that other libraries share, and CRoaring does not read it. A bitmap is held here as one small
bitmap of the lower 16 bits for each value of the upper 48; the tree is checked when it is read, and built anew when written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap

from lsm_core.errors import CorruptFile
from lsm_core.format import roaring

KEY_BYTES: Final = 6
_EMPTY, _FILLED = 0, 1
_NODE4, _NODE16, _NODE48, _NODE256, _LEAF = range(5)
_RUN, _BITS, _ARRAY = range(3)
_SLOTS: Final = 256
_BITSET_BYTES: Final = 8192
_ARRAY_MOST: Final = 4096
_CONTAINER_VALUES: Final = 1 << 16
_NOT_TRIMMED: Final = -2
_WHERE: Final = "Roaring64Bitmap"


@dataclass(frozen=True, eq=False)
class Bitmap64:
    """``parts``: upper 48 bits -> lower 16 bits, in the order in which they came; ``capacity``: slots that Java holds for them."""

    parts: dict[bytes, BitMap]
    capacity: int = 0

    def __or__(self, other: Bitmap64) -> Bitmap64:
        """All values of both; what only ``other`` has follows in ascending order, as in Java."""
        parts, capacity = dict(self.parts), self.capacity
        for key in sorted(other.parts):
            if key in parts:
                parts[key] = parts[key] | other.parts[key]
                continue
            parts[key] = other.parts[key]
            if len(parts) > capacity:
                capacity = max(capacity + (capacity >> 1), len(parts))
        return Bitmap64(parts, capacity)


def of(numbers: Iterable[int]) -> Bitmap64:
    """A bitmap of integers, negative ones by their two's complement."""
    parts: dict[bytes, BitMap] = {}
    capacity = 0
    for value in numbers:
        key = (value & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "big")[:KEY_BYTES]
        if key not in parts:
            parts[key] = BitMap()
            capacity = capacity if len(parts) <= capacity else max(capacity + (capacity >> 1), len(parts))
        parts[key].add(value & 0xFFFF)
    return Bitmap64(parts, capacity)


def values(bitmap: Bitmap64) -> Iterator[int]:
    """The integers in ascending order, as unsigned ones."""
    for key in sorted(bitmap.parts):
        high = int.from_bytes(key, "big") << 16
        yield from (high | low for low in bitmap.parts[key])


# -- reading -----------------------------------------------------------------------------------------------------------


class _Source:
    """Bytes that are read in order, never past their end."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def take(self, length: int) -> bytes:
        if length < 0 or length > self.left:
            raise CorruptFile(_WHERE, f"ends after {len(self._data)} bytes, {self.at + length} are needed")
        self.at += length
        return self._data[self.at - length : self.at]

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])


def decode(data: bytes) -> Bitmap64:
    """Read what Java wrote; bytes after its end are passed over, as Java does. Raises CorruptFile."""
    source = _Source(data)
    if source.number("<b") == _EMPTY:
        return Bitmap64({})
    declared = source.number("<q")
    places: dict[int, bytes] = {}
    _read_node(source, b"", places)
    if len(places) != declared:
        raise CorruptFile(_WHERE, f"its tree says {declared} keys and has {len(places)}")
    containers, capacity = _read_containers(source)
    if set(containers) != set(places):
        raise CorruptFile(_WHERE, "its tree and its containers do not fit together")
    return Bitmap64({places[index]: containers[index] for index in sorted(places)}, max(capacity, len(places)))


def _read_node(source: _Source, path: bytes, places: dict[int, bytes]) -> None:
    """One node and what is below it; ``path``: the bytes of the keys so far."""
    kind, count, length = source.number("<b"), source.number("<H"), source.number("<B")
    prefix = source.take(length)
    if kind == _LEAF:
        key, index = source.take(KEY_BYTES), source.number("<q")
        if not key.startswith(path + prefix) or index in places:
            raise CorruptFile(_WHERE, "a key is not where its tree has it")
        places[index] = key
        return
    path += prefix
    children = _read_children(source, kind, count)
    if len(path) >= KEY_BYTES or len(children) != count or count == 0 or sorted(set(children)) != children:
        raise CorruptFile(_WHERE, "a node of its tree is broken")
    for byte in children:
        _read_node(source, path + bytes([byte]), places)


def _read_children(source: _Source, kind: int, count: int) -> list[int]:
    """The key bytes of a node's children, in the order in which they follow."""
    if kind == _NODE4:
        return list(source.take(4)[::-1][:count])
    if kind == _NODE16:
        return list(_by_longs(source.take(16))[:count])
    if kind == _NODE48:
        return [byte for byte, slot in enumerate(_by_longs(source.take(_SLOTS))) if slot != 0xFF]
    if kind == _NODE256:
        bits = int.from_bytes(source.take(_SLOTS // 8), "little")
        return [byte for byte in range(_SLOTS) if bits >> byte & 1]
    raise CorruptFile(_WHERE, f"unknown node {kind} in its tree")


def _by_longs(data: bytes) -> bytes:
    """Turn every eight bytes around: Java keeps them in longs, first byte highest, and writes longs lowest byte first."""
    return b"".join(data[at : at + 8][::-1] for at in range(0, len(data), 8))


def _read_containers(source: _Source) -> tuple[dict[int, BitMap], int]:
    """Containers by index, and how many slots the last array of them has."""
    found: dict[int, BitMap] = {}
    arrays, slots = source.number("<i"), 0
    for array in range(arrays):
        source.take(1)  # a mark that has one meaning only
        slots = source.number("<i")
        for slot in range(slots):
            if source.number("<b") == _FILLED:
                found[array << 32 | slot] = _read_container(source)
    source.take(16)  # the number of containers, and where the last one is
    return found, slots


def _read_container(source: _Source) -> BitMap:
    kind, size = source.number("<b"), source.number("<i")
    if kind == _RUN:
        count = source.number("<H")
        body = struct.pack("<IBHHH", 0x303B, 1, 0, (size - 1) & 0xFFFF, count) + source.take(4 * count)
    elif kind in {_BITS, _ARRAY} and 0 < size <= _CONTAINER_VALUES:
        if (kind == _BITS) != (size > _ARRAY_MOST):
            raise CorruptFile(_WHERE, f"{size} values in a container of the wrong kind")
        content = source.take(_BITSET_BYTES if kind == _BITS else 2 * size)
        body = struct.pack("<IIHHI", 0x303A, 1, 0, size - 1, 16) + content
    else:
        raise CorruptFile(_WHERE, f"container of kind {kind} with {size} values")
    return roaring.decode(body, _WHERE)[0]


# -- writing -----------------------------------------------------------------------------------------------------------


def encode(bitmap: Bitmap64) -> bytes:
    """The bytes that Java would write, its runs made the way `runOptimize` makes them."""
    if not bitmap.parts:
        return bytes([_EMPTY])
    count = len(bitmap.parts)
    keys = list(bitmap.parts)
    out = [bytes([_FILLED]), struct.pack("<q", count)]
    _write_node(keys, {key: index for index, key in enumerate(keys)}, 0, out)
    slots = max(bitmap.capacity, count)
    out.append(struct.pack("<ibi", 1, _NOT_TRIMMED, slots))
    for part in bitmap.parts.values():
        out.append(bytes([_FILLED]))
        out.append(_container(part))
    out.append(bytes(slots - count))
    out.append(struct.pack("<qii", count, 0, count - 1))
    return b"".join(out)


def _write_node(keys: list[bytes], index: dict[bytes, int], depth: int, out: list[bytes]) -> None:
    """The tree over ``keys``, which share their first ``depth`` bytes, in the order in which they were put into it."""
    if len(keys) == 1:
        out.append(struct.pack("<bHB", _LEAF, 0, 0) + keys[0] + struct.pack("<q", index[keys[0]]))
        return
    low, high = min(keys), max(keys)
    end = next(at for at in range(depth, KEY_BYTES) if low[at] != high[at])
    below: dict[int, list[bytes]] = {}
    for key in keys:
        below.setdefault(key[end], []).append(key)
    kind, body = _node(list(below))
    out.append(struct.pack("<bHB", kind, len(below), end - depth) + low[depth:end] + body)
    for byte in sorted(below):
        _write_node(below[byte], index, end + 1, out)


def _node(children: list[int]) -> tuple[int, bytes]:
    """The kind and content of a node whose ``children`` came in this order."""
    count = len(children)
    if count <= 4:
        return _NODE4, bytes(sorted(children)).ljust(4, b"\0")[::-1]
    if count <= 16:
        return _NODE16, _by_longs(bytes(sorted(children)).ljust(16, b"\0"))
    if count <= 48:
        # sixteen were sorted when the node grew, the others stand where they came
        slots = bytearray(b"\xff" * _SLOTS)
        for slot, byte in enumerate(sorted(children[:16]) + children[16:]):
            slots[byte] = slot
        return _NODE48, _by_longs(bytes(slots))
    return _NODE256, sum(1 << byte for byte in children).to_bytes(_SLOTS // 8, "little")


def _container(part: BitMap) -> bytes:
    portable = roaring.encode(part, runs=True)
    count = len(part)
    if portable[0] == 0x3B:
        return struct.pack("<bi", _RUN, count) + portable[9:]
    return struct.pack("<bi", _BITS if count > _ARRAY_MOST else _ARRAY, count) + portable[16:]


__all__ = ["Bitmap64", "decode", "encode", "of", "values"]
