"""Execution of statements that need no query engine: CREATE, ALTER, DROP, TRUNCATE, SHOW, DESCRIBE and CALL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core.errors import ColumnNotFound, InvalidFilter, InvalidOption, TableNotFound, UnsupportedFeature
from lsm_core.format.schema import TableSchema
from lsm_core.metadata import tags
from lsm_core.read.partition_choice import chosen_partitions
from lsm_core.sql.call_statement import CallStatement
from lsm_core.sql.describing import describe, shown
from lsm_core.sql.statements import (
    AlterTable,
    CreateDatabase,
    CreateTable,
    Describe,
    DropDatabase,
    DropPartitions,
    DropTable,
    Procedure,
    RenameTable,
    Show,
    Statement,
    TruncateTable,
)
from lsm_core.table import Catalog
from lsm_core.table.definition import Schema
from lsm_core.table.schema_change import SchemaChange
from lsm_core.table.system.reader import ReadOnlyTable

if TYPE_CHECKING:
    from lsm_core.maintenance.action import Runner
    from lsm_core.sql.procedures import CallResult
    from lsm_core.table import Table


@dataclass(frozen=True)
class StatementResult:
    """Result of one statement.

    Attributes:
        message: description of the change for people; "" for a statement that returns rows.
        rows: rows that the statement returns; None for a statement that changes something.
        snapshot_id: snapshot that the statement committed, or None.
        call: result of a procedure call, or None if the statement is not a call.
    """

    message: str = ""
    rows: pa.Table | None = None
    snapshot_id: int | None = None
    call: CallResult | None = None


@dataclass(frozen=True)
class Session:
    """Catalog and settings for the execution of statements.

    Attributes:
        catalog: catalog of the tables.
        runner: runs the tasks of procedures; None for threads of this process.
        approved_by: name of the person who approved the procedures, recorded in the ledger (the table's record of
            maintenance runs); None without an approval.
        dynamic_overwrite: whether INSERT OVERWRITE replaces only the partitions that receive rows.
    """

    catalog: Catalog
    runner: Runner | None = None
    approved_by: str | None = None
    dynamic_overwrite: bool = False


@singledispatch
def execute_command(statement: Statement, session: Session) -> StatementResult:
    """Execute a statement that needs no query engine.

    Args:
        statement: the parsed statement.
        session: catalog and settings.

    Returns:
        The message, rows or snapshot of the statement.

    Raises:
        DredgeError: an error of the methods of `Catalog` or `Table`. Only completed steps of a procedure have changed
            anything.
    """
    del session
    raise UnsupportedFeature(f"the statement {type(statement).__name__} without a query engine")


@execute_command.register
def _(statement: CreateDatabase, session: Session) -> StatementResult:
    created = session.catalog.create_database(statement.name, statement.if_not_exists)
    return StatementResult(f"database {statement.name} {'is created' if created else 'exists already'}")


@execute_command.register
def _(statement: DropDatabase, session: Session) -> StatementResult:
    existed = session.catalog.drop_database(statement.name, statement.if_exists, statement.cascade)
    outcome = "is dropped" if existed else "does not exist: nothing was dropped"
    return StatementResult(f"database {statement.name} {outcome}")


@execute_command.register
def _(statement: CreateTable, session: Session) -> StatementResult:
    if statement.query:
        raise UnsupportedFeature("CREATE TABLE ... AS SELECT without a query engine", statement.name)
    definition = like_definition(session.catalog, statement) if statement.like else definition_of(statement)
    database, _, table = statement.name.partition(".")
    existed = statement.if_not_exists and table in session.catalog.list_tables(database)
    session.catalog.create_table(statement.name, definition, statement.if_not_exists)
    return StatementResult(f"table {statement.name} {'exists already' if existed else 'is created'}")


def definition_of(statement: CreateTable, columns: pa.Schema | None = None) -> Schema:
    """Return the schema that a CREATE TABLE defines.

    Args:
        statement: the statement.
        columns: columns of the statement's query, used in place of its column list; None to use its column list.

    Returns:
        The schema; key columns are spelled as in the column list.

    Raises:
        ColumnNotFound: a key names an unknown column.
        InvalidOption: the primary key is set both as a clause and as an option.
    """
    names = columns.names if columns is not None else [column.name for column in statement.columns]
    options = dict(statement.options)
    keys = statement.primary_keys
    if "primary-key" in options:
        if keys:
            raise InvalidOption(
                "primary-key", options["primary-key"], "the clause PRIMARY KEY, or the option", statement.name
            )
        keys = tuple(part.strip() for part in options.pop("primary-key").split(",") if part.strip())
    partitions = statement.partition_keys
    if "partition" in options and not partitions:
        partitions = tuple(part.strip() for part in options.pop("partition").split(",") if part.strip())
    return Schema(
        statement.columns if columns is None else columns,
        tuple(same_name(statement.name, key, names) for key in keys),
        tuple(same_name(statement.name, key, names) for key in partitions),
        options,
        statement.comment,
    )


def like_definition(catalog: Catalog, statement: CreateTable) -> Schema:
    """Return the definition of the new table of CREATE TABLE ... LIKE.

    The definition is copied from the table after LIKE; options of the statement are added or replace copied options.
    """
    schema = catalog.table(statement.like).schema
    options = {**schema.options, **statement.options}
    return Schema(schema.fields, schema.primary_keys, schema.partition_keys, options, schema.comment)


def table_to_change(session: Session, name: str, verb: str) -> Table:
    """Return the table of a statement that changes rows.

    Raises:
        TableNotFound: the table does not exist.
        UnsupportedFeature: the name is that of a system table.
    """
    table = session.catalog.table(name)
    if isinstance(table, ReadOnlyTable):
        raise UnsupportedFeature(f"{verb} of a system table, which is read only", name)
    return table


def same_name(table: str, name: str, known: Sequence[str]) -> str:
    """Return the name in ``known`` that equals ``name``, or else the only name that differs from ``name`` in case.

    Raises:
        ColumnNotFound: no known name matches, or several names match without regard to case.
    """
    if name in known:
        return name
    same = [other for other in known if other.lower() == name.lower()]
    if len(same) != 1:
        raise ColumnNotFound(table, name, tuple(known))
    return same[0]


@execute_command.register
def _(statement: DropTable, session: Session) -> StatementResult:
    existed = session.catalog.drop_table(statement.name, statement.if_exists)
    return StatementResult(
        f"table {statement.name} {'is dropped' if existed else 'does not exist: nothing was dropped'}"
    )


@execute_command.register
def _(statement: RenameTable, session: Session) -> StatementResult:
    existed = session.catalog.rename_table(statement.name, statement.to, statement.if_exists)
    outcome = f"is renamed to {statement.to}" if existed else "does not exist: nothing was renamed"
    return StatementResult(f"table {statement.name} {outcome}")


@execute_command.register
def _(statement: TruncateTable, session: Session) -> StatementResult:
    table = session.catalog.table(statement.name)
    if statement.partition is None:
        done = table.truncate()
    else:
        done = table.drop_partitions([spec_of(statement.name, table.schema, statement.partition)])
    return committed_result(statement.name, done)


def committed_result(table: str, snapshot_id: int | None) -> StatementResult:
    """Return the message and snapshot of a statement that changes rows.

    Args:
        table: name of the table.
        snapshot_id: snapshot that the statement committed, None if no row was changed.
    """
    if snapshot_id is None:
        return StatementResult(f"{table}: no row was changed")
    return StatementResult(f"{table}: snapshot {snapshot_id}", snapshot_id=snapshot_id)


def spec_of(table: str, schema: TableSchema, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a partition spec with the table's own spelling of the columns, because statements ignore case.

    Raises:
        ColumnNotFound: the spec names a column that does not exist.
        InvalidOption: the table has no partitions.
    """
    if not schema.partition_keys:
        raise InvalidOption("PARTITION", ", ".join(spec), "no value, because the table has no partitions", table)
    return {same_name(table, name, schema.partition_keys): value for name, value in spec.items()}


@execute_command.register
def _(statement: DropPartitions, session: Session) -> StatementResult:
    table = session.catalog.table(statement.name)
    specs = [spec_of(statement.name, table.schema, spec) for spec in statement.partitions]
    for spec in () if statement.if_exists else specs:
        if not chosen_partitions(table.store, {"partitions": [spec]}):
            values = ",".join(f"{name}={'null' if value is None else value}" for name, value in spec.items())
            raise InvalidFilter(
                f"table {statement.name} has no partition {values}; DROP IF EXISTS PARTITION leaves out missing ones"
            )
    return committed_result(statement.name, table.drop_partitions(specs))


@execute_command.register
def _(statement: AlterTable, session: Session) -> StatementResult:
    try:
        schema = session.catalog.store_as_stored(statement.name).schema
    except TableNotFound:
        if statement.if_exists:
            return StatementResult(f"table {statement.name} does not exist")
        raise
    changes = [_spell_columns(statement, schema, change) for change in statement.changes]
    kept = [change for change in changes if change is not None]
    if kept:
        session.catalog.alter_table(statement.name, kept)
    return StatementResult(f"table {statement.name} is altered" if kept else f"table {statement.name} is unchanged")


_EXISTING: Final = ("rename_column", "drop_column", "update_type", "update_nullability", "update_column_comment")
_ON_EXISTING: Final = frozenset({*_EXISTING, "update_default", "move"})


def _spell_columns(statement: AlterTable, schema: TableSchema, change: SchemaChange) -> SchemaChange | None:
    """Return a change with the table's own spelling of its columns; None if IF [NOT] EXISTS makes it unnecessary."""
    if change.action in ("set_option", "remove_option", "set_comment"):
        return change
    path = tuple(change.column)
    known = {name.lower(): name for name in schema.field_names}
    exists = _exists(schema, path)
    if path in statement.absent and not exists:
        return None
    if path in statement.present and exists:
        return None
    if (
        path[0] not in schema.field_names
        and path[0].lower() in known
        and (len(path) > 1 or change.action in _ON_EXISTING)
    ):
        path = (known[path[0].lower()], *path[1:])
    elif len(path) == 1 and change.action == "add_column" and path[0].lower() in known:
        raise InvalidOption("ADD COLUMN", path[0], "a name that no column has, in any case", statement.name)
    if change.action == "update_default" and len(path) > 1 and change.value is not None:
        raise UnsupportedFeature(
            f"a default of '{'.'.join(path)}', a field inside a column, because writers use no such defaults",
            statement.name,
        )
    move = change.move_to
    if move is not None and move.reference is not None and len(path) == 1:
        reference = known.get(move.reference.lower(), move.reference)
        move = replace(move, reference=move.reference if move.reference in schema.field_names else reference)
    return replace(change, column=path, move_to=move)


def _exists(schema: TableSchema, path: tuple[str, ...]) -> bool:
    fields: Sequence[Any] = schema.fields
    for name in path:
        inner = next((field for field in fields if field.name.lower() == name.lower()), None)
        if inner is None:
            return False
        fields = inner.type.fields
    return True


@execute_command.register
def _(statement: Procedure, session: Session) -> StatementResult:
    tag = statement.if_exists or statement.if_not_exists
    if tag:
        store = session.catalog.store(str(statement.call.named["table"]))
        if (tag in tags.list_tags(store)) is bool(statement.if_not_exists):
            return StatementResult(
                f"tag {tag} of {store.name} {'already exists' if statement.if_not_exists else 'does not exist'}"
            )
    call = statement.call
    if statement.replaces and call.named["tag"] in tags.list_tags(session.catalog.store(str(call.named["table"]))):
        call = replace(call, procedure="replace_tag")
    return execute_command(call, session)


@execute_command.register
def _(statement: CallStatement, session: Session) -> StatementResult:
    from lsm_core.sql.procedures import prepare_call  # imports all of maintenance, which most statements do not need

    done = prepare_call(session.catalog, statement).apply(session.runner, session.approved_by)
    return StatementResult("\n".join(done.lines), call=done)


@execute_command.register
def _(statement: Show, session: Session) -> StatementResult:
    return StatementResult(rows=shown(session.catalog, statement))


@execute_command.register
def _(statement: Describe, session: Session) -> StatementResult:
    return StatementResult(rows=describe(session.catalog, statement))
