"""Functions of bitmaps and sketches, computed by the libraries that define their formats.

No library reads 64-bit bitmaps of Java's `Roaring64Bitmap`, so `_Reader` parses them; it does not check the bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from datasketches import compact_theta_sketch, hll_sketch, hll_union, tgt_hll_type, theta_union
from pyroaring import BitMap

from lsm_core.maintenance.reference.functions.base import Function, NullsChangeNothing

Numbers = frozenset[int]
_INNER_BYTES = {0: 4, 1: 16, 2: 256, 3: 32}
_LEAF = 4


def numbers64(data: bytes | Numbers) -> Numbers:
    """Return the unsigned numbers in a serialised 64-bit bitmap; a set is returned unchanged.

    Args:
        data: serialised bitmap, or a set of numbers.
    """
    if isinstance(data, frozenset):
        return data
    return frozenset(_Reader(data).numbers()) if data[0] else frozenset()


class _Reader:
    """Reader of the bytes of Java's `Roaring64Bitmap`: a tree of nodes, followed by containers.

    A leaf of the tree has the upper 48 bits of some numbers, and the index of the container with their lower 16 bits.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 1

    def _next(self, layout: str) -> tuple[Any, ...]:
        fields = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return fields

    def numbers(self) -> set[int]:
        """Return all numbers of the bitmap: the 48 upper bits of each container joined with its 16 lower bits."""
        (count,) = self._next("<q")
        high: dict[int, int] = {}
        while len(high) < count:
            # Nodes precede their children, so inner nodes can be skipped and only leaves are decoded.
            kind, _, prefix = self._next("<bHB")
            self._at += prefix
            if kind == _LEAF:
                key, index = self._next("<6sq")
                high[index] = int.from_bytes(key, "big")
            else:
                self._at += _INNER_BYTES[kind]
        (arrays,) = self._next("<i")
        numbers: set[int] = set()
        for array in range(arrays):
            _, slots = self._next("<bi")
            for slot in range(slots):
                if self._next("<b")[0]:
                    upper = high[array << 32 | slot] << 16
                    numbers.update(upper | low for low in self._container())
        return numbers

    def _container(self) -> list[int]:
        kind, size = self._next("<bi")
        if kind == 0:
            (runs,) = self._next("<H")
            pairs = [self._next("<HH") for _ in range(runs)]
            return [low for start, more in pairs for low in range(start, start + more + 1)]
        if kind == 1:
            bits = int.from_bytes(self._next("<8192s")[0], "little")
            return [low for low in range(1 << 16) if bits >> low & 1]
        return list(self._next(f"<{size}H"))


class Bitmap32(NullsChangeNothing):
    """Union of bitmaps of 32-bit numbers (`rbm32`)."""

    def combine(self, acc: bytes, value: bytes) -> bytes:
        """Return the union."""
        return bytes((BitMap.deserialize(acc) | BitMap.deserialize(value)).serialize())


class Bitmap64(NullsChangeNothing):
    """Union of bitmaps of 64-bit numbers (`rbm64`); results are sets of numbers, as no library writes Java's bytes."""

    def combine(self, acc: bytes | Numbers, value: bytes | Numbers) -> Numbers:
        """Return the union."""
        return numbers64(acc) | numbers64(value)


class Hll(NullsChangeNothing):
    """Union of HLL sketches (approximate distinct count)."""

    def combine(self, acc: bytes, value: bytes) -> bytes:
        """Return the union, with the precision of the coarser sketch."""
        left, right = hll_sketch.deserialize(acc), hll_sketch.deserialize(value)
        union = hll_union(right.lg_config_k)
        union.update(right)
        union.update(left)
        return bytes(union.get_result(tgt_hll_type.HLL_4).serialize_compact())


class Theta(NullsChangeNothing):
    """Union of theta sketches (approximate distinct values)."""

    def combine(self, acc: bytes, value: bytes) -> bytes:
        """Return the union."""
        union = theta_union()
        union.update(compact_theta_sketch.deserialize(acc))
        union.update(compact_theta_sketch.deserialize(value))
        return bytes(union.get_result().serialize())


FUNCTIONS: Final[dict[str, type[Function]]] = {
    "rbm32": Bitmap32,
    "rbm64": Bitmap64,
    "hll_sketch": Hll,
    "theta_sketch": Theta,
}
