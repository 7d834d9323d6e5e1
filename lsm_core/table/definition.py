"""Definition of a new table, and the first schema made from the definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from lsm_core.clock import Clock
from lsm_core.errors import InvalidOption, InvalidSchema
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.table.altering import FieldIds, as_type
from lsm_core.table.option_changes import tidied, with_counts
from lsm_core.table.schema_change import AnyType
from lsm_core.table.validation import check_columns, validate
from lsm_core.types import DataType, TypeRoot

_BYTES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
# Moved from the options into the schema's own members, as Paimon does at creation.
_KEY_OPTIONS: Final = {"primary-key": "primary_keys", "partition": "partition_keys"}


@dataclass(frozen=True)
class Schema:
    """Definition of a table: columns, keys and options.

    Attributes:
        fields: the columns: an Arrow schema, pairs of name and type such as ``("code", "CHAR(3) NOT NULL")`` for types
            that Arrow does not have, or `DataField` values with comment and default; field ids are numbered again. In
            an Arrow schema, ``nullable=False`` means NOT NULL, and the metadata entry "description" of a field is the
            column's comment, as in pypaimon.
        primary_keys: names of the key columns.
        partition_keys: names of the partition columns.
        options: table options by key.
        comment: comment of the table.
    """

    fields: pa.Schema | Iterable[DataField | tuple[str, AnyType]]
    primary_keys: Sequence[str] = ()
    partition_keys: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


def as_definition(
    name: str,
    schema: Schema | pa.Schema,
    primary_keys: Sequence[str] = (),
    partition_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
) -> Schema:
    """Return the definition that the arguments of `Catalog.create_table` describe.

    Args:
        name: name of the table, for errors.
        schema: a whole definition, or columns that the other arguments complete.
        primary_keys: names of the key columns.
        partition_keys: names of the partition columns.
        options: table options by key.
        comment: comment of the table.

    Returns:
        The definition; keys are tuples.

    Raises:
        InvalidSchema: ``schema`` is neither a definition nor columns, keys are no lists of names, or a whole definition
            is combined with further arguments.
    """
    arguments = {"primary_keys": primary_keys, "partition_keys": partition_keys, "options": options, "comment": comment}
    if isinstance(schema, Schema):
        named = [key for key, value in arguments.items() if value]
        if named:
            raise InvalidSchema(
                f"table {name}: {', '.join(named)} must be arguments of Schema(...), not of create_table beside it"
            )
        definition = schema
    elif isinstance(schema, pa.Schema):
        definition = Schema(schema, primary_keys, partition_keys, options or {}, comment)
    else:
        raise InvalidSchema(
            f"table {name}: the schema must be a Schema or a pyarrow.Schema, not {type(schema).__name__}"
        )
    for key in ("primary_keys", "partition_keys"):
        value = getattr(definition, key)
        names = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (None,)
        if not all(isinstance(part, str) for part in names):
            raise InvalidSchema(f'table {name}: {key} must be a list of column names such as ["id"], not {value!r}')
        definition = replace(definition, **{key: names})  # type: ignore[arg-type]
    if not isinstance(definition.options, Mapping):
        raise InvalidSchema(f"table {name}: options must be a mapping of texts, not {definition.options!r}")
    return definition


def new_table_schema(definition: Schema, name: str, clock: Clock) -> TableSchema:
    """Return the first schema of a new table.

    Primary key columns become NOT NULL, or nullable with `primary-key.nullable`, as in Paimon; all fields are numbered
    from 0. Binary columns of `blob-field` become BLOB columns.

    Raises:
        InvalidSchema: columns or keys cannot be a table's; the error names table and column.
        InvalidOption: an option cannot be used.
    """
    options = dict(definition.options)
    for option, member in _KEY_OPTIONS.items():
        text = options.pop(option, None)
        if text is None:
            continue
        if getattr(definition, member):
            raise InvalidSchema(f"table {name}: option '{option}' and {member} exclude each other; give one of them")
        keys = tuple(part.strip() for part in text.split(",") if part.strip())
        definition = replace(definition, **{member: keys})  # type: ignore[arg-type]
    definition = replace(definition, options=options)
    if "path" in definition.options:
        raise InvalidOption(
            "path", definition.options["path"], "no value: a table's folder is below its warehouse", name
        )
    ids = FieldIds()
    columns = tuple(_columns(definition.fields, name))
    check_columns(columns, name)
    nullable_key = str(options.get("primary-key.nullable", "")).strip().lower() == "true"
    blobs = {name.strip() for name in str(options.get("blob-field", "")).split(",")}
    fields = []
    for column in columns:
        is_key = column.name in definition.primary_keys
        kind = replace(column.type, nullable=nullable_key if is_key else column.type.nullable)
        if column.name in blobs and kind.root in _BYTES:  # as Paimon's Spark and Flink catalogs do
            kind = DataType(TypeRoot.BLOB, nullable=kind.nullable)
        # A column takes its id before the fields inside it do.
        fields.append(replace(column, id=ids.take(), type=ids.number(kind)))
    schema = TableSchema(
        id=0,
        fields=tuple(fields),
        highest_field_id=ids.highest,
        partition_keys=tuple(definition.partition_keys),
        primary_keys=tuple(definition.primary_keys),
        options=with_counts({str(k): tidied(str(k), str(v)) for k, v in definition.options.items()}),
        comment=definition.comment,
        time_millis=clock.now_ms(),
    )
    validate(schema, name)
    return schema


def _columns(fields: pa.Schema | Iterable[DataField | tuple[str, AnyType]], table: str) -> Iterable[DataField]:
    for column in fields:
        if isinstance(column, DataField):
            yield column
        elif isinstance(column, pa.Field):
            comment = (column.metadata or {}).get(b"description")
            kind = as_type(column, table, (column.name,))
            yield DataField(0, column.name, kind, None if comment is None else comment.decode("utf-8", "replace"))
        else:
            column_name, kind_of = column
            yield DataField(0, str(column_name), as_type(kind_of, table, (str(column_name),)))
