"""Sizes and durations in Paimon's text form (Java's MemorySize and TimeUtils)."""

from __future__ import annotations

import operator
import re
from typing import Any

from lsm_core.errors import InvalidOption

_LONG_MAX = 2**63 - 1
_TEXT = re.compile(r"([0-9]+)\s*(.*)", re.DOTALL)
_MAX_DIGITS = 40

_BYTES: dict[str, int] = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}
_MS, _S = 1_000_000, 1_000_000_000  # in nanoseconds
_NANOS: dict[str, int] = {
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
    **dict.fromkeys(("µs", "μs", "micro", "micros", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), _MS),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), _S),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60 * _S),
    **dict.fromkeys(("h", "hour", "hours"), 3600 * _S),
    **dict.fromkeys(("d", "day", "days"), 86_400 * _S),
}
_DAY_MS = 86_400_000
SIZE_FORM = "a size like '128 mb' (units b, kb, mb, gb, tb; a bare number is bytes)"
DURATION_FORM = "a duration like '1 h' or '10 seconds' (units ns, µs, ms, s, min, h, d; a bare number is ms)"


def memory_size(value: str | int, key: str = "memory size") -> int:
    """Return a size in bytes.

    Raises:
        InvalidOption: the value is not a size; the message names ``key`` and the value.

    Source: ``MemorySize.parseBytes``.
    """
    return _parse(value, key, _BYTES, 1, SIZE_FORM)


def duration(value: str | int, key: str = "duration") -> int:
    """Return a duration in milliseconds, rounded down.

    Raises:
        InvalidOption: the value is not a duration; the message names ``key`` and the value.

    Source: ``TimeUtils.parseDuration``.
    """
    return _parse(value, key, _NANOS, _MS, DURATION_FORM)


def whole_number(value: Any, key: str, table: str = "", least: int | None = None, most: int | None = None) -> int:
    """Return an argument as an int; NumPy integers are accepted.

    Args:
        value: the argument.
        key: its name, for messages.
        table: the table's name, for messages.
        least: smallest accepted number, or None.
        most: largest accepted number, or None.

    Returns:
        The number.

    Raises:
        InvalidOption: the value is not an integer in that range; the message names ``key`` and the value.
    """
    if isinstance(value, bool):
        raise InvalidOption(key, value, "a whole number", table)
    try:
        number = operator.index(value)
    except TypeError as error:
        raise InvalidOption(key, value, "a whole number", table) from error
    if least is not None and number < least:
        raise InvalidOption(key, value, f"at least {least}", table)
    if most is not None and number > most:
        raise InvalidOption(key, value, f"at most {most:,}", table)
    return number


def parse_digits(text: str) -> int | None:
    """Return the integer that ``text`` contains in ASCII digits, with or without a sign.

    Returns:
        The number; None for any other text and for more than 40 digits, which no option accepts and Python may refuse
        to convert.
    """
    digits = text[1:] if text.startswith(("+", "-")) else text
    significant = digits.lstrip("0") or "0"
    if not (digits.isascii() and digits.isdigit()) or len(significant) > _MAX_DIGITS:
        return None
    return -int(significant) if text.startswith("-") else int(significant)


def _parse(value: str | int, key: str, units: dict[str, int], divisor: int, form: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidOption(key, value, form)
    if isinstance(value, int):
        if not 0 <= value <= _LONG_MAX:
            raise InvalidOption(key, value, form)
        return value
    match = _TEXT.fullmatch(value.strip())
    unit = units.get(match.group(2).strip().lower()) if match else None
    if match is None or unit is None:
        raise InvalidOption(key, value, form)
    digits = parse_digits(match.group(1))
    result = _LONG_MAX + 1 if digits is None else digits * unit // divisor
    if result > _LONG_MAX:
        most = f"{_LONG_MAX // _DAY_MS} d" if units is _NANOS else f"{_LONG_MAX}"
        raise InvalidOption(key, value, f"{form}, at most {most}")
    return result
