"""Partitions as directories, values and times, by Java's rules (format.md 1.1).

Directory names follow JDK 8 to 18. A newer JDK writes some floating-point numbers with fewer digits, so its directories
have other names (:func:`newer_partition_dir`). The table's metadata does not record which of the two names was used.

The time of a partition is derived from its values. The default form is lenient (``2024-1-32`` is 1 February), while a
custom form is strict. Times are local times without a time zone.

Source: ``PartitionPathUtils``, ``PartitionTimeExtractor``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.errors import InvalidFilter, InvalidOption, UnsupportedFeature
from lsm_core.format.binary_row import EMPTY_ROW, decode_row, decode_rows, encode_row, one_value
from lsm_core.format.java_text import (
    date_text,
    decimal_text,
    float_text,
    local_date_time_text,
    time_text,
    timestamp_text,
)
from lsm_core.format.schema import TableSchema
from lsm_core.options import TableOptions
from lsm_core.types import DataType, TypeRoot, to_arrow

_ESCAPED = frozenset({*map(chr, range(0x20)), *"\"#%'*/:=?\\\x7f{}[]^"})
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_TIMESTAMPS = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_BINARIES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_FLOATS = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
_TEXTS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_PER_MILLI = {"ms": 1, "us": 1000, "ns": 1_000_000}
# Java's Character.isWhitespace excludes non-breaking spaces and next-line.
_NOT_JAVA_SPACE = frozenset("\x85\xa0\u2007\u202f")


def escape(text: str) -> str:
    """Percent-escape a partition name or value (Java `PartitionPathUtils.escapePathName`)."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def unescape(text: str) -> str:
    """Reverse :func:`escape` (Java `PartitionPathUtils.unescapePathName`); a % without two hex digits stays."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def partition_dir(schema: TableSchema, partition: bytes, options: TableOptions) -> str:
    """Return the directory of a partition below the table, as in ``dt=2024-01-01/h=1``.

    Args:
        schema: the table's schema.
        partition: the partition as a serialised row.
        options: the table's options.

    Returns:
        The relative directory, or "" for a table without partitions.

    Raises:
        CorruptFile: the bytes do not fit the partition columns.
        UnsupportedFeature: a binary partition column has legacy names, for which Java prints an object id.
    """
    return partition_dirs(schema, [partition], options)[0]


def newer_partition_dir(schema: TableSchema, partition: bytes, options: TableOptions) -> str | None:
    """Return the directory of a partition on JDK 19 or newer if it differs from :func:`partition_dir`, else None.

    The directories differ only for some floating-point values.
    """
    if not any(kind.root in _FLOATS for kind in schema.partition_types):
        return None
    newer = partition_dirs(schema, [partition], options, newer=True)[0]
    return None if newer == partition_dir(schema, partition, options) else newer


def partition_text(schema: TableSchema, partition: bytes, options: TableOptions) -> str:
    """Return the name of a partition (serialised row) for users and for Dagster, as in ``dt=2024-01-01``.

    The name is the partition's directory. A text that would share the directory of null is quoted (``dt=""``).
    """
    return partition_names(schema, [partition], options)[0]


def partition_names(schema: TableSchema, partitions: Sequence[bytes], options: TableOptions) -> list[str]:
    """Return partition names for users and for Dagster.

    The names are the directories, except that texts which share the directory of null get names of their own.

    Null is `partition.default-name` (``dt=__DEFAULT_PARTITION__``). The empty text, texts of spaces only, and the text
    of the default name are quoted (``dt=""``). No other text is quoted, because a quotation mark inside a text is
    escaped.

    Args:
        schema: the table's schema.
        partitions: partitions as serialised rows.
        options: the table's options.

    Returns:
        One name per partition.
    """
    default = options.partition_default_name

    def name(text: str | None) -> str:
        if text is None:
            return escape(default)
        return f'"{escape(text)}"' if _is_blank(text) or text == default else escape(text)

    columns = [
        [name(text) for text in texts] for texts in _column_texts(schema, partitions, options.partition_legacy_name)
    ]
    return _paths([escape(name) for name in schema.partition_keys], columns, len(partitions))


def partition_dirs(
    schema: TableSchema, partitions: Sequence[bytes], options: TableOptions, *, newer: bool = False
) -> list[str]:
    """Return the directories of many partitions, which are decoded together.

    Args:
        schema: the table's schema.
        partitions: partitions as serialised rows.
        options: the table's options.
        newer: whether to use the names of JDK 19 or newer.

    Returns:
        One relative directory per partition.
    """
    columns = [[escape(text) for text in texts] for texts in _directory_texts(schema, partitions, options, newer=newer)]
    return _paths([escape(name) for name in schema.partition_keys], columns, len(partitions))


def partition_specs(schema: TableSchema, partitions: Sequence[bytes], options: TableOptions) -> list[str]:
    """Return the unescaped directories of partitions, as in ``a=1/b=2``, as catalogs list them."""
    return _paths(schema.partition_keys, _directory_texts(schema, partitions, options), len(partitions))


def partition_spec_values(
    schema: TableSchema, partitions: Sequence[bytes], options: TableOptions
) -> list[dict[str, str]]:
    """Return the texts of each partition's values by column, as catalog servers list them."""
    columns = _directory_texts(schema, partitions, options)
    rows = zip(*columns, strict=True) if columns else [()] * len(partitions)
    return [dict(zip(schema.partition_keys, row, strict=True)) for row in rows]


def java_texts(schema: TableSchema, partitions: Sequence[bytes]) -> list[tuple[str | None, ...]]:
    """Return the values of each partition in Java's internal text form (dates are epoch days).

    Returns:
        One tuple per partition, with None for null. Binary values give a text that cannot be parsed as a time.
    """
    columns = _column_texts(schema, partitions, legacy=True, unprintable="[B@")
    return list(zip(*columns, strict=True)) if columns else [()] * len(partitions)


def _paths(names: Sequence[str], columns: Sequence[Sequence[str]], count: int) -> list[str]:
    """Return ``a=1/b=2`` for each of ``count`` partitions, or "" without columns.

    Args:
        names: names of the partition columns.
        columns: for each partition column, the text of each partition.
        count: number of partitions.
    """
    named = [[f"{name}={text}" for text in texts] for name, texts in zip(names, columns, strict=True)]
    return ["/".join(row) for row in zip(*named, strict=True)] if named else [""] * count


def _directory_texts(
    schema: TableSchema, partitions: Sequence[bytes], options: TableOptions, *, newer: bool = False
) -> list[list[str]]:
    """Return for each partition column the unescaped text of each partition in directory names.

    Nulls and blank texts have the same text, as in Java.

    Args:
        schema: the table's schema.
        partitions: partitions as serialised rows.
        options: the table's options.
        newer: whether to use the texts of JDK 19 or newer.
    """
    default = options.partition_default_name
    columns = _column_texts(schema, partitions, options.partition_legacy_name, newer=newer)
    return [[default if text is None or _is_blank(text) else text for text in texts] for texts in columns]


def _column_texts(
    schema: TableSchema, partitions: Sequence[bytes], legacy: bool, *, newer: bool = False, unprintable: str = ""
) -> list[list[str | None]]:
    """Return for each partition column the text of each partition, with None for null.

    Args:
        schema: the table's schema.
        partitions: partitions as serialised rows.
        legacy: whether the texts are those of `partition.legacy-name`.
        newer: whether to use the texts of JDK 19 or newer.
        unprintable: text of all binary values; without it, binary columns with legacy names are refused.
    """
    columns = decode_rows(arrow_array(partitions, pa.binary()), schema.partition_types) if schema.partition_keys else []
    texts: list[list[str | None]] = []
    for column, kind in zip(columns, schema.partition_types, strict=True):
        if unprintable and kind.root in _BINARIES:
            texts.append([None if value is None else unprintable for value in column.to_pylist()])
            continue
        to_text = _formatter(kind, legacy, newer)
        # As integers, because Python's date types do not cover the whole range.
        if kind.root in _TIMESTAMPS:
            column = column.cast(pa.int64())
        elif kind.root in (TypeRoot.DATE, TypeRoot.TIME):
            column = column.cast(pa.int32())
        texts.append([None if value is None else to_text(value) for value in column.to_pylist()])
    return texts


def _is_blank(text: str) -> bool:
    """Return whether a text is empty or only Java's white space; Java stores such a text in the directory of null."""
    return all(char.isspace() and char not in _NOT_JAVA_SPACE for char in text)


def _formatter(kind: DataType, legacy: bool, newer: bool) -> Callable[[Any], str]:
    root = kind.root
    if root in _TIMESTAMPS:
        # Instants (LTZ) are named in UTC. Java uses the JVM's zone, which must be the same for all engines of a table.
        per_milli = _PER_MILLI[to_arrow(kind).unit]

        def text(value: int) -> str:
            millis, fraction = divmod(value, per_milli)
            nanos = fraction * (1_000_000 // per_milli)
            return local_date_time_text(millis, nanos) if legacy else timestamp_text(millis, nanos, kind.precision or 0)

        return text
    if root in _BINARIES:
        if legacy:
            raise UnsupportedFeature("BINARY partition columns with partition.legacy-name=true")
        return lambda value: bytes(value).decode("utf-8", "replace")
    if root is TypeRoot.BOOLEAN:
        return lambda value: "true" if value else "false"
    if root in _FLOATS:
        return lambda value: float_text(value, single=root is TypeRoot.FLOAT, newer=newer)
    if root is TypeRoot.DECIMAL:
        return decimal_text
    if not legacy and root is TypeRoot.DATE:
        return date_text
    if not legacy and root is TypeRoot.TIME:
        return lambda value: time_text(value, kind.precision or 0)
    return str


def partition_values(schema: TableSchema, partition: bytes) -> dict[str, Any]:
    """Return the Python values of a partition by column name (nanosecond timestamps as np.datetime64).

    Raises:
        CorruptFile: the bytes do not fit the partition columns.
    """
    return dict(zip(schema.partition_keys, decode_row(partition, schema.partition_types), strict=True))


def partition_bytes(schema: TableSchema, values: Mapping[str, Any], table: str = "") -> bytes:
    """Return the serialised BinaryRow of a whole partition.

    Args:
        schema: the table's schema.
        values: values or their texts by column (``{"dt": "2024-01-01", "h": "1"}``).
        table: the table's name, for messages.

    Returns:
        The serialised row.

    Raises:
        InvalidFilter: a column is missing, unknown, or has an invalid value; the message names table and column.
    """
    prefix = f"table {table}: " if table else ""
    if not isinstance(values, Mapping):
        raise InvalidFilter(f"{prefix}partition {values!r}: a mapping of column names to values was expected")
    unknown = sorted(set(values) - set(schema.partition_keys))
    missing = [name for name in schema.partition_keys if name not in values]
    if unknown or missing:
        columns = ", ".join(schema.partition_keys) or "none"
        raise InvalidFilter(f"{prefix}partition {dict(values)}: the partition columns are {columns}")
    if not schema.partition_keys:
        return EMPTY_ROW
    row = [
        partition_value(name, values[name], kind, prefix)
        for name, kind in zip(schema.partition_keys, schema.partition_types, strict=True)
    ]
    return encode_row(row, schema.partition_types)


def partition_value(column: str, value: Any, kind: DataType, of: str = "") -> Any:
    """Validate a value of a partition column, and parse it if it is the text of a value of another type.

    Args:
        column: name of the column.
        value: the value or its text.
        kind: type of the column.
        of: prefix of error messages.

    Returns:
        The parsed value, or ``value`` itself if no parsing is needed.

    Raises:
        InvalidFilter: the value is invalid; the message names the column.
    """
    arrow = to_arrow(kind)
    try:
        if isinstance(value, str) and kind.root not in _TEXTS:
            return _parse_text(value, kind, arrow)
        # Validated here so that the error can name the column.
        one_value(value, arrow)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        TypeError,
        ValueError,
        InvalidOperation,
    ) as error:
        raise InvalidFilter(f'{of}partition column "{column}" ({kind}) cannot be {value!r}: {error}') from error
    return value


def _parse_text(text: str, kind: DataType, arrow: pa.DataType) -> Any:
    if kind.root is TypeRoot.DATE and text.lstrip("-").isdigit():
        # The legacy directory name of a date is its epoch day.
        return arrow_array([int(text)], pa.int32()).view(pa.date32())[0].as_py()
    if kind.root in _BINARIES:
        return text.encode()
    if kind.root is TypeRoot.DECIMAL:
        return Decimal(text)
    if kind.root in _TIMESTAMPS:
        local = arrow_array([text]).cast(pa.timestamp(arrow.unit))[0]
        return np.datetime64(local.value, arrow.unit)
    return arrow_array([text]).cast(arrow)[0].as_py()


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
    """Error of a partition whose values do not form a time; the message is the reason."""


@dataclass(frozen=True)
class PartitionTimeExtractor:
    """Reader of times from partition values.

    Without a pattern, the first column contains the time. Without a formatter, the form is `yyyy-MM-dd`, optionally
    followed by a blank, `HH:mm:ss` and a fraction.

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
        """Return the text from which the time of a partition is parsed.

        Args:
            values: Java's text of every column, None for null.

        Returns:
            The text.

        Raises:
            NoTime: the first column is null, or any column if the extractor has a pattern.
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
            NoTime: the values do not form a time by Java's rules.
        """
        text = self.text_of(values)
        try:
            return _default_time(text) if self._form is None else self._form.time_of(text)
        except NoTime as error:
            expected = self.formatter or "yyyy-MM-dd [HH:mm:ss]"
            raise NoTime(f"{text!r} is no time of the form {expected}: {error}") from error


def strict_times(keys: Sequence[str], options: TableOptions) -> PartitionTimeExtractor | None:
    """Return the extractor for tables in which all written partition values must form a time.

    Returns:
        The extractor, or None if option `partition.timestamp-format.strict` allows all values.

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
        letters: for each group of the expression, its pattern letter ("y2" and "u2" for a year of two digits).
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
    """Return the regular expression of the number for a pattern letter repeated ``count`` times.

    The expression follows Java's strict parsing.

    Returns:
        The expression, or None if the letter or its count is unsupported.
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
    """Return the epoch day of parsed date fields: ``values`` are numbers by pattern letter (u, y, M, d, D)."""
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
    """Return nanoseconds since midnight, or 0 without a complete time of day.

    24:00 is the next midnight. ``values`` are the parsed numbers by pattern letter (H, m, s, S).
    """
    hour, minute, second, fraction = (values.get(letter) for letter in "HmsS")
    is_complete = hour is not None and not (
        (minute is None and (second is not None or fraction is not None))
        or (minute is not None and second is None and fraction is not None)
    )
    nanos = ((hour or 0) * 3600 + (minute or 0) * 60 + (second or 0)) * 1_000_000_000 + (fraction or 0)
    if hour == 24 and not (is_complete and nanos == NANOS_PER_DAY):
        raise NoTime("there is no such hour")
    return nanos if is_complete else 0
