"""Floating-point numbers in Java's text form.

Columns are printed as in JDK 8 to 18, because Paimon's tests run on Java 17; these JDKs sometimes print too many
digits. Single values are printed as in JDK 8 to 18 or as in JDK 19 and newer.

Old JDKs use free-format digit generation (Steele and White, "How to Print Floating-Point Numbers Accurately", 1990;
Gay, "Correctly Rounded Binary-Decimal and Decimal-Binary Conversions", 1990) with the peculiarities of JDK-4511638:

- The midpoints to the neighbours are excluded.
- A power of two is treated as equally near to both neighbours.
- An exponent form gets two digits before nearness is tested.
- Sums that overflow a machine word count as small.
- Whole numbers below 2^63 are rounded to an estimate of their exact digits.

New JDKs print the shortest digits (Giulietti, "The Schubfach way to render doubles", 2020).
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# -- one value ---------------------------------------------------------------------------------------------------------


_WHOLE_BELOW: Final = 2.0**63
_EXACT_FIVES: Final = 27
_PLAIN_AFTER, _PLAIN_TO = -3, 7
"""Range of exponents (of a mantissa below 1) that are printed without an exponent: 0.001 to below 1.0E7."""


class _Layout(NamedTuple):
    """IEEE 754 binary format of FLOAT or DOUBLE.

    Attributes:
        bits: bits of the mantissa.
        lowest: exponent of the smallest subnormal number.
    """

    bits: int
    lowest: int


_SINGLE: Final = _Layout(24, -149)
_DOUBLE: Final = _Layout(53, -1074)


def text_before_jdk19(value: float, *, single: bool) -> str:
    """Return the text of `Float.toString` (``single``) or `Double.toString` of JDK 8 to 18, digit by digit."""
    value = float(np.float32(value)) if single and not math.isnan(value) else value
    special_text = _special_text(value)
    if special_text is not None:
        return special_text
    size = abs(value)
    layout = _SINGLE if single else _DOUBLE
    if not size.is_integer() or size >= _WHOLE_BELOW:
        return _format_digits(value, *_generate_digits(size, layout))
    unit = 10 ** insignificant_digits(math.frexp(size)[1] - 1, layout.bits)
    digits = str((int(size) + unit // 2) // unit * unit)
    return _format_digits(value, digits.rstrip("0"), len(digits))


def text_since_jdk19(value: float, *, single: bool) -> str:
    """Return the text of `Float.toString` (``single``) or `Double.toString` of JDK 19 and newer.

    The text has the shortest digits that identify the number.
    """
    value = float(np.float32(value)) if single and not math.isnan(value) else value
    special_text = _special_text(value)
    if special_text is not None:
        return special_text
    size = np.abs(np.float32(value) if single else np.float64(value))
    mantissa, _, power = np.format_float_scientific(size, unique=True, trim="-").partition("e")
    if len(mantissa) == 1:  # Java then uses the nearest two digits, which matters for the smallest numbers
        mantissa, _, power = f"{float(size):.1e}".partition("e")
    digits = mantissa.replace(".", "").rstrip("0")
    return _format_digits(value, digits, int(power) + 1)


def insignificant_digits(exponent: int, bits: int) -> int:
    """Return the number of last digits that old JDKs round away from whole numbers of a magnitude.

    Args:
        exponent: binary exponent; the numbers are in ``[2^exponent, 2^(exponent + 1))``.
        bits: bits of the type's mantissa.
    """
    surplus = exponent - bits - 1
    return len(str(1 << surplus)) - 1 if surplus > 0 else 0


def _special_text(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    return f"{sign}Infinity" if math.isinf(value) else f"{sign}0.0" if value == 0 else None


def _generate_digits(size: float, layout: _Layout) -> tuple[str, int]:
    """Return (digits, position of the decimal point) of the positive number ``size``.

    Digits are generated until the remainder is within half a unit of the last place.
    """
    state = _scale(size, layout)
    remainder, margin, power, tens = state.remainder, state.margin, state.power, state.scale * 10
    digits: list[int] = []
    is_near, is_first = False, True
    while not is_near:
        digit, remainder = divmod(remainder, state.scale)
        remainder, margin = remainder * 10, _in_word(margin * 10, state.word)
        low = margin <= 0 or remainder < margin
        high = margin <= 0 or _in_word(remainder + margin, state.word) > tens
        is_near = low or high
        if is_first and not (digit or high):
            power -= 1  # its estimate was one too high
        else:
            digits.append(digit)
        if is_first and not _PLAIN_AFTER <= power <= _PLAIN_TO:
            is_near = False
        is_first = False
    beyond_half, text, width = 2 * remainder - tens, "".join(map(str, digits)), len(digits)
    if not high or (low and (beyond_half < 0 or (beyond_half == 0 and digits[-1] % 2 == 0))):
        return text, power + 1
    text = str(int(text) + 1).rjust(width, "0")
    return text[:width], power + 1 + len(text) - width


class _Scaled(NamedTuple):
    """Scaled integer state of the digit generation.

    Attributes:
        remainder: ``remainder / scale`` is the number divided by 10^power.
        scale: the common denominator.
        margin: ``margin / scale`` is the largest error at which the digits still identify the number.
        power: decimal exponent.
        word: bits of the machine word for the computation, 0 for no limit.
    """

    remainder: int
    scale: int
    margin: int
    power: int
    word: int


def _scale(size: float, layout: _Layout) -> _Scaled:
    fraction, exponent = math.frexp(size)
    fraction, exponent = fraction * 2, exponent - 1
    power = math.floor((fraction - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981)
    available = min(layout.bits, exponent - layout.lowest + 1)
    reach = exponent - available - (fraction == 1)
    up, down = max(power, 0), max(-power, 0)
    remainder, margin, scale = int(math.ldexp(fraction, exponent - reach)) * 10**down, 10**down, 10**up
    if reach < 0:
        scale <<= -reach
    else:
        remainder, margin = remainder << reach, margin << reach
    twos = _trailing_zeros(remainder | margin | scale)
    remainder, margin, scale = remainder >> twos, margin >> twos, scale >> twos
    remainder_bits = (remainder // 5**down).bit_length() + _bits_of_fives(down)
    widest = max(remainder_bits, _trailing_zeros(scale) + 1 + _bits_of_fives(up + 1))
    return _Scaled(remainder, scale, margin, power, 32 if widest < 32 else 64 if widest < 64 else 0)


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1


def _bits_of_fives(count: int) -> int:
    """Return the number of bits of 5^count as old JDKs count them: exact for small powers, else the bound 3 * count."""
    return (5**count).bit_length() if 0 < count < _EXACT_FIVES else 3 * count


def _in_word(number: int, word: int) -> int:
    """Return the number truncated to a signed word of ``word`` bits, as Java's casts do; 0 bits means no truncation."""
    return (number + (1 << word - 1)) % (1 << word) - (1 << word - 1) if word else number


def _format_digits(value: float, digits: str, point: int) -> str:
    """Return the digits with the decimal point after ``point`` of them, in the form that all JDKs share.

    Args:
        value: the number; only its sign is used.
        digits: decimal digits of the number.
        point: position of the decimal point in ``digits``; may be outside of them.
    """
    sign = "-" if value < 0 else ""
    if 0 < point <= _PLAIN_TO:
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    if _PLAIN_AFTER < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


# -- whole columns -----------------------------------------------------------------------------------------------------


_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
_EXACT_BELOW: Final = {np.dtype(np.float32): 1e27, np.dtype(np.float64): 1e40}
"""Limit below which a midpoint of neighbours may be a short decimal (5^k divides it) or an old JDK's machine word may
overflow.
"""


def float_column(array: pa.Array) -> pa.Array:
    """Convert FLOAT or DOUBLE values to the text of `Float.toString` or `Double.toString` of JDK 8 to 18.

    Nulls stay null.

    Almost always the text has the shortest digits, as Arrow prints them. Large whole numbers are rounded with array
    operations. All further values whose text may differ are printed by :func:`text_before_jdk19`, once per distinct
    value.
    """
    values = np.asarray(array.fill_null(0) if array.null_count else array)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        size = np.abs(values.astype(np.float64))
    size[np.isnan(size)] = np.nan
    text = _with_whole_numbers(pa.array(values), values, size)
    is_plain = (size == 0) | ((size >= _PLAIN_FROM) & (size < _PLAIN_BELOW))
    texts = pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, pa.scalar(".0"), ""))
    exponents = ~is_plain & np.isfinite(size)
    if exponents.any():
        texts = pc.if_else(pa.array(exponents), _scientific(text), texts)
    for is_special, name in ((np.isnan(size), "NaN"), (values == np.inf, "Infinity"), (values == -np.inf, "-Infinity")):
        if is_special.any():
            texts = pc.if_else(pa.array(is_special), name, texts)
    # The text may differ from the shortest one for powers of two, subnormals, and from 2^63 to `_EXACT_BELOW`.
    needs_exact = (np.frexp(size)[0] == 0.5) | ((size > 0) & (size < np.finfo(values.dtype).tiny))
    needs_exact |= (size >= _WHOLE_BELOW) & (size < _EXACT_BELOW[values.dtype])
    if needs_exact.any():
        distinct, codes = np.unique(values[needs_exact], return_inverse=True)
        single = values.dtype == np.float32
        # One Python object per distinct value.
        exact_texts = pa.array(
            [text_before_jdk19(is_special, single=single) for is_special in distinct.tolist()], pa.string()
        )
        texts = pc.replace_with_mask(texts, pa.array(needs_exact), exact_texts.take(pa.array(codes.reshape(-1))))
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string())) if array.null_count else texts


def _with_whole_numbers(array: pa.Array, values: npt.NDArray[Any], size: npt.NDArray[np.float64]) -> pa.Array:
    """Return Arrow's texts, with large whole numbers rounded as in old JDKs.

    Large whole numbers are those that exceed the bits of the mantissa and are below 2^63.
    """
    bits = np.finfo(values.dtype).nmant + 1
    is_large_whole = (size >= 2.0**bits) & (size < _WHOLE_BELOW)
    text = array.cast(pa.string())
    if not is_large_whole.any():
        return text
    exponents = np.frexp(size[is_large_whole])[1] - 1
    units = np.array([10 ** insignificant_digits(e, bits) for e in range(64)], np.int64)[exponents]
    rounded = (size[is_large_whole].astype(np.int64) + units // 2) // units * units
    return pc.replace_with_mask(
        text,
        pa.array(is_large_whole),
        pa.array(rounded * np.sign(values[is_large_whole]).astype(np.int64)).cast(pa.string()),
    )


def _scientific(text: pa.Array) -> pa.Array:
    parts = pc.extract_regex(
        text, r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?(?:e(?P<power>[+-]?[0-9]+))?$"
    )
    whole, part, power = (parts.field(name) for name in ("whole", "part", "power"))
    shift = pc.replace_substring(pc.if_else(pc.equal(power, ""), "0", power), "+", "").cast(pa.int32())
    digits = pc.binary_join_element_wise(whole, part, "")
    significant = pc.utf8_ltrim(digits, "0")
    leading = pc.subtract(pc.utf8_length(digits), pc.utf8_length(significant))
    exponent = pc.subtract(pc.add(shift, pc.subtract(pc.utf8_length(whole), 1)), leading)
    significant = pc.utf8_rtrim(significant, "0")
    fraction = pc.utf8_slice_codeunits(significant, 1)
    mantissa = pc.binary_join_element_wise(
        parts.field("sign"),
        pc.utf8_slice_codeunits(significant, 0, 1),
        pa.scalar("."),
        pc.if_else(pc.equal(fraction, ""), "0", fraction),
        "",
    )
    return pc.binary_join_element_wise(mantissa, exponent.cast(pa.string()), "E")
