"""Queries over a warehouse's tables: each table becomes a DataFrame of only the columns and rows that the query needs.

The text of the query is unchanged except for table names, which are replaced by temporary views; Spark parses and
executes it. Spark does not push filters to such views, so this module computes the pushdown. A column is read if the
query names it. A filter of the WHERE is pushed if it compares a column with a literal that means the same in Spark and
in Dredge. Filters on the optional side of an outer join are not pushed.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from lsm_core.errors import DatabaseNotFound, InvalidOption, TableNotFound, UnsupportedFeature
from lsm_core.format.manifest import partitions_of
from lsm_core.format.partitions import partition_values
from lsm_core.format.schema import TableSchema
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.manifests import COLUMNS as ROW_TRACKING
from lsm_core.metadata.manifests import tracks_rows
from lsm_core.read import Version, resolve
from lsm_core.read.fallback import partition_sources
from lsm_core.read.sql_text import EXACT_TYPES
from lsm_core.read.table_versions import moment_ms
from lsm_core.sql.column_types import quoted_name
from lsm_core.sql.invalid_statements import parse_error, require_no_trailing_comma
from lsm_core.sql.reading import CATALOGS, with_quoted_names
from lsm_core.table import Catalog
from lsm_core.table.names import TableName
from lsm_core.table.system.reader import ReadOnlyTable
from lsm_core.types import TypeRoot

Test = tuple[str, str, Any]
_INNER: Final = frozenset({"", "INNER", "CROSS"})
_SHOWN: Final = 200
"""Characters of a query that an error shows."""
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class TableRead:
    """One mention of a table in a query: its position in the text, and the columns and rows to read.

    Attributes:
        start: offset of the mention in the text.
        end: offset of the first character after the mention.
        alias: name of the table in the rest of the query; "" if the query has its own alias.
        table: the open table, or a system table.
        columns: columns to read.
        tests: filters on the rows of the table.
        version: requested `VERSION` or `TIMESTAMP`, for people; "" for the newest.
        snapshot_id: snapshot of a system table at a version, or None.
    """

    start: int
    end: int
    alias: str
    table: Any
    columns: tuple[str, ...]
    tests: tuple[Test, ...] = ()
    version: str = ""
    snapshot_id: int | None = None


@dataclass(frozen=True)
class Query:
    """Parsed query with open tables.

    Attributes:
        text: text of the query.
        reads: one read per mention of a table, in the order of the text.
    """

    text: str
    reads: tuple[TableRead, ...] = field(default=())

    @property
    def shown(self) -> str:
        """Beginning of the query's text, for error messages."""
        return repr(self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}...")

    def with_views(self, names: Sequence[str]) -> str:
        """Return the text with each mention of a table replaced by a view; ``names`` has one view per mention."""
        parts, at = [], 0
        for read, name in zip(self.reads, names, strict=True):
            parts += [self.text[at : read.start], name, f" AS {quoted_name(read.alias)}" if read.alias else ""]
            at = read.end
        return "".join([*parts, self.text[at:]])


def plan_query(catalog: Catalog, text: str) -> Query:
    """Parse a query and open its tables, without Spark.

    Tables are named `database.table`, with a branch or a system table behind a `$`. A `VERSION AS OF` (a snapshot id, a
    tag, `watermark-N`) or `TIMESTAMP AS OF` (a time in UTC, or seconds since 1970) may follow.

    Raises:
        InvalidOption: the text cannot be parsed.
        UnsupportedFeature: the statement is not a query.
        TableNotFound: a table does not exist.
        SnapshotNotFound: a version does not exist.
    """
    text = _replace_greatest_partitions(catalog, with_quoted_names(text))
    try:
        trees = [tree for tree in sqlglot.parse(text, read="spark") if tree is not None]
        require_no_trailing_comma(text)
        tokens = sqlglot.tokenize(text, read="spark")
    except (SqlglotError, RecursionError, IndexError) as error:
        raise parse_error(text, "a query in Spark SQL", error) from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise UnsupportedFeature("statements other than one query (SELECT) or CALL")
    tree = trees[0]
    hidden = next((node for node in tree.find_all(exp.Column) if node.name.lower().startswith("__paimon_")), None)
    if hidden is not None:
        raise UnsupportedFeature(
            f"the column {hidden.name} of Paimon's connector; `database.table$files` and `$buckets` list files, "
            "partitions and buckets, _ROW_ID and _SEQUENCE_NUMBER of the rows of a table with row-tracking.enabled"
        )
    common = {node.alias.lower() for node in tree.find_all(exp.CTE)}
    words = {token.text.lower() for token in tokens}
    everything = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    everything = everything or any(join.method.upper() == "NATURAL" for join in tree.find_all(exp.Join))
    reshaped = _reshapes(tree, tokens)
    reads: list[TableRead] = []
    for node in tree.find_all(exp.Table):
        if node.find_ancestor(exp.Hint) is not None:
            continue  # the alias of a table in a hint
        if isinstance(node.this, exp.Anonymous) and node.this.name.lower().startswith("paimon_"):
            table, version = _open_changes(catalog, node.this)
            columns = _columns_of(table, table.schema, None if everything or reshaped else words)
            start = int(node.this.meta["start"])
            end = next(token.end for token in tokens if token.start > start and token.token_type is TokenType.R_PAREN)
            alias = "" if node.alias else table.name.partition(".")[2]
            reads.append(TableRead(start, int(end) + 1, alias, table, columns, (), version))
            continue
        if not isinstance(node.this, exp.Identifier) or (not node.db and node.name.lower() in common):
            continue  # a function, or the name of a common table expression
        table, version, snapshot_id = _open_table(catalog, node)
        schema = _schema_of(table, snapshot_id)
        columns = _columns_of(table, schema, None if everything or reshaped else words)
        end = _end_of(node, tokens)
        reads.append(
            TableRead(
                node.parts[0].meta["start"],
                end,
                "" if node.alias or node.args.get("sample") else node.name,
                table,
                columns,
                () if reshaped or isinstance(table, ReadOnlyTable) else tuple(_tests_of(node, schema)),
                version,
                snapshot_id,
            )
        )
    return Query(text, tuple(sorted(reads, key=lambda read: read.start)))


def _reshapes(tree: exp.Query, tokens: Sequence[Any]) -> bool:
    """Return whether the query uses rows or columns that it does not name, so that the whole table must be read.

    A PIVOT groups by all columns that are not named. Clauses after a PIVOT or UNPIVOT, and aliases with columns
    (`t AS x(a, b)`), may reuse the table's column names for computed columns. A pipe (`|>`) may limit rows before a
    filter is applied.
    """
    if tree.find(exp.Pivot) is not None or any(token.token_type is TokenType.PIPE_GT for token in tokens):
        return True
    aliases = tree.find_all(exp.TableAlias)
    return any(alias.columns and isinstance(alias.parent, exp.Table | exp.Subquery) for alias in aliases)


def _open_table(catalog: Catalog, node: exp.Table) -> tuple[Any, str, int | None]:
    """Open a table at its version.

    Returns:
        The table, the version for people, and the snapshot id for a system table at a version.
    """
    if node.catalog.lower() not in {"", *CATALOGS} or not node.db:
        raise TableNotFound(f"there is no table {node.sql(dialect='spark')}: name tables as database.table")
    name = f"{node.db}.{node.name}"
    try:
        table = catalog.table(name)
    except DatabaseNotFound as error:
        raise TableNotFound(f"there is no table {name}: {error}") from error
    version_clause = node.args.get("version")
    if version_clause is None:
        return table, "", None
    options = _version_options(version_clause, name)
    version = " ".join(f"{key}={value}" for key, value in options.items())
    if not isinstance(table, ReadOnlyTable):
        return table.copy(options), version, None
    snapshot = resolve(catalog.store(TableName.parse(name).on_branch).copy(options)).snapshot
    return table, version, None if snapshot is None else snapshot.id


_CHANGES: Final = {
    "paimon_incremental_query": ("incremental-between", 2),
    "paimon_incremental_between_timestamp": ("incremental-between-timestamp", 2),
    "paimon_incremental_to_auto_tag": ("incremental-to-auto-tag", 1),
}


def _open_changes(catalog: Catalog, call: exp.Anonymous) -> tuple[Any, str]:
    """Open the table of one of the incremental query functions of Paimon's connector.

    Returns:
        The table with the options of the function, and these options for people.

    Raises:
        InvalidOption: the arguments differ from those that the function takes.
        TableNotFound: the table does not exist.
        UnsupportedFeature: the function is not an incremental query function, or the table is a system table.
    """
    name, arguments = call.name.lower(), call.expressions
    if name not in _CHANGES:
        raise UnsupportedFeature(f"the function {call.name}(); supported: {', '.join(_CHANGES)}")
    key, count = _CHANGES[name]
    if len(arguments) != count + 1 or not all(isinstance(argument, exp.Literal) for argument in arguments):
        arguments_text = ", ".join(argument.sql(dialect="spark") for argument in arguments)
        expected = "two snapshots, tags or times" if count > 1 else "a tag"
        raise InvalidOption(name, arguments_text, f"'database.table' and {expected}, as literals")
    table = catalog.table(arguments[0].name)
    if isinstance(table, ReadOnlyTable):
        raise UnsupportedFeature(f"{name}() of a system table", table.name)
    texts = [argument.name for argument in arguments[1:]]
    if key == "incremental-between-timestamp":
        texts = [text if text.isdigit() else str(moment_ms(table.name, name, text)) for text in texts]
    options = {key: ",".join(texts)}
    return table.copy(options), " ".join(f"{option}={value}" for option, value in options.items())


def _replace_greatest_partitions(catalog: Catalog, text: str) -> str:
    """Replace each `sys.max_pt('database.table')` in a query by the maximum value of the first partition column.

    Raises:
        InvalidOption: the table has no partition columns, or no partition with rows.
        TableNotFound: the table does not exist.
    """
    if "max_pt" not in text.lower():
        return text
    try:
        tokens = sqlglot.tokenize(text, read="spark")
    except SqlglotError:
        return text  # the caller parses it again and raises the error
    parts, at = [], 0
    for place, token in enumerate(tokens[:-5]):
        words = [token.text.lower() for token in tokens[place : place + 4]]
        name, closing = tokens[place + 4], tokens[place + 5]
        if words != ["sys", ".", "max_pt", "("] or name.token_type is not TokenType.STRING or closing.text != ")":
            continue
        value = str(_greatest_partition(catalog, name.text)).replace("\\", "\\\\").replace("'", "\\'")
        parts += [text[at : token.start], f"'{value}'"]
        at = closing.end + 1
    return "".join([*parts, text[at:]])


def _greatest_partition(catalog: Catalog, name: str) -> Any:
    store = catalog.store(name)
    keys = store.schema.partition_keys
    if not keys:
        raise InvalidOption("max_pt", name, "a table with partitions")
    partitions = [
        partition
        for version, _ in partition_sources(Version(snapshots.latest(store), store))
        if version.snapshot is not None
        for partition in partitions_of(manifests.live_entries(version.store, version.snapshot, columns=["partition"]))
    ]
    values = [partition_values(store.schema, partition)[keys[0]] for partition in partitions]
    known = [value for value in values if value is not None]
    if not known:
        raise InvalidOption("max_pt", name, f"a table that has rows with a value of {keys[0]}")
    return max(known)


def _version_options(version_clause: exp.Version, table: str) -> dict[str, str]:
    """Return the read option for a `VERSION AS OF` or `TIMESTAMP AS OF`. Raises InvalidOption if it is no literal."""
    value = version_clause.expression
    if isinstance(value, exp.Cast) and isinstance(value.this, exp.Literal):
        value = value.this
    if not isinstance(value, exp.Literal):
        raise InvalidOption(
            f"{version_clause.name} AS OF", version_clause.expression.sql(dialect="spark"), "a literal", table
        )
    if version_clause.name.upper() == "VERSION":
        return {"scan.version": value.name}
    if not value.is_string and not value.name.isdigit():
        raise InvalidOption("TIMESTAMP AS OF", value.name, "a text, or whole seconds since 1970", table)
    return {"scan.timestamp-millis": str(moment_ms(table, "TIMESTAMP AS OF", value.name))}


def _schema_of(table: Any, snapshot_id: int | None) -> TableSchema:
    if isinstance(table, ReadOnlyTable):
        return table.schema_at(snapshot_id)
    return resolve(table.store).store.schema


def _columns_of(table: Any, schema: TableSchema, words: set[str] | None) -> tuple[str, ...]:
    """Return the columns of a table that a query needs.

    Args:
        table: the table, or a system table.
        schema: schema of the table.
        words: all words of the query in lower case; None if the query needs all columns.

    Returns:
        The columns whose names are among the words. If there are none, as for `count(*)`, the first key column or else
            the first column, because a read needs one column.
    """
    if words is None:
        return schema.field_names
    tracked = not isinstance(table, ReadOnlyTable) and tracks_rows(table.store)
    known = (*schema.field_names, *(ROW_TRACKING if tracked else ()))
    columns = tuple(name for name in known if name.lower() in words)
    return columns or ((schema.primary_keys or schema.field_names)[:1] if schema.field_names else ())


def _end_of(node: exp.Table, tokens: Sequence[Any]) -> int:
    """Return the offset of the first character after a table's name and, if present, its version clause.

    Raises:
        InvalidOption: the version is computed (`CAST(...)`).
    """
    last = node.parts[-1].meta["end"]
    following = [token for token in tokens if token.start > last]
    version_clause = node.args.get("version")
    if version_clause is None:
        return int(last) + 1
    value = version_clause.expression
    words = 3 + (following[0].text.upper() == "FOR") + (not isinstance(value, exp.Literal))
    if following[words].text != value.find(exp.Literal).name:
        raise InvalidOption(
            f"{version_clause.name} AS OF", value.sql(dialect="spark"), "a literal", f"{node.db}.{node.name}"
        )
    return int(following[words].end) + 1


# -- filters -----------------------------------------------------------------------------------------------------------


def _tests_of(node: exp.Table, schema: TableSchema) -> Iterator[Test]:
    """Yield the tests (column, operator, literal) of the WHERE clause that can be pushed down to one table.

    Rows of the table that fail one of these tests cannot contribute to the query's result.
    """
    select = node.find_ancestor(exp.Select)
    if select is None or select.args.get("laterals") or node.args.get("joins") or node.args.get("sample"):
        return
    first, joins, where = select.args.get("from_"), select.args.get("joins") or [], select.args.get("where")
    sources = [first.this if first is not None else None, *(join.this for join in joins)]
    if where is None or not any(source is node for source in sources):
        return
    if any(join.side or join.kind.upper() not in _INNER or join.method for join in joins):
        return
    name, alone = (node.alias or node.name).lower(), len(sources) == 1
    condition = where.this
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        test = _test(part.unnest())
        if test is None:
            continue
        column, operator, values = test
        if (column.table.lower() != name and (column.table or not alone)) or column.args.get("db"):
            continue
        fields = [field for field in schema.fields if field.name.lower() == column.name.lower()]
        if len(fields) != 1:
            continue
        typed_values = [_value(value, fields[0].type.root) for value in values]
        if operator in ("is null", "is not null"):
            yield fields[0].name, operator, None
        elif fields[0].type.root in EXACT_TYPES and typed_values and None not in typed_values:
            yield fields[0].name, operator, typed_values if operator == "in" else typed_values[0]


_COMPARISONS: Final[dict[type[exp.Expr], str]] = {exp.EQ: "=", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}
_TURNED: Final = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}


def _test(part: exp.Expr) -> tuple[exp.Column, str, list[exp.Expr]] | None:
    """Return a condition as (column, operator, literals); None for a condition of a different form."""
    operator = _COMPARISONS.get(type(part))
    if operator is not None:
        left, right = part.this.unnest(), part.expression.unnest()
        if isinstance(right, exp.Column):
            left, right, operator = right, left, _TURNED[operator]
        return (left, operator, [right]) if isinstance(left, exp.Column) else None
    negated = isinstance(part, exp.Not)
    inner = part.this.unnest() if negated else part
    if isinstance(inner, exp.Is) and isinstance(inner.this, exp.Column) and isinstance(inner.expression, exp.Null):
        return inner.this, "is not null" if negated else "is null", []
    listed = isinstance(part, exp.In) and isinstance(part.this, exp.Column) and not part.args.get("query")
    return (part.this, "in", list(part.expressions)) if listed and part.expressions else None


def _value(literal: exp.Expr, kind: TypeRoot) -> int | str | dt.date | None:
    """Return a literal as a value of the column's type; None if Spark would compare the literal in a different type."""
    negative = isinstance(literal, exp.Neg)
    literal = literal.this if negative else literal
    if kind is TypeRoot.DATE:
        inner = literal.this if isinstance(literal, exp.Cast) and literal.is_type("date") else literal
        if negative or not isinstance(inner, exp.Literal) or not _DATE.fullmatch(inner.name):
            return None
        try:
            return dt.date.fromisoformat(inner.name)
        except ValueError:
            return None
    if not isinstance(literal, exp.Literal):
        return None
    if kind is TypeRoot.VARCHAR:
        return literal.name if literal.is_string else None
    if literal.is_string or not literal.name.isdigit():
        return None
    return -int(literal.name) if negative else int(literal.name)
