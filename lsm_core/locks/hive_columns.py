"""Columns of Paimon's tables in the types of a Hive metastore.

Source: Paimon `HiveTypeUtils`, `HiveTableUtils`.
"""

from __future__ import annotations

from typing import Final

from pymetastore.hive_metastore.ttypes import FieldSchema

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.types import DataType, TypeRoot

_MAX_COMMENT: Final = 255
_MAX_CHAR, _MAX_VARCHAR = 255, 65_535
_NAMES: Final = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "tinyint",
    TypeRoot.SMALLINT: "smallint",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "bigint",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.BINARY: "binary",
    TypeRoot.VARBINARY: "binary",
    TypeRoot.BLOB: "binary",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "string",
    TypeRoot.TIMESTAMP: "timestamp",
    TypeRoot.VARIANT: "struct<value:binary,metadata:binary>",
}


def hive_type(kind: DataType, *, has_local_timestamps: bool, column: str = "") -> str:
    """Return the name of a type in Hive.

    Args:
        kind: the type.
        has_local_timestamps: whether the metastore knows "timestamp with local time zone".
        column: name of the column, for the error.

    Raises:
        UnsupportedFeature: Hive has no such type.
    """

    def inner(element: DataType | None) -> str:
        assert element is not None, kind
        return hive_type(element, has_local_timestamps=has_local_timestamps, column=column)

    root, length = kind.root, kind.length or 0
    if root in _NAMES:
        return _NAMES[root]
    if root is TypeRoot.DECIMAL:
        return f"decimal({kind.precision},{kind.scale})"
    if root is TypeRoot.CHAR:
        return f"char({length})" if length <= _MAX_CHAR else "string"
    if root is TypeRoot.VARCHAR:
        return f"varchar({length})" if length <= _MAX_VARCHAR else "string"
    if root is TypeRoot.TIMESTAMP_LTZ:
        return "timestamp with local time zone" if has_local_timestamps else "timestamp"
    if root in (TypeRoot.ARRAY, TypeRoot.VECTOR):
        return f"array<{inner(kind.element)}>"
    if root is TypeRoot.MULTISET:
        return f"map<{inner(kind.element)},int>"
    if root is TypeRoot.MAP:
        return f"map<{inner(kind.key)},{inner(kind.value)}>"
    if root is TypeRoot.ROW:
        return f"struct<{','.join(f'{field.name}:{inner(field.type)}' for field in kind.fields)}>"
    raise UnsupportedFeature(f"column '{column}' of type {root.value} in a Hive metastore")


def has_local_timestamps(schema: TableSchema) -> bool:
    """Return whether a column, also inside another, is a timestamp with local time zone."""
    return any(kind.root is TypeRoot.TIMESTAMP_LTZ for field in schema.fields for kind in field.type.with_inner())


def hive_column(field: DataField, *, has_local_timestamps: bool, shortens: bool = True) -> FieldSchema:
    """Return a column.

    Args:
        field: the column in Paimon.
        has_local_timestamps: whether the metastore knows "timestamp with local time zone" (Hive 3).
        shortens: whether a comment is shortened to what the metastore stores for plain columns (256 characters).

    Raises:
        UnsupportedFeature: Hive has no type for the column.
    """
    comment = field.description
    if comment is not None and shortens:
        comment = comment.replace("\n", " ").replace("\r", " ")
        comment = comment if len(comment) <= _MAX_COMMENT else f"{comment[: _MAX_COMMENT - 3]}..."
    name = hive_type(field.type, has_local_timestamps=has_local_timestamps, column=field.name)
    return FieldSchema(field.name, name, comment)
