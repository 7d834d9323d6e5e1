"""The scenario's 32-bit mixer: the same pseudo-random choices on every machine, without a generator's state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MASK = np.uint64(0xFFFFFFFF)


def mix(numbers: npt.NDArray[np.int64], salt: int) -> npt.NDArray[np.int64]:
    """h(n, salt) of every row number: int64 values in [0, 2^32)."""
    x = (numbers.astype(np.uint64) * np.uint64(2654435761) + np.uint64(salt * 2246822519)) & _MASK
    x ^= x >> np.uint64(16)
    x = (x * np.uint64(2146121005)) & _MASK
    x ^= x >> np.uint64(15)
    x = (x * np.uint64(2221713035)) & _MASK
    x ^= x >> np.uint64(16)
    return x.astype(np.int64)


def percent(numbers: npt.NDArray[np.int64], salt: int, below: int, of: int = 100) -> npt.NDArray[np.bool_]:
    """Rows whose h(n, salt) modulo `of` is below `below`: "p %" of the scenario."""
    return mix(numbers, salt) % of < below
