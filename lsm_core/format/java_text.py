"""Values as Java prints them: `toString()` of floats, decimals and date-times, which partition directories are named by."""

from __future__ import annotations

from decimal import Decimal

_MILLIS_PER_DAY = 86_400_000


def float_text(value: float, *, single: bool, newer: bool = False) -> str:
    """Java's `Float.toString` (``single``) or `Double.toString` before JDK 19, or of a ``newer`` one: they differ in rare digits."""
    from lsm_core.types.casts.java_floats import (  # few tables are partitioned by floats
        text_before_jdk19,
        text_since_jdk19,
    )

    return (text_since_jdk19 if newer else text_before_jdk19)(value, single=single)


def decimal_text(value: Decimal) -> str:
    """Java's `BigDecimal.toPlainString` of a decimal with its scale."""
    return f"{value:f}"


def date_text(days: int) -> str:
    """`LocalDate.toString` of an epoch day: four digits at least, years beyond 9999 with a sign."""
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
    """Epoch day, hour, minute, second and nanosecond of an instant."""
    days, rest = divmod(millis, _MILLIS_PER_DAY)
    seconds, milli = divmod(rest, 1000)
    return days, seconds // 3600, seconds // 60 % 60, seconds % 60, milli * 1_000_000 + nanos


def local_date_time_text(millis: int, nanos: int) -> str:
    """`LocalDateTime.toString`: seconds left out when zero, fraction in groups of three digits."""
    days, hour, minute, second, fraction = _clock(millis, nanos)
    text = f"{date_text(days)}T{hour:02d}:{minute:02d}"
    if second or fraction:
        text += f":{second:02d}"
    if fraction:
        digits = f"{fraction:09d}"
        text += "." + (digits[:3] if digits[3:] == "000000" else digits[:6] if digits[6:] == "000" else digits)
    return text


def timestamp_text(millis: int, nanos: int, precision: int) -> str:
    """A timestamp cast to STRING: blank between date and time, exactly ``precision`` fraction digits."""
    days, hour, minute, second, fraction = _clock(millis, nanos)
    text = f"{date_text(days)} {hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{fraction:09d}"[: len(text) + 1 + precision] if precision else text


def time_text(millis: int, precision: int) -> str:
    """A TIME cast to STRING: `HH:MM:SS` and ``precision`` fraction digits (milliseconds are all there are)."""
    _, hour, minute, second, fraction = _clock(millis, 0)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{fraction:09d}"[: len(text) + 1 + precision] if precision else text
