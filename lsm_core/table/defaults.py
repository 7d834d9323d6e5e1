"""Default values of columns: text in the schema, which must be a value of the column's type (Java `DefaultValueUtils`)."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from lsm_core.errors import DredgeError, InvalidSchema
from lsm_core.format.schema import DataField
from lsm_core.types import MAX_LENGTH, DataType, RowField, TypeRoot, to_sql
from lsm_core.types.casts import CastError, cast_values, castable

_TEXT: Final = DataType(TypeRoot.VARCHAR, length=MAX_LENGTH)


def check_default(field: DataField | RowField, table: str, path: str = "") -> None:
    """Raise InvalidSchema naming table and column when a default, of the column or inside it, is no value of its type."""
    name = f"{path}{field.name}"
    if field.default is not None:
        _check(field.default, field.type, f"table {table}: column '{name}'")
    for inner in field.type.fields:
        check_default(inner, table, f"{name}.")


def _check(text: str, kind: DataType, what: str) -> None:
    wanted = kind.with_nullable(nullable=True)
    if not castable(_TEXT, wanted, explicit=True):
        raise InvalidSchema(f"{what} of type {to_sql(kind)} cannot have a default value")
    try:
        cast_values(pa.array([text], pa.string()), _TEXT, wanted)
    except (DredgeError, CastError) as error:
        raise InvalidSchema(f"{what}: default {text!r} is no {to_sql(kind)} ({error})") from error
