"""Extreme and random values of every type in the peer's form (shared/peer/README.md, "Values"), to and from Arrow."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.types import DataType, TypeRoot, to_arrow

Value = Any


class Limits(Enum):
    """Restrictions of values, for tests in which some values of a type are not possible."""

    WIDE = 0
    ORC = 1  # Arrow counts ORC's time in nanoseconds, and CHAR loses its trailing spaces
    CASTS = 2  # times of every type can become each other


WIDE, ORC, CASTS = Limits
_WIDTHS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_TIMES = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_YEAR_1, _YEAR_9999 = -62_135_596_800, 253_402_300_799
_NANO_FIRST, _NANO_LAST = -9_223_372_036, 9_223_372_035
"""First and last whole second since 1970 that fits into a 64-bit number of nanoseconds."""
_FAR_DATES = ["0001-01-01", "9999-12-31", "1582-10-04", "1582-10-15"]
_WORDS = (
    "",
    "a",
    " ",
    "abcdefg",
    "abcdefgh",
    "naïve",
    "日本語",
    "😀𝒳",
    "\x00\x01",
    "\U0010ffff",
    "zz" * 40,
    "null",
    "\\N",
    "'\"/%\n",
)


# -- making values -----------------------------------------------------------------------------------------------------


def extremes(kind: DataType, *, limits: Limits = WIDE) -> list[Value]:
    """Return extreme values of ``kind``, without null."""
    if kind.root in _WIDTHS:
        half = 1 << (_width(kind, limits) - 1)
        return [-half, half - 1, 0, -1, 1]
    if kind.root in _TEXTS:
        longest = kind.length or 1
        if kind.root is TypeRoot.VARCHAR:
            return [*(t[:longest] for t in _WORDS), "é" * min(longest, 3000)]
        fitting = [t for t in _WORDS if len(t) <= longest]
        # Java's ORC pads CHAR with spaces and takes them all away again.
        return list(dict.fromkeys(t.rstrip(" ") for t in fitting)) if limits is not WIDE else fitting
    if kind.root in _BYTES:
        whole = kind.length or 1
        if kind.root is TypeRoot.BINARY:
            return ["00" * whole, "ff" * whole, "80" * whole]
        return ["", "00", "ff" * min(whole, 7), "00ff80" * (min(whole, 3000) // 3)]
    if kind.root in _TIMES:
        return [
            _timestamp(kind, s, n)
            for s in _seconds(kind, limits=limits)
            for n in (0, 1, 999_999_999, 500_000_000, 123_456_789)
        ]
    if kind.root is TypeRoot.DECIMAL:
        return [
            _decimal(kind, n) for n in (0, 1, -1, 10 ** (kind.precision or 10) - 1, 1 - 10 ** (kind.precision or 10))
        ]
    plain: dict[TypeRoot, list[Value]] = {
        TypeRoot.BOOLEAN: [True, False],
        TypeRoot.FLOAT: [
            0.0,
            -0.0,
            "NaN",
            "Infinity",
            "-Infinity",
            3.4028234663852886e38,
            1.401298464324817e-45,
            -1.5,
            0.10000000149011612,
        ],
        TypeRoot.DOUBLE: [0.0, -0.0, "NaN", "Infinity", "-Infinity", 1.7976931348623157e308, 5e-324, -1.5, 0.1],
        TypeRoot.DATE: ["1970-01-01", "1969-12-31", "2024-02-29", *(["1700-01-01"] if limits is CASTS else _FAR_DATES)],
        TypeRoot.TIME: [_clock(kind, n) for n in (0, 86_399_999, 45_296_789, 1)],
    }
    if kind.root in plain:
        # Java's reader of ORC takes a zero that follows a negative zero for the same value.
        return plain[kind.root] if limits is WIDE else [value for value in plain[kind.root] if repr(value) != "0.0"]
    return _nested_extremes(kind, limits=limits)


def _nested_extremes(kind: DataType, *, limits: Limits) -> list[Value]:
    if kind.root is TypeRoot.ROW:
        each = [[*extremes(f.type, limits=limits), *([None] if f.type.nullable else [])] for f in kind.fields]
        longest = max(len(values) for values in each)
        return [{f.name: v[i % len(v)] for f, v in zip(kind.fields, each, strict=True)} for i in range(longest)]
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        inner = [*extremes(kind.element, limits=limits), *([None] if kind.element.nullable else [])]
        return [[], inner, inner[-1:], inner[:1] * 3]
    key = kind.key if kind.root is TypeRoot.MAP else kind.element
    assert key is not None
    keys = _distinct(extremes(key, limits=limits))
    if kind.root is TypeRoot.MULTISET:
        return [[], [[k, i + 1] for i, k in enumerate(keys)], [[keys[0], 2**31 - 1]]]
    assert kind.value is not None
    values = [*extremes(kind.value, limits=limits), *([None] if kind.value.nullable else [])]
    return [[], [[k, values[i % len(values)]] for i, k in enumerate(keys)], [[keys[-1], values[-1]]]]


def _width(kind: DataType, limits: Limits) -> int:
    # As seconds of a TIMESTAMP: Java's own text of one has no room for years beyond millions.
    return min(_WIDTHS[kind.root], 42 if limits is CASTS else 64)


def _distinct(values: Iterable[Value]) -> list[Value]:
    return list({json.dumps(value): value for value in values}.values())


def _seconds(kind: DataType, *, limits: Limits) -> list[int]:
    if limits is not WIDE or (kind.precision or 0) > 6:
        # The last second before 1970 is one that Java's ORC writer gets wrong for LTZ (format.md 8.4).
        return [_NANO_FIRST + 1, -2, 0, 951_782_399, _NANO_LAST - 1]
    return [_YEAR_1, _YEAR_9999, -1, 0, 951_782_399]


def _clock(kind: DataType, millis: int) -> str:
    millis -= millis % 10 ** max(0, 3 - (kind.precision or 0))
    return f"{millis // 3_600_000:02d}:{millis // 60_000 % 60:02d}:{millis // 1000 % 60:02d}.{millis % 1000:03d}"


def _timestamp(kind: DataType, seconds: int, nanos: int) -> str:
    nanos -= nanos % 10 ** (9 - (kind.precision or 0))
    moment = np.datetime64(seconds, "s")
    zone = "Z" if kind.root is TypeRoot.TIMESTAMP_LTZ else ""
    return f"{moment}.{nanos:09d}{zone}"


def _decimal(kind: DataType, unscaled: int) -> str:
    sign, digits = ("-" if unscaled < 0 else ""), str(abs(unscaled))
    scale = kind.scale or 0
    digits = digits.rjust(scale + 1, "0")
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)


def anything(random: Random, kind: DataType, *, limits: Limits = WIDE, nulls: float = 0.15) -> Value:
    """Return a random value of ``kind``; null with probability ``nulls`` if ``kind`` is nullable."""
    if kind.nullable and random.random() < nulls:
        return None
    if random.random() < 0.3 and not kind.is_nested:
        return random.choice(extremes(kind, limits=limits))
    if kind.root is TypeRoot.ROW:
        return {f.name: anything(random, f.type, limits=limits) for f in kind.fields}
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return [anything(random, kind.element, limits=limits) for _ in range(random.choice([0, 1, 2, 5]))]
    if kind.root in (TypeRoot.MAP, TypeRoot.MULTISET):
        key = kind.key if kind.root is TypeRoot.MAP else kind.element
        assert key is not None
        keys = _distinct(
            anything(random, key.with_nullable(nullable=False), limits=limits) for _ in range(random.choice([0, 1, 3]))
        )
        return [
            [k, random.randrange(1, 9) if kind.value is None else anything(random, kind.value, limits=limits)]
            for k in keys
        ]
    return _random_scalar(random, kind, limits=limits)


def _random_scalar(random: Random, kind: DataType, *, limits: Limits) -> Value:
    if kind.root in _WIDTHS:
        half = 1 << (_width(kind, limits) - 1)
        return random.randrange(-half, half) >> random.randrange(_width(kind, limits))
    if kind.root in _TEXTS:
        text = "".join(random.choice("abcXYZ 0é日😀") for _ in range(random.choice([1, 3, 8, 20])))
        text = text[: kind.length]
        return text.rstrip(" ") if kind.root is TypeRoot.CHAR and limits is not WIDE else text
    if kind.root in _BYTES:
        count = (
            kind.length or 1 if kind.root is TypeRoot.BINARY else min(kind.length or 1, random.choice([0, 2, 7, 8, 30]))
        )
        return random.randbytes(count).hex()
    if kind.root in _TIMES:
        edges = _seconds(kind, limits=limits)
        seconds = random.choice([random.randrange(0, 2_000_000_000), random.randrange(min(edges), max(edges))])
        if limits is ORC and seconds == -1:
            seconds = 0
        return _timestamp(kind, seconds, random.randrange(10**9))
    if kind.root is TypeRoot.DECIMAL:
        return _decimal(
            kind,
            random.randrange(-(10 ** (kind.precision or 10)) + 1, 10 ** (kind.precision or 10)) >> random.randrange(60),
        )
    if kind.root is TypeRoot.FLOAT:
        return float(np.float32(random.uniform(-1e6, 1e6)))
    if kind.root is TypeRoot.DOUBLE:
        return random.uniform(-1e9, 1e9)
    if kind.root is TypeRoot.DATE:
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=random.randrange(-90_000, 90_000))).isoformat()
    return random.choice(extremes(kind))


# -- between the peer's form and Arrow ---------------------------------------------------------------------------------


def arrow_of(values: Sequence[Value], kind: DataType) -> pa.Array:
    """Convert peer values to an Arrow array of type ``kind``."""
    return pa.array([_to_python(value, kind) for value in values], to_arrow(kind))


def table_of(rows: Sequence[Mapping[str, Value]], types: Mapping[str, DataType]) -> pa.Table:
    """Convert peer rows to an Arrow table."""
    fields = [pa.field(name, to_arrow(kind), kind.nullable) for name, kind in types.items()]
    return pa.table(
        [arrow_of([row.get(name) for row in rows], kind) for name, kind in types.items()], schema=pa.schema(fields)
    )


def _to_python(value: Value, kind: DataType) -> Any:
    if value is None:
        return None
    if kind.root is TypeRoot.ROW:
        return {f.name: _to_python(value.get(f.name), f.type) for f in kind.fields}
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return [_to_python(item, kind.element) for item in value]
    if kind.root is TypeRoot.MULTISET and kind.element is not None:
        return [(_to_python(k, kind.element), count) for k, count in value]
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        return [(_to_python(k, kind.key), _to_python(v, kind.value)) for k, v in value]
    if kind.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return float(value)
    if kind.root in _BYTES:
        return bytes.fromhex(value)
    if kind.root is TypeRoot.DECIMAL:
        return decimal.Decimal(value)
    if kind.root is TypeRoot.DATE:
        return datetime.date.fromisoformat(value)
    if kind.root is TypeRoot.TIME:
        hours, minutes, seconds = value.split(":")
        return (int(hours) * 60 + int(minutes)) * 60_000 + round(float(seconds) * 1000)
    if kind.root in _TIMES:
        moment, fraction = value.rstrip("Z").split(".")
        unit = to_arrow(kind).unit
        return int(np.datetime64(moment, "s").astype(np.int64)) * _UNITS[unit] + int(fraction) * _UNITS[unit] // 10**9
    return value


def rows_of_arrow(table: pa.Table, types: Mapping[str, DataType]) -> list[dict[str, Value]]:
    """Convert an Arrow table to peer rows."""
    columns = {name: [_from_scalar(scalar, kind) for scalar in table.column(name)] for name, kind in types.items()}
    return [{name: columns[name][i] for name in types} for i in range(table.num_rows)]


def _from_scalar(scalar: pa.Scalar, kind: DataType) -> Value:
    if not scalar.is_valid:
        return None
    if kind.root is TypeRoot.ROW:
        return {f.name: _from_scalar(scalar[i], f.type) for i, f in enumerate(kind.fields)}
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return [_from_scalar(item, kind.element) for item in scalar.values]
    if kind.root in (TypeRoot.MAP, TypeRoot.MULTISET):
        key = kind.key if kind.root is TypeRoot.MAP else kind.element
        item = kind.value or DataType(TypeRoot.INT)
        assert key is not None
        return [[_from_scalar(pair[0], key), _from_scalar(pair[1], item)] for pair in scalar.values]
    if kind.root in _BYTES:
        return scalar.as_py().hex()
    if kind.root is TypeRoot.DECIMAL:
        return format(scalar.as_py(), "f")
    if kind.root is TypeRoot.DATE:
        return str(np.datetime64(scalar.value, "D"))
    if kind.root is TypeRoot.TIME:
        return _clock(DataType(TypeRoot.TIME, precision=3), scalar.value)
    if kind.root in _TIMES:
        seconds, fraction = divmod(scalar.value, _UNITS[scalar.type.unit])
        return _timestamp(kind, seconds, fraction * (10**9 // _UNITS[scalar.type.unit]))
    return scalar.as_py()


# -- comparing ---------------------------------------------------------------------------------------------------------


def normal(value: Value, kind: DataType) -> Value:
    """Return the same form for equal values: floats as text, sorted map entries, times in the unit of their Arrow type.

    Java's casts keep digits beyond the new precision, so that a TIMESTAMP(6) of Java may have nanoseconds.
    """
    if value is None:
        return None
    if kind.root in _TIMES:
        whole, point, fraction = value.removesuffix("Z").partition(".")
        shown = len(str(_UNITS[to_arrow(kind).unit])) - 1
        return f"{whole}{point}{fraction[:shown]:0<{len(fraction)}}{'Z' if value.endswith('Z') else ''}"
    if kind.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        number = float(value)
        return "NaN" if math.isnan(number) else repr(np.float32(number) if kind.root is TypeRoot.FLOAT else number)
    if kind.root is TypeRoot.ROW:
        return {f.name: normal(value.get(f.name), f.type) for f in kind.fields}
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return [normal(item, kind.element) for item in value]
    if kind.root in (TypeRoot.MAP, TypeRoot.MULTISET):
        key = kind.key if kind.root is TypeRoot.MAP else kind.element
        item = kind.value or DataType(TypeRoot.INT)
        assert key is not None
        return sorted(([normal(k, key), normal(v, item)] for k, v in value), key=json.dumps)
    return value


def canonical(rows: Iterable[Mapping[str, Value]], types: Mapping[str, DataType]) -> list[str]:
    """Return rows as sorted texts; equal lists mean equal rows."""
    return sorted(json.dumps({name: normal(row.get(name), kind) for name, kind in types.items()}) for row in rows)


def difference(found: list[str], expected: list[str]) -> str:
    """Return a shortened text about the differences between two lists of rows."""
    extra, gone = [r for r in found if r not in expected], [r for r in expected if r not in found]
    pairs = [f"  found    {a[:1500]}\n  expected {b[:1500]}" for a, b in zip(extra[:2], gone[:2], strict=False)]
    return f"{len(found)} rows instead of {len(expected)}; {len(extra)} unexpected, {len(gone)} missing\n" + "\n".join(
        pairs
    )
