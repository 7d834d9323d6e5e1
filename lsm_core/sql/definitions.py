"""The grammar of CREATE, DROP, TRUNCATE and ALTER in Spark SQL and in Paimon's documentation, including Flink's `WITH`.

These statements are parsed word by word. sqlglot does not parse many of them (`UNSET TBLPROPERTIES`, `ALTER COLUMN ...
FIRST`) and ignores clauses that it does not know. This parser accepts each word or raises an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import DataField
from lsm_core.read.sql_text import Literal, unquote
from lsm_core.sql.call_statement import CallStatement
from lsm_core.sql.column_types import read_type
from lsm_core.sql.reading import StatementReader, require_unique
from lsm_core.sql.statements import (
    AlterTable,
    CreateDatabase,
    CreateTable,
    DropDatabase,
    DropPartitions,
    DropTable,
    Procedure,
    RenameTable,
    Statement,
    TruncateTable,
)
from lsm_core.table.schema_change import SchemaChange

_COMMENT: Final = "comment"
_PROVIDERS: Final = ("PAIMON", "DREDGE")
_UNITS: Final = ("DAYS", "DAY", "HOURS", "HOUR", "MINUTES", "MINUTE")
Path = tuple[str, ...]


def read_create(reader: StatementReader) -> Statement:
    """Parse a CREATE statement; the reader is positioned after the word CREATE.

    Raises:
        InvalidOption: the text cannot be parsed.
        UnsupportedFeature: a clause is not supported.
    """
    if reader.word() in ("DATABASE", "SCHEMA"):
        reader.take()
        return _create_database(reader)
    if reader.accept_words("OR", "REPLACE") and reader.word() in ("TABLE", ""):
        raise UnsupportedFeature(
            "CREATE OR REPLACE TABLE; use DROP TABLE IF EXISTS, then CREATE TABLE, which lose the history (INSERT "
            "OVERWRITE keeps it)"
        )
    if reader.word() in ("VIEW", "TEMPORARY", "GLOBAL", "FUNCTION", "EXTERNAL", "INDEX"):
        kind = reader.word()
        raise UnsupportedFeature(f"CREATE {kind}; CREATE takes DATABASE and TABLE (views of a session: create_view)")
    reader.expect_words("TABLE")
    statement = _create_table(reader, flink=False)
    if statement is None:
        reader.restart()
        reader.expect_words("CREATE", "TABLE")
        statement = _create_table(reader, flink=True)
    assert statement is not None
    return statement


def _if_not_exists(reader: StatementReader) -> bool:
    return reader.accept_words("IF", "NOT", "EXISTS")


def _if_exists(reader: StatementReader) -> bool:
    return reader.accept_words("IF", "EXISTS")


def _create_database(reader: StatementReader) -> Statement:
    absent = _if_not_exists(reader)
    name = reader.database()
    if reader.word() in ("COMMENT", "LOCATION", "WITH"):
        raise UnsupportedFeature(
            f"{reader.word()} of a database: the catalog keeps only its name; it is a folder below the warehouse"
        )
    reader.end()
    return CreateDatabase(name, absent)


@dataclass
class _Definition:
    """Parts of a CREATE TABLE that have been parsed so far.

    Attributes:
        columns: columns in the order of the text.
        primary_keys: names of the key columns.
        partition_keys: names of the partition columns.
        options: table options by key.
        comment: comment of the table, or None.
    """

    columns: list[DataField] = field(default_factory=list)
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    comment: str | None = None


def _create_table(reader: StatementReader, *, flink: bool) -> CreateTable | None:
    """Parse a CREATE TABLE statement from the table's name on.

    Args:
        reader: positioned before the name.
        flink: whether types are read as Flink's, otherwise as Spark's.

    Returns:
        The parsed statement. None if ``flink`` is false and the statement has Flink's clause `WITH`; the caller then
            parses the statement again with ``flink``.
    """
    absent = _if_not_exists(reader)
    name = reader.table()
    if reader.accept_words("LIKE"):
        like = reader.table()
        options = _after_like(reader)
        reader.end()
        return CreateTable(name, like=like, options=options, if_not_exists=absent)
    definition = _Definition()
    if reader.accept("("):
        _read_columns(reader, definition, flink)
    seen: set[str] = set()
    query = ""
    while reader.peek().kind != "end" and reader.peek().text != ";":
        token, word = reader.peek(), reader.word()
        if word in ("AS", "SELECT"):
            reader.accept_words("AS")
            query = reader.following()
            break
        clause = "TBLPROPERTIES" if word == "WITH" else word
        if clause in seen:
            raise reader.wrong(token, f"{word} is given twice")
        seen.add(clause)
        if word == "WITH" and not flink:
            return None
        _read_clause(reader, definition, word, flink)
    else:
        reader.end()
    if not query and not definition.columns:
        raise reader.wrong(reader.peek(), "columns in parentheses, LIKE a table, or AS a query were expected")
    if query and definition.columns:
        raise UnsupportedFeature("columns together with AS SELECT; set their names and types in the query", name)
    comment = definition.options.pop(_COMMENT, definition.comment)
    return CreateTable(
        name,
        tuple(definition.columns),
        definition.primary_keys,
        definition.partition_keys,
        definition.options,
        comment,
        absent,
        query=query,
    )


def _after_like(reader: StatementReader) -> dict[str, str]:
    if reader.accept_words("USING"):
        _require_provider(reader.name())
    if reader.accept_words("TBLPROPERTIES") or reader.accept_words("WITH"):
        return reader.options()
    return {}


def _require_provider(name: str) -> None:
    if name.upper() not in _PROVIDERS:
        raise UnsupportedFeature(f"USING {name}; tables are Paimon's: USING paimon, or no USING")


def _read_clause(reader: StatementReader, definition: _Definition, word: str, flink: bool) -> None:
    """Parse one clause after the columns, and store its content in ``definition``.

    Args:
        reader: positioned at the clause.
        definition: parts of the statement so far.
        word: first word of the clause in capitals.
        flink: whether types are read as Flink's.
    """
    token = reader.peek()
    if reader.accept_words("USING"):
        _require_provider(reader.name())
    elif reader.accept_words("PARTITIONED", "BY"):
        definition.partition_keys = _read_partitioned_by(reader, definition, flink)
    elif reader.accept_words("TBLPROPERTIES") or reader.accept_words("WITH"):
        definition.options = reader.options()
    elif reader.accept_words("COMMENT"):
        reader.accept("=")
        definition.comment = reader.text_literal()
    elif word in ("LOCATION", "OPTIONS", "CLUSTERED", "CLUSTER", "STORED", "ROW", "DISTRIBUTED"):
        instead = {
            "LOCATION": "a table is a folder below its warehouse",
            "OPTIONS": "use TBLPROPERTIES",
            "CLUSTERED": "use TBLPROPERTIES ('bucket' = '4', 'bucket-key' = 'id')",
            "CLUSTER": "use TBLPROPERTIES ('clustering.columns' = 'a,b')",
            "DISTRIBUTED": "use TBLPROPERTIES ('bucket' = '4', 'bucket-key' = 'id')",
        }.get(word, "use TBLPROPERTIES ('file.format' = 'parquet')")
        raise UnsupportedFeature(f"CREATE TABLE with {word}; {instead}")
    else:
        raise reader.wrong(token, "USING, PARTITIONED BY, TBLPROPERTIES, WITH, COMMENT, or AS SELECT was expected")


def _read_columns(reader: StatementReader, definition: _Definition, flink: bool) -> None:
    """Parse the columns and keys up to the closing parenthesis."""
    start = reader.peek()
    while True:
        token = reader.peek()
        if reader.accept_words("CONSTRAINT"):
            reader.name()
            if reader.word() != "PRIMARY":
                raise reader.wrong(reader.peek(), "PRIMARY KEY was expected: tables have no other constraints")
        if reader.word() == "PRIMARY" and reader.peek(1).text.upper() == "KEY":
            reader.expect_words("PRIMARY", "KEY")
            _set_key(reader, definition, reader.names(), token)
            _not_enforced(reader)
        elif reader.word() in ("WATERMARK", "UNIQUE", "FOREIGN", "CHECK") and reader.peek(1).kind in ("name", "sign"):
            _refuse_constraint(reader)
            definition.columns.append(_read_column(reader, definition, flink))
        else:
            definition.columns.append(_read_column(reader, definition, flink))
        if not reader.accept(","):
            break
    if reader.peek().text != ")":
        raise reader.wrong(
            reader.peek(), "',' or ')' was expected; a column takes NOT NULL, DEFAULT, COMMENT, PRIMARY KEY"
        )
    reader.expect(")")
    require_unique(reader, start, [column.name for column in definition.columns])


def _refuse_constraint(reader: StatementReader) -> None:
    """Raise UnsupportedFeature if the next words begin Flink's WATERMARK FOR or a constraint, such as FOREIGN KEY.

    A column may be named `watermark` or `foreign`; the word after it decides.
    """
    word, following = reader.word(), reader.peek(1).text.upper()
    if (word, following) in (("WATERMARK", "FOR"), ("FOREIGN", "KEY")) or following == "(":
        raise UnsupportedFeature(f"{word} in CREATE TABLE; tables have columns and a PRIMARY KEY (...) NOT ENFORCED")


def _read_column(reader: StatementReader, definition: _Definition, flink: bool) -> DataField:
    """Parse one column of a CREATE TABLE, and add its PRIMARY KEY clause, if any, to ``definition``."""
    token = reader.peek()
    name = reader.name()
    kind = read_type(reader, flink=flink)
    column = DataField(0, name, kind)
    while True:
        if reader.accept_words("NOT", "NULL"):
            column = replace(column, type=column.type.with_nullable(nullable=False))
        elif reader.accept_words("NULL"):
            continue
        elif reader.accept_words("COMMENT"):
            column = replace(column, description=reader.text_literal())
        elif reader.accept_words("DEFAULT"):
            column = replace(column, default=default_text(reader))
        elif reader.accept_words("PRIMARY", "KEY"):
            _set_key(reader, definition, (name,), token)
            _not_enforced(reader)
        elif reader.word() in ("GENERATED", "AS", "METADATA"):
            raise UnsupportedFeature(f"column '{name}' that is computed ({reader.word()}); compute it in the query")
        else:
            return column


def default_text(reader: StatementReader) -> str | None:
    """Parse the default of a column.

    Returns:
        The text that the table stores, or None for NULL.

    Raises:
        InvalidOption: the default is not a literal.
    """
    token = reader.peek()
    if token.kind == "text":
        return unquote(reader.take().text)
    if token.kind == "number":
        return reader.plain_text()
    if reader.accept_words("NULL"):
        return None
    if reader.word() in ("TRUE", "FALSE"):
        return reader.plain_text()
    if reader.word() in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ") and reader.peek(1).kind == "text":
        return str(reader.literal())
    raise reader.wrong(
        token, "DEFAULT takes a literal: a text, a number, true, false, null, DATE '...', TIMESTAMP '...'"
    )


def _set_key(reader: StatementReader, definition: _Definition, names: tuple[str, ...], token: Any) -> None:
    if definition.primary_keys:
        raise reader.wrong(token, "the primary key is given twice")
    require_unique(reader, token, names)
    definition.primary_keys = names


def _not_enforced(reader: StatementReader) -> None:
    if reader.word() == "ENFORCED":
        raise UnsupportedFeature("PRIMARY KEY ... ENFORCED; rows of one key are merged: use NOT ENFORCED")
    reader.accept_words("NOT", "ENFORCED")


def _read_partitioned_by(reader: StatementReader, definition: _Definition, flink: bool) -> tuple[str, ...]:
    """Parse partition columns: names of columns, or new columns with their types (Hive)."""
    reader.expect("(")
    keys: list[str] = []
    start = reader.peek()
    while True:
        token = reader.peek()
        if token.kind == "name" and reader.peek(1).text == "(":
            raise UnsupportedFeature(f"PARTITIONED BY {token.text}(...); partition by columns, and write their values")
        if reader.peek(1).kind == "name":
            column = _read_column(reader, definition, flink)
            definition.columns.append(column)
            require_unique(reader, token, [column.name for column in definition.columns])
            keys.append(column.name)
        else:
            keys.append(reader.name())
        if not reader.accept(","):
            break
    reader.expect(")")
    require_unique(reader, start, keys)
    return tuple(keys)


# -- DROP, TRUNCATE ----------------------------------------------------------------------------------------------------


def read_drop(reader: StatementReader) -> Statement:
    """Parse a DROP statement; the reader is positioned after the word DROP.

    Raises:
        InvalidOption: the text cannot be parsed.
        UnsupportedFeature: a clause is not supported.
    """
    if reader.word() in ("VIEW", "FUNCTION", "TEMPORARY", "INDEX"):
        raise UnsupportedFeature(f"DROP {reader.word()}; DROP takes DATABASE and TABLE")
    kind = reader.one_of("TABLE", "DATABASE", "SCHEMA")
    exists = _if_exists(reader)
    if kind == "TABLE":
        name = reader.table()
        reader.accept_words("PURGE")
        reader.end()
        return DropTable(name, exists)
    name = reader.database()
    cascade = reader.accept_words("CASCADE")
    if not cascade:
        reader.accept_words("RESTRICT")
    reader.end()
    return DropDatabase(name, exists, cascade)


def read_truncate(reader: StatementReader) -> Statement:
    """Parse a TRUNCATE statement; the reader is positioned after the word TRUNCATE.

    Raises:
        InvalidOption: the text cannot be parsed.
    """
    reader.expect_words("TABLE")
    name = reader.table()
    partition = reader.partition() if reader.accept_words("PARTITION") else None
    reader.end()
    return TruncateTable(name, partition)


# -- ALTER -------------------------------------------------------------------------------------------------------------


def read_alter(reader: StatementReader) -> Statement:
    """Parse an ALTER statement; the reader is positioned after the word ALTER.

    Raises:
        InvalidOption: the text cannot be parsed.
        UnsupportedFeature: a clause is not supported.
    """
    if reader.word() != "TABLE":
        raise UnsupportedFeature(f"ALTER {reader.word()}; ALTER takes TABLE (a database has only a name)")
    reader.expect_words("TABLE")
    exists = _if_exists(reader)
    name = reader.table()
    if reader.word() == "PARTITION":
        statement = _of_partition(reader, name)
    elif reader.word() in _ACTIONS:
        statement = _ACTIONS[reader.take().text.upper()](reader, name)
    else:
        raise reader.wrong(reader.peek(), f"one of {', '.join(_ACTIONS)} was expected")
    reader.end()
    if exists and isinstance(statement, AlterTable | RenameTable):
        return replace(statement, if_exists=True)
    if exists:
        raise UnsupportedFeature("ALTER TABLE IF EXISTS with anything but columns, options and names", name)
    return statement


def _set(reader: StatementReader, name: str) -> Statement:
    if reader.word() in ("LOCATION", "SERDE", "SERDEPROPERTIES", "FILEFORMAT", "IDENTIFIER", "TAGS"):
        raise UnsupportedFeature(f"ALTER TABLE ... SET {reader.word()}; SET takes TBLPROPERTIES", name)
    reader.accept_words("TBLPROPERTIES")
    changes = [
        SchemaChange.set_comment(value) if key == _COMMENT else SchemaChange.set_option(key, value)
        for key, value in reader.options().items()
    ]
    return AlterTable(name, tuple(changes))


def _unset(reader: StatementReader, name: str) -> Statement:
    reader.expect_words("TBLPROPERTIES")
    _if_exists(reader)
    return _reset(reader, name)


def _reset(reader: StatementReader, name: str) -> Statement:
    changes = [
        SchemaChange.set_comment(None) if key == _COMMENT else SchemaChange.remove_option(key)
        for key in reader.option_keys()
    ]
    return AlterTable(name, tuple(changes))


def _read_place(reader: StatementReader) -> dict[str, Any]:
    """Parse FIRST, AFTER a column, or no position.

    Returns:
        {"first": True}, {"after": name of the column}, or an empty dict.
    """
    if reader.accept_words("FIRST"):
        return {"first": True}
    return {"after": reader.name()} if reader.accept_words("AFTER") else {}


def _add(reader: StatementReader, name: str) -> Statement:
    if reader.word() == "PARTITION" or (reader.word() == "IF" and reader.peek(3).text.upper() == "PARTITION"):
        raise UnsupportedFeature("ADD PARTITION; a partition exists once it has rows: INSERT them", name)
    if reader.word() in ("CONSTRAINT", "PRIMARY"):
        raise UnsupportedFeature(f"ADD {reader.word()}; the primary key is chosen by CREATE TABLE", name)
    if reader.word() not in ("COLUMN", "COLUMNS") and reader.peek().text != "(":
        raise reader.wrong(reader.peek(), "COLUMN or COLUMNS was expected")
    if reader.word() in ("COLUMN", "COLUMNS"):
        reader.take()
    unless = _if_not_exists(reader)
    several = reader.accept("(")
    changes: list[SchemaChange] = []
    while not changes or reader.accept(","):
        changes += _read_added_column(reader)
    if several:
        reader.expect(")")
    added = {tuple(change.column) for change in changes if change.action == "add_column"}
    return AlterTable(name, tuple(changes), present=frozenset(added) if unless else frozenset())


def _read_added_column(reader: StatementReader) -> list[SchemaChange]:
    """Parse one column of ADD COLUMNS."""
    path = reader.dotted()
    kind = read_type(reader)
    comment: str | None = None
    default: str | None = None
    place: dict[str, Any] = {}
    while True:
        if reader.accept_words("NOT", "NULL"):
            raise UnsupportedFeature(
                f"NOT NULL for the new column '{'.'.join(path)}': old rows have no value for it; add it nullable, with "
                "a DEFAULT"
            )
        if reader.accept_words("COMMENT"):
            comment = reader.text_literal()
        elif reader.accept_words("DEFAULT"):
            default = default_text(reader)
        elif reader.word() in ("FIRST", "AFTER") and not place:
            place = _read_place(reader)
        elif not reader.accept_words("NULL"):
            break
    added = SchemaChange.add_column(path, kind, comment=comment, **place)
    return [added] if default is None else [added, SchemaChange.update_default(path, default)]


def _drop(reader: StatementReader, name: str) -> Statement:
    exists = _if_exists(reader)
    if reader.word() == "PARTITION":
        specs = []
        while reader.accept_words("PARTITION"):
            specs.append(reader.partition())
            if not reader.accept(","):
                break
        reader.accept_words("PURGE")
        return DropPartitions(name, tuple(specs), exists)
    if reader.word() in ("CONSTRAINT", "PRIMARY"):
        raise UnsupportedFeature(f"DROP {reader.word()}; a table keeps its primary key", name)
    reader.one_of("COLUMN", "COLUMNS")
    exists = _if_exists(reader) or exists
    several = reader.accept("(")
    paths: list[Path] = []
    while not paths or reader.accept(","):
        paths.append(reader.dotted())
    if several:
        reader.expect(")")
    changes = tuple(SchemaChange.drop_column(path) for path in paths)
    return AlterTable(name, changes, absent=frozenset(paths) if exists else frozenset())


def _rename(reader: StatementReader, name: str) -> Statement:
    if reader.accept_words("TO"):
        token = reader.peek()
        parts = reader.dotted()
        if len(parts) == 1:  # Spark keeps the database if the new name has none
            return RenameTable(name, f"{name.split('.', 1)[0]}.{parts[0]}")
        if len(parts) != 2:
            raise reader.wrong(token, "a name such as database.table was expected")
        return RenameTable(name, ".".join(parts))
    if reader.accept_words("COLUMN"):
        path = reader.dotted()
        reader.expect_words("TO")
        return AlterTable(name, (SchemaChange.rename_column(path, reader.name()),))
    if reader.accept_words("PARTITION"):
        raise UnsupportedFeature("RENAME PARTITION; UPDATE or INSERT OVERWRITE its rows", name)
    if reader.accept_words("TAG"):
        old = _tag_name(reader)
        reader.expect_words("TO")
        return Procedure(_call("rename_tag", table=name, tag=old, target_tag=_tag_name(reader)))
    raise reader.wrong(reader.peek(), "TO, COLUMN or TAG was expected")


def _alter(reader: StatementReader, name: str) -> Statement:
    reader.accept_words("COLUMN")
    path = reader.dotted()
    word = reader.word()
    if reader.accept_words("TYPE"):
        change = SchemaChange.update_type(path, read_type(reader))
    elif word in ("FIRST", "AFTER"):
        change = SchemaChange.move(path, **_read_place(reader))
    elif reader.accept_words("COMMENT"):
        change = SchemaChange.update_column_comment(path, reader.text_literal())
    elif reader.accept_words("SET", "NOT", "NULL"):
        change = SchemaChange.update_nullability(path, nullable=False)
    elif reader.accept_words("DROP", "NOT", "NULL"):
        change = SchemaChange.update_nullability(path, nullable=True)
    elif reader.accept_words("SET", "DEFAULT"):
        change = SchemaChange.update_default(path, default_text(reader))
    elif reader.accept_words("DROP", "DEFAULT"):
        change = SchemaChange.update_default(path, None)
    elif reader.accept_words("SET", "DATA", "TYPE"):
        change = SchemaChange.update_type(path, read_type(reader))
    else:
        raise reader.wrong(
            reader.peek(),
            "TYPE, FIRST, AFTER, COMMENT, SET NOT NULL, DROP NOT NULL, SET DEFAULT or DROP DEFAULT was expected",
        )
    return AlterTable(name, (change,))


def _read_change_column(reader: StatementReader, name: str) -> Statement:
    """Parse Hive's `CHANGE [COLUMN] old new TYPE [COMMENT ...] [FIRST | AFTER ...]`."""
    reader.accept_words("COLUMN")
    path = reader.dotted()
    to = reader.name()
    changes: list[SchemaChange] = []
    if reader.word() and reader.word() not in ("COMMENT", "FIRST", "AFTER"):
        changes.append(SchemaChange.update_type(path, read_type(reader)))
    if reader.accept_words("COMMENT"):
        changes.append(SchemaChange.update_column_comment(path, reader.text_literal()))
    if reader.word() in ("FIRST", "AFTER"):
        changes.append(SchemaChange.move(path, **_read_place(reader)))
    if to != path[-1]:
        changes.append(SchemaChange.rename_column(path, to))
    return AlterTable(name, tuple(changes))


def _replace(reader: StatementReader, name: str) -> Statement:
    if reader.accept_words("TAG"):
        return _read_create_tag(reader, name, replacing=True)
    raise UnsupportedFeature(
        "REPLACE COLUMNS; use ADD, DROP, RENAME and ALTER COLUMN, which keep the columns' values", name
    )


# -- ALTER that means a procedure --------------------------------------------------------------------------------------


def _call(procedure: str, **arguments: Literal) -> CallStatement:
    return CallStatement(procedure, named={key: value for key, value in arguments.items() if value is not None})


def _read_compact(reader: StatementReader, name: str, partition: dict[str, Literal] | None = None) -> Statement:
    """Parse the mode after COMPACT: Hive's 'major' or 'minor'; without a mode the compaction is full."""
    strategy: str | None = None
    if reader.peek().kind == "text":
        token = reader.peek()
        strategy = {"major": "full", "full": "full", "minor": "minor"}.get(reader.text_literal().lower())
        if strategy is None:
            raise reader.wrong(token, "'major' or 'minor' was expected")
    where = None if partition is None else " AND ".join(_test_text(*pair) for pair in partition.items())
    return Procedure(_call("compact", table=name, compact_strategy=strategy, where=where))


def _test_text(name: str, value: Literal) -> str:
    column = "`" + name.replace("`", "``") + "`"
    if value is None:
        return f"{column} IS NULL"
    if isinstance(value, str):
        return f"{column} = '" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"{column} = {str(value).lower()}"


def _of_partition(reader: StatementReader, name: str) -> Statement:
    reader.expect_words("PARTITION")
    spec = reader.partition()
    if reader.accept_words("COMPACT"):
        return _read_compact(reader, name, spec)
    if reader.word() == "RENAME":
        raise UnsupportedFeature("RENAME PARTITION; UPDATE or INSERT OVERWRITE its rows", name)
    raise UnsupportedFeature(f"ALTER TABLE ... PARTITION (...) {reader.word()}; it takes COMPACT", name)


def _tag_name(reader: StatementReader) -> str:
    return reader.text_literal() if reader.peek().kind == "text" else reader.name()


def _create_in(reader: StatementReader, name: str) -> Statement:
    replacing = reader.accept_words("OR", "REPLACE")
    reader.expect_words("TAG")
    statement = _read_create_tag(reader, name, replacing=False)
    return replace(statement, replaces=replacing)


def _read_create_tag(reader: StatementReader, name: str, *, replacing: bool) -> Procedure:
    """Parse `[IF NOT EXISTS] tag [AS OF VERSION n] [RETAIN n DAYS]`."""
    unless = _if_not_exists(reader)
    tag = _tag_name(reader)
    snapshot: int | None = None
    retained: str | None = None
    if reader.accept_words("AS", "OF", "VERSION"):
        snapshot = _whole(reader)
    if reader.accept_words("RETAIN"):
        number = _whole(reader)
        retained = f"{number} {reader.one_of(*_UNITS).lower()}"
    call = _call(
        "replace_tag" if replacing else "create_tag", table=name, tag=tag, snapshot=snapshot, time_retained=retained
    )
    return Procedure(call, if_not_exists=tag if unless else "")


def _whole(reader: StatementReader) -> int:
    token = reader.take()
    if not re.fullmatch(r"\d{1,18}", token.text):
        raise reader.wrong(token, "a whole number was expected")
    return int(token.text)


def _delete_in(reader: StatementReader, name: str) -> Statement:
    reader.expect_words("TAG")
    exists = _if_exists(reader)
    tag = _tag_name(reader)
    return Procedure(_call("delete_tag", table=name, tag=tag), if_exists=tag if exists else "")


_ACTIONS: Final[dict[str, Callable[[StatementReader, str], Statement]]] = {
    "SET": _set,
    "UNSET": _unset,
    "RESET": _reset,
    "ADD": _add,
    "DROP": _drop,
    "RENAME": _rename,
    "ALTER": _alter,
    "CHANGE": _read_change_column,
    "REPLACE": _replace,
    "COMPACT": _read_compact,
    "CREATE": _create_in,
    "DELETE": _delete_in,
}
