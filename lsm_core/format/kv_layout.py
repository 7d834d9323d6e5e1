"""Columns of data files: names and field ids of system columns, and Arrow schemas for Parquet writers (format.md 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa

from lsm_core.format.schema import DataField, TableSchema
from lsm_core.types import DataType, TypeRoot, to_arrow

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
    """Return the name of primary key column ``column`` in a key-value file."""
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
                key_name(c.name), _with_ids(c.type, c.id, 1), nullable=False, metadata=_metadata(c.id + KEY_ID_OFFSET)
            )
            for c in columns
        ]
        return pa.schema([*keys, *system_fields(), *_value_fields(schema.fields)])

    return _cached(schema, "_thin_layout" if thin else "_kv_layout", build)


def append_arrow_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of an append file: the table columns, with Paimon ids as `PARQUET:field_id`."""
    return _cached(schema, "_append_layout", lambda: pa.schema(_value_fields(schema.fields)))


def _cached(schema: TableSchema, name: str, build: Callable[[], pa.Schema]) -> pa.Schema:
    """Return a layout that is built once and cached with the schema, because every file needs it."""
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
    """
    if kind.root is TypeRoot.ROW:
        return pa.struct(
            [pa.field(f.name, _with_ids(f.type, f.id, 1), f.type.nullable, _metadata(f.id)) for f in kind.fields]
        )
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
