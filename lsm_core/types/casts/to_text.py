"""Values in Java's text form, for whole columns: numbers, times, and nested values in brackets.

Texts of CHAR(n) and VARCHAR(n) are truncated or padded to their length.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.types.arrow import compact, list_of
from lsm_core.types.casts.cast_errors import CastError, refuse
from lsm_core.types.casts.java_floats import float_column
from lsm_core.types.data_type import MAX_LENGTH, DataType, TypeRoot

_UNIT_DIGITS: Final = {"ms": 3, "us": 6, "ns": 9}
_MAX_PRECISION: Final = 38
_NESTED: Final = frozenset({TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW})
_BINARIES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})


def cast(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Convert any value to text.

    Returns:
        The texts. CHAR(n) is padded with blanks; CHAR(n) and VARCHAR(n) are truncated to n characters. Texts of nested
        values and of bytes are neither padded nor truncated.

    Raises:
        CastError: bytes are not valid UTF-8, or the type cannot be printed.
    """
    text = printed(array, source)
    if source.root in _NESTED or source.root in _BINARIES:
        return text
    if (target.length or 0) < MAX_LENGTH:
        text = pc.utf8_slice_codeunits(text, 0, target.length)
    return pc.utf8_rpad(text, target.length) if target.root is TypeRoot.CHAR else text


def printed(array: pa.Array, source: DataType) -> pa.Array:
    """Return values of ``source`` as STRING, in Java's text form.

    Raises:
        CastError: bytes are not valid UTF-8, or the type cannot be printed.
    """
    root = source.root
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return float_column(array)
    if root is TypeRoot.DECIMAL:
        return _decimals(array)
    if root is TypeRoot.TIME:
        return _times(array, source.precision or 0)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        text = array.cast(pa.timestamp(array.type.unit)).cast(pa.string())
        precision = source.precision or 0
        surplus = _UNIT_DIGITS[array.type.unit] - precision
        # Without fraction digits the decimal point is removed too.
        return pc.utf8_slice_codeunits(text, 0, -surplus if precision else -surplus - 1) if surplus else text
    if root in _BINARIES:
        return _bytes(array)
    if root in (TypeRoot.ARRAY, TypeRoot.MAP):
        array = compact(array)
    if root is TypeRoot.ARRAY and source.element is not None:
        return _enclose("[", _join_elements(array, printed(array.values, source.element)), "]")
    if root is TypeRoot.MAP and source.key is not None and source.value is not None:
        keys, items = _or_null(printed(array.keys, source.key)), _or_null(printed(array.items, source.value))
        return _enclose("{", _join_elements(array, pc.binary_join_element_wise(keys, items, " -> ")), "}")
    if root is TypeRoot.ROW:
        fields = [_or_null(printed(array.field(i), field.type)) for i, field in enumerate(source.fields)]
        inner = pc.binary_join_element_wise(*fields, ", ") if fields else pa.repeat("", len(array))
        return pc.if_else(array.is_valid(), _enclose("{", inner, "}"), pa.scalar(None, pa.string()))
    if pa.types.is_nested(array.type):  # Java allows this type change, but cannot read the values
        raise CastError(f"values of {source.with_nullable(nullable=True)} cannot be shown as text")
    return array.cast(pa.string())


def _or_null(texts: pa.Array) -> pa.Array:
    return texts.fill_null("null") if texts.null_count else texts


def _join_elements(array: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.binary_join(list_of(array, _or_null(texts), pa.list_(pa.string())), ", ")


def _enclose(before: str, texts: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(before), texts, pa.scalar(after), "")


def _bytes(array: pa.Array) -> pa.Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count, array.offset)
        ascii_only = pc.replace_substring_regex(texts.cast(pa.binary()), r"[\x80-\xff]", "")
        same = pc.equal(pc.binary_length(array), pc.binary_length(ascii_only))
        bad = np.invert(np.asarray(same.fill_null(fill_value=True)))
        refuse(array, bad, DataType(TypeRoot.VARCHAR, length=MAX_LENGTH))
        raise


def _decimals(array: pa.Array) -> pa.Array:
    """Return the text of `BigDecimal.toPlainString`: all digits of the scale, never an exponent."""
    scale = array.type.scale
    whole = pa.Array.from_buffers(
        pa.decimal128(_MAX_PRECISION, 0), len(array), array.buffers(), array.null_count, array.offset
    ).cast(pa.string())
    if not scale:
        return whole
    digits = pc.utf8_lpad(pc.utf8_ltrim(whole, "-"), scale + 1, "0")
    sign = pc.if_else(pc.starts_with(whole, "-"), "-", "")
    before = pc.binary_join_element_wise(sign, pc.utf8_slice_codeunits(digits, 0, -scale), "")
    return pc.binary_join_element_wise(before, pc.utf8_slice_codeunits(digits, -scale, None), ".")


def _times(array: pa.Array, precision: int) -> pa.Array:
    """Return `HH:MM:SS` with a fraction without trailing zeros, at least one digit; no fraction with precision 0."""
    text = array.cast(pa.string())
    seconds = pc.utf8_slice_codeunits(text, 0, 8)
    if not precision:
        return seconds
    digits = pc.utf8_slice_codeunits(text, 9, 9 + min(precision, 3))
    digits = pc.utf8_rpad(pc.utf8_rtrim(digits, "0"), 1, "0")
    return pc.binary_join_element_wise(seconds, digits, ".")


def to_binary(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert texts and bytes to bytes: BINARY(n) is padded with zeros, BINARY(n) and VARBINARY(n) are truncated."""
    values = array.cast(pa.binary())
    length = target.length or MAX_LENGTH
    if length < MAX_LENGTH:
        values = pc.binary_slice(values, 0, length)
    if target.root is not TypeRoot.BINARY:
        return values
    short = np.asarray(pc.less(pc.binary_length(values), length).fill_null(fill_value=False))
    if not short.any():
        return values
    zeros = pa.scalar(bytes(length), pa.binary())
    return pc.binary_slice(pc.binary_join_element_wise(values, zeros, pa.scalar(b"")), 0, length)
