"""The only reader of untrusted JSON: finite numbers, bounded depth, valid times."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

JsonValue = Any
LATEST_MS: Final = 253_402_300_799_999
"""End of the year 9999 in epoch ms; later times have no date."""
_MIN_INTEGER: Final = -(1 << 63)
_MAX_INTEGER: Final = (1 << 64) - 1
_MAX_DEPTH: Final = 200
_MAX_DIGITS: Final = 20
_MAX_SHOWN: Final = 40
_CHUNK: Final = 1 << 20
_QUOTE: Final = ord('"')
_JSON_TEXT = re.compile(r'"[^"\\]*(?:\\.?[^"\\]*)*"?', re.DOTALL)


def parse_json(data: bytes | str, *, unique: bool = False) -> JsonValue:
    """Parse untrusted JSON; Dredge reads all JSON of others with this function.

    Args:
        data: UTF-8 bytes, or text.
        unique: whether to refuse repeated members of an object, as in Dredge's own records. In Paimon's files the last
            one applies, as in Jackson.

    Returns:
        The value, with finite numbers, integers of at most 64 bits, and at most 200 levels of nesting.

    Raises:
        ValueError: the text is not JSON within these limits.
    """
    if isinstance(data, str):
        text, opened = data, data.count("[") + data.count("{")
    else:
        if b"\0" in data:  # a sparse file, refused before it is copied
            raise ValueError("it holds NUL bytes")
        text, opened = data.decode("utf-8"), data.count(b"[") + data.count(b"{")
    if opened > _MAX_DEPTH and _depth(text) > _MAX_DEPTH:
        raise ValueError(f"it nests deeper than {_MAX_DEPTH} levels")
    try:
        return (_STRICT if unique else _READER).decode(text)
    except RecursionError as error:  # a deep call stack leaves room for fewer levels
        raise ValueError("it nests deeper than this thread's stack") from error


def _depth(text: str) -> int:
    """Return the nesting depth of brackets outside of texts; computed in chunks, because a plan may be large."""
    import numpy as np  # most files need no depth, and the command line starts without NumPy

    steps = np.zeros(256, np.int8)
    steps[[ord("["), ord("{")]] = 1
    steps[[ord("]"), ord("}")]] = -1
    if "\\" in text:  # quotes may be escaped, so texts are removed first
        text = _JSON_TEXT.sub("", text)
    signs = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    deepest, level, quote_count = 0, 0, 0
    for start in range(0, len(signs), _CHUNK):
        chunk = signs[start : start + _CHUNK]
        quote_counts = np.cumsum(chunk == _QUOTE, dtype=np.int32) + quote_count
        levels = np.cumsum(steps[chunk] * (1 - (quote_counts & 1)), dtype=np.int32) + level
        deepest, level, quote_count = max(deepest, int(levels.max())), int(levels[-1]), int(quote_counts[-1]) & 1
    return deepest


def _parse_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:_MAX_SHOWN]} is not finite")
    return value


def _parse_integer(text: str) -> int:
    if len(text) <= _MAX_DIGITS and _MIN_INTEGER <= (value := int(text)) <= _MAX_INTEGER:
        return value
    raise ValueError(f"the whole number {text[:_MAX_SHOWN]} is beyond 64 bits")


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def _refuse_repeated(members: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    value = dict(members)
    if len(value) < len(members):
        names = [name for name, _ in members]
        repeated = next(name for name in value if names.count(name) > 1)
        raise ValueError(f'the member "{repeated[:_MAX_SHOWN]}" is there twice')
    return value


_READER: Final = json.JSONDecoder(parse_float=_parse_finite, parse_int=_parse_integer, parse_constant=_refuse_constant)
_STRICT: Final = json.JSONDecoder(
    parse_float=_parse_finite,
    parse_int=_parse_integer,
    parse_constant=_refuse_constant,
    object_pairs_hook=_refuse_repeated,
)


def time_of(value: JsonValue) -> int:
    """Check a time in a record, and return it.

    Args:
        value: the value in the record.

    Returns:
        Epoch ms from 0 to the end of the year 9999.

    Raises:
        ValueError: the value is not a time in that range.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LATEST_MS:
        raise ValueError(f"{str(value)[:_MAX_SHOWN]} is not a time in epoch ms between 1970 and 9999")
    return value
