"""Schemas and partition specs in the JSON form of Iceberg metadata, with Java's ids of nested fields.

Source: ``IcebergDataField``, ``IcebergSchema``, ``IcebergPartitionSpec``, ``SpecialFields``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import TableSchema
from lsm_core.types import DataType, TypeRoot

FIRST_PARTITION_ID: Final = 1000
"""Id of the first partition field."""
SPEC_ID: Final = 0
"""Id of the only partition spec, because a Paimon table keeps its partition columns."""
_NESTED_BASE: Final = (2**31 - 1) // 4
_NESTED_STEP: Final = 1 << 10
_PLAIN: Final = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "time",
    TypeRoot.CHAR: "string",
    TypeRoot.VARCHAR: "string",
    TypeRoot.BINARY: "binary",
    TypeRoot.VARBINARY: "binary",
    TypeRoot.TIMESTAMP: "timestamp",
    TypeRoot.TIMESTAMP_LTZ: "timestamptz",
}


def iceberg_schema(schema: TableSchema) -> dict[str, Any]:
    """Return a table's schema as Iceberg metadata records it.

    Raises:
        UnsupportedFeature: a column's type has no counterpart.
    """
    fields = [_field(f.id, f.name, f.type, f.description) for f in schema.fields]
    return {"type": "struct", "schema-id": schema.id, "fields": fields}


def _field(field_id: int, name: str, kind: DataType, description: str | None) -> dict[str, Any]:
    field = {"id": field_id, "name": name, "required": not kind.nullable, "type": _type(kind, field_id, 0)}
    return field if description is None else {**field, "doc": description}


def _type(kind: DataType, field_id: int, depth: int) -> Any:
    """Return the Iceberg type of a column or nested value.

    Args:
        kind: the type.
        field_id: id of the enclosing column or ROW field.
        depth: nesting depth below this field, starting at 0.
    """
    if kind.root in _PLAIN:
        return _PLAIN[kind.root]
    if kind.root is TypeRoot.DECIMAL:
        return f"decimal({kind.precision or 10}, {kind.scale or 0})"
    if kind.root is TypeRoot.ROW:
        return {"type": "struct", "fields": [_field(f.id, f.name, f.type, f.description) for f in kind.fields]}
    value_id = _NESTED_BASE + _NESTED_STEP * field_id + depth + 1
    key_id = _NESTED_BASE - _NESTED_STEP * field_id - depth - 1
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return {
            "type": "list",
            "element-id": value_id,
            "element-required": not kind.element.nullable,
            "element": _type(kind.element, field_id, depth + 1),
        }
    key = kind.key if kind.root is TypeRoot.MAP else kind.element if kind.root is TypeRoot.MULTISET else None
    if key is None:
        raise UnsupportedFeature(f"Iceberg metadata of type {kind}")
    value_required = kind.value is None or not kind.value.nullable
    return {
        "type": "map",
        "key-id": key_id,
        "key": _type(key, field_id, depth + 1),
        "value-id": value_id,
        "value-required": value_required,
        "value": "int" if kind.value is None else _type(kind.value, field_id, depth + 1),
    }


def highest_field_id(schema: Mapping[str, Any]) -> int:
    """Return the highest id of the columns of :func:`iceberg_schema`; as in Java, nested fields do not count."""
    return max((field["id"] for field in schema["fields"]), default=0)


def partition_spec(schema: TableSchema) -> dict[str, Any]:
    """Return the partition spec of a table: its partition columns, each by identity."""
    fields = [
        {
            "name": name,
            "transform": "identity",
            "source-id": schema.field(name).id,
            "field-id": FIRST_PARTITION_ID + place,
        }
        for place, name in enumerate(schema.partition_keys)
    ]
    return {"spec-id": SPEC_ID, "fields": fields}


def last_partition_id(schema: TableSchema) -> int:
    """Return the highest id of the partition fields; one below the first id for a table without partitions."""
    return FIRST_PARTITION_ID - 1 + len(schema.partition_keys)


def is_same_schema(known: Any, current: Any) -> bool:
    """Return whether two schemas define the same columns.

    Whether elements and values of nested types are required is not compared: Paimon 1.4 writes it differently.

    Args:
        known: schema of older metadata.
        current: schema with the same id, made of the table's schema.
    """
    return bool(_comparable(known) == _comparable(current))


def _comparable(value: Any) -> Any:
    if isinstance(value, Mapping):
        left_out = ("element-required", "value-required")
        return {key: _comparable(part) for key, part in value.items() if key not in left_out}
    return [_comparable(part) for part in value] if isinstance(value, list | tuple) else value
