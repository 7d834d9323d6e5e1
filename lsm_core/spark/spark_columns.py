"""Column types between the table and Spark: the DDL for Spark, and the exact Arrow types that it then expects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, one_array
from lsm_core.errors import ColumnNotFound, InvalidOption, UnsupportedFeature
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.types import DataType, TypeRoot, to_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field(
            "metadata", pa.binary(), nullable=False, metadata={"variant": "true"}
        ),  # by which Spark knows the type
    ]
)
_SIMPLE: Final[dict[TypeRoot, tuple[str, pa.DataType]]] = {
    TypeRoot.CHAR: ("STRING", pa.string()),
    TypeRoot.VARCHAR: ("STRING", pa.string()),
    TypeRoot.BOOLEAN: ("BOOLEAN", pa.bool_()),
    TypeRoot.BINARY: ("BINARY", pa.binary()),
    TypeRoot.VARBINARY: ("BINARY", pa.binary()),
    TypeRoot.BLOB: ("BINARY", pa.binary()),
    TypeRoot.TINYINT: ("TINYINT", pa.int8()),
    TypeRoot.SMALLINT: ("SMALLINT", pa.int16()),
    TypeRoot.INT: ("INT", pa.int32()),
    TypeRoot.BIGINT: ("BIGINT", pa.int64()),
    TypeRoot.FLOAT: ("FLOAT", pa.float32()),
    TypeRoot.DOUBLE: ("DOUBLE", pa.float64()),
    TypeRoot.DATE: ("DATE", pa.date32()),
    TypeRoot.VARIANT: ("VARIANT", _VARIANT),
}
_FROM_SPARK: Final = {
    "string": pa.string(),
    "char": pa.string(),
    "varchar": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": _VARIANT,
}
_MAX_FRACTION: Final = 6  # Spark's timestamps count microseconds
_FRAME_BYTES: Final = 16 << 20
"""Maximum bytes of batches and values between Python and the JVM, and in its shuffles.

A batch is in memory several times on the way.
"""
SESSION_ZONE: Final = "spark.sql.session.timeZone"
_UTC: Final = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})
# Longer than any gap in the history of a zone; `pa.scalar` would import pandas in each of Spark's planning workers.
_HOURS_OF_GAP: Final = arrow_scalar(26 * 3600 * 1_000_000, pa.int64()).cast(pa.duration("us"))


def fields_of(schema: TableSchema, columns: Sequence[str] | None, table: str) -> tuple[DataField, ...]:
    """Return the chosen columns in the requested order (None: all, in table order). Raises ColumnNotFound."""
    if columns is None:
        return schema.fields
    for name in columns:
        if not schema.has_field(name):
            raise ColumnNotFound(table, name, schema.field_names)
    return tuple(schema.field(name) for name in columns)


def names_in_table(names: Sequence[str], schema: TableSchema) -> list[str]:
    """Return each name with the table's spelling.

    An exact match has priority, then the only column that differs in case, as in Spark. Other names are returned
    unchanged.
    """
    own: dict[str, list[str]] = {}
    for name in schema.field_names:
        own.setdefault(name.lower(), []).append(name)
    own_names = []
    for name in names:
        alike = own.get(name.lower(), ())
        own_names.append(alike[0] if len(alike) == 1 else name)
    return own_names


def spark_ddl(fields: Sequence[DataField], table: str) -> str:
    """Return the columns as a Spark DDL string. Raises UnsupportedFeature for types that Spark cannot hold exactly."""
    return ", ".join(f"{quoted(field.name)} {_spark_type(field.type, field.name, table)[0]}" for field in fields)


def spark_arrow_schema(fields: Sequence[DataField], table: str) -> pa.Schema:
    """Return the Arrow schema, all nullable, that Spark expects for ``spark_ddl`` of the same columns."""
    return pa.schema([pa.field(field.name, _spark_type(field.type, field.name, table)[1]) for field in fields])


def require_schema(named: StructType, fields: Sequence[DataField], table: str) -> None:
    """Raise unless the columns that a user declared by `.schema()` or in a view are exactly ``fields``.

    Otherwise Spark would show columns or types that the rows do not have.

    Raises:
        InvalidOption: The columns differ; the error names those of the user and those of the table.
        UnsupportedFeature: Spark has no type that holds the values of a column exactly.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    own = from_arrow_schema(spark_arrow_schema(fields, table), prefer_timestamp_ntz=True)
    named_text, hint = (
        ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in each.fields) for each in (named, own)
    )
    if named_text != hint:
        raise InvalidOption("schema", named_text, f"its own columns, or none: {hint}", table)


def arrow_of(schema: StructType, table: str) -> pa.Schema:
    """Return the Arrow schema of rows from Spark, without NOT NULL.

    Raises UnsupportedFeature naming a column without an Arrow type.
    """
    return pa.schema([pa.field(field.name, _arrow_of(field.dataType, field.name, table)) for field in schema.fields])


def _arrow_of(kind: Any, column: str, table: str) -> pa.DataType:
    name = kind.typeName()
    if name in _FROM_SPARK:
        return _FROM_SPARK[name]
    if name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if name == "array":
        return pa.list_(_arrow_of(kind.elementType, column, table))
    if name == "map":
        return pa.map_(_arrow_of(kind.keyType, column, table), _arrow_of(kind.valueType, column, table))
    if name == "struct":
        return pa.struct([pa.field(field.name, _arrow_of(field.dataType, column, table)) for field in kind.fields])
    raise UnsupportedFeature(f"Spark's type {kind.simpleString()} (column '{column}')", table)


def to_spark(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the columns named by ``schema``, cast to the types of ``schema`` (ms timestamps become us without loss).

    Large batches are divided by `in_frames`.
    """
    columns = [one_array(batch.column(field.name)).cast(field.type) for field in schema]
    yield from in_frames(pa.RecordBatch.from_arrays(columns, schema=schema))


def in_frames(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in slices of at most 16 MiB; a single larger row is one slice.

    The batch must not have dictionary columns, because a slice of rows would keep the whole dictionary.
    """
    if batch.nbytes <= _FRAME_BYTES or batch.num_rows < 2:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from in_frames(batch.slice(0, middle))
    yield from in_frames(batch.slice(middle))


def in_session_zone(rows: pa.Table, schema: TableSchema, zone: str | None, table: str) -> pa.Table:
    """Return rows from Spark with times converted to the table's types, as Spark's casts convert them.

    An instant (TIMESTAMP) for a TIMESTAMP_NTZ column becomes the local time in the session's zone. A DATE or
    TIMESTAMP_NTZ for a TIMESTAMP column becomes the instant of that local time. A local time that the zone skips is
    moved forward by the gap. A local time that occurs twice becomes its first instant. Without a known zone and in UTC
    the rows are returned unchanged.

    Args:
        rows: The rows, with columns named as in ``schema``.
        schema: Schema of the table.
        zone: Zone of the session, or None if it is not known. The zone in the type of an instant has priority.
        table: Name of the table, for errors.

    Raises:
        InvalidOption: Arrow does not know the zone.
        UnsupportedFeature: An array, map or struct contains a time that needs conversion.
    """
    rows_zone = next(
        (field.type.tz for field in rows.schema if pa.types.is_timestamp(field.type) and field.type.tz), zone
    )
    if rows_zone is None or rows_zone in _UTC:
        return rows
    for place, field in enumerate(rows.schema):
        if not schema.has_field(field.name) or not _crosses(field.type, schema.field(field.name).type):
            continue
        if pa.types.is_nested(field.type):
            feature = (
                f"times of session zone '{rows_zone}' that change between TIMESTAMP and TIMESTAMP_NTZ "
                f"inside of column '{field.name}': cast them in the query"
            )
            raise UnsupportedFeature(feature, table)
        try:
            column = rows.column(place)
            converted = (
                pc.local_timestamp(column)
                if schema.field(field.name).type.root is TypeRoot.TIMESTAMP
                else _instants(column, rows_zone)
            )
        except pa.ArrowInvalid as error:
            accepted = (
                f"a name of the time zone database, where column '{field.name}' changes "
                "between TIMESTAMP and TIMESTAMP_NTZ"
            )
            raise InvalidOption(SESSION_ZONE, rows_zone, accepted, table) from error
        rows = rows.set_column(place, field.name, converted)
    return rows


def _crosses(source: pa.DataType, kind: DataType) -> bool:
    """Return whether a conversion is between instants and local times (dates count as local times)."""
    if pa.types.is_timestamp(source) or pa.types.is_date(source):
        instant = pa.types.is_timestamp(source) and source.tz is not None
        return kind.root is (TypeRoot.TIMESTAMP if instant else TypeRoot.TIMESTAMP_LTZ)
    if pa.types.is_map(source):
        sides = ((source.key_type, kind.key), (source.item_type, kind.value))
        return any(own is not None and _crosses(part, own) for part, own in sides)
    if pa.types.is_list(source):
        return kind.element is not None and _crosses(source.value_type, kind.element)
    if pa.types.is_struct(source):
        own = {field.name: field.type for field in kind.fields or ()}
        return any(field.name in own and _crosses(field.type, own[field.name]) for field in source)
    return False


def _instants(clock: pa.ChunkedArray, zone: str) -> pa.ChunkedArray:
    """Return the instants of local times in a zone; times that the zone skips are moved forward by the gap."""

    def first(times: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.assume_timezone(times, zone, ambiguous="earliest", nonexistent="latest")

    clock = clock.cast(pa.timestamp("us"))
    instants = first(clock)
    shown = pc.equal(pc.local_timestamp(instants), clock)
    return pc.if_else(shown, instants, pc.add(first(pc.subtract(clock, _HOURS_OF_GAP)), _HOURS_OF_GAP))


def quoted(name: str) -> str:
    """Return a column name as a quoted identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def expressions(texts: Sequence[str]) -> list[Column]:
    """Return a Spark Column for each Spark SQL expression."""
    from pyspark.sql import functions

    return [functions.expr(text) for text in texts]


def _spark_type(kind: DataType, column: str, table: str) -> tuple[str, pa.DataType]:
    """Return the DDL and the Arrow type of a column. Nested fields are nullable, as in Spark's own frames."""
    if kind.root in _SIMPLE:
        return _SIMPLE[kind.root]
    if kind.root is TypeRoot.DECIMAL:
        precision, scale = kind.precision or 10, kind.scale or 0
        return f"DECIMAL({precision}, {scale})", pa.decimal128(precision, scale)
    if kind.root is TypeRoot.TIMESTAMP and (kind.precision or 0) <= _MAX_FRACTION:
        return "TIMESTAMP_NTZ", pa.timestamp("us")
    if kind.root is TypeRoot.TIMESTAMP_LTZ and (kind.precision or 0) <= _MAX_FRACTION:
        return "TIMESTAMP_LTZ", pa.timestamp("us", "UTC")
    if kind.root is TypeRoot.ROW and kind.fields:
        inner = [(field.name, *_spark_type(field.type, column, table)) for field in kind.fields]
        ddl = ", ".join(f"{quoted(name)}: {text}" for name, text, _ in inner)
        return f"STRUCT<{ddl}>", pa.struct([pa.field(name, arrow) for name, _, arrow in inner])
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        text, arrow = _spark_type(kind.element, column, table)
        return f"ARRAY<{text}>", pa.list_(pa.field("element", arrow))
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        (key, key_type), (value, value_type) = (_spark_type(side, column, table) for side in (kind.key, kind.value))
        return f"MAP<{key}, {value}>", pa.map_(key_type, value_type)
    raise UnsupportedFeature(f"columns of type {to_sql(kind)} on Spark (column '{column}')", table)


def with_keys(rows: DataFrame, keys: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the rows whose values of the columns ``names`` are among ``keys``; nulls equal each other.

    Args:
        rows: The rows.
        keys: Rows with the columns ``names``.
        names: The columns to compare.
    """
    from pyspark.sql import functions

    renamed = keys.select(*(functions.col(quoted(name)).alias(f"__dredge_key_{i}") for i, name in enumerate(names)))
    same = [functions.col(quoted(name)).eqNullSafe(functions.col(f"__dredge_key_{i}")) for i, name in enumerate(names)]
    return rows.join(renamed, reduce(lambda left, right: left & right, same), "left_semi")
