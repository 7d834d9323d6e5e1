"""Sets of integers as bitmaps and sketches, in the form in which the helpers of Java's tests create them."""

from __future__ import annotations

from typing import Any

from datasketches import hll_sketch, tgt_hll_type, update_theta_sketch
from pyroaring import BitMap

from lsm_core.format import roaring
from lsm_core.merge.functions import roaring64
from lsm_core.merge.functions.sketch_bytes import java_theta


def sketch_of(function: str, values: list[int]) -> bytes:
    """Return a set of integers as the bytes that the aggregate ``function`` takes."""
    if function == "rbm32":
        return roaring.encode(BitMap(values), runs=True)
    if function == "rbm64":
        return roaring64.encode(roaring64.of(values))
    sketch = hll_sketch(12, tgt_hll_type.HLL_4) if function == "hll_sketch" else update_theta_sketch(12)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize_compact()) if function == "hll_sketch" else java_theta(sketch.compact().serialize())


def with_bytes(raw: Any, function: str) -> Any:
    """Return a value of a vector, in which each ``set_of`` is replaced by the bytes of the set."""
    if isinstance(raw, dict):
        if set(raw) == {"set_of"}:
            return {"hex": sketch_of(function, raw["set_of"]).hex()}
        return {key: with_bytes(value, function) for key, value in raw.items()}
    return [with_bytes(value, function) for value in raw] if isinstance(raw, list) else raw
