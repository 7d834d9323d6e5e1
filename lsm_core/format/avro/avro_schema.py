"""Conversion between Avro schemas and Arrow types, by Paimon's conventions instead of Avro's (format.md 4.1).

`timestamp-*` is a timestamp without time zone and `local-timestamp-*` one with a time zone, the reverse of Avro's
meaning. A map with keys other than strings is an array of records {key, value}. A map and that array have the same
bytes, so both are read in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lsm_core.errors import CorruptFile, UnsupportedFeature

_NAMESPACE, _ROOT = "org.apache.paimon.avro.generated", "record"
_MAX_DEPTH: Final = 64
_MAX_FIELDS: Final = 50_000
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "timestamp-millis"): pa.timestamp("ms"),
    ("long", "timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "local-timestamp-micros"): pa.timestamp("us", "UTC"),
}
_AVRO_TYPES: Final[Mapping[pa.DataType, Any]] = {
    **{arrow: name for name, arrow in _PLAIN.items()},
    pa.int8(): "int",
    pa.int16(): "int",
    **{arrow: {"type": name, "logicalType": logical} for (name, logical), arrow in _LOGICAL.items()},
}


@dataclass(frozen=True)
class AvroField:
    """Type of one value of a record.

    Attributes:
        avro: its Avro type for fastavro, without names and logical types.
        raw: Arrow type of fastavro's result.
        arrow: Arrow type of the value.
        nullable: whether it may be null.
    """

    avro: Any
    raw: pa.DataType
    arrow: pa.DataType
    nullable: bool


def record_of(schema: Any, path: str) -> tuple[Mapping[str, Any], bool]:
    """Return the record at the root of a file's schema.

    Args:
        schema: the parsed schema.
        path: path of the file, for messages.

    Returns:
        The record, and whether the root is a union of null and the record, as in paimon-rust.

    Raises:
        CorruptFile: the root is something else; the message names ``path``.
    """
    in_union = isinstance(schema, list) and len(schema) == 2 and schema[0] == "null"
    record = schema[1] if in_union else schema
    if not isinstance(record, dict) or record.get("type") != "record":
        raise CorruptFile(path, "its Avro schema is not a record")
    return record, in_union


def fields_of(schema: Any, path: str, *, logical: bool = True) -> dict[str, AvroField]:
    """Return the top-level columns of a file's schema.

    Args:
        schema: the parsed schema.
        path: path of the file, for messages.
        logical: whether to apply logical types; otherwise dates, times and decimals are plain numbers and bytes.

    Returns:
        The fields by name.

    Raises:
        CorruptFile: no Paimon writer produces the schema.
    """
    record, _ = record_of(schema, path)
    return dict(_Parser(path, logical).record_fields(record, 0))


class _Parser:
    """Parser from Avro types to :class:`AvroField`, which remembers the named types."""

    def __init__(self, path: str, logical: bool) -> None:
        self._path, self._logical = path, logical
        self._named: dict[str, Any] = {}
        self._count = 0

    def record_fields(self, schema: Mapping[str, Any], depth: int) -> list[tuple[str, AvroField]]:
        if isinstance(schema.get("name"), str):
            self._named[schema["name"]] = schema
            self._named[f"{schema.get('namespace')}.{schema['name']}"] = schema
        members = schema.get("fields")
        if not isinstance(members, list) or not members:
            raise self._bad("a record has no fields")
        fields = []
        for member in members:
            if not isinstance(member, dict) or not isinstance(member.get("name"), str) or "type" not in member:
                raise self._bad("a field has no name or type")
            fields.append((member["name"], self.field(member["type"], depth + 1)))
        if len({name for name, _ in fields}) != len(fields):
            raise self._bad("two fields have one name")
        return fields

    def field(self, kind: Any, depth: int) -> AvroField:
        self._count += 1
        # Named types can contain themselves: without these limits a schema of a few bytes would expand forever.
        if depth > _MAX_DEPTH or self._count > _MAX_FIELDS:
            raise self._bad("it is nested too deeply")
        if isinstance(kind, list):
            types = [branch for branch in kind if branch != "null"]
            if len(types) != 1 or len(kind) != 2:
                raise self._bad("a union is not one of null and a type")
            inner = self.field(types[0], depth)
            avro = ["null", inner.avro] if kind[0] == "null" else [inner.avro, "null"]
            return AvroField(avro, inner.raw, inner.arrow, nullable=True)
        if isinstance(kind, str):
            if kind in _PLAIN:
                return AvroField(kind, _PLAIN[kind], _PLAIN[kind], nullable=False)
            kind = self._named.get(kind)
        if not isinstance(kind, dict):
            raise self._bad("it names an unknown type")
        return self._complex(kind, depth)

    def _complex(self, kind: Mapping[str, Any], depth: int) -> AvroField:
        root = kind.get("type")
        if root == "record":
            return self._record(self.record_fields(kind, depth))
        if root == "array" and kind.get("logicalType") == "map":
            return self._map(self.field(kind.get("items"), depth + 1))
        if root == "array":
            item = self.field(kind.get("items"), depth + 1)
            raw, arrow = (
                pa.list_(pa.field("element", element_type, item.nullable)) for element_type in (item.raw, item.arrow)
            )
            return AvroField({"type": "array", "items": item.avro}, raw, arrow, nullable=False)
        if root == "map":
            key = AvroField("string", pa.string(), pa.string(), nullable=False)
            return self._map(self._record([("key", key), ("value", self.field(kind.get("values"), depth + 1))]))
        if not isinstance(root, str) or root not in _PLAIN:
            # {"type": {"type": "array", ..}} is allowed by Avro
            return self.field(root, depth + 1)
        return self._scalar(root, kind)

    def _scalar(self, root: str, kind: Mapping[str, Any]) -> AvroField:
        logical = kind.get("logicalType") if self._logical else None
        if root == "bytes" and logical == "decimal":
            digits, scale = kind.get("precision"), kind.get("scale", 0)
            if (
                not isinstance(digits, int)
                or not isinstance(scale, int)
                or not 0 <= scale <= digits
                or not 1 <= digits <= 38
            ):
                raise self._bad(f"DECIMAL({digits}, {scale}) does not exist")
            return AvroField(root, pa.binary(), pa.decimal128(digits, scale), nullable=False)
        arrow = _LOGICAL.get((root, str(logical)), _PLAIN[root])
        return AvroField(root, _PLAIN[root], arrow, nullable=False)

    def _record(self, members: list[tuple[str, AvroField]]) -> AvroField:
        # Names of Paimon's columns may be invalid in Avro, so fields are identified by their position.
        self._count += 1
        avro = {
            "type": "record",
            "name": f"r{self._count}",
            "fields": [{"name": f"f{i}", "type": member.avro} for i, (_, member) in enumerate(members)],
        }
        raw = pa.struct([pa.field(f"f{i}", member.raw, member.nullable) for i, (_, member) in enumerate(members)])
        arrow = pa.struct([pa.field(name, member.arrow, member.nullable) for name, member in members])
        return AvroField(avro, raw, arrow, nullable=False)

    def _map(self, entry: AvroField) -> AvroField:
        if not pa.types.is_struct(entry.arrow) or entry.arrow.names != ["key", "value"] or entry.nullable:
            raise self._bad("a map is not made of keys and values")
        value = entry.arrow.field("value")
        arrow = pa.map_(entry.arrow.field("key").type, value)
        return AvroField(
            {"type": "array", "items": entry.avro},
            pa.list_(pa.field("e", entry.raw, nullable=False)),
            arrow,
            nullable=False,
        )

    def _bad(self, reason: str) -> CorruptFile:
        return CorruptFile(self._path, f"its Avro schema is not that of a table: {reason}")


def avro_schema(schema: pa.Schema, table: str = "") -> dict[str, Any]:
    """Return the Avro schema that Java's writer uses for these columns.

    Raises:
        UnsupportedFeature: Java refuses a type.
    """
    return {**_record_schema(list(schema), _ROOT, table), "namespace": _NAMESPACE}


def _record_schema(fields: list[pa.Field], name: str, table: str) -> dict[str, Any]:
    members: list[dict[str, Any]] = []
    for field in fields:
        kind = _field_schema(field, f"{name}_{field.name}", table)
        members.append(
            {"default": None, "name": field.name, "type": kind}
            if field.nullable
            else {"name": field.name, "type": kind}
        )
    return {"type": "record", "name": name, "fields": members}


def _field_schema(field: pa.Field, name: str, table: str) -> Any:
    kind = _type_schema(field, name, table)
    return ["null", kind] if field.nullable else kind


def _type_schema(field: pa.Field, name: str, table: str) -> Any:
    kind = field.type
    if kind in _AVRO_TYPES:
        return _AVRO_TYPES[kind]
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_struct(kind):
        return _record_schema([kind.field(i) for i in range(kind.num_fields)], name, table)
    if pa.types.is_list(kind):
        return {"type": "array", "items": _field_schema(kind.value_field, name, table)}
    if pa.types.is_map(kind):
        if pa.types.is_string(kind.key_type):
            return {"type": "map", "values": _field_schema(kind.item_field, name, table)}
        key = pa.field("key", kind.key_type, nullable=True)
        entry = _record_schema([key, kind.item_field.with_name("value")], name, table)
        del entry["fields"][0]["default"]
        return {"type": "array", "logicalType": "map", "items": entry}
    raise UnsupportedFeature(f"column '{field.name}' of Arrow type {kind} in Avro files", table)
