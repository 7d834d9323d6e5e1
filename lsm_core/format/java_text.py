"""Values in the form of Java's `toString()`: floats, decimals and date-times.

Names of partition directories contain these texts.
"""

from __future__ import annotations

from decimal import Decimal

_MILLIS_PER_DAY = 86_400_000


def float_text(value: float, *, single: bool, newer: bool = False) -> str:
    """Return the text of Java's `Float.toString` or `Double.toString`, which differs between JDKs in rare digits.

    Args:
        value: the number.
        single: whether the number is a FLOAT instead of a DOUBLE.
        newer: whether to return the digits of JDK 19 or newer instead of those of older JDKs.

    Returns:
        The text.
    """
    from lsm_core.types.casts.java_floats import (  # few tables are partitioned by floats
        text_before_jdk19,
        text_since_jdk19,
    )

    return (text_since_jdk19 if newer else text_before_jdk19)(value, single=single)


def decimal_text(value: Decimal) -> str:
    """Return the text of Java's `BigDecimal.toPlainString`, with the decimal's scale."""
    return f"{value:f}"


def date_text(days: int) -> str:
    """Return `LocalDate.toString` of an epoch day: at least four digits of the year, signed beyond 9999 or below 0."""
    # Proleptic Gregorian year, month and day, for any year (Howard Hinnant's algorithm).
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year, day = year_of_era + era * 400 + (month <= 2), day_of_year - (153 * shifted + 2) // 5 + 1
    if year > 9999:
        return f"+{year}-{month:02d}-{day:02d}"
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{month:02d}-{day:02d}"


def _clock(millis: int, nanos: int) -> tuple[int, int, int, int, int]:
    """Return (epoch day, hour, minute, second, nanosecond within the second) of a time.

    Args:
        millis: milliseconds since the epoch.
        nanos: further nanoseconds, below one millisecond.
    """
    days, millis_of_day = divmod(millis, _MILLIS_PER_DAY)
    seconds, milli = divmod(millis_of_day, 1000)
    return days, seconds // 3600, seconds // 60 % 60, seconds % 60, milli * 1_000_000 + nanos


def local_date_time_text(millis: int, nanos: int) -> str:
    """Return `LocalDateTime.toString`: without seconds if they are zero, fraction in groups of three digits.

    Args:
        millis: milliseconds since the epoch.
        nanos: further nanoseconds, below one millisecond.
    """
    days, hour, minute, second, fraction = _clock(millis, nanos)
    text = f"{date_text(days)}T{hour:02d}:{minute:02d}"
    if second or fraction:
        text += f":{second:02d}"
    if fraction:
        digits = f"{fraction:09d}"
        text += "." + (digits[:3] if digits[3:] == "000000" else digits[:6] if digits[6:] == "000" else digits)
    return text


def timestamp_text(millis: int, nanos: int, precision: int) -> str:
    """Return a timestamp cast to STRING: a blank between date and time, and exactly ``precision`` fraction digits.

    Args:
        millis: milliseconds since the epoch.
        nanos: further nanoseconds, below one millisecond.
        precision: number of fraction digits.
    """
    days, hour, minute, second, fraction = _clock(millis, nanos)
    text = f"{date_text(days)} {hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{fraction:09d}"[: len(text) + 1 + precision] if precision else text


def time_text(millis: int, precision: int) -> str:
    """Return a TIME cast to STRING: `HH:MM:SS` and ``precision`` fraction digits (the resolution is milliseconds)."""
    _, hour, minute, second, fraction = _clock(millis, 0)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{fraction:09d}"[: len(text) + 1 + precision] if precision else text
