"""Errors of casts with value and position, for callers that know table, column and file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.types.data_type import DataType

_MAX_TEXT = 80


class CastError(ValueError):
    """Failure of a cast.

    Attributes:
        position: index of the value in the array, or -1 if the types cannot be cast.
    """

    def __init__(self, reason: str, position: int = -1) -> None:
        self.position = position
        super().__init__(reason)


def refuse(array: pa.Array, bad: pa.Array | npt.NDArray[np.bool_], target: DataType) -> None:
    """Raise an error for the first bad value, if any.

    Args:
        array: the values.
        bad: mask of values that cannot be cast; nulls are never bad.
        target: the target type, for the message.

    Raises:
        CastError: a value is bad.
    """
    mask = np.asarray(bad.fill_null(fill_value=False) if isinstance(bad, pa.Array) else bad, np.bool_)
    if array.null_count:
        mask = mask & np.asarray(array.is_valid())
    if mask.any():
        position = int(np.argmax(mask))
        raise CastError(f"{shown(array[position].as_py())} is no {target.with_nullable(nullable=True)}", position)


def shown(value: Any, most: int = _MAX_TEXT) -> str:
    """Return the Python representation of ``value`` for a message, with at most ``most`` characters."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."
