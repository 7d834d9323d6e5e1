"""Columns of values as the texts that Java prints in system tables, a whole column at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.types import DataType, TypeRoot

NULL = "null"
_TEXTS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BYTES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_NUMBERS = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.BOOLEAN})
_STAMPS = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
# Java prints floating point numbers plainly from 1e-3 to below 1e7, as mantissa and exponent elsewhere.
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
_NUMBER = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]+))?(?:e(?P<power>[-+]?[0-9]+))?$"


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
    if kind.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return _floating(column)
    if kind.root is TypeRoot.DECIMAL:
        return _decimal(column)
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


def _decimal(column: pa.Array) -> pa.Array:
    """`BigDecimal.toPlainString`; Arrow's own text has exponents."""
    scale = column.type.scale
    whole = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(column), column.buffers(), column.null_count, offset=column.offset
    )
    text = pc.cast(whole, pa.string())
    if scale == 0:
        return text
    sign = pc.if_else(pc.starts_with(text, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(text, "-"), width=scale + 1, padding="0")
    return pc.binary_join_element_wise(
        sign, pc.utf8_slice_codeunits(digits, 0, -scale), ".", pc.utf8_slice_codeunits(digits, -scale), ""
    )


def _floating(column: pa.Array) -> pa.Array:
    """`Double.toString`: the shortest digits that mean the number."""
    plain = pc.cast(column, pa.string())
    pieces = pc.extract_regex(plain, _NUMBER)
    sign, whole, part, power = (pc.struct_field(pieces, name) for name in ("sign", "whole", "part", "power"))
    digits = pc.binary_join_element_wise(whole, part, "")
    leading = pc.utf8_ltrim(digits, "0")
    zeros = pc.subtract(pc.utf8_length(digits), pc.utf8_length(leading))
    raised = pc.cast(pc.utf8_ltrim(pc.if_else(pc.equal(power, ""), "0", power), "+"), pa.int32())
    exponent = pc.add(pc.subtract(pc.subtract(pc.utf8_length(whole), 1), zeros), raised)
    significant = pc.utf8_rtrim(leading, "0")
    tail = pc.utf8_slice_codeunits(significant, 1)
    tail = pc.if_else(pc.equal(tail, ""), "0", tail)
    head = pc.utf8_slice_codeunits(significant, 0, 1)
    scientific = pc.binary_join_element_wise(sign, head, ".", tail, "E", pc.cast(exponent, pa.string()), "")
    size = pc.abs(column)
    is_plain = pc.or_(pc.equal(size, 0), pc.and_(pc.greater_equal(size, _PLAIN_FROM), pc.less(size, _PLAIN_BELOW)))
    pointed = pc.if_else(pc.equal(part, ""), pc.binary_join_element_wise(plain, ".0", ""), plain)
    special = pc.if_else(pc.is_nan(column), "NaN", pc.if_else(pc.greater(column, 0), "Infinity", "-Infinity"))
    return pc.if_else(pc.is_finite(column), pc.if_else(is_plain, pointed, scientific), special)


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
