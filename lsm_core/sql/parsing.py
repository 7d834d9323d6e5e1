"""Parsing of statements: the first words select the parser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lsm_core.errors import InvalidStatement, UnsupportedFeature
from lsm_core.read.sql_text import tokens
from lsm_core.sql.call_statement import CallStatement, parse_call
from lsm_core.sql.definitions import read_alter, read_create, read_drop, read_truncate
from lsm_core.sql.reading import StatementReader, all_rows_of, split_statements
from lsm_core.sql.statements import AlterTable, Describe, Procedure, Query, RowStatement, Show, Statement
from lsm_core.table.schema_change import SchemaChange

_SHOWN: Final = 40
"""Characters of a second statement that an error shows."""
_ROWS: Final = ("INSERT", "UPDATE", "DELETE", "MERGE")
_QUERIES: Final = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
_LISTED: Final = (
    "SELECT, INSERT, UPDATE, DELETE, MERGE INTO, CREATE and DROP DATABASE and TABLE, ALTER TABLE, TRUNCATE TABLE, "
    "SHOW, DESCRIBE, ANALYZE TABLE, COMMENT ON, CALL sys.procedure(...)"
)
_INSTEAD: Final = {
    "USE": "name tables as database.table",
    "SET": "set options of a table by ALTER TABLE ... SET TBLPROPERTIES, "
    "those of a session by spark.conf.set(...) or `dredge sql --dynamic-overwrite`",
    "RESET": "remove options of a table by ALTER TABLE ... UNSET TBLPROPERTIES, "
    "those of a session by spark.conf.unset(...)",
    "REPLACE": "use DROP TABLE IF EXISTS, then CREATE TABLE, which lose the history; "
    "INSERT OVERWRITE and ALTER TABLE keep it",
    "OPTIMIZE": "use ALTER TABLE ... COMPACT, or CALL sys.compact(...)",
    "VACUUM": "use CALL sys.expire_snapshots(...) and CALL sys.remove_orphan_files(...)",
    "RESTORE": "use CALL sys.rollback(...)",
    "MSCK": "use CALL sys.repair(...)",
    "REPAIR": "use CALL sys.repair(...)",
    "REFRESH": "each statement reads the newest snapshot",
    "EXPLAIN": "use `dredge sql --explain` with a query",
    "LOAD": "use INSERT INTO",
    "COPY": "read the files by Spark or Arrow, "
    "and write the rows by lsm_core.spark.write_table(...) or Table.write(...)",
    "CACHE": "each statement reads the newest snapshot",
    "GRANT": "access is that of the storage",
    "REVOKE": "access is that of the storage",
}


def parse_statement(text: str) -> Statement:
    """Parse one statement without a look-up in the catalog.

    Args:
        text: a statement in Spark SQL, with or without a semicolon at its end.

    Returns:
        The parsed statement.

    Raises:
        InvalidStatement: the text has no statement or several, or cannot be parsed; the message names the position and
            the expected word.
        UnsupportedFeature: a statement or clause is not supported; the message names the supported alternatives.
        TableNotFound: the name of a table lacks its database.
    """
    statements = split_statements(text) if isinstance(text, str) else []
    if not statements:
        raise InvalidStatement(text, f"a statement is expected: {_LISTED}")
    text = statements[0]
    first = next(tokens(text, stop_early=True), None)
    word = "" if first is None else first.text.upper() if first.kind == "name" else first.text[:1]
    if len(statements) > 1:
        more = f"'{statements[1][:_SHOWN]}' follows; run each statement in a call of its own"
        if word == "INSERT" or word in _QUERIES or word == "(":
            raise UnsupportedFeature(f"statements other than one query in a call: {more}")
        raise InvalidStatement(text, f"one statement is expected, and {more}")
    if word in _ROWS:
        return RowStatement(word, text)
    if word in _QUERIES or word == "(":
        query = text
        if word in ("VALUES", "TABLE"):
            query = all_rows_of(query[len(word) :] if word == "TABLE" else query)
        return Query(query)
    if word == "CALL":
        return parse_call(text)
    read = _READERS.get(word)
    if read is None:
        instead = _INSTEAD.get(word)
        shown = word or text[:_SHOWN]
        raise UnsupportedFeature(f"the statement {shown}; {instead or f'supported: {_LISTED}'}")
    reader = StatementReader(text)
    reader.take()
    return read(reader)


def _show(reader: StatementReader) -> Statement:
    if reader.word() in ("DATABASES", "SCHEMAS", "NAMESPACES"):
        reader.take()
        return _ended(reader, Show("databases", pattern=_pattern(reader)))
    if reader.accept_words("TABLES"):
        name = _in_database(reader)
        return _ended(reader, Show("tables", name, _pattern(reader)))
    if reader.accept_words("TABLE", "EXTENDED"):
        name = _in_database(reader)
        pattern = _pattern(reader)
        partition = reader.partition() if reader.accept_words("PARTITION") else None
        return _ended(reader, Show("table extended", name, pattern, partition))
    if reader.accept_words("CREATE", "TABLE"):
        return _ended(reader, Show("create table", reader.table()))
    if reader.accept_words("COLUMNS"):
        reader.one_of("FROM", "IN")
        return _ended(reader, Show("columns", reader.table_of_database()))
    if reader.accept_words("PARTITIONS"):
        name = reader.table()
        partition = reader.partition() if reader.accept_words("PARTITION") else None
        return _ended(reader, Show("partitions", name, partition=partition))
    if reader.accept_words("TAGS"):
        return _ended(reader, Show("tags", reader.table()))
    if reader.accept_words("TBLPROPERTIES"):
        name = reader.table()
        key = ""
        if reader.accept("("):
            key = reader.option_key()
            reader.expect(")")
        return _ended(reader, Show("tblproperties", name, key=key))
    known = "DATABASES, TABLES, TABLE EXTENDED, CREATE TABLE, COLUMNS, PARTITIONS, TBLPROPERTIES, TAGS"
    if reader.word() in ("VIEWS", "FUNCTIONS", "USER", "SYSTEM"):
        kind = "views" if reader.word() == "VIEWS" else "functions"
        raise UnsupportedFeature(f"SHOW {reader.word()}; a warehouse has no {kind}; SHOW takes {known}")
    raise UnsupportedFeature(f"SHOW {reader.word() or reader.peek().text}; SHOW takes {known}")


def _in_database(reader: StatementReader) -> str:
    reader.one_of("IN", "FROM")
    return reader.database()


def _pattern(reader: StatementReader) -> str:
    if reader.accept_words("LIKE") or reader.peek().kind == "text":
        return reader.text_literal()
    return ""


def _ended(reader: StatementReader, statement: Statement) -> Statement:
    reader.end()
    return statement


def _describe(reader: StatementReader) -> Statement:
    if reader.word() in ("DATABASE", "SCHEMA", "NAMESPACE"):
        reader.take()
        reader.accept_words("EXTENDED")
        return _ended(reader, Describe(reader.database(), "database"))
    if reader.word() in ("QUERY", "FUNCTION"):
        raise UnsupportedFeature(f"DESCRIBE {reader.word()}; DESCRIBE takes [TABLE] [EXTENDED | HISTORY] and DATABASE")
    reader.accept_words("TABLE")
    subject = "table"
    for word in ("EXTENDED", "FORMATTED", "HISTORY", "DETAIL"):
        if reader.accept_words(word):
            subject = "history" if word == "HISTORY" else "extended"
    name = reader.table()
    column: tuple[str, ...] = ()
    if reader.peek().kind == "name":
        column, subject = reader.dotted(), "column"
    return _ended(reader, Describe(name, subject, column))


def _analyze(reader: StatementReader) -> Statement:
    if reader.word() == "TABLES":
        raise UnsupportedFeature("ANALYZE TABLES; use ANALYZE TABLE for each")
    reader.expect_words("TABLE")
    name = reader.table()
    if reader.word() == "PARTITION":
        raise UnsupportedFeature("ANALYZE TABLE ... PARTITION; statistics are those of the whole table", name)
    reader.expect_words("COMPUTE", "STATISTICS")
    columns: str | None = ","  # a list without a name: rows are counted alone
    if reader.accept_words("FOR", "ALL", "COLUMNS"):
        columns = None
    elif reader.accept_words("FOR", "COLUMNS"):
        names = [reader.name()]
        while reader.accept(","):
            names.append(reader.name())
        columns = ",".join(names)
    elif reader.word() == "NOSCAN":
        raise UnsupportedFeature("ANALYZE TABLE ... NOSCAN; without it rows are counted from metadata alone", name)
    reader.end()
    arguments = {"table": name} if columns is None else {"table": name, "columns": columns}
    return Procedure(CallStatement("analyze", named=arguments))


def _comment(reader: StatementReader) -> Statement:
    reader.expect_words("ON")
    kind = reader.one_of("TABLE", "COLUMN", "DATABASE", "SCHEMA")
    if kind in ("DATABASE", "SCHEMA"):
        raise UnsupportedFeature("COMMENT ON DATABASE: the catalog keeps only a database's name")
    if kind == "TABLE":
        name = reader.table()
        path: tuple[str, ...] = ()
    else:
        token = reader.peek()
        parts = reader.dotted()
        if len(parts) < 3:
            raise reader.wrong(token, "database.table.column was expected")
        name, path = ".".join(parts[:2]), parts[2:]
    reader.expect_words("IS")
    comment = None if reader.accept_words("NULL") else reader.text_literal()
    reader.end()
    change = SchemaChange.update_column_comment(path, comment) if path else SchemaChange.set_comment(comment)
    return AlterTable(name, (change,))


_READERS: Final[dict[str, Callable[[StatementReader], Statement]]] = {
    "CREATE": read_create,
    "DROP": read_drop,
    "TRUNCATE": read_truncate,
    "ALTER": read_alter,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "ANALYZE": _analyze,
    "COMMENT": _comment,
}
