"""The one reader of JSON that somebody else may have written: finite numbers, bounded depth, times that a calendar has."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

JsonValue = Any
LATEST_MS: Final = 253_402_300_799_999
"""The end of year 9999 in epoch ms: later times have no date."""
_LEAST: Final = -(1 << 63)
_MOST_UNSIGNED: Final = (1 << 64) - 1
_DEEPEST: Final = 200
_DIGITS: Final = 20
_SHOWN: Final = 40
_CHUNK: Final = 1 << 20
_QUOTE: Final = ord('"')
_JSON_TEXT = re.compile(r'"[^"\\]*(?:\\.?[^"\\]*)*"?', re.DOTALL)


def parse_json(data: bytes | str, *, unique: bool = False) -> JsonValue:
    """Parse JSON that somebody else may have written; the only reader of such text in Dredge.

    Args:
        data: UTF-8 bytes, or text.
        unique: Refuse an object with the same member twice. For records of our own; in Paimon's files the last counts, as in Jackson.

    Returns:
        The value. Its numbers are finite, its whole numbers have at most 64 bits, and it nests at most 200 levels.

    Raises:
        ValueError: The text is no such JSON.
    """
    if isinstance(data, str):
        text, opened = data, data.count("[") + data.count("{")
    else:
        if b"\0" in data:  # a sparse file: refused before it is copied
            raise ValueError("it holds NUL bytes")
        text, opened = data.decode("utf-8"), data.count(b"[") + data.count(b"{")
    if opened > _DEEPEST and _depth(text) > _DEEPEST:
        raise ValueError(f"it nests deeper than {_DEEPEST} levels")
    try:
        return (_STRICT if unique else _READER).decode(text)
    except RecursionError as error:  # a caller that is deep in its own calls leaves room for fewer levels
        raise ValueError("it nests deeper than this thread's stack") from error


def _depth(text: str) -> int:
    """Levels of nesting of brackets outside of texts; in chunks, because a plan may be large."""
    import numpy as np  # most files need no count, and the command line starts without NumPy

    steps = np.zeros(256, np.int8)
    steps[[ord("["), ord("{")]] = 1
    steps[[ord("]"), ord("}")]] = -1
    if "\\" in text:  # a quote may be escaped: take the texts out first
        text = _JSON_TEXT.sub("", text)
    signs = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    deepest, level, quotes = 0, 0, 0
    for start in range(0, len(signs), _CHUNK):
        chunk = signs[start : start + _CHUNK]
        counted = np.cumsum(chunk == _QUOTE, dtype=np.int32) + quotes
        levels = np.cumsum(steps[chunk] * (1 - (counted & 1)), dtype=np.int32) + level
        deepest, level, quotes = max(deepest, int(levels.max())), int(levels[-1]), int(counted[-1]) & 1
    return deepest


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:_SHOWN]} is not finite")
    return value


def _whole(text: str) -> int:
    if len(text) <= _DIGITS and _LEAST <= (value := int(text)) <= _MOST_UNSIGNED:
        return value
    raise ValueError(f"the whole number {text[:_SHOWN]} is beyond 64 bits")


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _once(members: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    value = dict(members)
    if len(value) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in value if names.count(name) > 1)
        raise ValueError(f'the member "{twice[:_SHOWN]}" is there twice')
    return value


_READER: Final = json.JSONDecoder(parse_float=_finite, parse_int=_whole, parse_constant=_no_constant)
_STRICT: Final = json.JSONDecoder(
    parse_float=_finite, parse_int=_whole, parse_constant=_no_constant, object_pairs_hook=_once
)


def time_of(value: JsonValue) -> int:
    """Check a time of a record.

    Args:
        value: What the record says.

    Returns:
        Epoch ms from 0 to the end of year 9999.

    Raises:
        ValueError: It is another number, or none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LATEST_MS:
        raise ValueError(f"{str(value)[:_SHOWN]} is no time in epoch ms between 1970 and 9999")
    return value
