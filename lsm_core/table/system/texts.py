"""Columns of values as the texts that Java prints in system tables, a whole column at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.types import DataType, TypeRoot
from lsm_core.types.casts.to_text import printed

NULL = "null"
_TEXTS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BYTES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_NUMBERS = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.BOOLEAN})
_FRACTIONS = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL})
_STAMPS = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def internal_text(column: pa.Array, kind: DataType) -> pa.Array:
    """What Java's `toString` gives of its internal values: dates and times as numbers, timestamps as `LocalDateTime`.

    Bytes are in hex (Java prints an object's address); nested values, of which no statistics exist, are null.
    """
    if kind.root in (TypeRoot.DATE, TypeRoot.TIME):
        return pc.cast(pc.cast(column, pa.int32()), pa.string())
    if kind.root in _STAMPS:
        return _local_date_time(column)
    if kind.root in _BYTES:
        return pa.array([None if v is None else v.hex() for v in column.to_pylist()], pa.string())
    return _common(column, kind)


def cast_text(column: pa.Array, kind: DataType) -> pa.Array:
    """What SQL's CAST to STRING gives: dates and timestamps with as many digits as their type has, zoned ones in UTC."""
    if kind.root is TypeRoot.DATE:
        return _signed_year(pc.cast(column, pa.string()))
    if kind.root in (TypeRoot.TIME, *_STAMPS):
        naive = column if kind.root is TypeRoot.TIME else _naive(column)
        spare = _UNIT_DIGITS[naive.type.unit] - (kind.precision or 0)
        text = _signed_year(pc.cast(naive, pa.string()))
        cut = spare + (0 if kind.precision else 1)  # without digits the point goes too
        return pc.utf8_slice_codeunits(text, 0, -cut) if cut > 0 else text
    if kind.root in _BYTES:
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in column.to_pylist()], pa.string())
    return _common(column, kind)


def _common(column: pa.Array, kind: DataType) -> pa.Array:
    if kind.root in _TEXTS:
        return column
    if kind.root in _NUMBERS:
        return pc.cast(column, pa.string())
    if kind.root in _FRACTIONS:
        return printed(column, kind)
    return pa.nulls(len(column), pa.string())


def _naive(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64()).cast(pa.timestamp(column.type.unit))


def _signed_year(text: pa.Array) -> pa.Array:
    """Java puts a plus before years beyond 9999."""
    return pc.replace_substring_regex(text, r"^([0-9]{5,}-)", r"+\1")


def _local_date_time(column: pa.Array) -> pa.Array:
    """Seconds left out when zero, fractions in groups of three digits."""
    naive = _naive(column)
    text = pc.replace_substring(_signed_year(pc.cast(naive, pa.string())), " ", "T")
    for _ in range(_UNIT_DIGITS[naive.type.unit] // 3):
        text = pc.replace_substring_regex(text, r"(\.(?:[0-9]{3})*)000$", r"\1")
    return pc.replace_substring_regex(pc.utf8_rtrim(text, "."), r"(T[0-9]{2}:[0-9]{2}):00$", r"\1")


def listed(columns: Sequence[pa.Array], count: int, brackets: str) -> pa.Array:
    """``count`` texts "{a, b}" of columns of texts, null values printed as "null"."""
    return _joined([pc.fill_null(column, NULL) for column in columns], count, brackets)


def mapped(columns: Sequence[tuple[str, pa.Array]], count: int) -> pa.Array:
    """``count`` texts "{name=a, other=b}", sorted by name as Java's TreeMap does."""
    named = sorted(columns, key=lambda one: one[0].encode("utf-16-be", "surrogatepass"))
    texts = [pc.binary_join_element_wise(f"{name}=", pc.fill_null(column, NULL), "") for name, column in named]
    return _joined(texts, count, "{}")


def _joined(texts: Sequence[pa.Array], count: int, brackets: str) -> pa.Array:
    if not texts:
        return pa.repeat(pa.scalar(brackets), count)
    inside = pc.binary_join_element_wise(*texts, ", ")
    return pc.binary_join_element_wise(brackets[0], inside, brackets[1], "")


__all__ = ["NULL", "cast_text", "internal_text", "listed", "mapped"]
