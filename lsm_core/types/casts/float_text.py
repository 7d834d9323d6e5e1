"""Columns of floating-point numbers as texts of the JDKs before 19, which Paimon's oracle runs on (Java 17)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.types.casts.java_digits import insignificant_digits, text_before_jdk19

_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
_WHOLE_BELOW: Final = 2.0**63
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
    odd = _odd(values, size)
    if odd.any():
        found = pc.replace_with_mask(found, pa.array(odd), _exactly(values[odd]))
    return pc.if_else(array.is_valid(), found, pa.scalar(None, pa.string())) if array.null_count else found


def _odd(values: npt.NDArray[Any], size: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Values whose text may differ from the shortest one: powers of two, subnormals, and beyond 2^63 (`_ODD_BELOW`)."""
    power_of_two = np.frexp(size)[0] == 0.5
    subnormal = (size > 0) & (size < np.finfo(values.dtype).tiny)
    large = (size >= _WHOLE_BELOW) & (size < _ODD_BELOW[values.dtype])
    found: npt.NDArray[np.bool_] = power_of_two | subnormal | large
    return found


def _exactly(values: npt.NDArray[Any]) -> pa.Array:
    distinct, codes = np.unique(values, return_inverse=True)
    single = values.dtype == np.float32
    texts = [text_before_jdk19(value, single=single) for value in distinct.tolist()]  # one object a distinct odd value
    return pa.array(texts, pa.string()).take(pa.array(codes.reshape(-1)))


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


__all__ = ["float_column"]
