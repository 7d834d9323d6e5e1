"""JSON in the form of Jackson's default pretty printer, so that metadata files are byte-identical to Java's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lsm_core.errors import CorruptFile, InvalidData
from lsm_core.json_reader import parse_json

JsonValue = Any
_MIN_INTEGER, _MAX_INTEGER = -(1 << 63), (1 << 63) - 1
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def pretty(value: JsonValue, depth: int = 0) -> str:
    """Return the text of a JSON value.

    Two spaces per level, ``"key" : value``, arrays on one line (`[ 1, 2 ]`, `[ ]`).
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
    """Typed access to the members of a JSON object; every mismatch raises a :class:`CorruptFile` naming it."""

    def __init__(self, value: Mapping[str, JsonValue], path: str) -> None:
        self._value = value
        self._path = path

    def bad(self, key: str, wanted: str) -> CorruptFile:
        """Return the error for a member that is missing or of the wrong type."""
        return CorruptFile(self._path, f'member "{key}" must be {wanted}, found {self._value.get(key)!r}')

    def integer(self, key: str) -> int:
        """Return a required integer."""
        value = self.optional_integer(key)
        if value is None:
            raise self.bad(key, "a whole number")
        return value

    def optional_integer(self, key: str) -> int | None:
        """Return an integer, or None if the member is absent or null."""
        value = self._value.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self.bad(key, "a whole number")
        if value is not None and not _MIN_INTEGER <= value <= _MAX_INTEGER:
            raise CorruptFile(self._path, f'member "{key}" is beyond 64 bits')
        return value

    def text(self, key: str) -> str:
        """Return a required string."""
        value = self.optional_text(key)
        if value is None:
            raise self.bad(key, "a string")
        return value

    def optional_text(self, key: str) -> str | None:
        """Return a string, or None if the member is absent or null."""
        value = self._value.get(key)
        if value is not None and not isinstance(value, str):
            raise self.bad(key, "a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings, which is empty if the member is absent or null."""
        value = self._value.get(key) or []
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            raise self.bad(key, "a list of strings")
        return tuple(value)

    def text_map(self, key: str) -> dict[str, str] | None:
        """Return an object of strings, or None if the member is absent or null."""
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, dict) or any(not isinstance(item, str) for item in value.values()):
            raise self.bad(key, "an object of strings")
        return dict(value)

    def objects(self, key: str) -> list[dict[str, JsonValue]]:
        """Return a required list of objects."""
        value = self._value.get(key)
        if not isinstance(value, list) or any(not isinstance(item, dict) for item in value):
            raise self.bad(key, "a list of objects")
        return value
