"""Until `types.casts` is here: which casts a column's type may take."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, cast

import pyarrow as pa

from lsm_core.types import DataType

_FOUND = importlib.util.find_spec("lsm_core.types.casts")
_CASTS: Any = importlib.import_module("lsm_core.types.casts") if _FOUND else None


def castable(source: DataType, target: DataType, *, explicit: bool) -> bool:
    if _CASTS is None:
        return source.root is target.root
    return bool(_CASTS.castable(source, target, explicit=explicit))


def cast_values(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    return array if _CASTS is None else cast("pa.Array", _CASTS.cast_values(array, source, target))
