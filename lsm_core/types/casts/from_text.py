"""Casts of texts by Java's grammars (`BinaryStringUtils`, `DateTimeUtils`); the error names the first invalid text."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.types.arrow import to_arrow
from lsm_core.types.casts.cast_errors import refuse
from lsm_core.types.casts.numbers import decimal_of_text, filled_values, with_nulls_of
from lsm_core.types.casts.times import DAY_MILLIS, instants
from lsm_core.types.data_type import DataType, TypeRoot

_TRUE: Final = arrow_array(["t", "true", "y", "yes", "1"], pa.string())
_FALSE: Final = arrow_array(["f", "false", "n", "no", "0"], pa.string())
_INTEGER: Final = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]*)$"
_FLOATING: Final = (
    r"^[\x00-\x20]*[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)[\x00-\x20]*$"
)
_DECIMAL: Final = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?$"
_COUNT: Final = r"^-?[0-9]+$"
_DATE: Final = r"^ *(?P<year>[0-9]{1,4}) *(?:-(?P<month>[0-9]{1,2}))?(?:-(?P<day>[0-9]{1,2}))?(?: .*)?$"
_TIME: Final = (
    r"^ *(?P<hour>[0-9]{1,2}) *(?::(?P<minute>[0-9]{1,2}))?(?::(?P<second>[0-9]{1,2})(?:\.(?P<part>[0-9]*))?)? *$"
)
_MOMENT: Final = (
    r"^(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"(?: (?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2}):(?P<second>[0-9]{1,2})(?:\.(?P<part>[0-9]{0,9}))?)?$"
)

_PER_MILLI: Final = {0: 0, 3: 1, 6: 1_000, 9: 1_000_000}
"""Units of a count per millisecond, by precision; 0 for seconds. Other precisions accept no counts."""

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def _matches(array: pa.Array, pattern: str) -> Mask:
    return np.asarray(pc.match_substring_regex(array, pattern).fill_null(fill_value=False))


def to_boolean(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert texts to BOOLEAN: true, t, yes, y, 1 and false, f, no, n, 0, in any case.

    Raises:
        CastError: a text is not a boolean; the message contains the first one.
    """
    text = pc.utf8_lower(array)
    true, false = pc.is_in(text, _TRUE), pc.is_in(text, _FALSE)
    refuse(array, pc.invert(pc.or_(true, false)), target)
    return pc.if_else(array.is_valid(), true, pa.scalar(None, pa.bool_()))


def to_integer(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert texts of digits with an optional sign to an integer type; a fraction is truncated.

    Raises:
        CastError: a text is not a number, or is out of range; the message contains the first one.
    """
    refuse(array, ~_matches(array, _INTEGER), target)
    digits = pc.replace_substring_regex(array, r"^\+|\.[0-9]*$", "")
    digits = pc.if_else(pc.is_in(digits, pa.array(["", "-"])), "0", digits)
    return _parse_integers(array, digits, to_arrow(target), target)


def _parse_integers(array: pa.Array, digits: pa.Array, kind: pa.DataType, target: DataType) -> pa.Array:
    """Convert ``digits`` to integers; the error names the value of ``array`` that is too large.

    Args:
        array: the source texts, for messages.
        digits: texts of whole numbers to convert.
        kind: Arrow type of the result.
        target: type of the cast, for messages.
    """
    try:
        return digits.cast(kind)
    except pa.ArrowInvalid:
        # A number with more digits than the largest one, or above it, does not fit.
        text = pc.utf8_ltrim(pc.utf8_ltrim(digits, "-"), "0")
        bad = np.asarray(pc.greater(pc.utf8_length(text), 19).fill_null(fill_value=False))
        wide = pc.if_else(pa.array(~bad), digits, "0").cast(pa.decimal128(38, 0))
        limit = 2 ** (kind.bit_width - 1)
        low, high = (pa.scalar(bound, pa.decimal128(38, 0)) for bound in (-limit, limit - 1))
        refuse(
            array,
            bad | np.asarray(pc.or_(pc.less(wide, low), pc.greater(wide, high)).fill_null(fill_value=False)),
            target,
        )
        raise


def to_floating(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert texts to FLOAT or DOUBLE as Java's `Double.parseDouble`.

    Accepted are surrounding blanks, a suffix `f` or `d`, and NaN and Infinity in Java's spelling, but no hexadecimals.

    Raises:
        CastError: a text is not a number; the message contains the first one.
    """
    refuse(array, ~_matches(array, _FLOATING), target)
    plain = pc.replace_substring_regex(array, r"[\x00-\x20]+|[fFdD][\x00-\x20]*$", "")
    plain = pc.replace_substring(pc.replace_substring(plain, "Infinity", "inf"), "+", "")
    return plain.cast(to_arrow(target))


def to_decimal(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert texts to DECIMAL as Java's `new BigDecimal(text)`, rounded half up; null if the value does not fit.

    Raises:
        CastError: a text is not a number; the message contains the first one.
    """
    refuse(array, ~_matches(array, _DECIMAL), target)
    return decimal_of_text(array, target)


def to_date(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert texts to DATE: a count of days since 1970, or a year with optional month and day.

    Text after a blank is ignored.

    Raises:
        CastError: a text is not a date; the message contains the first one.
    """
    counts = _matches(array, _COUNT)
    parts = pc.extract_regex(array, _DATE)
    refuse(array, ~counts & np.asarray(parts.is_null()), target)
    year, month, day = _number(parts, "year"), _number(parts, "month", 1), _number(parts, "day", 1)
    bad = (month < 1) | (month > 12) | (day < 1) | (day > _month_days(year, month))
    refuse(array, ~counts & bad, target)
    days = _epoch_days(year, np.clip(month, 1, 12), day)
    epoch_days = np.where(counts, _parse_counts(array, counts, pa.int32(), target), days)
    return with_nulls_of(epoch_days.astype(np.int32), array, pa.int32()).cast(pa.date32())


def _parse_counts(array: pa.Array, counts: Mask, kind: pa.DataType, target: DataType) -> I64:
    texts = pc.if_else(pa.array(counts), array, "0")
    return filled_values(_parse_integers(array, texts, kind, target)).astype(np.int64)


def to_time(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert texts to TIME: a count of ms, or hours, minutes, seconds and a fraction (truncated to ms).

    Raises:
        CastError: a text is not a time of day; the message contains the first one.
    """
    counts = _matches(array, _COUNT)
    parts = pc.extract_regex(array, _TIME)
    refuse(array, ~counts & np.asarray(parts.is_null()), target)
    millis = _millis_of_day(parts) + _nanos(parts) // 1_000_000
    millis = np.where(counts, _parse_counts(array, counts, pa.int32(), target), millis)
    out_of_range = (_number(parts, "minute") > 59) | (_number(parts, "second") > 59)
    refuse(array, (millis < 0) | (millis >= DAY_MILLIS) | (~counts & out_of_range), target)
    return with_nulls_of(millis.astype(np.int32), array, pa.int32()).cast(pa.time32("ms"))


def to_timestamp(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert texts to timestamps: `yyyy-mm-dd[ hh:mm:ss[.fraction]]`, or for TIMESTAMP a count since the epoch.

    The unit of the count is that of the precision: seconds (0), ms (3), microseconds (6) or nanoseconds (9). As in
    Java, days after the end of the month become its last day, and 24:00:00 is the next midnight.

    Raises:
        CastError: a text is not a timestamp; the message contains the first one.
    """
    units_per_milli = _PER_MILLI.get(target.precision or 0) if target.root is TypeRoot.TIMESTAMP else None
    counts = np.zeros(len(array), np.bool_) if units_per_milli is None else _matches(array, _COUNT)
    parts = pc.extract_regex(array, _MOMENT)
    refuse(array, ~counts & np.asarray(parts.is_null()), target)
    year, month, day = _number(parts, "year"), _number(parts, "month", 1), _number(parts, "day", 1)
    clock = _millis_of_day(parts)
    out_of_range = (month < 1) | (month > 12) | (day < 1) | (day > 31) | (clock > DAY_MILLIS)
    out_of_range |= (
        (_number(parts, "minute") > 59)
        | (_number(parts, "second") > 59)
        | ((clock == DAY_MILLIS) & (_nanos(parts) > 0))
    )
    refuse(array, ~counts & out_of_range, target)
    month = np.clip(month, 1, 12)
    days = _epoch_days(year, month, np.minimum(day, _month_days(year, month)))
    nanos = _nanos(parts)
    millis, nanos_of_milli = days * DAY_MILLIS + clock + nanos // 1_000_000, nanos % 1_000_000
    if units_per_milli is not None and counts.any():
        count_values = _parse_counts(array, counts, pa.int64(), target)
        with np.errstate(over="ignore"):
            count_millis = (
                count_values * np.int64(1000)
                if units_per_milli == 0
                else np.floor_divide(count_values, units_per_milli)
            )
        count_nanos = (
            np.zeros_like(count_values)
            if units_per_milli == 0
            else np.mod(count_values, units_per_milli) * (1_000_000 // units_per_milli)
        )
        millis, nanos_of_milli = np.where(counts, count_millis, millis), np.where(counts, count_nanos, nanos_of_milli)
    return instants(array, millis, nanos_of_milli, target)


# -- parts of dates and times ------------------------------------------------------------------------------------------


def _number(parts: pa.Array, name: str, default: int = 0) -> I64:
    """Return the digits of the regular expression's group ``name`` as numbers, or ``default`` if it is absent."""
    text = parts.field(name).fill_null("")
    return np.asarray(pc.if_else(pc.equal(text, ""), str(default), text).cast(pa.int64()))


def _millis_of_day(parts: pa.Array) -> I64:
    return ((_number(parts, "hour") * 60 + _number(parts, "minute")) * 60 + _number(parts, "second")) * 1000


def _nanos(parts: pa.Array) -> I64:
    """Return the fractions of seconds in nanoseconds, from the regular expression's group `part`."""
    text = pc.utf8_rpad(pc.utf8_slice_codeunits(parts.field("part").fill_null(""), 0, 9), 9, "0")
    return np.asarray(text.cast(pa.int64()))


def _months(year: I64, month: I64) -> npt.NDArray[np.datetime64]:
    return ((year - 1970) * 12 + month - 1).astype("datetime64[M]")


def _epoch_days(year: I64, month: I64, day: I64) -> I64:
    return _months(year, month).astype("datetime64[D]").astype(np.int64) + day - 1


def _month_days(year: I64, month: I64) -> I64:
    first = _months(year, month)
    return (first + 1).astype("datetime64[D]").astype(np.int64) - first.astype("datetime64[D]").astype(np.int64)
