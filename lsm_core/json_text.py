"""JSON of metadata files: the only reader of untrusted JSON, and text that is byte-identical to Java's.

The reader accepts only finite numbers, integers of at most 64 bits, and bounded depth. The writer has the form of
Jackson's default pretty printer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lsm_core.errors import CorruptFile, InvalidData

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
    """Parse untrusted JSON; all JSON from files and users is read with this function.

    Args:
        data: UTF-8 bytes, or text.
        unique: whether to refuse repeated members of an object, as in Dredge's own records. In Paimon's files the last
            of the repeated members applies, as in Jackson.

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
    """Return the nesting depth of brackets in the JSON text ``text``, without brackets inside of strings.

    The depth is computed in chunks, because a plan may be large.
    """
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
    """Check that a JSON value is a time in epoch ms, and return it.

    Args:
        value: the JSON value.

    Returns:
        Epoch ms from 0 to the end of the year 9999.

    Raises:
        ValueError: the value is not a time in that range.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LATEST_MS:
        raise ValueError(f"{str(value)[:_MAX_SHOWN]} is not a time in epoch ms between 1970 and 9999")
    return value


_MIN_LONG, _MAX_LONG = -(1 << 63), (1 << 63) - 1
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def pretty(value: JsonValue, depth: int = 0) -> str:
    """Return the text of a JSON value as Jackson's default pretty printer writes it.

    Members of objects are on lines of their own (``"key" : value``), indented by two spaces per level. Arrays are on
    one line (`[ 1, 2 ]`, `[ ]`).

    Args:
        value: the value.
        depth: level of the value, for its indentation.
    """
    if isinstance(value, Mapping):
        if not value:
            return "{ }"
        pad = "  " * (depth + 1)
        rows = [f"{pad}{_scalar(str(key))} : {pretty(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + "  " * depth + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            return "[ ]"
        return "[ " + ", ".join(pretty(item, depth) for item in value) + " ]"
    return _scalar(value)


def _scalar(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def require_whole(text: str, table: str, subject: str) -> None:
    """Check that a text has no lone surrogate, which no file can store.

    Args:
        text: the text.
        table: the table's name, for the message.
        subject: the kind of text, for the message.

    Raises:
        InvalidData: the text contains a lone surrogate.
    """
    if _LONE_SURROGATE.search(text):
        raise InvalidData(table, "", f"{subject} {text!r} holds half a character (a lone surrogate)")


def texts_in(value: JsonValue) -> list[str]:
    """Return every text in a JSON value at any depth, without the keys of objects.

    Raises:
        RecursionError: the value is nested too deeply.
    """
    if isinstance(value, str):
        return [value]
    inner = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return [text for item in inner for text in texts_in(item)]


def parse_object(data: bytes, path: str) -> dict[str, JsonValue]:
    """Return the JSON object in ``data``.

    Raises:
        CorruptFile: the data is not a JSON object, or contains a lone surrogate; the message names ``path``.
    """
    try:
        value = parse_json(data)
    except ValueError as error:
        raise CorruptFile(path, f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptFile(path, f"a JSON object was expected, found {type(value).__name__}")
    if b"\\ud" in data.lower() and _LONE_SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise CorruptFile(path, "text with half a character (a lone surrogate)")  # it could not be written again
    return value


class ObjectReader:
    """Typed access to the members of a JSON object; a mismatch raises a :class:`CorruptFile` that names the member."""

    def __init__(self, value: Mapping[str, JsonValue], path: str) -> None:
        self._value = value
        self._path = path

    def bad(self, key: str, expected: str) -> CorruptFile:
        """Return the error for member ``key``, which is missing or not ``expected``, such as "a whole number"."""
        return CorruptFile(self._path, f'member "{key}" must be {expected}, found {self._value.get(key)!r}')

    def integer(self, key: str) -> int:
        """Return the integer in member ``key``, which must exist."""
        value = self.optional_integer(key)
        if value is None:
            raise self.bad(key, "a whole number")
        return value

    def optional_integer(self, key: str) -> int | None:
        """Return the integer in member ``key``, or None if the member is absent or null."""
        value = self._value.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self.bad(key, "a whole number")
        if value is not None and not _MIN_LONG <= value <= _MAX_LONG:
            raise CorruptFile(self._path, f'member "{key}" is beyond 64 bits')
        return value

    def text(self, key: str) -> str:
        """Return the string in member ``key``, which must exist."""
        value = self.optional_text(key)
        if value is None:
            raise self.bad(key, "a string")
        return value

    def optional_text(self, key: str) -> str | None:
        """Return the string in member ``key``, or None if the member is absent or null."""
        value = self._value.get(key)
        if value is not None and not isinstance(value, str):
            raise self.bad(key, "a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of strings in member ``key``; empty if the member is absent or null."""
        value = self._value.get(key) or []
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            raise self.bad(key, "a list of strings")
        return tuple(value)

    def text_map(self, key: str) -> dict[str, str] | None:
        """Return the JSON object with string values in member ``key``, or None if the member is absent or null."""
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, dict) or any(not isinstance(item, str) for item in value.values()):
            raise self.bad(key, "an object of strings")
        return dict(value)

    def objects(self, key: str) -> list[dict[str, JsonValue]]:
        """Return the list of JSON objects in member ``key``, which must exist."""
        value = self._value.get(key)
        if not isinstance(value, list) or any(not isinstance(item, dict) for item in value):
            raise self.bad(key, "a list of objects")
        return value
