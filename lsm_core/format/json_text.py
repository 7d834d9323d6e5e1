"""JSON as Jackson's default pretty printer writes it, so that our metadata files look like Java's byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lsm_core.errors import CorruptFile, InvalidData
from lsm_core.json_reader import parse_json

JsonValue = Any
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def pretty(value: JsonValue, depth: int = 0) -> str:
    """Text of a JSON value: two spaces a level, ``"key" : value``, arrays on one line (`[ 1, 2 ]`, `[ ]`)."""
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


def require_whole(text: str, table: str, what: str) -> None:
    """Raise InvalidData naming ``table`` and ``what`` when ``text`` holds half a character (a lone surrogate): no file can hold it."""
    if _HALF_CHARACTER.search(text):
        raise InvalidData(table, "", f"{what} {text!r} holds half a character (a lone surrogate)")


def texts_in(value: JsonValue) -> list[str]:
    """Every text in a JSON value, however deep; keys of objects are not among them. Raises RecursionError for nesting without end."""
    if isinstance(value, str):
        return [value]
    inner = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return [text for one in inner for text in texts_in(one)]


def parse_object(data: bytes, path: str) -> dict[str, JsonValue]:
    """The JSON object in ``data``; raises :class:`CorruptFile` naming ``path`` when it is anything else."""
    try:
        value = parse_json(data)
    except ValueError as error:
        raise CorruptFile(path, f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptFile(path, f"a JSON object was expected, found {type(value).__name__}")
    if b"\\ud" in data.lower() and _HALF_CHARACTER.search(json.dumps(value, ensure_ascii=False)):
        raise CorruptFile(path, "text with half a character (a lone surrogate)")  # nothing could write it out again
    return value


class ObjectReader:
    """Typed access to the members of one JSON object; every mismatch is a :class:`CorruptFile` naming the member."""

    def __init__(self, value: Mapping[str, JsonValue], path: str) -> None:
        self._value = value
        self._path = path

    def bad(self, key: str, wanted: str) -> CorruptFile:
        """The error for a member that is missing or of another type."""
        return CorruptFile(self._path, f'member "{key}" must be {wanted}, found {self._value.get(key)!r}')

    def integer(self, key: str) -> int:
        """A required whole number."""
        value = self.optional_integer(key)
        if value is None:
            raise self.bad(key, "a whole number")
        return value

    def optional_integer(self, key: str) -> int | None:
        """A whole number, or None when the member is absent or null."""
        value = self._value.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self.bad(key, "a whole number")
        if value is not None and not _LEAST <= value <= _MOST:
            raise CorruptFile(self._path, f'member "{key}" is beyond 64 bits')
        return value

    def text(self, key: str) -> str:
        """A required string."""
        value = self.optional_text(key)
        if value is None:
            raise self.bad(key, "a string")
        return value

    def optional_text(self, key: str) -> str | None:
        """A string, or None when the member is absent or null."""
        value = self._value.get(key)
        if value is not None and not isinstance(value, str):
            raise self.bad(key, "a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings (absent or null: empty)."""
        value = self._value.get(key) or []
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            raise self.bad(key, "a list of strings")
        return tuple(value)

    def text_map(self, key: str) -> dict[str, str] | None:
        """An object of strings, or None when absent or null."""
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, dict) or any(not isinstance(item, str) for item in value.values()):
            raise self.bad(key, "an object of strings")
        return dict(value)

    def objects(self, key: str) -> list[dict[str, JsonValue]]:
        """A required list of objects."""
        value = self._value.get(key)
        if not isinstance(value, list) or any(not isinstance(item, dict) for item in value):
            raise self.bad(key, "a list of objects")
        return value
