"""Bitmaps of 64-bit integers in the layout of Java's `Roaring64Bitmap`.

The layout is a radix tree over the upper 48 bits, and containers.

This is not the portable layout of other libraries, and CRoaring does not read it. In memory a bitmap has one small
bitmap of the lower 16 bits for each value of the upper 48. The tree is checked when it is read, and rebuilt when it is
written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
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
_RUN_COOKIE: Final = 0x303B
_OFFSETS_FROM: Final = 4
_NOT_TRIMMED: Final = -2
_WHERE: Final = "Roaring64Bitmap"


Bitmap64 = dict[bytes, BitMap]
"""Bitmaps of the lower 16 bits of the integers, by their upper 48 bits (big-endian)."""


def union(left: Bitmap64, right: Bitmap64) -> Bitmap64:
    """Return the union of two bitmaps."""
    merged = dict(left)
    for key, part in right.items():
        merged[key] = merged[key] | part if key in merged else part
    return merged


def of(numbers: Iterable[int]) -> Bitmap64:
    """Return a bitmap of integers; negative integers are stored as their two's complement."""
    parts: Bitmap64 = {}
    for value in numbers:
        key = (value & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "big")[:KEY_BYTES]
        parts.setdefault(key, BitMap()).add(value & 0xFFFF)
    return parts


def values(bitmap: Bitmap64) -> Iterator[int]:
    """Yield the integers of a bitmap as unsigned integers, in ascending order."""
    for key in sorted(bitmap):
        high = int.from_bytes(key, "big") << 16
        yield from (high | low for low in bitmap[key])


# -- reading -----------------------------------------------------------------------------------------------------------


class _Source:
    """Reader of ``data`` from the start on; a read beyond the end raises CorruptFile."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def take(self, length: int) -> bytes:
        if length < 0 or length > len(self._data) - self.at:
            raise CorruptFile(_WHERE, f"ends after {len(self._data)} bytes, {self.at + length} are needed")
        self.at += length
        return self._data[self.at - length : self.at]

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])


def decode(data: bytes) -> Bitmap64:
    """Parse a bitmap in Java's layout; bytes after its end are ignored, as in Java.

    Raises:
        CorruptFile: the bytes are damaged.
    """
    source = _Source(data)
    if source.number("<b") == _EMPTY:
        return {}
    declared = source.number("<q")
    places: dict[int, bytes] = {}
    _read_node(source, b"", places)
    if len(places) != declared:
        raise CorruptFile(_WHERE, f"its tree declares {declared} keys and has {len(places)}")
    containers: dict[int, BitMap] = {}
    for array in range(source.number("<i")):
        source.take(1)  # a mark with only one value
        for slot in range(source.number("<i")):
            if source.number("<b") == _FILLED:
                containers[array << 32 | slot] = _read_container(source)
    source.take(16)  # the number of containers, and the place of the last one
    if set(containers) != set(places):
        raise CorruptFile(_WHERE, "its tree and its containers do not match")
    return {key: containers[index] for index, key in places.items()}


def _read_node(source: _Source, path: bytes, places: dict[int, bytes]) -> None:
    """Read one node and its subtree from ``source``, and add its keys to ``places``.

    ``path``: the key prefix (bytes) of the node. ``places``: each key by the index of its container.
    """
    kind, count, length = source.number("<b"), source.number("<H"), source.number("<B")
    prefix = source.take(length)
    if kind == _LEAF:
        key, index = source.take(KEY_BYTES), source.number("<q")
        if not key.startswith(path + prefix) or index in places:
            raise CorruptFile(_WHERE, "a key is not at its place in the tree")
        places[index] = key
        return
    path += prefix
    children = _read_children(source, kind, count)
    if len(path) >= KEY_BYTES or len(children) != count or count == 0 or sorted(set(children)) != children:
        raise CorruptFile(_WHERE, "a node of its tree is broken")
    for byte in children:
        _read_node(source, path + bytes([byte]), places)


def _read_children(source: _Source, kind: int, count: int) -> list[int]:
    """Return the key byte of each child of a node, in the order in which the children are stored."""
    if kind == _NODE4:
        return list(source.take(4)[::-1][:count])
    if kind == _NODE16:
        return list(_swap_longs(source.take(16))[:count])
    if kind == _NODE48:
        return [byte for byte, slot in enumerate(_swap_longs(source.take(_SLOTS))) if slot != 0xFF]
    if kind == _NODE256:
        bits = int.from_bytes(source.take(_SLOTS // 8), "little")
        return [byte for byte in range(_SLOTS) if bits >> byte & 1]
    raise CorruptFile(_WHERE, f"unknown node {kind} in its tree")


def _swap_longs(data: bytes) -> bytes:
    """Reverse every eight bytes: Java keeps them in longs, first byte highest, and writes longs lowest byte first."""
    return b"".join(data[start : start + 8][::-1] for start in range(0, len(data), 8))


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
    """Return the bytes that Java writes for these values if they were added in ascending order.

    Equal sets have equal bytes.
    """
    if not bitmap:
        return bytes([_EMPTY])
    keys = sorted(bitmap)
    count = len(keys)
    out = [bytes([_FILLED]), struct.pack("<q", count)]
    _write_node(keys, 0, count, 0, out)
    slots = 1  # of Java's array, which grew by half at a time
    while slots < count:
        slots = max(slots + (slots >> 1), slots + 1)
    out.append(struct.pack("<ibi", 1, _NOT_TRIMMED, slots))
    for key in keys:
        portable, size = canonical_bytes(bitmap[key]), len(bitmap[key])
        if portable[0] == 0x3B:
            kind, content = _RUN, portable[9:]
        else:
            kind, content = _BITS if size > _ARRAY_MOST else _ARRAY, portable[16:]
        out.append(struct.pack("<bbi", _FILLED, kind, size) + content)
    out.append(bytes(slots - count))
    out.append(struct.pack("<qii", count, 0, count - 1))
    return b"".join(out)


def _write_node(keys: list[bytes], start: int, stop: int, depth: int, out: list[bytes]) -> None:
    """Write the tree of ``keys[start:stop]``, whose first ``depth`` bytes are equal.

    The index of a key in ``keys`` is the number of its container.
    """
    low, high = keys[start], keys[stop - 1]
    if stop - start == 1:
        out.append(struct.pack("<bHB", _LEAF, 0, 0) + low + struct.pack("<q", start))
        return
    end = next(at for at in range(depth, KEY_BYTES) if low[at] != high[at])
    bounds = [start]
    bounds += [at for at in range(start + 1, stop) if keys[at][end] != keys[at - 1][end]]
    kind, body = _node([keys[at][end] for at in bounds])
    out.append(struct.pack("<bHB", kind, len(bounds), end - depth) + low[depth:end] + body)
    for first, last in zip(bounds, [*bounds[1:], stop], strict=True):
        _write_node(keys, first, last, end + 1, out)


def _node(children: list[int]) -> tuple[int, bytes]:
    """Return the kind and content of a node; ``children`` are the key bytes of its children, ascending."""
    count = len(children)
    if count <= 4:
        return _NODE4, bytes(children).ljust(4, b"\0")[::-1]
    if count <= 16:
        return _NODE16, _swap_longs(bytes(children).ljust(16, b"\0"))
    if count <= 48:
        slots = bytearray(b"\xff" * _SLOTS)
        for slot, byte in enumerate(children):
            slots[byte] = slot
        return _NODE48, _swap_longs(bytes(slots))
    return _NODE256, sum(1 << byte for byte in children).to_bytes(_SLOTS // 8, "little")


def canonical_bytes(bitmap: BitMap) -> bytes:
    """Return portable bytes that depend on the values only.

    If a container takes as many bytes as runs as it takes as an array, CRoaring leaves it as it was before a union.
    Here such a container becomes an array.
    """
    portable = roaring.encode(bitmap, runs=True)
    keys = list(_tied_containers(portable))
    if not keys:
        return portable
    for key in keys:
        part = bitmap & BitMap(range(key << 16, (key + 1) << 16))
        bitmap = (bitmap - part) | BitMap(part.to_array())
    return roaring.encode(bitmap, runs=True)


def _tied_containers(portable: bytes) -> Iterator[int]:
    """Yield the keys of the containers whose runs take as many bytes as an array would."""
    cookie = int.from_bytes(portable[:4], "little")
    if cookie & 0xFFFF != _RUN_COOKIE:
        return
    count = (cookie >> 16) + 1
    flags = int.from_bytes(portable[4 : 4 + (count + 7) // 8], "little")
    head = 4 + (count + 7) // 8
    position = head + (8 if count >= _OFFSETS_FROM else 4) * count
    for number in range(count):
        key, size = struct.unpack_from("<HH", portable, head + 4 * number)
        if not flags >> number & 1:
            position += _BITSET_BYTES if size >= _ARRAY_MOST else 2 * size + 2
            continue
        (runs,) = struct.unpack_from("<H", portable, position)
        if size == 2 * runs:
            yield key
        position += 2 + 4 * runs
