"""Bitmaps and sketches, through the libraries that define them."""

from __future__ import annotations

from typing import Final

from datasketches import compact_theta_sketch, hll_sketch, hll_union, tgt_hll_type, theta_union
from pyroaring import BitMap

from lsm_core.maintenance.reference.functions.base import Function, NullsChangeNothing
from lsm_core.maintenance.reference.functions.java_bitmap import Numbers, numbers64


class Bitmap32(NullsChangeNothing):
    """Numbers of 32 bits in either."""

    def both(self, acc: bytes, value: bytes) -> bytes:
        """All of both."""
        return bytes((BitMap.deserialize(acc) | BitMap.deserialize(value)).serialize())


class Bitmap64(NullsChangeNothing):
    """Numbers of 64 bits in either. What it makes are sets of numbers: no library writes the bytes that Java does."""

    def both(self, acc: bytes | Numbers, value: bytes | Numbers) -> Numbers:
        """All of both."""
        return numbers64(acc) | numbers64(value)


class Hll(NullsChangeNothing):
    """How many are in either, about."""

    def both(self, acc: bytes, value: bytes) -> bytes:
        """The union, of the precision of the coarser one."""
        left, right = hll_sketch.deserialize(acc), hll_sketch.deserialize(value)
        union = hll_union(right.lg_config_k)
        union.update(right)
        union.update(left)
        return bytes(union.get_result(tgt_hll_type.HLL_4).serialize_compact())


class Theta(NullsChangeNothing):
    """Which are in either, about."""

    def both(self, acc: bytes, value: bytes) -> bytes:
        """The union."""
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
