"""Functions of bitmaps and sketches, computed by the libraries that define their formats."""

from __future__ import annotations

from typing import Final

from datasketches import compact_theta_sketch, hll_sketch, hll_union, tgt_hll_type, theta_union
from pyroaring import BitMap

from lsm_core.maintenance.reference.functions.base import Function, NullsChangeNothing
from lsm_core.maintenance.reference.functions.java_bitmap import Numbers, numbers64


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
