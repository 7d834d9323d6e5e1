"""Application of schema changes: the next schema of a table has either all changes, or none.

Source: Paimon `SchemaManager.generateTableSchema`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, numpy_array
from lsm_core.errors import InvalidSchema
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import PaimonVersion, TableOptions
from lsm_core.read.prune import column_bounds, keeps_order
from lsm_core.table.column_path import (
    Path,
    as_columns,
    as_row,
    dotted,
    edit_fields,
    edit_type,
    position,
    split_path,
)
from lsm_core.table.option_changes import column_renamed, inner_field_renamed, listed, with_counts, with_option
from lsm_core.table.schema_change import Move, SchemaChange
from lsm_core.types import DataType, RowField, TypeRoot, from_arrow, parse, to_sql
from lsm_core.types.casts import castable

Fields = tuple[RowField, ...]
_FieldEdit = Callable[[RowField], RowField]


def changed(
    schema: TableSchema, changes: Sequence[SchemaChange], table: str, followed: PaimonVersion | None
) -> TableSchema:
    """Return a copy of a schema with changes applied in order; the id of the schema stays the same.

    Nothing is written. Only the changes are checked, not the schema as a whole.

    Args:
        schema: the schema before the changes.
        changes: changes in the order of their application.
        table: name of the table, for errors.
        followed: Paimon version whose rules about option changes apply; None for a table without snapshots, all of
            whose options may change.

    Raises:
        InvalidSchema: a change does not fit; the error names table and column.
        InvalidOption: an option is fixed because snapshots exist.
    """
    altering = _Altering(schema, table, followed, _permissions(changes))
    for change in changes:
        altering.apply(change)
    return altering.result()


_MODIFIABLE: Final = "deletion-vectors.modifiable"


def _permissions(changes: Sequence[SchemaChange]) -> dict[str, str]:
    """Return `deletion-vectors.modifiable` if the ALTER sets it to true, else no options.

    The option then permits a change of `deletion-vectors.enabled` in the same ALTER, in any order.

    Java needs two ALTERs, because Java checks `deletion-vectors.enabled` against the options before the ALTER.
    """
    permits = any(
        change.action == "set_option" and change.column == _MODIFIABLE and str(change.value).strip().lower() == "true"
        for change in changes
    )
    return {_MODIFIABLE: "true"} if permits else {}


class _Altering:
    """Builder of an altered schema: :meth:`apply` applies one change, :meth:`result` returns the schema.

    The options before the first change decide which changes of options are allowed.
    """

    def __init__(
        self, schema: TableSchema, table: str, followed: PaimonVersion | None, permissions: Mapping[str, str]
    ) -> None:
        self._schema, self._table, self._followed = schema, table, followed
        self._judged_by = {**schema.options, **permissions}
        self._before = TableOptions.usable(schema.options, table)
        self._row = as_row(schema.fields)
        # Other writers (pypaimon) do not always count nested fields.
        self._ids = FieldIds(max(schema.highest_field_id, highest_id(schema.fields)))
        self._primary, self._options, self._comment = schema.primary_keys, dict(schema.options), schema.comment

    def apply(self, change: SchemaChange) -> None:
        if change.action in ("set_option", "remove_option"):
            value = None if change.action == "remove_option" else str(change.value)
            self._options = with_option(
                self._options, self._judged_by, str(change.column), value, self._table, self._followed
            )
        elif change.action == "set_comment":
            self._comment = None if change.value is None else str(change.value)
        else:
            self._apply_to_column(change, split_path(change.column, self._row))

    def result(self) -> TableSchema:
        return replace(
            self._schema,
            fields=as_columns(self._row),
            highest_field_id=max(self._ids.highest, self._schema.highest_field_id),
            primary_keys=self._primary,
            options=with_counts(self._options),
            comment=self._comment,
        )

    def _apply_to_column(self, change: SchemaChange, path: Path) -> None:
        if not path or not all(path):
            raise InvalidSchema(f"table {self._table}: '{dotted(path)}' is not a column")
        if change.action == "add_column":
            self._add(path, change)
        elif change.action == "rename_column":
            self._rename(path, str(change.value))
        elif change.action == "drop_column":
            self._drop(path)
        elif change.action == "update_type":
            self._retype(path, change)
        elif change.action == "update_nullability":
            self._update_nullability(path, bool(change.value))
        elif change.action == "update_column_comment":
            self._edit_field(path, lambda field: replace(field, description=change.comment))
        elif change.action == "update_default":
            default = None if change.value is None else str(change.value)
            self._edit_field(path, lambda field: replace(field, default=default))
        elif change.action == "move":
            self._move(path, change.move_to or Move("first"))
        else:
            raise InvalidSchema(f"table {self._table}: schema change '{change.action}' is unknown")

    # -- columns come and go ---------------------------------------------------------------------------------------

    def _add(self, path: Path, change: SchemaChange) -> None:
        kind = as_type(change.value, self._table, path)
        if not kind.nullable:
            raise InvalidSchema(
                f"table {self._table}: new column '{dotted(path)}' must be nullable: old rows have no value"
            )
        # Java draws the new column's own id before those of the fields inside it.
        field_id = self._ids.take()
        field = RowField(field_id, path[-1], self._ids.number(kind), change.comment)

        def insert(fields: Fields, name: str) -> Fields:
            self._require_free(fields, path, name)
            if change.move_to is not None:
                at = self._place(fields, path, change.move_to)
            elif len(path) == 1 and self._before.get("add-column-before-partition"):
                keys = (at for at, field in enumerate(fields) if field.name in self._schema.partition_keys)
                at = min(keys, default=len(fields))
            else:
                at = len(fields)
            return (*fields[:at], field, *fields[at:])

        self._row = edit_fields(self._row, path, insert, self._table)

    def _place(self, fields: Fields, path: Path, move: Move) -> int:
        """Return the index in ``fields`` at which a new or moved column is inserted.

        Args:
            fields: fields of the table or ROW that gets the column.
            path: path of the column.
            move: requested position of the column.
        """
        if move.reference is None:
            return 0 if move.kind == "first" else len(fields)
        prefix = dotted(path[:-1]) + "."
        reference = move.reference.removeprefix(prefix) if len(path) > 1 else move.reference
        at = position(fields, reference, self._table, (*path[:-1], reference))
        return at + 1 if move.kind == "after" else at

    def _rename(self, path: Path, to: str) -> None:
        self._refuse_partition_key(path, "renamed")

        def rename(fields: Fields, name: str) -> Fields:
            at = position(fields, name, self._table, path)
            self._require_free(fields, path, to)
            return (*fields[:at], replace(fields[at], name=to), *fields[at + 1 :])

        self._row = edit_fields(self._row, path, rename, self._table)
        if len(path) == 1:
            self._primary = tuple(to if key == path[0] else key for key in self._primary)
            self._options = column_renamed(self._options, path[0], to)
        else:
            self._options = inner_field_renamed(self._options, path, to)

    def _drop(self, path: Path) -> None:
        self._refuse_partition_key(path, "dropped")
        self._refuse_primary_key(path, "dropped")

        def drop(fields: Fields, name: str) -> Fields:
            at = position(fields, name, self._table, path)
            if len(fields) == 1:
                raise InvalidSchema(
                    f"table {self._table}: column '{dotted(path)}' is the last column and cannot be dropped"
                )
            return (*fields[:at], *fields[at + 1 :])

        self._row = edit_fields(self._row, path, drop, self._table)

    def _move(self, path: Path, move: Move) -> None:
        def reorder(fields: Fields, name: str) -> Fields:
            at = position(fields, name, self._table, path)
            others = (*fields[:at], *fields[at + 1 :])
            ends = {"first": 0, "last": len(fields) - 1}
            if move.reference in (name, dotted(path)) or ends.get(move.kind) == at:
                raise InvalidSchema(
                    f"table {self._table}: column '{dotted(path)}' cannot be placed before or after itself"
                )
            to = self._place(others, path, move)
            return (*others[:to], fields[at], *others[to:])

        self._row = edit_fields(self._row, path, reorder, self._table)

    # -- columns become others -------------------------------------------------------------------------------------

    def _edit_field(self, path: Path, edit: _FieldEdit) -> None:
        def edited(fields: Fields, name: str) -> Fields:
            at = position(fields, name, self._table, path)
            return (*fields[:at], edit(fields[at]), *fields[at + 1 :])

        self._row = edit_fields(self._row, path, edited, self._table)

    def _retype(self, path: Path, change: SchemaChange) -> None:
        self._refuse_partition_key(path, "given another type")
        self._refuse_primary_key(path, "given another type")
        if len(path) == 1 and path[0] in listed(self._options.get("bucket-key", "")):
            raise InvalidSchema(
                f"table {self._table}: column '{path[0]}' is a bucket key, whose hash "
                "depends on the type; its type cannot change"
            )
        target = as_type(change.value, self._table, path)
        explicit = not self._before.get("disable-explicit-type-casting")

        def retype(source: DataType) -> DataType:
            new_type = target.with_nullable(source.nullable) if change.keep_nullability else target
            self._require_nullability(source, new_type.nullable, path)
            if new_type.is_nested:
                # The same type but for field ids and nullability of the whole may stand.
                old, new = (FieldIds().number(kind.with_nullable(nullable=True)) for kind in (source, new_type))
                if old == new:
                    return source.with_nullable(new_type.nullable)
                raise InvalidSchema(
                    f"table {self._table}: column '{dotted(path)}' cannot become {to_sql(new_type)} as a whole; change "
                    "the "
                    "fields inside it by their paths"
                )
            loses_nulls = source.nullable and not new_type.nullable
            if not castable(source, new_type, explicit=explicit) or (loses_nulls and not explicit):
                raise InvalidSchema(
                    f"table {self._table}: column '{dotted(path)}' of type {to_sql(source)} cannot become "
                    f"{to_sql(new_type)}" + ("" if explicit else " ('disable-explicit-type-casting' is set)")
                )
            return new_type

        self._row = edit_type(self._row, path, retype, self._table)

    def _update_nullability(self, path: Path, nullable: bool) -> None:
        if nullable:
            self._refuse_primary_key(path, "made nullable")

        def update(source: DataType) -> DataType:
            self._require_nullability(source, nullable, path)
            return source.with_nullable(nullable)

        self._row = edit_type(self._row, path, update, self._table)

    # -- rules -----------------------------------------------------------------------------------------------------

    def _require_nullability(self, source: DataType, nullable: bool, path: Path) -> None:
        option = "alter-column-null-to-not-null.disabled"
        if source.nullable and not nullable and self._before.get(option):
            raise InvalidSchema(
                f"table {self._table}: column '{dotted(path)}' may hold nulls already and cannot become NOT NULL, "
                "unless option "
                f"'{option}' was set to false before"
            )

    def _require_free(self, fields: Fields, path: Path, name: str) -> None:
        if any(field.name == name for field in fields):
            raise InvalidSchema(f"table {self._table} already has a column '{dotted((*path[:-1], name))}'")

    def _refuse_partition_key(self, path: Path, change: str) -> None:
        if len(path) == 1 and path[0] in self._schema.partition_keys:
            raise InvalidSchema(f"table {self._table}: partition column '{path[0]}' cannot be {change}")

    def _refuse_primary_key(self, path: Path, change: str) -> None:
        if len(path) == 1 and path[0] in self._primary:
            raise InvalidSchema(f"table {self._table}: primary key column '{path[0]}' cannot be {change}")


def as_type(value: object, table: str, path: Path) -> DataType:
    """Return the logical type of a definition or a change.

    Args:
        value: an Arrow type or field, a `DataType`, or Paimon's text such as "CHAR(3)".
        table: name of the table, for errors.
        path: path of the column, for errors.

    Raises:
        InvalidSchema: the value is not a type; the error names table and column.
    """
    try:
        if isinstance(value, DataType):
            return value
        if isinstance(value, pa.Field):
            return from_arrow(value.type, value.nullable)
        if isinstance(value, pa.DataType):
            return from_arrow(value)
        if isinstance(value, str):
            return parse(value)
    except InvalidSchema as error:
        raise InvalidSchema(f"table {table}, column '{dotted(path)}': {error}") from error
    raise InvalidSchema(
        f"table {table}, column '{dotted(path)}': {value!r} is not a type; "
        "give an Arrow type or a text such as 'BIGINT'"
    )


class FieldIds:
    """Counter of field ids.

    Attributes:
        highest: the largest id that was ever used.
    """

    def __init__(self, highest: int = -1) -> None:
        self.highest = highest

    def take(self) -> int:
        """Return the next free field id."""
        self.highest += 1
        return self.highest

    def number(self, kind: DataType) -> DataType:
        """Return a type with new ids for all fields of its ROWs, inner fields first."""
        return replace(
            kind,
            fields=tuple(replace(field, type=self.number(field.type), id=self.take()) for field in kind.fields),
            element=None if kind.element is None else self.number(kind.element),
            key=None if kind.key is None else self.number(kind.key),
            value=None if kind.value is None else self.number(kind.value),
        )


def highest_id(fields: Iterable[DataField | RowField]) -> int:
    """Return the largest id among fields and the fields inside them, or -1 without fields."""
    return max((max(field.id, _highest_inside(field.type)) for field in fields), default=-1)


def _highest_inside(kind: DataType) -> int:
    inner = [part for part in (kind.element, kind.key, kind.value) if part is not None]
    return max([highest_id(kind.fields), *map(_highest_inside, inner)])


_WHOLE: Final = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
_NUMBERS: Final = frozenset({*_WHOLE, TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL})


def _limits(kind: DataType) -> tuple[int, int] | None:
    """Return (lower, upper), the exclusive bounds of the numbers that a cast to ``kind`` preserves.

    None for types without such bounds.
    """
    if kind.root is TypeRoot.DECIMAL:
        beyond = 10 ** ((kind.precision or 0) - (kind.scale or 0))
        return -beyond, beyond
    bits = _WHOLE.get(kind.root)
    return None if bits is None else (-(1 << bits - 1) - 1, 1 << bits - 1)


def require_values_fit(store: TableStore, following: TableSchema) -> Iterator[str]:
    """Check that columns whose type becomes narrower hold no number that the new type cannot represent.

    Java accepts a change with numbers that do not fit. Readers of Java and Dredge then return wrong numbers (300 as a
    TINYINT is 44), or null for a DECIMAL. The check uses the statistics of the newest snapshot's files, which also
    cover rows that newer rows replaced.

    Args:
        store: the table with its current schema.
        following: the altered schema.

    Yields:
        A warning for each column whose files lack statistics.

    Raises:
        InvalidSchema: a column holds a number that does not fit; the error names column and number.
    """
    narrowed = []
    for column in store.schema.fields:
        later = next((field for field in following.fields if field.id == column.id), None)
        numbers = later is not None and {column.type.root, later.type.root} <= _NUMBERS
        if later is not None and numbers and _limits(later.type) and not keeps_order(column.type, later.type):
            narrowed.append((column, later))
    newest = snapshots.latest(store) if narrowed else None
    if newest is None:
        return
    entries = manifests.live_entries(store, newest)
    known = column_bounds(store, entries, [column.name for column, _ in narrowed])
    for column, later in narrowed:
        bounds, (below, above) = known.get(column.name), _limits(later.type) or (0, 0)
        if bounds is None:
            continue
        ends = (pc.min(bounds.lows).as_py(), pc.max(bounds.highs).as_py())
        bad = next((end for end in ends if end is not None and not below < end < above), None)
        if bad is not None:
            raise InvalidSchema(
                f"table {store.name}: column '{column.name}' of type {to_sql(column.type)} cannot become "
                f"{to_sql(later.type)}: it "
                f"holds {bad}, which reads would show as another value. Change these rows and compact the table fully "
                "before"
            )
        if not np.all(bounds.only_nulls | numpy_array(pc.is_valid(bounds.lows))):
            yield (
                f"values of column '{column.name}' that {to_sql(later.type)} cannot hold, if there are any, read as "
                "others from now "
                "on: not all files have statistics of it"
            )


def consequences(store: TableStore, options: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each changed option that changes the result of reads of existing rows unexpectedly."""
    before, after = store.options, TableOptions(options, store.name, stored=True)
    for name in ("ignore-delete", "ignore-update-before"):
        if before.get(name) and not after.get(name):
            yield (
                f"without '{name}' retracts are applied from now on; those that were dropped while it was true stay "
                "dropped"
            )
    folds = after.merge_engine in ("aggregation", "partial-update")
    if before.needs_lookup or not after.needs_lookup or not folds:
        return
    buckets = _buckets_of_several_levels(store)
    if buckets:
        yield (
            f"rows of {buckets} {'bucket' if buckets == 1 else 'buckets'} lie on several levels above 0, and where "
            "compactions look "
            f"keys up only the lowest of these counts beside level 0: reads of this {after.merge_engine} table now "
            "leave out what the "
            "others say, and compactions lose it. Set the option back, compact the table fully, then set it"
        )


def unused_defaults(before: TableSchema, after: TableSchema) -> Iterator[str]:
    """Yield a warning for each new default of a field inside a column, which no writer uses."""
    known = dict(_inner_defaults(before.fields))
    for path, default in _inner_defaults(after.fields):
        if known.get(path) != default:
            yield f"the default of '{path}' has no effect: writers, also Paimon's, use defaults of whole columns only"


def _inner_defaults(fields: Sequence[DataField | RowField], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, default) of each field that is inside a column and has a default."""
    for field in fields:
        if path and field.default is not None:
            yield f"{path}{field.name}", field.default
        yield from _inner_defaults(field.type.fields, f"{path}{field.name}.")


def _buckets_of_several_levels(store: TableStore) -> int:
    """Return the number of buckets with rows on two or more levels above 0."""
    newest = snapshots.latest(store)
    if newest is None:
        return 0
    entries = manifests.live_entries(store, newest, columns=["partition", "bucket", "level"])
    above = entries.filter(pc.greater(entries.column("level"), arrow_scalar(0)))
    levels = above.group_by(["partition", "bucket"]).aggregate([("level", "count_distinct")])
    return int(pc.sum(pc.greater(levels.column("level_count_distinct"), arrow_scalar(1)), min_count=0).as_py())
