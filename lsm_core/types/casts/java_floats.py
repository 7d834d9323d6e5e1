"""Floating-point numbers as Java prints them: whole columns as the JDKs before 19 do, which Paimon's oracle runs on (Java 17), and single
values by JDK 18 and older, which sometimes give digits too many, and by JDK 19 and newer.

Old: free-format digit generation (Steele and White, "How to Print Floating-Point Numbers Accurately", 1990; Gay, "Correctly Rounded
Binary-Decimal and Decimal-Binary Conversions", 1990), with the habits of JDK-4511638: the neighbours' midpoints count as out of
reach, a power of two is taken to be as near to its upper neighbour as to its lower one, an exponent form has two digits before
nearness is asked, sums that overflow a machine word count as small, and whole numbers below 2^63 are rounded to a guess of their
exact digits. New: the shortest digits (Giulietti, "The Schubfach way to render doubles", 2020).
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
_FIVES_KNOWN: Final = 27
_PLAIN_AFTER, _PLAIN_TO = -3, 7
"""Exponents (of a mantissa below 1) between which numbers are written without one: 0.001 to below 1.0E7."""


class _Layout(NamedTuple):
    """IEEE 754 binary format: bits of the mantissa, and the exponent of the smallest subnormal number."""

    bits: int
    lowest: int


_SINGLE: Final = _Layout(24, -149)
_DOUBLE: Final = _Layout(53, -1074)


def text_before_jdk19(value: float, *, single: bool) -> str:
    """`Float.toString` (``single``) or `Double.toString` of JDK 8 to 18, digit for digit."""
    value = float(np.float32(value)) if single and not math.isnan(value) else value
    found = _special(value)
    if found is not None:
        return found
    size = abs(value)
    layout = _SINGLE if single else _DOUBLE
    if not size.is_integer() or size >= _WHOLE_BELOW:
        return _written(value, *_generated(size, layout))
    unit = 10 ** insignificant_digits(math.frexp(size)[1] - 1, layout.bits)
    digits = str((int(size) + unit // 2) // unit * unit)
    return _written(value, digits.rstrip("0"), len(digits))


def text_since_jdk19(value: float, *, single: bool) -> str:
    """`Float.toString` (``single``) or `Double.toString` of JDK 19 and newer: the shortest digits that read back."""
    value = float(np.float32(value)) if single and not math.isnan(value) else value
    found = _special(value)
    if found is not None:
        return found
    size = np.abs(np.float32(value) if single else np.float64(value))
    mantissa, _, power = np.format_float_scientific(size, unique=True, trim="-").partition("e")
    if len(mantissa) == 1:  # the nearest of two digits then, which matters to the smallest numbers
        mantissa, _, power = f"{float(size):.1e}".partition("e")
    digits = mantissa.replace(".", "").rstrip("0")
    return _written(value, digits, int(power) + 1)


def insignificant_digits(exponent: int, bits: int) -> int:
    """How many last digits of a whole number of ``[2^exponent, 2^(exponent + 1))`` the old JDKs round away."""
    surplus = exponent - bits - 1
    return len(str(1 << surplus)) - 1 if surplus > 0 else 0


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    return f"{sign}Infinity" if math.isinf(value) else f"{sign}0.0" if value == 0 else None


def _generated(size: float, layout: _Layout) -> tuple[str, int]:
    """Digits until what is left is within half a unit in the last place, and where the point stands in them."""
    state = _scaled(size, layout)
    rest, margin, power, tens = state.rest, state.margin, state.power, state.scale * 10
    digits: list[int] = []
    near, first = False, True
    while not near:
        digit, rest = divmod(rest, state.scale)
        rest, margin = rest * 10, _in_word(margin * 10, state.word)
        low = margin <= 0 or rest < margin
        high = margin <= 0 or _in_word(rest + margin, state.word) > tens
        near = low or high
        if first and not (digit or high):
            power -= 1  # its estimate was one too high
        else:
            digits.append(digit)
        if first and not _PLAIN_AFTER <= power <= _PLAIN_TO:
            near = False
        first = False
    beyond_half, text, width = 2 * rest - tens, "".join(map(str, digits)), len(digits)
    if not high or (low and (beyond_half < 0 or (beyond_half == 0 and digits[-1] % 2 == 0))):
        return text, power + 1
    text = str(int(text) + 1).rjust(width, "0")
    return text[:width], power + 1 + len(text) - width


class _Scaled(NamedTuple):
    """``rest / scale`` is the number / 10^power, ``margin / scale`` the reach of its rounding; ``word``: bits they are counted in."""

    rest: int
    scale: int
    margin: int
    power: int
    word: int


def _scaled(size: float, layout: _Layout) -> _Scaled:
    fraction, exponent = math.frexp(size)
    fraction, exponent = fraction * 2, exponent - 1
    power = math.floor((fraction - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981)
    available = min(layout.bits, exponent - layout.lowest + 1)
    reach = exponent - available - (fraction == 1)
    up, down = max(power, 0), max(-power, 0)
    rest, margin, scale = int(math.ldexp(fraction, exponent - reach)) * 10**down, 10**down, 10**up
    if reach < 0:
        scale <<= -reach
    else:
        rest, margin = rest << reach, margin << reach
    twos = _trailing_zeros(rest | margin | scale)
    rest, margin, scale = rest >> twos, margin >> twos, scale >> twos
    bits_of_rest = (rest // 5**down).bit_length() + _bits_of_fives(down)
    widest = max(bits_of_rest, _trailing_zeros(scale) + 1 + _bits_of_fives(up + 1))
    return _Scaled(rest, scale, margin, power, 32 if widest < 32 else 64 if widest < 64 else 0)


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1


def _bits_of_fives(count: int) -> int:
    """As the old JDKs count the bits of 5^count: a bound where it is beyond 64 bits."""
    return (5**count).bit_length() if 0 < count < _FIVES_KNOWN else 3 * count


def _in_word(number: int, word: int) -> int:
    """The number cut to a signed word of so many bits, as Java's casts cut it; 0 bits: not cut."""
    return (number + (1 << word - 1)) % (1 << word) - (1 << word - 1) if word else number


def _written(value: float, digits: str, point: int) -> str:
    """``digits`` with the point behind ``point`` of them, in the form that both kinds of JDK share."""
    sign = "-" if value < 0 else ""
    if 0 < point <= _PLAIN_TO:
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    if _PLAIN_AFTER < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


# -- whole columns -----------------------------------------------------------------------------------------------------


_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
_ODD_BELOW: Final = {np.dtype(np.float32): 1e27, np.dtype(np.float64): 1e40}
"""Below this a midpoint of neighbours may be a short decimal (5^k divides it) or a machine word of the old JDKs overflow."""


def float_column(array: pa.Array) -> pa.Array:
    """FLOAT or DOUBLE values as `Float.toString` or `Double.toString` of JDK 8 to 18 (STRING; nulls stay null).

    Almost everywhere these are the shortest digits, which Arrow prints. Whole numbers are rounded in whole columns, and the few
    kinds of values where anything else may differ go through the exact generator, each distinct value once.
    """
    values = np.asarray(array.fill_null(0) if array.null_count else array)
    with np.errstate(invalid="ignore"):  # NaNs that signal
        size = np.abs(values.astype(np.float64))
    size[np.isnan(size)] = np.nan
    text = _with_whole_numbers(pa.array(values), values, size)
    plain = (size == 0) | ((size >= _PLAIN_FROM) & (size < _PLAIN_BELOW))
    found = pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, pa.scalar(".0"), ""))
    exponents = ~plain & np.isfinite(size)
    if exponents.any():
        found = pc.if_else(pa.array(exponents), _scientific(text), found)
    for value, name in ((np.isnan(size), "NaN"), (values == np.inf, "Infinity"), (values == -np.inf, "-Infinity")):
        if value.any():
            found = pc.if_else(pa.array(value), name, found)
    # The text may differ from the shortest one for powers of two, subnormals, and beyond 2^63 (`_ODD_BELOW`).
    odd = (np.frexp(size)[0] == 0.5) | ((size > 0) & (size < np.finfo(values.dtype).tiny))
    odd |= (size >= _WHOLE_BELOW) & (size < _ODD_BELOW[values.dtype])
    if odd.any():
        distinct, codes = np.unique(values[odd], return_inverse=True)
        single = values.dtype == np.float32
        # One object a distinct odd value.
        texts = pa.array([text_before_jdk19(value, single=single) for value in distinct.tolist()], pa.string())
        found = pc.replace_with_mask(found, pa.array(odd), texts.take(pa.array(codes.reshape(-1))))
    return pc.if_else(array.is_valid(), found, pa.scalar(None, pa.string())) if array.null_count else found


def _with_whole_numbers(array: pa.Array, values: npt.NDArray[Any], size: npt.NDArray[np.float64]) -> pa.Array:
    """Arrow's texts, but whole numbers beyond the mantissa's bits and below 2^63 with the digits the old JDKs keep of them."""
    bits = np.finfo(values.dtype).nmant + 1
    whole = (size >= 2.0**bits) & (size < _WHOLE_BELOW)
    text = array.cast(pa.string())
    if not whole.any():
        return text
    exponents = np.frexp(size[whole])[1] - 1
    units = np.array([10 ** insignificant_digits(e, bits) for e in range(64)], np.int64)[exponents]
    kept = (size[whole].astype(np.int64) + units // 2) // units * units
    return pc.replace_with_mask(
        text, pa.array(whole), pa.array(kept * np.sign(values[whole]).astype(np.int64)).cast(pa.string())
    )


def _scientific(text: pa.Array) -> pa.Array:
    parts = pc.extract_regex(
        text, r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?(?:e(?P<power>[+-]?[0-9]+))?$"
    )
    whole, part, power = (parts.field(name) for name in ("whole", "part", "power"))
    shift = pc.replace_substring(pc.if_else(pc.equal(power, ""), "0", power), "+", "").cast(pa.int32())
    digits = pc.binary_join_element_wise(whole, part, "")
    shown = pc.utf8_ltrim(digits, "0")
    leading = pc.subtract(pc.utf8_length(digits), pc.utf8_length(shown))
    exponent = pc.subtract(pc.add(shift, pc.subtract(pc.utf8_length(whole), 1)), leading)
    shown = pc.utf8_rtrim(shown, "0")
    rest = pc.utf8_slice_codeunits(shown, 1)
    mantissa = pc.binary_join_element_wise(
        parts.field("sign"),
        pc.utf8_slice_codeunits(shown, 0, 1),
        pa.scalar("."),
        pc.if_else(pc.equal(rest, ""), "0", rest),
        "",
    )
    return pc.binary_join_element_wise(mantissa, exponent.cast(pa.string()), "E")


__all__ = ["float_column", "text_before_jdk19", "text_since_jdk19"]
