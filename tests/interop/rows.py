"""Rows of all readers in one canonical form: sorted tuples of plain values."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lsm_core import Table

ALL_TYPES = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("code", pa.string(), nullable=False),
        ("revision", pa.int32()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("flag", pa.bool_()),
        ("ratio", pa.float32()),
        ("amount", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("balance", pa.decimal128(18, 4)),
        ("total", pa.decimal128(30, 6)),
        ("day", pa.date32()),
        ("at_ms", pa.timestamp("ms")),
        ("at_us", pa.timestamp("us")),
        ("note", pa.string()),
    ]
)
KEYS = ["region", "id", "code"]


def rows_of(first: int, count: int, revision: int, *, step: int = 1) -> pa.Table:
    """Return `count` rows with keys first, first+step, ..; every seventh value of a nullable column is null."""
    base = datetime.datetime(2024, 2, 28, 23, 59, 59)
    columns: dict[str, list[Any]] = {field.name: [] for field in ALL_TYPES}
    for i in range(count):
        n = first + i * step
        values: list[Any] = [
            ["north", "south/west", "öst"][n % 3],
            n * 1_000_003 - 50,
            f"{'c' * (n % 11)}{n}",
            revision,
            n % 127,
            -n % 32_000,
            n % 2 == 0,
            n / 4,
            -0.0 if n % 5 == 0 else n * 1.5e10,
            decimal.Decimal(n * 7 - 300) / 100,
            decimal.Decimal(n * 11_111) / 10_000,
            decimal.Decimal(-n) * 10**15 / 10**6,
            datetime.date(1969, 12, 25) + datetime.timedelta(days=n % 50),
            base + datetime.timedelta(milliseconds=n * 977),
            base - datetime.timedelta(microseconds=n * 1_000_003),
            f"é{n}" * (n % 5),
        ]
        for column, (field, value) in enumerate(zip(ALL_TYPES, values, strict=True)):
            null = field.nullable and field.name != "revision" and (n + column) % 7 == 0
            columns[field.name].append(None if null else value)
    return pa.table(columns, schema=ALL_TYPES)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "000"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


def canonical(table: pa.Table, names: list[str] | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of an Arrow table in canonical form."""
    picked = table.select(names or table.column_names)
    return sorted((tuple(map(_plain, row.values())) for row in picked.to_pylist()), key=repr)


def canonical_java(rows: list[dict[str, Any]], schema: pa.Schema) -> list[tuple[Any, ...]]:
    """Return the rows of the Java peer's `read` in canonical form."""

    def plain(field: pa.Field, value: Any) -> Any:
        if value is None:
            return None
        if pa.types.is_floating(field.type):
            return repr(float(value))
        return value

    return sorted((tuple(plain(field, row.get(field.name)) for field in schema) for row in rows), key=repr)


def java_schema(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the fields of `schema` in the form of the peer's `create`."""
    names = {
        pa.string(): "STRING", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT",
        pa.bool_(): "BOOLEAN", pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.date32(): "DATE",
        pa.timestamp("ms"): "TIMESTAMP(3)", pa.timestamp("us"): "TIMESTAMP(6)",
    }  # fmt: skip

    def text(field: pa.Field) -> str:
        if pa.types.is_decimal(field.type):
            name = f"DECIMAL({field.type.precision}, {field.type.scale})"
        else:
            name = names[field.type]
        return name if field.nullable else f"{name} NOT NULL"

    return [{"name": field.name, "type": text(field)} for field in schema]


def java_rows(table: pa.Table, kind: str = "+I") -> list[dict[str, Any]]:
    """Return the rows of an Arrow table in the form of the peer's `write`."""

    def value(field: pa.Field, v: Any) -> Any:
        return v if v is None or pa.types.is_floating(field.type) else _plain(v)

    return [
        {"_kind": kind, **{field.name: value(field, row[field.name]) for field in table.schema}}
        for row in table.to_pylist()
    ]


def both_read(table: Table, java: Callable[..., dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the sorted rows of the table; assert that Java reads the same rows."""
    mine = sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())
    names = table.store.schema.field_names
    theirs = sorted(tuple(row[name] for name in names) for row in java("read")["rows"])
    assert mine == theirs
    return mine
