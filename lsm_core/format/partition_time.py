"""The time of a partition, derived from its values by Java's rules (format.md 1.1).

The default form is lenient (``2024-1-32`` is 1 February), while a custom form is strict. Times are local times without
a time zone.

Source: ``PartitionTimeExtractor``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from lsm_core.errors import InvalidOption
from lsm_core.options import TableOptions

FORMATTER: Final = "partition.timestamp-formatter"
NANOS_PER_DAY: Final = 86_400_000_000_000
_MAX_YEAR: Final = 999_999_999
_NUMBER: Final = r"(-?[0-9]{1,2})"
_DEFAULT: Final = re.compile(
    rf"(-?[0-9]{{1,10}})-{_NUMBER}-{_NUMBER}(?: {_NUMBER}:{_NUMBER}:{_NUMBER}(?:\.([0-9]{{1,9}}))?)?"
)
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_RANGES: Final = {
    "y": (1, _MAX_YEAR),
    "u": (-_MAX_YEAR, _MAX_YEAR),
    "M": (1, 12),
    "d": (1, 31),
    "D": (1, 366),
    "H": (0, 24),
    "m": (0, 59),
    "s": (0, 59),
}
_ACCEPTED: Final = "Java's letters y u M L d D H m s S, text in '...', and optional parts in [...]"


class NoTime(ValueError):
    """A partition whose values do not form a time; the text is the reason."""


@dataclass(frozen=True)
class PartitionTimeExtractor:
    """Reader of times from partition values.

    Without a pattern, the first column is the time. Without a formatter, the form is `yyyy-MM-dd`, optionally with `
    HH:mm:ss` and a fraction.

    Attributes:
        keys: the partition columns, in order.
        pattern: text with column names ("$dt $hour:00:00"), or None.
        formatter: Java date pattern, or None.
        table: the table's name, for messages.
    """

    keys: tuple[str, ...]
    pattern: str | None = None
    formatter: str | None = None
    table: str = ""

    def __post_init__(self) -> None:
        """Validate the formatter.

        Raises:
            InvalidOption: Java would refuse the formatter, or it has unsupported letters.
        """
        _ = self._form

    @cached_property
    def _form(self) -> _Form | None:
        return None if self.formatter is None else _Form.of(self.formatter, self.table)

    def text_of(self, values: Sequence[str | None]) -> str:
        """Return the text that contains the time.

        Args:
            values: Java's text of every column, None for null.

        Returns:
            The text.

        Raises:
            NoTime: a column is null.
        """
        if self.pattern is None:
            if values[0] is None:
                raise NoTime(f"its column {self.keys[0]} is null")
            return values[0]
        text = self.pattern
        for key, value in zip(self.keys, values, strict=True):
            if value is None:  # also of a column that the pattern does not name
                raise NoTime(f"its column {key} is null")
            text = text.replace(f"${key}", value)
        return text

    def extract(self, values: Sequence[str | None]) -> int:
        """Return the time of a partition in nanoseconds since 1970-01-01T00:00, without a time zone.

        Args:
            values: Java's text of every column, None for null.

        Returns:
            The time.

        Raises:
            NoTime: Java finds no time either.
        """
        text = self.text_of(values)
        try:
            return _default_time(text) if self._form is None else self._form.time_of(text)
        except NoTime as error:
            expected = self.formatter or "yyyy-MM-dd [HH:mm:ss]"
            raise NoTime(f"{text!r} is no time of the form {expected}: {error}") from error


def strict_times(keys: Sequence[str], options: TableOptions) -> PartitionTimeExtractor | None:
    """Return the rule for partition values of writes (`partition.timestamp-format.strict`).

    Returns:
        The extractor, or None if every value is allowed.

    Raises:
        InvalidOption: the formatter is invalid.
    """
    pattern, formatter = options.get("partition.timestamp-pattern"), options.get(FORMATTER)
    if not keys or not options.get("partition.timestamp-format.strict") or (pattern is None and formatter is None):
        return None
    return PartitionTimeExtractor(tuple(keys), pattern, formatter, options.table)


def epoch_day(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of any date of the proleptic Gregorian calendar (Howard Hinnant's algorithm)."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


_EARLIEST: Final = epoch_day(-_MAX_YEAR, 1, 1)
_LATEST: Final = epoch_day(_MAX_YEAR, 12, 31)


def _default_time(text: str) -> int:
    match = _DEFAULT.fullmatch(text)
    if match is None:
        raise NoTime("it is written otherwise")
    numbers = [_parse_integer(part) for part in match.groups()[:6] if part is not None]
    year, month, day = numbers[:3]
    if abs(year) > _MAX_YEAR:
        raise NoTime("there is no such year")
    # Months, days, hours, minutes and seconds beyond their range roll over.
    years, month_of_year = divmod(year * 12 + month - 1, 12)
    days = epoch_day(years, month_of_year + 1, 1) + day - 1
    nanos = 0
    if len(numbers) > 3:
        hour, minute, second = numbers[3:]
        nanos = ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + int((match.group(7) or "").ljust(9, "0"))
    return _require_in_range(days * NANOS_PER_DAY + nanos)


def _parse_integer(digits: str) -> int:
    number = int(digits)
    if number == 0 and digits.startswith("-"):
        raise NoTime("zero has no sign")
    return number


def _require_in_range(nanos: int) -> int:
    if not _EARLIEST <= nanos // NANOS_PER_DAY <= _LATEST:
        raise NoTime("there is no such year")
    return nanos


@dataclass(frozen=True)
class _Form:
    """Compiled date pattern of Java (`DateTimeFormatter.ofPattern`, resolver SMART).

    Attributes:
        pattern: regular expression of the accepted texts.
        letters: letter of each group.
    """

    pattern: re.Pattern[str]
    letters: tuple[str, ...]

    @staticmethod
    def of(text: str, table: str) -> _Form:
        """Compile a Java date pattern.

        Raises:
            InvalidOption: the pattern is invalid or has unsupported letters.
        """

        def make_error(reason: str) -> InvalidOption:
            return InvalidOption(FORMATTER, text, f"{_ACCEPTED} ({reason})", table)

        parts: list[str] = []
        letters: list[str] = []
        position = open_brackets = 0
        while position < len(text):
            char = text[position]
            if char.isascii() and char.isalpha():
                end = position
                while end < len(text) and text[end] == char:
                    end += 1
                digits = _digits(char, end - position)
                if digits is None:
                    raise make_error(f"{text[position:end]!r} is not read here")
                parts.append(f"({digits})")
                letters.append({"L": "M"}.get(char, char) + ("2" if char in "yu" and end - position == 2 else ""))
                position = end
                continue
            position += 1
            if char == "'":
                end = text.find("'", position)
                while end != -1 and text.startswith("''", end):
                    end = text.find("'", end + 2)
                if end == -1:
                    raise make_error("a ' is not closed")
                parts.append(re.escape(text[position:end].replace("''", "'") or "'"))
                position = end + 1
            elif char == "[":
                open_brackets += 1
                parts.append("(?>(?:")
            elif char == "]":
                open_brackets -= 1
                if open_brackets < 0:
                    raise make_error("a ] closes nothing")
                parts.append(")?)")
            elif char in "{}#":
                raise make_error(f"{char} is reserved")
            else:
                parts.append(re.escape(char))
        parts += [")?)"] * open_brackets  # Java closes open brackets
        return _Form(re.compile("".join(parts)), tuple(letters))

    def time_of(self, text: str) -> int:
        """Return the time in nanoseconds since 1970-01-01T00:00.

        Raises:
            NoTime: the text does not match the pattern, or is not a time.
        """
        match = self.pattern.fullmatch(text)
        if match is None:
            raise NoTime("it is written otherwise")
        values: dict[str, int] = {}
        for letter, digits in zip(self.letters, match.groups(), strict=True):
            if digits is None:
                continue
            number = int(digits.ljust(9, "0")) if letter == "S" else _parse_integer(digits)
            if letter.endswith("2"):  # two digits mean a year of this century
                letter, number = letter[0], number + 2000
            low, high = _RANGES.get(letter, (0, 999_999_999))
            if not low <= number <= high or values.setdefault(letter, number) != number:
                raise NoTime(f"{digits} does not fit")
        days, nanos = _date(values), _time_of_day(values)
        return _require_in_range(days * NANOS_PER_DAY + nanos)


def _digits(letter: str, count: int) -> str | None:
    """Return the expression for ``count`` times one letter in Java's strict parsing.

    None means an unsupported letter.
    """
    if letter in "yu":
        if count == 2:
            return "[0-9]{2}"
        # A year that is longer than its padding needs a plus sign, and a shorter one must not have it.
        return (
            f"-?[0-9]{{{count},19}}"
            if count < 4
            else rf"[0-9]{{{count}}}|-[0-9]{{{count},19}}|\+[0-9]{{{count + 1},19}}"
        )
    if letter in "MLdHms" and count <= 2:
        return "[0-9]{2}" if count == 2 else "-?[0-9]{1,19}"
    if letter == "D" and count <= 3:
        return "-?[0-9]{1,19}" if count == 1 else f"[0-9]{{{count},3}}"
    return f"[0-9]{{{count}}}" if letter == "S" and count <= 9 else None


def _date(values: dict[str, int]) -> int:
    """Return the epoch day of the parsed fields."""
    if "y" in values and values.setdefault("u", values["y"]) != values["y"]:
        raise NoTime("it tells two years")
    year, month, day, of_year = (values.get(letter) for letter in "uMdD")
    if year is None or (of_year is None and (month is None or day is None)):
        raise NoTime("it tells no whole date")
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if month is not None and day is not None:
        # Days after the end of a month become its last day.
        days = epoch_day(year, month, min(day, 29 if leap and month == 2 else _LENGTHS[month - 1]))
        if of_year is not None and days - epoch_day(year, 1, 1) + 1 != of_year:
            raise NoTime("it tells two dates")
        return days
    assert of_year is not None
    days = epoch_day(year, 1, 1) + of_year - 1
    if (of_year == 366 and not leap) or (month is not None and days < epoch_day(year, month, 1)):
        raise NoTime("it tells no date")
    return days


def _time_of_day(values: dict[str, int]) -> int:
    """Return nanoseconds since midnight, or 0 if the fields contain no time of day; 24:00 is the next midnight."""
    hour, minute, second, fraction = (values.get(letter) for letter in "HmsS")
    is_complete = hour is not None and not (
        (minute is None and (second is not None or fraction is not None))
        or (minute is not None and second is None and fraction is not None)
    )
    nanos = ((hour or 0) * 3600 + (minute or 0) * 60 + (second or 0)) * 1_000_000_000 + (fraction or 0)
    if hour == 24 and not (is_complete and nanos == NANOS_PER_DAY):
        raise NoTime("there is no such hour")
    return nanos if is_complete else 0
