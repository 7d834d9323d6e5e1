"""Arrow arrays from values as the Java peer writes them (shared/peer/README.md, "Values")."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.types import DataType, TypeRoot, to_arrow
from tests.golden import rows

java_text = rows._text
"""Function that converts a value of the Java peer to the text in which both sides are compared."""
_DIGITS = {"ms": 3, "us": 6, "ns": 9}


def our_text(scalar: pa.Scalar) -> str:
    """Convert an Arrow value to the text in which both sides are compared."""
    return java_text(rows._value(scalar), scalar.type)


def array_of(values: Sequence[Any], kind: DataType) -> pa.Array:
    """Return ``values`` as an array of `to_arrow(kind)`. Raises OverflowError for times outside of Arrow's range."""
    arrow, plain = to_arrow(kind), [_plain(value, kind) for value in values]
    if kind.root in (TypeRoot.DATE, TypeRoot.TIME):
        return pa.array(plain, pa.int32()).cast(arrow)
    if kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return pa.array(plain, pa.int64()).cast(pa.timestamp(arrow.unit)).cast(arrow)
    return pa.array(plain, arrow)


def _plain(value: Any, kind: DataType) -> Any:
    root = kind.root
    if value is None:
        return None
    if root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return bytes.fromhex(value)
    if root is TypeRoot.DECIMAL:
        return Decimal(value)
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return float(str(value).replace("Infinity", "inf"))
    if root is TypeRoot.DATE:
        return int(np.datetime64(value, "D").astype(np.int64))
    if root is TypeRoot.TIME:
        return _instant(f"1970-01-01T{value}", 3)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return _instant(value.rstrip("Z"), _DIGITS[to_arrow(kind).unit])
    if kind.element is not None and root is TypeRoot.ARRAY:
        element = array_of(value, kind.element)
        return element.to_pylist() if element.type != pa.timestamp("ns") else element
    if root is TypeRoot.MULTISET and kind.element is not None:
        return [(_plain(key, kind.element), count) for key, count in value]
    if kind.key is not None and kind.value is not None:
        return [(_plain(key, kind.key), _plain(item, kind.value)) for key, item in value]
    if root is TypeRoot.ROW:
        return {field.name: _plain(value[field.name], field.type) for field in kind.fields}
    return value


def _instant(text: str, digits: int) -> int:
    """Return a date-time as the number of units of 10 ** -``digits`` seconds since 1970."""
    whole, _, part = text.partition(".")
    seconds = int(np.datetime64(whole, "s").astype(np.int64))
    count: int = seconds * 10**digits + int(part.ljust(digits, "0")[:digits] or "0")
    if not -(2**63) <= count < 2**63:
        raise OverflowError(text)
    return int(count)
