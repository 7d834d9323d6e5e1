"""rbm32 and rbm64: unions of roaring bitmaps.

rbm32 values have the portable layout, rbm64 values the layout of :mod:`roaring64`. The written bytes depend only on the
set, so merging in any order gives the same bytes.

Java's bytes also depend on the order of merging. They can differ from the bytes written here in two ways. A container
that takes about as many bytes as a list of runs as it takes as an array may have the other form. The containers of a
64-bit bitmap may be in a different order.

Source: ``FieldRoaringBitmap32Agg``, ``FieldRoaringBitmap64Agg``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from pyroaring import BitMap

from lsm_core.format import roaring
from lsm_core.merge.functions import roaring64
from lsm_core.merge.functions.binary_union import BinaryUnion
from lsm_core.merge.functions.roaring64 import Bitmap64

_WHERE: Final = "RoaringBitmap"


class Bitmap32Union(BinaryUnion):
    """Function `rbm32`: union of roaring bitmaps of 32-bit integers."""

    name: ClassVar[str] = "rbm32"

    def _decode(self, data: bytes) -> BitMap:
        return roaring.decode(data, _WHERE)[0]

    def _join(self, total: BitMap, value: BitMap) -> BitMap:
        return total | value

    def _write(self, total: BitMap) -> bytes:
        return roaring64.canonical_bytes(total)


class Bitmap64Union(BinaryUnion):
    """Function `rbm64`: union of roaring bitmaps of 64-bit integers."""

    name: ClassVar[str] = "rbm64"

    def _decode(self, data: bytes) -> Bitmap64:
        return roaring64.decode(data)

    def _join(self, total: Bitmap64, value: Bitmap64) -> Bitmap64:
        return roaring64.union(total, value)

    def _write(self, total: Bitmap64) -> bytes:
        return roaring64.encode(total)


FUNCTIONS: Final[dict[str, Any]] = {"rbm32": Bitmap32Union, "rbm64": Bitmap64Union}
