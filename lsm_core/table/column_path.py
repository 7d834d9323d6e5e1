"""Column paths ("a.b", "list.element.x", "map.value"), and schemas in which the column at a path is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lsm_core.errors import InvalidSchema
from lsm_core.format.schema import DataField
from lsm_core.types import DataType, RowField, TypeRoot, to_sql

Path = tuple[str, ...]
FieldsEdit = Callable[[tuple[RowField, ...], str], tuple[RowField, ...]]
TypeEdit = Callable[[DataType], DataType]

# Names of steps into types without named fields; Flink's catalog and Java's `SchemaManager` use the same.
_STEPS = {TypeRoot.ARRAY: "element", TypeRoot.MAP: "value"}


def as_row(fields: Sequence[DataField]) -> DataType:
    """Return the columns of a table as one ROW, so that top-level and nested fields are handled alike."""
    return DataType(
        TypeRoot.ROW,
        nullable=False,
        fields=tuple(RowField(f.id, f.name, f.type, f.description, f.default) for f in fields),
    )


def as_columns(row: DataType) -> tuple[DataField, ...]:
    """Return the fields of a ROW as the columns of a table; the inverse of :func:`as_row`."""
    return tuple(DataField(f.id, f.name, f.type, f.description, f.default) for f in row.fields)


def split_path(column: str | Sequence[str], row: DataType) -> Path:
    """Return the steps of a path; a text is split at dots unless the text is the whole name of a column."""
    if not isinstance(column, str):
        return tuple(column)
    if any(field.name == column for field in row.fields):
        return (column,)
    return tuple(column.split("."))


def dotted(path: Path) -> str:
    """Return a path as text: its steps joined by dots."""
    return ".".join(path)


def edit_fields(row: DataType, path: Path, edit: FieldsEdit, table: str) -> DataType:
    """Return a copy of a ROW in which the fields beside the column at a path are changed, including the column itself.

    Args:
        row: the columns of the table as one ROW.
        path: path of the column; for "a.b", the fields of the ROW "a" are changed.
        edit: function that returns the new fields, given the old fields and the last step of the path ("b").
        table: name of the table, for errors.

    Raises:
        InvalidSchema: the path leads to no column.
    """

    def last(kind: DataType) -> DataType:
        if kind.root is not TypeRoot.ROW:
            raise InvalidSchema(
                f"table {table}: column '{dotted(path[:-1])}' is {to_sql(kind)}, which has no fields of its own to "
                "change"
            )
        return replace(kind, fields=edit(kind.fields, path[-1]))

    return edit_type(row, path[:-1], last, table)


def edit_type(row: DataType, path: Path, edit: TypeEdit, table: str) -> DataType:
    """Return a copy of a ROW with a changed type at the end of a path.

    Args:
        row: the columns of the table as one ROW.
        path: path of the column; "element" leads into arrays, "value" into maps.
        edit: function that returns the new type for the old type.
        table: name of the table, for errors.

    Raises:
        InvalidSchema: the path leads to no column; the error names table and column.
    """

    def walk(kind: DataType, depth: int) -> DataType:
        if depth == len(path):
            return edit(kind)
        step = path[depth]
        if kind.root is TypeRoot.ROW:
            at = position(kind.fields, step, table, path[: depth + 1])
            field = replace(kind.fields[at], type=walk(kind.fields[at].type, depth + 1))
            return replace(kind, fields=(*kind.fields[:at], field, *kind.fields[at + 1 :]))
        if _STEPS.get(kind.root) != step:
            raise _nowhere(kind, path[: depth + 1], table)
        if kind.root is TypeRoot.ARRAY and kind.element is not None:
            return replace(kind, element=walk(kind.element, depth + 1))
        if kind.value is not None:
            return replace(kind, value=walk(kind.value, depth + 1))
        raise _nowhere(kind, path[: depth + 1], table)

    return walk(row, 0)


def position(fields: Sequence[RowField], name: str, table: str, path: Path) -> int:
    """Return the index of a field by its name. Raises InvalidSchema, which names the path."""
    for at, field in enumerate(fields):
        if field.name == name:
            return at
    known = ", ".join(field.name for field in fields)
    raise InvalidSchema(f"table {table} has no column '{dotted(path)}'; it has {known}")


def _nowhere(kind: DataType, path: Path, table: str) -> InvalidSchema:
    step = _STEPS.get(kind.root)
    hint = f"; only '{step}' leads into it" if step else ""
    return InvalidSchema(f"table {table} has no column '{dotted(path)}': '{dotted(path[:-1])}' is {to_sql(kind)}{hint}")
