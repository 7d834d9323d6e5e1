"""Casts between numbers and booleans with Java's arithmetic.

Integers wrap, floats saturate, decimals that overflow are null.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, decimal_limbs, null_mask, numpy_array
from lsm_core.types.arrow import to_arrow
from lsm_core.types.casts.cast_errors import refuse
from lsm_core.types.casts.java_floats import float_column
from lsm_core.types.data_type import DataType, TypeRoot

_LONGS: Final = np.iinfo(np.int64)
_INTS: Final = np.iinfo(np.int32)
_DTYPES: Final[dict[TypeRoot, type[np.generic]]] = {
    TypeRoot.TINYINT: np.int8,
    TypeRoot.SMALLINT: np.int16,
    TypeRoot.INT: np.int32,
    TypeRoot.BIGINT: np.int64,
    TypeRoot.FLOAT: np.float32,
    TypeRoot.DOUBLE: np.float64,
}
_WIDE_PRECISION: Final = 76
_MAX_PRECISION: Final = 38


def filled_values(array: pa.Array) -> npt.NDArray[Any]:
    """Return the values as a NumPy array.

    Returns:
        Values of the array's type, with zero for null. An array without nulls is not copied.
    """
    return numpy_array(array.fill_null(arrow_scalar(0).cast(array.type)) if array.null_count else array)


def with_nulls_of(values: npt.NDArray[Any], array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return ``values`` as an Arrow array that is null where ``array`` is null."""
    return arrow_array(np.ascontiguousarray(values), kind, mask=null_mask(array))


def between_primitives(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Cast between integers and floating-point numbers, as in Java's narrowing and widening primitive conversions."""
    values, dtype = filled_values(array), _DTYPES[target.root]
    with np.errstate(over="ignore", under="ignore"):
        if np.issubdtype(values.dtype, np.floating) and np.issubdtype(dtype, np.integer):
            # First to int or long (saturating), then to the smaller type (wrapping).
            bounds = _LONGS if dtype is np.int64 else _INTS
            low, high = float(bounds.min), float(bounds.max)
            values = values.astype(np.float64)
            whole = np.where((values > low) & (values < high), values, 0.0).astype(np.int64)
            whole[values >= high] = bounds.max
            whole[values <= low] = bounds.min
            values = whole
        return with_nulls_of(values.astype(dtype), array, to_arrow(target))


def to_boolean(array: pa.Array, _source: DataType, _target: DataType) -> pa.Array:
    """Cast integers to BOOLEAN: true for every value except zero."""
    return pc.not_equal(array, pa.scalar(0, array.type))


def from_boolean(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Cast booleans to numbers: one for true and zero for false."""
    return array.cast(pa.int8()).cast(to_arrow(target))


# -- decimals ----------------------------------------------------------------------------------------------------------


def to_decimal(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Cast numbers or booleans to DECIMAL, rounded half up to the scale; null if the precision is too small.

    Raises:
        CastError: the value is NaN or infinite.
    """
    if source.root is TypeRoot.DECIMAL:
        return rescaled(array.cast(pa.decimal256(_WIDE_PRECISION, source.scale or 0)), target)
    if source.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        refuse(array, ~np.isfinite(filled_values(array)), target)
        # BigDecimal.valueOf uses the text of Double.toString.
        return decimal_of_text(float_column(array.cast(pa.float64())), target)
    return rescaled(array.cast(pa.int64()).cast(pa.decimal256(_WIDE_PRECISION, 0)), target)


def rescaled(array: pa.Array, target: DataType) -> pa.Array:
    """Convert 256-bit decimals to the precision and scale of ``target``.

    Returns:
        Decimals, rounded half away from zero; null if they do not fit.
    """
    precision, scale = target.precision or 0, target.scale or 0
    if array.type.scale > scale:
        array = pc.round(array, ndigits=scale, round_mode="half_towards_infinity")
    limit = pa.scalar(10 ** (precision - scale), pa.decimal256(_WIDE_PRECISION, 0)).cast(array.type)
    fits = pc.less(pc.abs(array), limit)
    return pc.if_else(fits, array, pa.scalar(None, array.type)).cast(pa.decimal128(precision, scale))


_NUMBER: Final = r"^(?P<sign>[+-]?)0*(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?:[eE](?P<power>[+-]?[0-9]{1,9}))?$"


def decimal_of_text(texts: pa.Array, target: DataType) -> pa.Array:
    """Convert numeric texts, with or without exponent, to decimals.

    Args:
        texts: the texts, which must be valid numbers.
        target: the decimal type.

    Returns:
        The decimals, rounded half away from zero; null if they do not fit.
    """
    parts = pc.extract_regex(texts, _NUMBER)
    sign = pc.if_else(pc.equal(parts.field("sign"), "-"), "-", "")
    powers = pc.if_else(pc.equal(parts.field("power"), ""), "0", parts.field("power"))
    power = filled_values(pc.replace_substring(powers, "+", "").cast(pa.int64()).fill_null(0))
    whole, part = parts.field("whole"), parts.field("part")
    decimals = pa.nulls(len(texts), to_arrow(target))
    scale, max_whole_digits = target.scale or 0, (target.precision or 0) - (target.scale or 0)
    # One step per distinct exponent, not per value.
    for exponent in np.unique(np.clip(power, -_WIDE_PRECISION * 5, _WIDE_PRECISION * 5)):
        has_exponent = pa.array(np.clip(power, -_WIDE_PRECISION * 5, _WIDE_PRECISION * 5) == exponent)
        whole_digits, fraction_digits = _shift_point(
            whole.filter(has_exponent), part.filter(has_exponent), int(exponent)
        )
        # Only the first dropped digit decides the rounding of the last one.
        rounding_digits = pc.utf8_rpad(pc.utf8_slice_codeunits(fraction_digits, 0, scale + 1), scale + 1, "0")
        text = pc.binary_join_element_wise(
            sign.filter(has_exponent), pc.utf8_lpad(whole_digits, 1, "0"), pa.scalar("."), rounding_digits, ""
        )
        text = pc.if_else(
            pc.less_equal(pc.utf8_length(whole_digits), max_whole_digits), text, pa.scalar(None, pa.string())
        )
        converted = rescaled(text.cast(pa.decimal256(_WIDE_PRECISION, scale + 1)), target)
        decimals = pc.replace_with_mask(decimals, has_exponent, converted)
    return pc.if_else(texts.is_valid(), decimals, pa.scalar(None, decimals.type))


def _shift_point(whole: pa.Array, part: pa.Array, exponent: int) -> tuple[pa.Array, pa.Array]:
    """Return the digits before and after the decimal point, with the point moved by ``exponent``.

    Args:
        whole: digits before the decimal point.
        part: digits after the decimal point.
        exponent: number of digits by which the point moves to the right; negative moves it to the left.
    """
    if exponent > 0:
        padded = pc.utf8_rpad(part, exponent, "0")
        digits = pc.binary_join_element_wise(whole, pc.utf8_slice_codeunits(padded, 0, exponent), "")
        return pc.utf8_ltrim(digits, "0"), pc.utf8_slice_codeunits(padded, exponent)
    if exponent < 0:
        padded = pc.utf8_lpad(whole, -exponent, "0")
        low = pc.utf8_slice_codeunits(padded, exponent, None)
        return pc.utf8_slice_codeunits(padded, 0, exponent), pc.binary_join_element_wise(low, part, "")
    return whole, part


def from_decimal(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Cast decimals to integers or floating-point numbers.

    For an integer, the fraction is dropped, then the lowest bits are kept, as in `BigDecimal.longValue`. For FLOAT and
    DOUBLE, the result is the nearest representable number.
    """
    if target.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return array.cast(pa.string()).cast(to_arrow(target))
    whole = pc.trunc(array).cast(pa.decimal128(_MAX_PRECISION, 0)).fill_null(0)
    return with_nulls_of(decimal_limbs(whole)[1].astype(_DTYPES[target.root]), array, to_arrow(target))
