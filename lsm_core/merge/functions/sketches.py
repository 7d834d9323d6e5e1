"""hll_sketch and theta_sketch: unions of Apache DataSketches.

As in Java, each step makes one sketch of two: an HLL union as large as the input, with a compact HLL_4 result, or a
theta union of 4,096 hashes with a compact, ordered result. Bytes equal Java's, except for one estimator of an HLL union
of a full sketch with a short list (bytes 8 to 15), which the two libraries update differently; the registers are equal.

Source: ``FieldHllSketchAgg``, ``FieldThetaSketchAgg``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from datasketches import compact_theta_sketch, hll_sketch, hll_union, tgt_hll_type, theta_union

from lsm_core.errors import CorruptFile
from lsm_core.merge.functions.binary_union import BinaryUnion
from lsm_core.merge.functions.sketch_bytes import check_hll, check_theta, java_theta

_THETA_LOG: Final = 12


class HllSketchUnion(BinaryUnion):
    """Function `hll_sketch`: union of HLL sketches, which estimate numbers of distinct values.

    The result has the size of the smaller sketch.
    """

    name: ClassVar[str] = "hll_sketch"

    def _decode(self, data: bytes) -> bytes:
        sketch = check_hll(data)
        _from_library(hll_sketch, sketch)
        return sketch

    def _join(self, total: bytes, value: bytes) -> bytes:
        # every step serialises the sketch, as in Java: the order of a set's coupons depends on that
        newer, older = hll_sketch.deserialize(value), hll_sketch.deserialize(total)
        union = hll_union(newer.lg_config_k)
        union.update(newer)
        union.update(older)
        return bytes(union.get_result(tgt_hll_type.HLL_4).serialize_compact())

    def _write(self, total: bytes) -> bytes:
        return total


class ThetaSketchUnion(BinaryUnion):
    """Function `theta_sketch`: union of theta sketches, which estimate numbers of distinct values.

    Unlike HLL sketches, theta sketches can also be intersected.
    """

    name: ClassVar[str] = "theta_sketch"

    def _decode(self, data: bytes) -> compact_theta_sketch:
        return _from_library(compact_theta_sketch, check_theta(data))

    def _join(self, total: compact_theta_sketch, value: compact_theta_sketch) -> compact_theta_sketch:
        union = theta_union(_THETA_LOG)
        union.update(total)
        union.update(value)
        return union.get_result()

    def _write(self, total: compact_theta_sketch) -> bytes:
        return java_theta(bytes(total.serialize()))


def _from_library(kind: Any, data: bytes) -> Any:
    try:
        return kind.deserialize(data)
    except Exception as error:  # the native library documents no error type
        raise CorruptFile(kind.__name__, str(error)) from error


FUNCTIONS: Final[dict[str, Any]] = {"hll_sketch": HllSketchUnion, "theta_sketch": ThetaSketchUnion}
