"""Casts of values to the types of a table's columns as Spark's INSERT makes them (its ANSI store assignment).

All APIs for Spark's users apply these rules: `save()`, `write_table`, streams, and INSERT, UPDATE, MERGE and
CREATE TABLE ... AS SELECT of both SQL engines. Spark casts the rows of its own INSERT before the format receives them.
Values that Spark would silently make null or infinite (NaN as DECIMAL, 1e300 as FLOAT) raise an error.

This module decides which types are accepted, and casts values for which `Table.write` has a rule that differs from
Spark's. Values inside maps are cast by the rules of `Table.write`, from the types that Spark accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.errors import InvalidData
from lsm_core.format.schema import TableSchema
from lsm_core.types import DataType, TypeRoot, to_arrow, to_sql
from lsm_core.types.arrow import list_of, struct_of
from lsm_core.types.casts.java_floats import float_column
from lsm_core.types.casts.numbers import decimal_of_text
from lsm_core.types.casts.to_text import printed
from lsm_core.write.incoming_rows import RowNumbering

_WHOLE: Final = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT})
_FLOATS: Final = {TypeRoot.FLOAT: pa.float32(), TypeRoot.DOUBLE: pa.float64()}
_NUMBERS: Final = _WHOLE | _FLOATS.keys() | {TypeRoot.DECIMAL}
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_INSTANTS: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_TIMES: Final = _INSTANTS | {TypeRoot.DATE}
_BINARIES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_WIDE: Final = 76
_WIDEST: Final = 38


def require_assignable(incoming: pa.Schema, schema: TableSchema, table: str) -> None:
    """Raise an error for columns whose type Spark's INSERT would not cast to the type of the table's column.

    Args:
        incoming: The schema of the incoming rows, with the table's column names and the types that Spark passes.
        schema: The schema of the table.
        table: The name of the table, for errors.

    Raises:
        InvalidData: A column's type does not fit; the error names both types.
    """
    for field in incoming:
        if schema.has_field(field.name) and not _is_assignable(field.type, schema.field(field.name).type):
            kind = to_sql(schema.field(field.name).type)
            reason = (
                f"values of type {field.type} do not fit {kind} by the rules of Spark's INSERT: cast them in the query"
            )
            raise InvalidData(table, field.name, reason)


def _is_assignable(source: pa.DataType, kind: DataType) -> bool:
    if pa.types.is_dictionary(source):
        source = source.value_type
    if pa.types.is_null(source) or source.equals(to_arrow(kind)):
        return True
    if pa.types.is_nested(source):
        return all(_is_assignable(inner, own) for inner, own in _inner_types(source, kind))
    if pa.types.is_integer(source) or pa.types.is_floating(source) or pa.types.is_decimal(source):
        return kind.root in _NUMBERS or kind.root in _TEXTS
    if pa.types.is_boolean(source):
        return kind.root is TypeRoot.BOOLEAN or kind.root in _TEXTS
    if pa.types.is_date(source) or pa.types.is_timestamp(source):
        return kind.root in _TIMES or kind.root in _TEXTS
    if pa.types.is_binary(source):
        return kind.root in _BINARIES or kind.root in _TEXTS
    return kind.root not in _NUMBERS | _TIMES | _BINARIES | {TypeRoot.BOOLEAN}


def _inner_types(source: pa.DataType, kind: DataType) -> list[tuple[pa.DataType, DataType]]:
    """Return (incoming type, table's type) of each nested field or element that both types have."""
    if pa.types.is_struct(source):
        own = {field.name: field.type for field in kind.fields}
        return [(field.type, own[field.name]) for field in source if field.name in own]
    if pa.types.is_map(source) and kind.key is not None and kind.value is not None:
        return [(source.key_type, kind.key), (source.item_type, kind.value)]
    if not pa.types.is_map(source) and kind.element is not None:
        return [(source.value_type, kind.element)]
    return []


def assign_rows(rows: pa.Table, schema: TableSchema, zone: str | None, table: str, numbering: RowNumbering) -> pa.Table:
    """Return rows with values cast to the table's types as by Spark's INSERT.

    Only casts that differ from those of `Table.write` are made here.

    Args:
        rows: The rows as Spark passes them, columns named as in the table.
        schema: The schema of the table.
        zone: The time zone of the session; None where it is not known.
        table: The name of the table, for errors.
        numbering: How errors name rows.

    Returns:
        The rows. Whole numbers and decimals may still be too large for their column, which the writer refuses by row.

    Raises:
        InvalidData: A number is too large for a DECIMAL column, or is NaN.
    """
    for place, field in enumerate(rows.schema):
        if not schema.has_field(field.name):
            continue
        kind = schema.field(field.name).type
        column = one_array(rows.column(place))
        converted = _cast(column, kind, zone)
        if converted is column:
            continue
        lost = np.flatnonzero(np.asarray(pc.and_(converted.is_null(), column.is_valid())))
        if len(lost):
            at = int(lost[0])
            reason = f"{numbering.row(at)}: {column[at]} does not fit {to_sql(kind)}"
            raise InvalidData(table, field.name, reason)
        rows = rows.set_column(place, field.name, converted)
    return rows


def _cast(column: pa.Array, kind: DataType, zone: str | None) -> pa.Array:
    """Return the column cast to ``kind`` by Spark's rules, with null for values that do not fit.

    If `Table.write` casts the column by the same rules, the array is returned unchanged.
    """
    source = column.type
    if pa.types.is_nested(source):
        return _cast_inside(column, kind, zone)
    is_number = pa.types.is_floating(source) or pa.types.is_decimal(source)
    if kind.root in _WHOLE and is_number:
        return pc.trunc(column.cast(pa.decimal256(_WIDE, source.scale)) if pa.types.is_decimal(source) else column)
    if kind.root in _FLOATS:
        if pa.types.is_decimal(source):  # by their digits: Arrow's own cast is not the nearest number
            return column.cast(pa.string()).cast(_FLOATS[kind.root])
        return column.cast(_FLOATS[kind.root], safe=False) if pa.types.is_integer(source) else column
    if kind.root is TypeRoot.DECIMAL and pa.types.is_floating(source):
        widest = DataType(TypeRoot.DECIMAL, precision=_WIDEST, scale=kind.scale or 0)
        finite = pc.is_finite(column)
        texts = pc.if_else(finite, float_column(column.cast(pa.float64())), pa.scalar(None, pa.string()))
        return decimal_of_text(texts, widest)
    if kind.root is TypeRoot.DECIMAL and pa.types.is_decimal(source) and source.scale > (kind.scale or 0):
        wide = column.cast(pa.decimal256(_WIDE, source.scale))
        rounded = pc.round(wide, ndigits=kind.scale or 0, round_mode="half_towards_infinity")
        return rounded.cast(pa.decimal256(_WIDE, kind.scale or 0))
    if kind.root in _TEXTS:
        return _as_text(column, zone)
    if kind.root in _INSTANTS and pa.types.is_timestamp(source) and source.unit == "ns" and (kind.precision or 0) <= 6:
        return pc.floor_temporal(column, unit="microsecond").cast(pa.timestamp("us", source.tz))  # Spark has no others
    if kind.root is TypeRoot.DATE and pa.types.is_timestamp(source):
        return pc.floor_temporal(_shown(column, zone), unit="day").cast(pa.date32())
    return column


def _cast_inside(column: pa.Array, kind: DataType, zone: str | None) -> pa.Array:
    """Return arrays and structs whose inner values are cast by Spark's rules.

    The column is returned unchanged if no inner value changes, or if one does not fit: `Table.write` refuses it.
    """
    if pa.types.is_struct(column.type):
        own = {field.name: field.type for field in kind.fields}
        parts = [column.field(place) for place in range(column.type.num_fields)]
        casts = [
            _cast(part, own[field.name], zone) if field.name in own else part
            for field, part in zip(column.type, parts, strict=True)
        ]
        fields = [field.with_type(cast.type) for field, cast in zip(column.type, casts, strict=True)]
        if not _changed(parts, casts):
            return column
        return struct_of(column, casts, pa.struct(fields))
    if pa.types.is_list(column.type) and kind.element is not None:
        cast = _cast(column.values, kind.element, zone)
        if _changed([column.values], [cast]):
            return list_of(column, cast, pa.list_(column.type.value_field.with_type(cast.type)))
    return column


def _changed(parts: Sequence[pa.Array], casts: Sequence[pa.Array]) -> bool:
    """Return whether a part was cast and no value was lost."""
    is_lost = any(cast.null_count > part.null_count for part, cast in zip(parts, casts, strict=True))
    return not is_lost and any(cast is not part for part, cast in zip(parts, casts, strict=True))


def _as_text(column: pa.Array, zone: str | None) -> pa.Array:
    source = column.type
    if pa.types.is_floating(source):
        return float_column(column)
    if pa.types.is_decimal(source):
        return printed(column, DataType(TypeRoot.DECIMAL, precision=source.precision, scale=source.scale))
    if pa.types.is_timestamp(source):
        text = _shown(column, zone).cast(pa.string())
        # without the zeros that end a fraction, nor the point of an empty one
        text = pc.replace_substring_regex(text, pattern=r"(\.[0-9]*?)0+$", replacement=r"\1")
        return pc.utf8_rtrim(text, characters=".")
    return column


def _shown(column: pa.Array, zone: str | None) -> pa.Array:
    """Return timestamps without a zone: timestamps with a zone are converted to the session's local time."""
    if column.type.tz is None:
        return column
    return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone or column.type.tz)))
