"""Changes to a table's definition, as values; those that Dredge can carry out make the next schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lsm_core.errors import InvalidOption, InvalidSchema, UnsupportedFeature
from lsm_core.format.schema import TableSchema
from lsm_core.options import REGISTRY, canonical


@dataclass(frozen=True)
class SchemaChange:
    """One change, made by the methods below (api.md); ``column`` may be nested ("a.b"). Source class: ``SchemaChange``."""

    action: str
    column: str = ""
    value: object = None
    after: str | None = None
    comment: str | None = None

    @staticmethod
    def set_option(key: str, value: str) -> SchemaChange:
        """Set an option."""
        return SchemaChange("set_option", key, str(value))

    @staticmethod
    def remove_option(key: str) -> SchemaChange:
        """Remove an option, so that its default holds again."""
        return SchemaChange("remove_option", key)

    @staticmethod
    def set_comment(comment: str | None) -> SchemaChange:
        """Set the table's comment; None removes it."""
        return SchemaChange("set_comment", value=comment)

    @staticmethod
    def add_column(
        name: str, data_type: pa.DataType, after: str | None = None, comment: str | None = None
    ) -> SchemaChange:
        """Add a nullable column."""
        return SchemaChange("add_column", name, data_type, after, comment)

    @staticmethod
    def rename_column(name: str, to: str) -> SchemaChange:
        """Rename a column; its id stays."""
        return SchemaChange("rename_column", name, to)

    @staticmethod
    def drop_column(name: str) -> SchemaChange:
        """Drop a column."""
        return SchemaChange("drop_column", name)

    @staticmethod
    def update_type(name: str, data_type: pa.DataType) -> SchemaChange:
        """Change a column's type; old files are cast when read."""
        return SchemaChange("update_type", name, data_type)

    @staticmethod
    def update_nullability(name: str, nullable: bool) -> SchemaChange:
        """Let a column hold nulls, or not."""
        return SchemaChange("update_nullability", name, nullable)

    @staticmethod
    def update_default(name: str, default: str | None) -> SchemaChange:
        """Change what a column holds when a writer leaves it out."""
        return SchemaChange("update_default", name, default)

    @staticmethod
    def move(name: str, after: str | None = None) -> SchemaChange:
        """Move a column behind ``after``; None puts it first."""
        return SchemaChange("move", name, after=after)


def changed(schema: TableSchema, changes: Sequence[SchemaChange], table: str, has_snapshots: bool) -> TableSchema:
    """Return ``schema`` with the changes in order (same id). Nothing is written.

    Options and comments can change. Changes of columns raise UnsupportedFeature naming the change: files of an older schema
    cannot be read yet, so carrying them out would lock the table. Raises InvalidOption for an option that snapshots fix.
    """
    for change in changes:
        if change.action == "set_comment":
            schema = replace(schema, comment=None if change.value is None else str(change.value))
        elif change.action in ("set_option", "remove_option"):
            schema = replace(schema, options=_options(schema, change, table, has_snapshots))
        else:
            raise UnsupportedFeature(f"schema change {change.action} of column '{change.column}'", table)
    return schema


def _options(schema: TableSchema, change: SchemaChange, table: str, has_snapshots: bool) -> dict[str, str]:
    if change.column in ("primary-key", "partition", "path"):
        raise InvalidSchema(f"table {table}: '{change.column}' is fixed when a table is created")
    before = canonical(schema.options)
    after = dict(before)
    (name,) = canonical({change.column: ""})
    if change.action == "set_option":
        after[name] = str(change.value)
    else:
        after.pop(name, None)
    key = REGISTRY.get(name)
    fixed = key is not None and (key.immutable or name == "bucket")
    if fixed and has_snapshots and before.get(name) != after.get(name):
        raise InvalidOption(name, change.value, "no change: the table has snapshots that depend on it", table)
    return after
