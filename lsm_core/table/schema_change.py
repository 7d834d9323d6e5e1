"""Schema changes of a table as values; the module `altering` applies schema changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from lsm_core.errors import InvalidSchema
from lsm_core.types import DataType

# An Arrow type or field, a type of ours, or its text ("VARCHAR(10)", which Arrow cannot say).
AnyType: TypeAlias = "pa.DataType | pa.Field | DataType | str"
Column: TypeAlias = "str | Sequence[str]"


class AltersTables(Protocol):
    """A catalog that can alter tables, for writers that add columns."""

    def alter_table(self, name: str, changes: Sequence[SchemaChange]) -> None:
        """Apply schema changes to a table: either all changes, or none."""
        ...


@dataclass(frozen=True)
class Move:
    """New position of a column.

    Attributes:
        kind: "first", "last", "after" or "before".
        reference: column after or before which the column is put, for the kinds "after" and "before".
    """

    kind: str
    reference: str | None = None


@dataclass(frozen=True)
class SchemaChange:
    """One change of a table's definition; the static methods create changes.

    A nested column is written "a.b" for the field of a ROW; "a.element" and "a.value" lead into arrays and maps. A
    sequence of steps is used unchanged, for names that contain dots. Types are Arrow types or fields, or Paimon's type
    text ("CHAR(3)").

    Attributes:
        action: name of the method that made the change.
        column: name of the column, or key of the option.
        value: new type, name, option value, default or comment.
        move_to: new position of the column, or None.
        comment: comment of a new column.
        keep_nullability: whether a changed type keeps the column's nullability.

    Source: Paimon `SchemaChange`.
    """

    action: str
    column: Column = ""
    value: object = None
    move_to: Move | None = None
    comment: str | None = None
    keep_nullability: bool = True

    @staticmethod
    def set_option(key: str, value: str) -> SchemaChange:
        """Return a change that sets a table option."""
        return SchemaChange("set_option", key, str(value))

    @staticmethod
    def remove_option(key: str) -> SchemaChange:
        """Return a change that removes a table option, so that the default applies again."""
        return SchemaChange("remove_option", key)

    @staticmethod
    def set_comment(comment: str | None) -> SchemaChange:
        """Return a change that sets the comment of the table, or removes the comment if ``comment`` is None."""
        return SchemaChange("set_comment", value=comment)

    @staticmethod
    def add_column(
        name: Column,
        data_type: AnyType,
        after: str | None = None,
        comment: str | None = None,
        *,
        before: str | None = None,
        first: bool = False,
        last: bool = False,
    ) -> SchemaChange:
        """Return a change that adds a nullable column.

        Args:
            name: the column, possibly nested.
            data_type: type of the new column.
            after: existing column after which the new column is inserted.
            comment: comment of the new column.
            before: existing column before which the new column is inserted.
            first: insert the new column as the first column.
            last: insert the new column as the last column. This is the default; with `add-column-before-partition` the
                default is before the partition columns.
        """
        place = _place(after, before, first, last)
        return SchemaChange("add_column", name, data_type, place, comment)

    @staticmethod
    def rename_column(name: Column, to: str) -> SchemaChange:
        """Return a change that renames a column, also in the options that name the column; the column keeps its id.

        Args:
            name: the column, possibly nested.
            to: new name; for a nested column, only the last step of the path.
        """
        return SchemaChange("rename_column", name, to)

    @staticmethod
    def drop_column(name: Column) -> SchemaChange:
        """Return a change that drops a column; the column's id is never used again."""
        return SchemaChange("drop_column", name)

    @staticmethod
    def update_type(name: Column, data_type: AnyType, keep_nullability: bool = True) -> SchemaChange:
        """Return a change of a column's type; readers cast the values of older files.

        Args:
            name: the column, possibly nested.
            data_type: the new type.
            keep_nullability: keep the column's nullability instead of the nullability of the new type.
        """
        return SchemaChange("update_type", name, data_type, keep_nullability=keep_nullability)

    @staticmethod
    def update_nullability(name: Column, nullable: bool) -> SchemaChange:
        """Return a change that allows or forbids nulls in a column."""
        return SchemaChange("update_nullability", name, nullable)

    @staticmethod
    def update_column_comment(name: Column, comment: str | None) -> SchemaChange:
        """Return a change that sets the comment of a column, or removes the comment if ``comment`` is None."""
        return SchemaChange("update_column_comment", name, comment=comment)

    @staticmethod
    def update_default(name: Column, default: str | None) -> SchemaChange:
        """Return a change that sets the default for rows written without the column; None removes the default."""
        return SchemaChange("update_default", name, default)

    @staticmethod
    def move(
        name: Column, after: str | None = None, *, before: str | None = None, first: bool = False, last: bool = False
    ) -> SchemaChange:
        """Return a move of a column: after ``after``, before ``before``, to the end, or (default) to the front."""
        return SchemaChange("move", name, move_to=_place(after, before, first, last) or Move("first"))


def _place(after: str | None, before: str | None, first: bool, last: bool) -> Move | None:
    places = [
        Move(kind, reference)
        for kind, reference, needs_reference in (
            ("after", after, after is not None),
            ("before", before, before is not None),
            ("first", None, first),
            ("last", None, last),
        )
        if needs_reference
    ]
    if len(places) > 1:
        raise InvalidSchema("a new place of a column must be one of after, before, first and last")
    return places[0] if places else None
