"""Column types in the syntax of Spark SQL and Flink SQL: parsed from statements and written for `SHOW CREATE TABLE`."""

from __future__ import annotations

from typing import Final

from lsm_core.errors import InvalidSchema
from lsm_core.sql.reading import StatementReader
from lsm_core.types import DataType, RowField, TypeRoot, parse, to_sql

_DEEPEST: Final = 64
_NAMES: Final = {
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "INTEGER": "INT",
    "TIMESTAMP_NTZ": "TIMESTAMP",
}
_SPARK: Final = {"TIMESTAMP": "TIMESTAMP_LTZ(6)", "BINARY": "BYTES"}
"""Spark SQL's meaning of type names without length or precision, if Flink SQL gives the name a different meaning."""


def read_type(reader: StatementReader, *, flink: bool = False, depth: int = 0) -> DataType:
    """Parse a column type in the syntax of Spark SQL or Flink SQL.

    Args:
        reader: the statement, positioned at the type.
        flink: whether to use Flink's defaults: TIMESTAMP without time zone, BINARY of one byte.
        depth: number of enclosing types.

    Returns:
        The type. It is nullable, except a type inside another type that NOT NULL follows. The field ids of a ROW are
            numbered from 0.

    Raises:
        InvalidOption: the next words are no type, or a type that columns cannot have.
    """
    token = reader.peek()
    if depth > _DEEPEST:
        raise reader.wrong(token, f"a type inside at most {_DEEPEST} others was expected")
    word = reader.word()
    if word in ("STRUCT", "ROW"):
        reader.take()
        kind = DataType(TypeRoot.ROW, fields=_read_fields(reader, flink, depth))
    elif word in ("ARRAY", "MULTISET", "MAP", "VECTOR"):
        reader.take()
        kind = _read_container(reader, word, flink, depth)
    else:
        kind = _read_plain(reader, flink)
    if depth and reader.accept_words("NOT", "NULL"):
        return kind.with_nullable(nullable=False)
    if depth:
        reader.accept_words("NULL")
    return kind


def _read_container(reader: StatementReader, word: str, flink: bool, depth: int) -> DataType:
    reader.expect("<")
    first = read_type(reader, flink=flink, depth=depth + 1)
    if word == "MAP":
        reader.expect(",")
        kind = DataType(TypeRoot.MAP, key=first, value=read_type(reader, flink=flink, depth=depth + 1))
    elif word == "VECTOR":
        reader.expect(",")
        token = reader.take()
        if not token.text.isdigit():
            raise reader.wrong(token, "the number of a vector's elements was expected")
        kind = DataType(TypeRoot.VECTOR, length=int(token.text), element=first)
    else:
        kind = DataType(TypeRoot[word], element=first)
    reader.expect(">")
    return kind


def _read_fields(reader: StatementReader, flink: bool, depth: int) -> tuple[RowField, ...]:
    end = ")" if reader.accept("(") else ">"
    if end == ">":
        reader.expect("<")
    fields: list[RowField] = []
    while not fields or reader.accept(","):
        token = reader.peek()
        name = reader.name()
        if name.lower() in {field.name.lower() for field in fields}:
            raise reader.wrong(token, f"the field {name} is given twice")
        reader.accept(":")
        kind = read_type(reader, flink=flink, depth=depth + 1)
        has_comment = reader.accept_words("COMMENT") or reader.peek().kind == "text"
        fields.append(RowField(len(fields), name, kind, reader.text_literal() if has_comment else None))
    reader.expect(end)
    return tuple(fields)


def _read_plain(reader: StatementReader, flink: bool) -> DataType:
    token = reader.peek()
    word = reader.name().upper()
    text = _NAMES.get(word, word)
    if reader.accept("("):
        numbers = [reader.take().text]
        while reader.accept(","):
            numbers.append(reader.take().text)
        reader.expect(")")
        text += f"({', '.join(numbers)})"
    elif not flink and reader.word() not in ("WITH", "WITHOUT"):
        text = _SPARK.get(word, text)
    if word == "DOUBLE":
        reader.accept_words("PRECISION")
    if word in ("TIMESTAMP", "TIME"):
        if reader.accept_words("WITH", "LOCAL", "TIME", "ZONE"):
            text += " WITH LOCAL TIME ZONE"
        else:
            reader.accept_words("WITHOUT", "TIME", "ZONE")
    try:
        return parse(text)
    except InvalidSchema as error:
        known = (
            "a type such as BIGINT, STRING, DECIMAL(10, 2), TIMESTAMP_NTZ, ARRAY<INT>, MAP<STRING, INT>, "
            "STRUCT<a: INT> was expected"
        )
        raise reader.wrong(token, known) from error


def type_text(kind: DataType) -> str:
    """Return a column type as SQL text: in Spark's spelling if Spark has the type, otherwise in Flink's.

    NOT NULL is written for types inside ``kind``, but not for ``kind`` itself.
    """
    if kind.root is TypeRoot.TIMESTAMP_LTZ:
        return "TIMESTAMP" if kind.precision == 6 else f"TIMESTAMP_LTZ({kind.precision})"
    if kind.root is TypeRoot.TIMESTAMP:
        return "TIMESTAMP_NTZ" if kind.precision == 6 else f"TIMESTAMP({kind.precision})"
    if kind.root is TypeRoot.ROW:
        return f"STRUCT<{', '.join(map(_field_text, kind.fields))}>"
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        return f"MAP<{_inner_text(kind.key)}, {_inner_text(kind.value)}>"
    if kind.element is not None:
        size = f", {kind.length}" if kind.root is TypeRoot.VECTOR else ""
        return f"{kind.root.value}<{_inner_text(kind.element)}{size}>"
    return to_sql(kind.with_nullable(nullable=True))


def _inner_text(kind: DataType) -> str:
    return type_text(kind) + ("" if kind.nullable else " NOT NULL")


def _field_text(field: RowField) -> str:
    comment = "" if field.description is None else f" COMMENT {quoted_text(field.description)}"
    return f"{quoted_name(field.name)}: {_inner_text(field.type)}{comment}"


def quoted_text(text: str) -> str:
    """Return a text as a quoted SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quoted_name(name: str) -> str:
    """Return a name in back-quotes."""
    return "`" + name.replace("`", "``") + "`"
