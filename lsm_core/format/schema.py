"""A version of a table's schema, as stored in `schema/schema-<id>`, and the columns of its data files (format.md 2, 8).

Source: ``TableSchema``, ``SpecialFields``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from lsm_core.errors import CorruptFile, DredgeError, InvalidSchema
from lsm_core.json_text import ObjectReader, parse_object, pretty
from lsm_core.types import DataType, TypeRoot, parse_stored, to_arrow, to_json

CURRENT_VERSION = 3
_VERSION_OF_BUCKET_DEFAULT = 1
_VERSION_OF_ORC_DEFAULT = 2


@dataclass(frozen=True)
class DataField:
    """One column; its id never changes, but its name and type may (Java `DataField`).

    Attributes:
        id: table-wide id.
        name: column name.
        type: column type.
        description: comment, or None.
        default: default value as text, or None.
    """

    id: int
    name: str
    type: DataType
    description: str | None = None
    default: str | None = None

    def to_object(self) -> dict[str, Any]:
        """Return the JSON object of the field, with members in Java's order."""
        value: dict[str, Any] = {"id": self.id, "name": self.name, "type": to_json(self.type)}
        if self.description is not None:
            value["description"] = self.description
        if self.default is not None:
            value["defaultValue"] = self.default
        return value


@dataclass(frozen=True)
class TableSchema:
    """Columns, keys and options of a table at one schema id.

    Attributes:
        id: id of the schema.
        fields: the columns.
        highest_field_id: largest field id ever used, including nested fields; it never decreases.
        partition_keys: names of the partition columns.
        primary_keys: names of the primary key columns.
        options: options as stored on disk (strings), without defaults.
        comment: comment of the table, or None.
        time_millis: time of creation (epoch ms).
        version: version of the file format.
    """

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    comment: str | None = None
    time_millis: int = 0
    version: int = CURRENT_VERSION

    @cached_property
    def field_names(self) -> tuple[str, ...]:
        """Column names in table order."""
        return tuple(column.name for column in self.fields)

    @cached_property
    def _by_name(self) -> dict[str, DataField]:
        return {column.name: column for column in self.fields}

    def field(self, name: str) -> DataField:
        """Return the column named ``name``.

        Raises:
            InvalidSchema: the column does not exist.
        """
        column = self._by_name.get(name)
        if column is None:
            raise InvalidSchema(f'no column "{name}"; the table has {", ".join(self.field_names)}')
        return column

    def has_field(self, name: str) -> bool:
        """Return whether the table has a column named ``name``."""
        return name in self._by_name

    @cached_property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """Primary key columns without partition columns, in primary key order; files are sorted by these columns."""
        partition = set(self.partition_keys)
        return tuple(name for name in self.primary_keys if name not in partition)

    @cached_property
    def bucket_keys(self) -> tuple[str, ...]:
        """Columns that determine the bucket: option `bucket-key`, or else the trimmed primary key."""
        names = tuple(name.strip() for name in self.options.get("bucket-key", "").split(",") if name.strip())
        return names or self.trimmed_primary_keys

    @cached_property
    def nullable_key(self) -> bool:
        """Whether primary key columns may be null (`primary-key.nullable`); nulls equal each other and sort first."""
        return bool(self.primary_keys) and self.options.get("primary-key.nullable", "").strip().lower() == "true"

    @property
    def cross_partition(self) -> bool:
        """Whether a key may move between partitions, because the primary key lacks a partition column."""
        return bool(self.primary_keys and self.partition_keys) and not set(self.partition_keys) <= set(
            self.primary_keys
        )

    @cached_property
    def partition_types(self) -> tuple[DataType, ...]:
        """Types of the partition columns, in partition key order."""
        return tuple(self.field(name).type for name in self.partition_keys)

    @cached_property
    def trimmed_key_types(self) -> tuple[DataType, ...]:
        """Types of the trimmed primary key columns."""
        return tuple(self.field(name).type for name in self.trimmed_primary_keys)

    @cached_property
    def bucket_key_types(self) -> tuple[DataType, ...]:
        """Types of the bucket key columns."""
        return tuple(self.field(name).type for name in self.bucket_keys)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Arrow schema of all table columns with their nullability, without metadata."""
        return pa.schema([pa.field(c.name, to_arrow(c.type), nullable=c.type.nullable) for c in self.fields])

    def to_json(self) -> bytes:
        """Return the content of the schema file, with members in Java's order.

        A missing comment is left out (never null).
        """
        value: dict[str, Any] = {
            "version": self.version,
            "id": self.id,
            "fields": [column.to_object() for column in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": list(self.partition_keys),
            "primaryKeys": list(self.primary_keys),
            "options": dict(self.options),
        }
        if self.comment is not None:
            value["comment"] = self.comment
        value["timeMillis"] = self.time_millis
        return pretty(value).encode()

    @staticmethod
    def from_json(data: bytes, path: str) -> TableSchema:
        """Parse a schema file; old versions get their old defaults.

        Raises:
            CorruptFile: the file is damaged or inconsistent; the message names ``path``.
        """
        members = parse_object(data, path)
        reader = ObjectReader(members, path)
        version = reader.optional_integer("version") or 1
        options = reader.text_map("options") or {}
        if version <= _VERSION_OF_BUCKET_DEFAULT:
            options.setdefault("bucket", "1")
        if version <= _VERSION_OF_ORC_DEFAULT:
            options.setdefault("file.format", "orc")
        schema = TableSchema(
            id=reader.integer("id"),
            fields=tuple(_field(item, path) for item in reader.objects("fields")),
            highest_field_id=reader.integer("highestFieldId"),
            partition_keys=reader.texts("partitionKeys"),
            primary_keys=reader.texts("primaryKeys"),
            options=options,
            comment=reader.optional_text("comment"),
            time_millis=reader.optional_integer("timeMillis") or 0,
            version=version,
        )
        if len(set(schema.field_names)) != len(schema.field_names):
            raise CorruptFile(path, "two columns share a name")
        if len({column.id for column in schema.fields}) != len(schema.fields):
            raise CorruptFile(path, "two columns share a field id")
        for name in (*schema.partition_keys, *schema.primary_keys, *schema.bucket_keys):
            if not schema.has_field(name):
                raise CorruptFile(path, f'key column "{name}" is not a column of the table')
            if schema.field(name).type.root is TypeRoot.UNKNOWN:
                kind = schema.field(name).type
                raise CorruptFile(
                    path, f'key column "{name}" is of type {kind}, which this version of Dredge does not know'
                )
        return schema


def _field(item: Mapping[str, Any], path: str) -> DataField:
    reader = ObjectReader(item, path)
    name = reader.text("name")
    try:
        column_type = parse_stored(item.get("type"))
    except (DredgeError, TypeError, ValueError, KeyError, RecursionError) as error:
        raise CorruptFile(path, f'type of column "{name}": {error}') from error
    default = item.get("defaultValue")
    return DataField(
        reader.integer("id"),
        name,
        column_type,
        reader.optional_text("description"),
        None if default is None else str(default),
    )


KEY_PREFIX: Final = "_KEY_"
SEQUENCE_NUMBER: Final = "_SEQUENCE_NUMBER"
VALUE_KIND: Final = "_VALUE_KIND"
LEVEL: Final = "_LEVEL"
ROW_ID: Final = "_ROW_ID"

KEY_ID_OFFSET: Final = 1073741823
SEQUENCE_NUMBER_ID: Final = 2147483646
VALUE_KIND_ID: Final = 2147483645
ROW_ID_ID: Final = 2147483642

_FIELD_ID = b"PARQUET:field_id"
_NESTED_BASE = 536870911
_NESTED_STEP = 1024


def key_name(column: str) -> str:
    """Return the name of primary key column ``column`` in a key-value file: `_KEY_<column>`."""
    return KEY_PREFIX + column


def key_names(schema: TableSchema) -> tuple[str, ...]:
    """Return the names of the key columns of a key-value file: `_KEY_<c>` for every trimmed primary key column."""
    return tuple(key_name(column) for column in schema.trimmed_primary_keys)


def system_fields() -> list[pa.Field]:
    """Return the fields of sequence number and row kind in key-value files."""
    return [
        pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False, metadata=_metadata(SEQUENCE_NUMBER_ID)),
        pa.field(VALUE_KIND, pa.int8(), nullable=False, metadata=_metadata(VALUE_KIND_ID)),
    ]


def kv_arrow_schema(schema: TableSchema, *, thin: bool = False) -> pa.Schema:
    """Return the Arrow schema of a key-value file: `_KEY_*`, sequence number, row kind, all table columns.

    Every field has its Paimon id as `PARQUET:field_id`.

    Args:
        schema: the table's schema.
        thin: whether to leave out the `_KEY_*` columns.

    Returns:
        The Arrow schema, cached with ``schema``.

    Source: `KeyValue.schema`.
    """

    def build() -> pa.Schema:
        columns = [] if thin else [schema.field(name) for name in schema.trimmed_primary_keys]
        keys = [
            pa.field(
                key_name(c.name),
                _with_ids(c.type, c.id, 1),
                nullable=schema.nullable_key and c.type.nullable,
                metadata=_metadata(c.id + KEY_ID_OFFSET),
            )
            for c in columns
        ]
        return pa.schema([*keys, *system_fields(), *_value_fields(schema.fields)])

    return _cached(schema, "_thin_layout" if thin else "_kv_layout", build)


def append_arrow_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of an append file: the table columns, with Paimon ids as `PARQUET:field_id`."""
    return _cached(schema, "_append_layout", lambda: pa.schema(_value_fields(schema.fields)))


def _cached(schema: TableSchema, name: str, build: Callable[[], pa.Schema]) -> pa.Schema:
    """Return an Arrow schema that is built once and cached with the table's schema, because every file needs it.

    Args:
        schema: the table's schema, in whose attributes the Arrow schema is cached.
        name: name of the attribute.
        build: function that builds the Arrow schema.
    """
    cache = vars(schema)
    if name not in cache:
        cache[name] = build()
    return cache[name]


def _value_fields(columns: Iterable[DataField]) -> list[pa.Field]:
    return [pa.field(c.name, _with_ids(c.type, c.id, 1), c.type.nullable, _metadata(c.id)) for c in columns]


def _metadata(field_id: int) -> dict[bytes, bytes]:
    return {_FIELD_ID: str(field_id).encode()}


def _with_ids(kind: DataType, field_id: int, depth: int) -> pa.DataType:
    """Return the Arrow type with Java's ids of nested fields.

    The ids are derived from the enclosing column or ROW field.

    Args:
        kind: type of the column or nested value.
        field_id: id of the enclosing column or ROW field.
        depth: nesting depth below this field, starting at 1.
    """
    if kind.root is TypeRoot.ROW:
        return pa.struct(
            [pa.field(f.name, _with_ids(f.type, f.id, 1), f.type.nullable, _metadata(f.id)) for f in kind.fields]
        )
    if kind.root is TypeRoot.VARIANT:
        parts = to_arrow(kind)
        return pa.struct([parts.field(i).with_metadata(_metadata(i)) for i in range(parts.num_fields)])
    value_metadata = _metadata(_NESTED_BASE + _NESTED_STEP * field_id + depth)
    key_metadata = _metadata(_NESTED_BASE - _NESTED_STEP * field_id - depth)
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        element = kind.element
        return pa.list_(pa.field("element", _with_ids(element, field_id, depth + 1), element.nullable, value_metadata))
    if kind.root is TypeRoot.MULTISET and kind.element is not None:
        key = pa.field("key", _with_ids(kind.element, field_id, depth + 1), nullable=False, metadata=key_metadata)
        return pa.map_(key, pa.field("value", pa.int32(), nullable=False, metadata=value_metadata))
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        key = pa.field("key", _with_ids(kind.key, field_id, depth + 1), nullable=False, metadata=key_metadata)
        return pa.map_(
            key, pa.field("value", _with_ids(kind.value, field_id, depth + 1), kind.value.nullable, value_metadata)
        )
    return to_arrow(kind)
