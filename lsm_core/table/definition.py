"""What a new table shall be, and the rules it must keep before its first file is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from lsm_core.clock import Clock
from lsm_core.errors import InvalidOption, InvalidSchema
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.options import TableOptions
from lsm_core.types import DataType, from_arrow

_RESERVED: Final = frozenset({"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID"})
_KEY_PREFIX: Final = "_KEY_"
# Moved from the options into the schema's own members, as Paimon does at creation.
_KEY_OPTIONS: Final = {"primary-key": "primary_keys", "partition": "partition_keys"}


@dataclass(frozen=True)
class Schema:
    """Definition of a table: an Arrow schema (not-null = ``nullable=False``), keys and options (api.md)."""

    fields: pa.Schema
    primary_keys: Sequence[str] = ()
    partition_keys: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


def new_table_schema(definition: Schema, name: str, clock: Clock) -> TableSchema:
    """Schema 0 of table ``name``. Raises InvalidSchema or InvalidOption naming table and column.

    Primary key columns become NOT NULL, as Paimon forces them.
    """
    definition = _with_key_options(definition, name)
    names = definition.fields.names
    _check_columns(names, name)
    _check_keys("primary key", definition.primary_keys, names, name)
    _check_keys("partition", definition.partition_keys, names, name)
    fields = []
    for position, column in enumerate(definition.fields):
        logical = _logical(column, name)
        if column.name in definition.primary_keys:
            logical = replace(logical, nullable=False)
        fields.append(DataField(position, column.name, logical))
    schema = TableSchema(
        id=0,
        fields=tuple(fields),
        highest_field_id=len(fields) - 1,
        partition_keys=tuple(definition.partition_keys),
        primary_keys=tuple(definition.primary_keys),
        options={str(k): str(v) for k, v in definition.options.items()},
        comment=definition.comment,
        time_millis=clock.now_ms(),
    )
    if schema.primary_keys and not schema.trimmed_primary_keys:
        raise InvalidSchema(f"table {name}: the primary key holds partition columns only")
    check_options(schema, name)
    return schema


def _logical(column: pa.Field, name: str) -> DataType:
    try:
        return from_arrow(column.type, nullable=column.nullable)
    except InvalidSchema as error:
        raise InvalidSchema(f"table {name}, column '{column.name}': {error}") from error


def _with_key_options(definition: Schema, name: str) -> Schema:
    options = dict(definition.options)
    for option, member in _KEY_OPTIONS.items():
        text = options.pop(option, None)
        if text is None:
            continue
        if getattr(definition, member):
            raise InvalidSchema(f"table {name}: option '{option}' and {member} are both given")
        keys = tuple(part.strip() for part in text.split(",") if part.strip())
        definition = replace(definition, **{member: keys})  # type: ignore[arg-type]
    return replace(definition, options=options)


def _check_columns(names: Sequence[str], table: str) -> None:
    if not names:
        raise InvalidSchema(f"table {table} has no columns")
    for name in names:
        if not name.strip():
            raise InvalidSchema(f"table {table}: a column has a blank name")
        if name in _RESERVED or name.startswith(_KEY_PREFIX):
            raise InvalidSchema(f"table {table}: column name '{name}' is reserved")
        if names.count(name) > 1:
            raise InvalidSchema(f"table {table}: column '{name}' is given twice")


def _check_keys(what: str, keys: Sequence[str], names: Sequence[str], table: str) -> None:
    for key in keys:
        if key not in names:
            raise InvalidSchema(f"table {table}: {what} column '{key}' is not a column")
    if len(set(keys)) != len(tuple(keys)):
        raise InvalidSchema(f"table {table}: a {what} column is given twice")


def check_options(schema: TableSchema, name: str) -> None:
    """Raise InvalidOption for options that do not fit the table's columns and keys."""
    options = TableOptions(schema.options, name)
    for column in (*options.bucket_key, *options.sequence_field):
        if not schema.has_field(column):
            key = "bucket-key" if column in options.bucket_key else "sequence.field"
            raise InvalidOption(key, column, f"columns of the table: {', '.join(schema.field_names)}", name)
    keys = set(schema.primary_keys)
    if keys and options.bucket_key and not set(options.bucket_key) <= keys - set(schema.partition_keys):
        raise InvalidOption(
            "bucket-key", ",".join(options.bucket_key), "primary key columns outside the partition", name
        )
    if options.sequence_field and not keys:
        raise InvalidOption("sequence.field", ",".join(options.sequence_field), "tables with a primary key only", name)
    if options.bucket == 0 or options.bucket < -2:
        raise InvalidOption("bucket", options.bucket, "a number above 0, or -1", name)
