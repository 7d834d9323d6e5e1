"""Reader of the numbers in the bytes of Java's `Roaring64Bitmap`; it reads in order and validates nothing."""

from __future__ import annotations

import struct
from typing import Any

Numbers = frozenset[int]
_INNER_BYTES = {0: 4, 1: 16, 2: 256, 3: 32}
_LEAF = 4


def numbers64(data: bytes | Numbers) -> Numbers:
    """Return all numbers, unsigned; a set is returned unchanged.

    Args:
        data: serialised bitmap, or a set of numbers.
    """
    if isinstance(data, frozenset):
        return data
    return frozenset(_Reader(data).numbers()) if data[0] else frozenset()


class _Reader:
    """Reader of a tree whose leaves are the upper 48 bits with a container number, followed by the containers."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 1

    def _next(self, layout: str) -> tuple[Any, ...]:
        fields = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return fields

    def numbers(self) -> set[int]:
        """Return the numbers of every container below its upper bits."""
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
