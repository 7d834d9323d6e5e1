"""Arrow rows in the peer's form (shared/peer/README.md, "Values"), so that both sides are compared as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.format.schema import TableSchema

_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NUMBERS = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}


def table_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return each row of ``table`` as an object of peer values."""
    columns = {name: [_value(scalar) for scalar in table.column(name)] for name in table.column_names}
    return [{name: columns[name][i] for name in columns} for i in range(table.num_rows)]


def same_rows(found: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]], schema: TableSchema) -> None:
    """Assert that both sides hold the same rows, as multisets.

    `_kind` is ignored, and so is the order of map entries and of nested tables with a key, which Java takes from a hash
    map.
    """
    hashed = {name for name in schema.field_names if f"fields.{name}.nested-key" in schema.options}
    ours = Counter(_canonical(row, schema, hashed) for row in found)
    java = Counter(_canonical(row, schema, hashed) for row in expected)
    assert ours == java, (
        f"missing {list((java - ours).elements())[:3]}, unexpected {list((ours - java).elements())[:3]}"
    )


def _canonical(row: Mapping[str, Any], schema: TableSchema, hashed: set[str]) -> tuple[tuple[str, str], ...]:
    texts = {}
    for name, value in row.items():
        if name == "_kind":
            continue
        kind = schema.arrow_schema.field(name).type
        if name in hashed and value is not None:
            texts[name] = str(sorted(_text(item, kind.value_type) for item in value))
        else:
            texts[name] = _text(value, kind)
    return tuple(sorted(texts.items()))


def _text(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "null"
    if pa.types.is_floating(kind):
        number = float(_NUMBERS.get(str(value), value))
        return repr(np.float32(number)) if pa.types.is_float32(kind) else repr(number)
    if pa.types.is_map(kind):
        pairs = sorted(f"{_text(key, kind.key_type)}: {_text(item, kind.item_type)}" for key, item in value)
        return f"{{{', '.join(pairs)}}}"
    if pa.types.is_list(kind):
        return f"[{', '.join(_text(item, kind.value_type) for item in value)}]"
    if pa.types.is_struct(kind):
        return f"({', '.join(f'{field.name}={_text(value[field.name], field.type)}' for field in kind)})"
    return repr(value)


def _value(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_map(kind):
        return [[_value(pair["key"]), _value(pair["value"])] for pair in scalar.values]
    if pa.types.is_list(kind):
        return [_value(item) for item in scalar.values]
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[field.name]) for field in kind}
    if pa.types.is_timestamp(kind):
        return _timestamp(scalar.value * _NANOS[kind.unit], kind.tz is not None)
    if pa.types.is_time(kind):
        return f"{_clock(scalar.value)}.{scalar.value % 1000:03d}"
    if pa.types.is_date(kind):
        return str(np.datetime64(scalar.value, "D"))
    if pa.types.is_decimal(kind):
        return format(scalar.as_py(), "f")
    if pa.types.is_binary(kind):
        return scalar.as_py().hex()
    return scalar.as_py()


def _clock(millis: int) -> str:
    seconds = millis // 1000
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _timestamp(nanos: int, utc: bool) -> str:
    seconds, fraction = divmod(nanos, 10**9)
    return f"{np.datetime64(seconds, 's')}.{fraction:09d}{'Z' if utc else ''}"
