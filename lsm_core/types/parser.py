"""Conversion of types from text and to JSON: the SQL strings and JSON objects of schema files.

Source: ``DataTypeJsonParser``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lsm_core.errors import InvalidSchema
from lsm_core.json_text import parse_json
from lsm_core.types.data_type import MAX_LENGTH, DataType, RowField, TypeRoot, to_sql

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^']|'')*')|([A-Za-z_][A-Za-z0-9_]*)|([0-9]+)|([(),<>]))")
_SIMPLE = {
    "BOOLEAN": TypeRoot.BOOLEAN,
    "TINYINT": TypeRoot.TINYINT,
    "SMALLINT": TypeRoot.SMALLINT,
    "INT": TypeRoot.INT,
    "INTEGER": TypeRoot.INT,
    "BIGINT": TypeRoot.BIGINT,
    "FLOAT": TypeRoot.FLOAT,
    "DATE": TypeRoot.DATE,
    "VARIANT": TypeRoot.VARIANT,
    "BLOB": TypeRoot.BLOB,
}
_LENGTHS = {
    "CHAR": TypeRoot.CHAR,
    "VARCHAR": TypeRoot.VARCHAR,
    "BINARY": TypeRoot.BINARY,
    "VARBINARY": TypeRoot.VARBINARY,
}
_UNBOUNDED = {"STRING": TypeRoot.VARCHAR, "BYTES": TypeRoot.VARBINARY}
_MAX_DEPTH = 64


_KNOWN = frozenset(
    {*_SIMPLE, *_LENGTHS, *_UNBOUNDED, "DOUBLE", "DECIMAL", "NUMERIC", "DEC", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"}
    | {"ARRAY", "MULTISET", "MAP", "ROW", "VECTOR"}
)
_UNKNOWN = re.compile(r"([A-Z_][A-Z0-9_]*)\b(.*?)(\s+NOT\s+NULL|\s+NULL)?\s*", re.IGNORECASE | re.DOTALL)
_MAX_NAME_LENGTH = 1024


def parse_stored(source: Any) -> DataType:
    """Return the type of a column in a schema file, which a newer version may have written.

    Args:
        source: the text or object.

    Returns:
        The type as in :func:`parse`. A type with an unknown name, also inside the object of a nested type, has root
        UNKNOWN and keeps its text.

    Raises:
        InvalidSchema: the type has a known name but is invalid, or the source is not a type.
    """
    return _from_json(source, 0, lenient=True)


def _parse_unknown(source: str | Mapping[str, Any]) -> DataType | None:
    """Return a type with root UNKNOWN, or None if the text cannot be the type of a newer version."""
    name = source if isinstance(source, str) else str(source["type"])
    match = _UNKNOWN.fullmatch(name.strip())
    if match is None or match[1].upper() in _KNOWN or len(name) > _MAX_NAME_LENGTH or not name.isprintable():
        return None
    nullable = (match[3] or "").upper().split() != ["NOT", "NULL"]
    detail = f"{match[1]}{match[2]}"
    if not isinstance(source, str):
        detail = json.dumps({**source, "type": detail}, sort_keys=True)
    return DataType(TypeRoot.UNKNOWN, nullable, detail=detail)


def parse(source: str | Mapping[str, Any]) -> DataType:
    """Return the type of a JSON string or object in a schema file.

    SQL for nested types (``ARRAY<INT>``, ``MAP<..>``, ``MULTISET<..>``, ``ROW<`a` INT>``) is accepted too; fields of
    this ROW get the ids 0, 1, 2 ...

    Args:
        source: the text or object.

    Returns:
        The type.

    Raises:
        InvalidSchema: the source is not a type; the message contains it.
    """
    return _from_json(source, 0)


def _from_json(source: Any, depth: int, *, lenient: bool = False) -> DataType:
    if depth > _MAX_DEPTH:
        raise InvalidSchema(f"type nested deeper than {_MAX_DEPTH} levels")
    if isinstance(source, str):
        try:
            return _Parser(source).whole()
        except InvalidSchema:
            unknown_type = _parse_unknown(source) if lenient else None
            if unknown_type is None:
                raise
            return unknown_type
    if not isinstance(source, Mapping) or not isinstance(source.get("type"), str):
        raise InvalidSchema(f"not a type: {_short(source)}")
    if lenient and (unknown_type := _parse_unknown(source)) is not None:
        return unknown_type
    words = source["type"].upper().split()
    name, nullable = (words[0] if words else ""), words[1:] != ["NOT", "NULL"]
    if words[1:] not in ([], ["NULL"], ["NOT", "NULL"]):
        raise InvalidSchema(f"not a type: {_short(source)}")
    try:
        if name in ("ARRAY", "MULTISET"):
            return DataType(TypeRoot[name], nullable, element=_from_json(source["element"], depth + 1, lenient=lenient))
        if name == "VECTOR":
            element = _from_json(source["element"], depth + 1, lenient=lenient)
            return DataType(TypeRoot.VECTOR, nullable, length=int(source["length"]), element=element)
        if name == "MAP":
            key, value = (
                _from_json(source["key"], depth + 1, lenient=lenient),
                _from_json(source["value"], depth + 1, lenient=lenient),
            )
            return DataType(TypeRoot.MAP, nullable, key=key, value=value)
        if name == "ROW":
            return DataType(
                TypeRoot.ROW, nullable, fields=tuple(_field(f, depth, lenient=lenient) for f in source["fields"])
            )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidSchema(f"{name} type is incomplete: {_short(source)}") from error
    return _Parser(source["type"]).whole()


def _field(source: Mapping[str, Any], depth: int, *, lenient: bool = False) -> RowField:
    kind = _from_json(source["type"], depth + 1, lenient=lenient)
    if isinstance(source["id"], bool) or not isinstance(source["id"], int):
        raise TypeError("a field's id is not an integer")
    return RowField(source["id"], str(source["name"]), kind, source.get("description"), source.get("defaultValue"))


def _short(source: object) -> str:
    text = repr(source)
    return text if len(text) <= 120 else text[:117] + "..."


class _Parser:
    """Recursive-descent parser for one SQL type string."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.tokens: list[str] = []
        end = len(text.rstrip())
        position = 0
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.fail()
            self.tokens.append(match.group().strip())
            position = match.end()

    def fail(self) -> InvalidSchema:
        return InvalidSchema(f"cannot read type '{_short(self.text)[1:-1]}'")

    def peek(self) -> str:
        return self.tokens[self.at].upper() if self.at < len(self.tokens) else ""

    def take(self, *words: str) -> bool:
        """Consume ``words`` if they are next, and return whether they were."""
        matches = [t.upper() for t in self.tokens[self.at : self.at + len(words)]] == list(words)
        self.at += len(words) if matches else 0
        return matches

    def need(self, word: str) -> None:
        if not self.take(word):
            raise self.fail()

    def number(self) -> int:
        token = self.peek()
        if not token.isdigit() or len(token) > 10:
            raise self.fail()
        self.at += 1
        return int(token)

    def in_brackets(self, default: int) -> int:
        if not self.take("("):
            return default
        value = self.number()
        self.need(")")
        return value

    def whole(self) -> DataType:
        result = self.type()
        if self.at != len(self.tokens):
            raise self.fail()
        return result

    def type(self) -> DataType:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.fail()
        result = self.bare()
        self.depth -= 1
        if self.take("NOT", "NULL"):
            return result.with_nullable(nullable=False)
        self.take("NULL")
        return result

    def bare(self) -> DataType:
        name = self.peek()
        self.at += 1
        if name in _SIMPLE:
            return DataType(_SIMPLE[name])
        if name == "DOUBLE":
            self.take("PRECISION")
            return DataType(TypeRoot.DOUBLE)
        if name in _LENGTHS:
            return DataType(_LENGTHS[name], length=self.in_brackets(1))
        if name in _UNBOUNDED:
            return DataType(_UNBOUNDED[name], length=MAX_LENGTH)
        if name in ("DECIMAL", "NUMERIC", "DEC"):
            return self.decimal()
        if name in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
            return self.time(name)
        if name in ("GEOMETRY", "GEOGRAPHY"):
            return self.geo(name)
        return self.nested(name)

    def decimal(self) -> DataType:
        precision, scale = 10, 0
        if self.take("("):
            precision = self.number()
            scale = self.number() if self.take(",") else 0
            self.need(")")
        return DataType(TypeRoot.DECIMAL, precision=precision, scale=scale)

    def time(self, name: str) -> DataType:
        precision = self.in_brackets(0 if name == "TIME" else 6)
        root = TypeRoot[name]
        if name == "TIMESTAMP" and self.take("WITH", "LOCAL", "TIME", "ZONE"):
            root = TypeRoot.TIMESTAMP_LTZ
        elif name != "TIMESTAMP_LTZ":
            self.take("WITHOUT", "TIME", "ZONE")
        return DataType(root, precision=precision)

    def geo(self, name: str) -> DataType:
        detail = None
        if self.take("("):
            start = self.at
            while self.peek() not in (")", ""):
                self.at += 1
            detail = " ".join(self.tokens[start : self.at])
            self.need(")")
        return DataType(TypeRoot[name], detail=detail)

    def nested(self, name: str) -> DataType:
        if name not in ("ARRAY", "MULTISET", "MAP", "ROW", "VECTOR"):
            raise self.fail()
        self.need("<")
        if name == "ROW":
            result = DataType(TypeRoot.ROW, fields=self.row_fields())
        elif name == "MAP":
            key = self.type()
            self.need(",")
            result = DataType(TypeRoot.MAP, key=key, value=self.type())
        elif name == "VECTOR":
            element = self.type()
            self.need(",")
            result = DataType(TypeRoot.VECTOR, length=self.number(), element=element)
        else:
            result = DataType(TypeRoot[name], element=self.type())
        self.need(">")
        return result

    def row_fields(self) -> tuple[RowField, ...]:
        fields: list[RowField] = []
        while self.peek() not in (">", ""):
            if fields:
                self.need(",")
            name = self.tokens[self.at] if self.at < len(self.tokens) else ""
            self.at += 1
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            kind, text = self.type(), self.peek()
            description = None
            if text.startswith("'"):
                description = self.tokens[self.at][1:-1].replace("''", "'")
                self.at += 1
            fields.append(RowField(len(fields), name, kind, description))
        return tuple(fields)


def to_json(kind: DataType) -> str | dict[str, Any]:
    """Return the JSON form of a type in schema files: text for atomic types, an object for nested ones."""
    if kind.root is TypeRoot.UNKNOWN and (kind.detail or "").startswith("{"):
        members = parse_json(str(kind.detail))
        assert isinstance(members, dict)
        return {**members, "type": str(members["type"]) + ("" if kind.nullable else " NOT NULL")}
    if not kind.is_nested:
        return to_sql(kind)
    result: dict[str, Any] = {"type": kind.root.value + ("" if kind.nullable else " NOT NULL")}
    if kind.root is TypeRoot.ROW:
        result["fields"] = [
            {"id": f.id, "name": f.name, "type": to_json(f.type)}
            | ({} if f.description is None else {"description": f.description})
            | ({} if f.default is None else {"defaultValue": f.default})
            for f in kind.fields
        ]
    if kind.element is not None:
        result["element"] = to_json(kind.element)
    if kind.root is TypeRoot.VECTOR:
        result["length"] = kind.length
    if kind.key is not None and kind.value is not None:
        result["key"], result["value"] = to_json(kind.key), to_json(kind.value)
    return result
