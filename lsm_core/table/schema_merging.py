"""Schema merging for a write of rows with new columns or types: columns are added, and types are widened.

Source: Paimon `SchemaMergingUtils`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from lsm_core.errors import InvalidSchema
from lsm_core.format.schema import TableSchema
from lsm_core.table.schema_change import SchemaChange
from lsm_core.types import DataType, TypeRoot, to_sql
from lsm_core.types.casts import castable

_INSIDE: Final = {TypeRoot.ARRAY: ("element",), TypeRoot.MAP: ("key", "value")}


def merging_changes(
    schema: TableSchema, incoming: Mapping[str, DataType], table: str, *, explicit: bool = False
) -> list[SchemaChange]:
    """Return the schema changes after which a table accepts the incoming columns; empty if no change is needed.

    Missing columns are added as nullable, in the order of ``incoming``, also inside ROWs. A column takes the incoming
    type if the existing values convert without loss. A column keeps its type if its type is the wider type, or if the
    column is a key column, because rows are located by the key's type.

    Args:
        schema: schema of the table.
        incoming: types of the incoming columns by name.
        table: name of the table, for errors.
        explicit: also change types to which existing values convert only with loss.

    Raises:
        InvalidSchema: two types cannot be merged; the error names table, column and both types.
    """
    keys = {*schema.primary_keys, *schema.partition_keys, *schema.bucket_keys}
    changes: list[SchemaChange] = []
    for name, kind in incoming.items():
        if not schema.has_field(name):
            changes.append(SchemaChange.add_column((name,), kind.with_nullable(nullable=True)))
        elif name not in keys:
            changes += _changes((name,), schema.field(name).type, kind, table, explicit)
    return changes


def _changes(
    path: tuple[str, ...], base: DataType, incoming: DataType, table: str, explicit: bool
) -> Iterator[SchemaChange]:
    if base.root is incoming.root is TypeRoot.ROW:
        known = {field.name: field.type for field in base.fields}
        for field in incoming.fields:
            if field.name in known:
                yield from _changes((*path, field.name), known[field.name], field.type, table, explicit)
            else:
                yield SchemaChange.add_column((*path, field.name), field.type.with_nullable(nullable=True))
        return
    if base.root is incoming.root and base.root in _INSIDE:
        for step in _INSIDE[base.root]:
            inner, incoming_part = getattr(base, step), getattr(incoming, step)
            yield from _changes((*path, step), inner, incoming_part, table, explicit)
        return
    if _takes(incoming, base):
        return
    decimals = base.root is incoming.root is TypeRoot.DECIMAL
    if decimals or not (_takes(base, incoming) or (explicit and castable(base, incoming, explicit=True))):
        raise InvalidSchema(
            f"table {table}: column '{'.'.join(path)}' of type {to_sql(base)} cannot be merged with {to_sql(incoming)}"
        )
    yield SchemaChange.update_type(path, incoming)


def _takes(source: DataType, target: DataType) -> bool:
    """Return whether every value of the type ``source`` is a value of the type ``target``."""
    if source.root is target.root is TypeRoot.DECIMAL:
        scales = (source.scale or 0, target.scale or 0)
        digits = ((source.precision or 10) - scales[0], (target.precision or 10) - scales[1])
        return scales[0] <= scales[1] and digits[0] <= digits[1]
    if not castable(source, target, explicit=False):
        return False
    measures = ((source.length, target.length), (source.precision, target.precision))
    return not any(mine is not None and theirs is not None and mine > theirs for mine, theirs in measures)
