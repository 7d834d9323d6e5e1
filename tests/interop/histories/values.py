"""Plain values as the Java peer's JSON, and back."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import Any

from lsm_core.maintenance.reference.versions import Entries
from lsm_core.types import DataType, TypeRoot

_EPOCH = datetime.datetime(1970, 1, 1)
_BINARY = {TypeRoot.BINARY, TypeRoot.VARBINARY}
_FLOATS = {TypeRoot.FLOAT, TypeRoot.DOUBLE}
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def to_json_value(value: Any, kind: DataType) -> Any:
    """Convert a plain value to the JSON value that the peer takes."""
    if value is None:
        return None
    if kind.root in _BINARY:
        return value.hex()
    if kind.root is TypeRoot.DECIMAL:
        return str(value)
    if kind.root in _FLOATS and (value != value or abs(value) == float("inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if kind.root is TypeRoot.DATE:
        return (_EPOCH + datetime.timedelta(days=value)).date().isoformat()
    if kind.root is TypeRoot.TIMESTAMP:
        return _time_text(value, kind)
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return [to_json_value(item, kind.element) for item in value]
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        return [[to_json_value(key, kind.key), to_json_value(item, kind.value)] for key, item in value]
    if kind.root is TypeRoot.ROW:
        return {f.name: to_json_value(item, f.type) for f, item in zip(kind.fields, value, strict=True)}
    return value


def _per_second(kind: DataType) -> int:
    precision = kind.precision or 0
    return 10**3 if precision <= 3 else 10**6 if precision <= 6 else 10**9


def _time_text(value: int, kind: DataType) -> str:
    seconds, rest = divmod(value, _per_second(kind))
    nanos = rest * (10**9 // _per_second(kind))
    return f"{(_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()}.{nanos:09d}"


def from_json_value(value: Any, kind: DataType) -> Any:
    """Convert a JSON value of the peer to the plain value of the reference."""
    if value is None:
        return None
    if kind.root in _BINARY:
        return bytes.fromhex(value)
    if kind.root is TypeRoot.DECIMAL:
        return Decimal(value)
    if kind.root in _FLOATS:
        number = _SPECIAL[value] if isinstance(value, str) else float(value)
        return struct.unpack("f", struct.pack("f", number))[0] if kind.root is TypeRoot.FLOAT else number
    if kind.root is TypeRoot.DATE:
        return (datetime.date.fromisoformat(value) - _EPOCH.date()).days
    if kind.root is TypeRoot.TIMESTAMP:
        whole, _, fraction = value.partition(".")
        seconds = (datetime.datetime.fromisoformat(whole) - _EPOCH) // datetime.timedelta(seconds=1)
        return seconds * _per_second(kind) + int(fraction.ljust(9, "0")) // (10**9 // _per_second(kind))
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return [from_json_value(item, kind.element) for item in value]
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        return Entries((from_json_value(key, kind.key), from_json_value(item, kind.value)) for key, item in value)
    if kind.root is TypeRoot.ROW:
        return tuple(from_json_value(value.get(f.name), f.type) for f in kind.fields)
    return value
