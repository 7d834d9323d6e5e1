"""Parsed SQL statements as values, before any look-up in a catalog.

Names of tables are "database.table". Columns are paths (tuples of names), because a column may be nested in another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lsm_core.format.schema import DataField
from lsm_core.read.sql_text import Literal
from lsm_core.sql.call_statement import CallStatement
from lsm_core.table.schema_change import SchemaChange

PartitionSpec: TypeAlias = Mapping[str, Literal]
"""Values of partition columns by column name, as written in the statement."""


@dataclass(frozen=True)
class CreateDatabase:
    """CREATE DATABASE.

    Attributes:
        name: database.
        if_not_exists: whether an existing database is no error.
    """

    name: str
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropDatabase:
    """DROP DATABASE.

    Attributes:
        name: database.
        if_exists: whether a missing database is no error.
        cascade: whether the statement has CASCADE, which also drops the tables of the database.
    """

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class CreateTable:
    """CREATE TABLE with columns, CREATE TABLE ... LIKE, or CREATE TABLE ... AS SELECT.

    Attributes:
        name: table.
        columns: columns in the order of the text; field ids are not assigned yet.
        primary_keys: names of the key columns.
        partition_keys: names of the partition columns.
        options: table options by key.
        comment: comment of the table.
        if_not_exists: whether an existing table is no error.
        like: table whose definition is copied, or "".
        query: query whose rows are written to the table, or "".
    """

    name: str
    columns: tuple[DataField, ...] = ()
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    if_not_exists: bool = False
    like: str = ""
    query: str = ""


@dataclass(frozen=True)
class DropTable:
    """DROP TABLE.

    Attributes:
        name: table.
        if_exists: whether a missing table is no error.
    """

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class RenameTable:
    """ALTER TABLE ... RENAME TO.

    Attributes:
        name: table.
        to: new name.
        if_exists: whether a missing table is no error.
    """

    name: str
    to: str
    if_exists: bool = False


@dataclass(frozen=True)
class TruncateTable:
    """TRUNCATE TABLE.

    Attributes:
        name: table.
        partition: partition spec that selects the rows to delete; None for all rows.
    """

    name: str
    partition: PartitionSpec | None = None


@dataclass(frozen=True)
class AlterTable:
    """ALTER TABLE for columns, options or the comment; either all changes are applied, or none.

    Attributes:
        name: table.
        changes: changes in the order of the text.
        if_exists: whether a missing table is no error.
        absent: columns that are dropped only if they exist (IF EXISTS).
        present: columns that are added only if they do not exist (IF NOT EXISTS).
    """

    name: str
    changes: tuple[SchemaChange, ...]
    if_exists: bool = False
    absent: frozenset[tuple[str, ...]] = frozenset()
    present: frozenset[tuple[str, ...]] = frozenset()


@dataclass(frozen=True)
class DropPartitions:
    """ALTER TABLE ... DROP PARTITION.

    Attributes:
        name: table.
        partitions: specs of the partitions to drop.
        if_exists: whether missing partitions are no error.
    """

    name: str
    partitions: tuple[PartitionSpec, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class Procedure:
    """A statement that is a procedure call: ALTER TABLE ... COMPACT, ANALYZE TABLE, the statements about tags.

    Attributes:
        call: the procedure and its arguments.
        if_exists: name of a tag; the call is skipped if this tag does not exist. "" for no condition.
        if_not_exists: name of a tag; the call is skipped if this tag exists. "" for no condition.
        replaces: whether the call to create a tag replaces an existing tag.
    """

    call: CallStatement
    if_exists: str = ""
    if_not_exists: str = ""
    replaces: bool = False


@dataclass(frozen=True)
class Show:
    """SHOW for databases, tables, columns, partitions, tags, options, or a table's CREATE TABLE.

    Attributes:
        subject: "databases", "tables", "table extended", "columns", "partitions", "tags", "tblproperties" or "create
            table".
        name: table, database, or "".
        pattern: LIKE pattern for names (`*` any text, `|` alternatives), or "".
        partition: partition spec, or None for all partitions.
        key: option key of `SHOW TBLPROPERTIES`, or "" for all options.
    """

    subject: str
    name: str = ""
    pattern: str = ""
    partition: PartitionSpec | None = None
    key: str = ""


@dataclass(frozen=True)
class Describe:
    """DESCRIBE for a table, one of its columns, or a database.

    Attributes:
        name: table or database.
        subject: "table", "extended", "history", "column" or "database".
        column: path of the column.
    """

    name: str
    subject: str = "table"
    column: tuple[str, ...] = ()


@dataclass(frozen=True)
class Query:
    """A query as text."""

    text: str


@dataclass(frozen=True)
class RowStatement:
    """INSERT, UPDATE, DELETE or MERGE as text; ``verb`` is the first word in capitals."""

    verb: str
    text: str


Statement: TypeAlias = (
    CreateDatabase
    | DropDatabase
    | CreateTable
    | DropTable
    | RenameTable
    | TruncateTable
    | AlterTable
    | DropPartitions
    | Procedure
    | CallStatement
    | Show
    | Describe
    | Query
    | RowStatement
)
"""Union of all parsed statements."""
