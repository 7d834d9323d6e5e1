"""What goes wrong in a cast: the value and its place, for callers that know table, column and file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.types.data_type import DataType

_SHOWN = 80


class CastError(ValueError):
    """A value that its new type cannot take; ``position`` counts values of the array, -1 when it is about the types."""

    def __init__(self, reason: str, position: int = -1) -> None:
        self.position = position
        super().__init__(reason)


def refuse(array: pa.Array, bad: pa.Array | npt.NDArray[np.bool_], target: DataType) -> None:
    """Raise CastError naming the first value of ``array`` that ``bad`` marks, if any (nulls are never bad)."""
    mask = np.asarray(bad.fill_null(fill_value=False) if isinstance(bad, pa.Array) else bad, np.bool_)
    if array.null_count:
        mask = mask & np.asarray(array.is_valid())
    if mask.any():
        at = int(np.argmax(mask))
        raise CastError(f"{shown(array[at].as_py())} is no {target.with_nullable(nullable=True)}", at)


def shown(value: Any, most: int = _SHOWN) -> str:
    """``value`` as Python writes it, for a message; at most ``most`` characters."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


__all__ = ["CastError", "refuse", "shown"]
