"""INSERT INTO, INSERT OVERWRITE and CREATE TABLE ... AS SELECT: column mapping and one commit for a query's rows."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from sqlglot import exp

from lsm_core.errors import DredgeError, InvalidData, InvalidOption, UnsupportedFeature
from lsm_core.format.partitions import partition_value
from lsm_core.sql.commands import (
    Session,
    StatementResult,
    committed_result,
    definition_of,
    same_name,
    spec_of,
    table_to_change,
)
from lsm_core.sql.local_dialect import SESSION_ZONE, fits_whole_type, parse_tree
from lsm_core.sql.reading import StatementReader, all_rows_of, require_unique
from lsm_core.sql.statements import CreateTable
from lsm_core.table import Catalog
from lsm_core.table.writing import write_once
from lsm_core.types import to_sql
from lsm_core.write.incoming_rows import RowNumbering, default_value, require_columns
from lsm_core.write.store_assignment import assign_rows, require_assignable

if TYPE_CHECKING:
    from lsm_core.maintenance.action import MaintenancePlan, Runner
    from lsm_core.table import Table
    from lsm_core.write.row_changes.append_parts import AppendRun
    from lsm_core.write.row_changes.statements import KeyedMerge


@dataclass(frozen=True)
class Insert:
    """A parsed INSERT statement.

    Attributes:
        table: table that receives the rows.
        query: text of the query, which may be `VALUES ...`.
        overwrite: whether the rows replace existing rows.
        columns: target columns in the order of the query's columns; () for all columns.
        by_name: whether the query's columns are matched by name.
        partition: constant values of partition columns.
        dynamic: partition columns without a constant value.
    """

    table: str
    query: str
    overwrite: bool = False
    columns: tuple[str, ...] = ()
    by_name: bool = False
    partition: Mapping[str, Any] = field(default_factory=dict)
    dynamic: tuple[str, ...] = ()


@dataclass(frozen=True)
class InsertPlan:
    """Destination of the rows of a query.

    Attributes:
        table: table, with the options of this write.
        columns: target column of each query column, in the query's order; None to match them by name.
        constants: constant values of partition columns.
        overwrite: None to insert; True, or the values of a partition, to replace the rows of the table or partition
            (argument of `Table.write`).
    """

    table: Table
    columns: tuple[str, ...] | None
    constants: Mapping[str, Any]
    overwrite: bool | Mapping[str, Any] | None

    def named(self, incoming_names: Sequence[str]) -> list[str]:
        """Return the table column for each column of the query.

        Args:
            incoming_names: column names of the query's result, which matter only if columns are matched by name.

        Raises:
            InvalidOption: the query has more or fewer columns than the statement's column list.
            ColumnNotFound: columns are matched by name, and the table has no column of that name.
        """
        name = self.table.name
        if self.columns is None:
            return [same_name(name, incoming_name, self.table.schema.field_names) for incoming_name in incoming_names]
        if len(incoming_names) != len(self.columns):
            expected = f"{len(self.columns)} columns ({', '.join(self.columns)})"
            raise InvalidOption("INSERT", f"{len(incoming_names)} columns", expected, name)
        return list(self.columns)


class QueryEngine(Protocol):
    """Engine that executes the queries of SQL statements: DataFusion in this process, or Spark."""

    def answer(self, catalog: Catalog, text: str) -> pa.RecordBatchReader:
        """Return the rows of a query as a stream."""
        ...

    def insert(self, catalog: Catalog, text: str, plan: InsertPlan) -> int | None:
        """Write the rows of a query in one commit; return the snapshot id, or None for no rows."""
        ...

    def change_runs(self) -> tuple[KeyedMerge, AppendRun] | None:
        """Return (function for keyed tables, function for append tables) that change rows in distributed tasks.

        The result is None if this process must change the rows.
        """
        ...

    def choose_runner(self, plan: MaintenancePlan) -> Runner | None:
        """Return the runner for the tasks of the compaction after a commit; None for threads of this process."""
        ...


def read_insert(text: str) -> Insert:
    """Parse an INSERT statement.

    Raises:
        InvalidOption: the text cannot be parsed.
        UnsupportedFeature: a clause is not supported.
        TableNotFound: the name of the table has no database.
    """
    reader = StatementReader(text)
    reader.expect_words("INSERT")
    overwrite = reader.one_of("INTO", "OVERWRITE") == "OVERWRITE"
    if reader.word() in ("DIRECTORY", "LOCAL"):
        raise UnsupportedFeature("INSERT OVERWRITE DIRECTORY; rows are inserted into tables")
    if reader.word() == "TABLE":
        reader.take()
    table = reader.table()
    partition: dict[str, Any] = {}
    dynamic: list[str] = []
    if reader.accept_words("PARTITION"):
        _read_partition(reader, partition, dynamic)
        if reader.accept_words("IF", "NOT", "EXISTS"):
            raise UnsupportedFeature("INSERT ... PARTITION (...) IF NOT EXISTS", table)
    token = reader.peek()
    columns: tuple[str, ...] = ()
    if token.text == "(" and reader.peek(1).text.upper() not in ("SELECT", "WITH", "VALUES", "FROM", "("):
        columns = reader.names()
        require_unique(reader, token, columns)
    by_name = reader.accept_words("BY", "NAME")
    if reader.word() == "REPLACE":
        raise UnsupportedFeature(
            "INSERT INTO ... REPLACE WHERE; use INSERT OVERWRITE ... PARTITION, or DELETE, then INSERT", table
        )
    if reader.word() not in ("SELECT", "WITH", "VALUES", "FROM", "TABLE") and reader.peek().text != "(":
        raise reader.wrong(
            reader.peek(), "PARTITION (...), columns in parentheses, BY NAME, VALUES or SELECT was expected"
        )
    if reader.word() == "TABLE":
        reader.take()
        return Insert(table, all_rows_of(reader.following()), overwrite, columns, by_name, partition, tuple(dynamic))
    return Insert(table, reader.following(), overwrite, columns, by_name, partition, tuple(dynamic))


def _read_partition(reader: StatementReader, partition: dict[str, Any], dynamic: list[str]) -> None:
    reader.expect("(")
    while True:
        token = reader.peek()
        name = reader.name()
        if name.lower() in map(str.lower, [*partition, *dynamic]):
            raise reader.wrong(token, f"the column {name} is given twice")
        if reader.accept("="):
            partition[name] = reader.literal()
        else:
            dynamic.append(name)
        if not reader.accept(","):
            break
    reader.expect(")")


def plan_insert(session: Session, statement: Insert) -> InsertPlan:
    """Return the destination of the rows of an INSERT.

    As in Spark, an overwrite replaces the partitions that `PARTITION (column = value)` matches, or the whole table
    without that clause. With dynamic overwrites (`Session.dynamic_overwrite`), an overwrite replaces the partitions
    that receive rows.

    Raises:
        ColumnNotFound: a column does not exist.
        InvalidOption: the partition columns are invalid for this table.
    """
    table = table_to_change(session, statement.table, "INSERT")
    schema, name = table.schema, statement.table
    named = {**statement.partition, **dict.fromkeys(statement.dynamic)}
    spec = spec_of(name, schema, named) if named else {}
    dynamic = {same_name(name, column, schema.partition_keys) for column in statement.dynamic}
    constants: dict[str, Any] = {}
    for key, value in spec.items():
        if key not in dynamic:
            constants[key] = (
                None if value is None else partition_value(key, value, schema.field(key).type, f"table {name}: ")
            )
    columns: tuple[str, ...] | None = tuple(column for column in schema.field_names if column not in constants)
    if statement.columns:
        columns = tuple(same_name(name, column, schema.field_names) for column in statement.columns)
        twice = [column for column in columns if column in constants]
        if twice:
            raise InvalidOption("PARTITION", twice[0], "a column that is not among those of the query", name)
    elif statement.by_name:
        columns = None
    if not statement.overwrite:
        return InsertPlan(table, columns, constants, None)
    mode = {"dynamic-partition-overwrite": str(session.dynamic_overwrite).lower()}
    replaces_all = session.dynamic_overwrite or not constants
    return InsertPlan(table.copy(mode), columns, constants, True if replaces_all else constants)


def insert(session: Session, statement: Insert, engine: QueryEngine) -> StatementResult:
    """Write the rows of an INSERT in one commit.

    Args:
        session: catalog and settings.
        statement: the INSERT.
        engine: engine for the query, and for the compaction after the commit. Literals after VALUES need no query.

    Returns:
        The result with the committed snapshot, or with None if no row was written.

    Raises:
        DredgeError: an error of :func:`plan_insert`, the engine or `Table.write`; nothing is committed.
    """
    plan = plan_insert(session, statement)
    rows = literal_rows(statement, plan)
    if rows is None:
        query = _with_defaults(statement.query, plan)
        if query[:6].upper() == "VALUES":
            query = all_rows_of(query)
        snapshot_id = engine.insert(session.catalog, query, plan)
    else:
        for name, scalar in _constant_arrays(plan).items():
            rows = rows.append_column(name, pa.repeat(scalar, rows.num_rows))
        snapshot_id = write_once(plan.table.store, rows, None, plan.overwrite, runner=engine.choose_runner).snapshot_id
    return committed_result(statement.table, snapshot_id)


def write_stream(rows: pa.RecordBatchReader, plan: InsertPlan) -> int | None:
    """Write a stream of rows to the destination of a plan.

    Returns:
        The snapshot id, or None for no rows.

    Raises:
        DredgeError: an error of `Table.write`; nothing is committed.
    """
    names = plan.named(rows.schema.names)
    constants = _constant_arrays(plan)
    fields = [field.with_name(name) for field, name in zip(rows.schema, names, strict=True)]
    schema = pa.schema([*fields, *((name, scalar.type) for name, scalar in constants.items())])
    table_schema, name = plan.table.schema, plan.table.name
    require_columns(schema, table_schema, name)
    require_assignable(schema, table_schema, name)

    def assign(batch: pa.RecordBatch, numbering: RowNumbering) -> pa.Table:
        more = [pa.repeat(scalar, batch.num_rows) for scalar in constants.values()]
        table = pa.Table.from_arrays([*batch.columns, *more], schema=schema)
        return assign_rows(table, table_schema, SESSION_ZONE, name, numbering)

    def batches() -> Iterator[pa.RecordBatch]:
        numbering = RowNumbering(source="the query's rows")
        for batch in rows:
            yield from assign(batch, numbering).to_batches()
            numbering = numbering.after(batch.num_rows)

    assigned_schema = assign(pa.RecordBatch.from_pylist([], schema=rows.schema), RowNumbering()).schema
    with closing(batches()) as stream:  # type: ignore[type-var]
        return plan.table.write(pa.RecordBatchReader.from_batches(assigned_schema, stream), overwrite=plan.overwrite)


def _constant_arrays(plan: InsertPlan) -> dict[str, pa.Scalar]:
    kinds = plan.table.schema.arrow_schema
    return {name: pa.scalar(value, kinds.field(name).type) for name, value in plan.constants.items()}


_DEFAULT_WORD: Final = re.compile(r"\bDEFAULT\b", re.IGNORECASE)


# -- DEFAULT -----------------------------------------------------------------------------------------------------------


def _with_defaults(text: str, plan: InsertPlan) -> str:
    """Return a query in which outputs DEFAULT are the default values of their columns, as in Spark.

    DEFAULT is also a valid name of a column, so the word is only replaced as a whole output of a query without `*`.
    """
    names = plan.columns
    if names is None or _DEFAULT_WORD.search(text) is None or text[:6].upper() == "VALUES":
        return text
    tree = parse_tree(text)
    query = tree.unnest() if isinstance(tree, exp.Subquery) else tree
    if not isinstance(query, exp.Select) or query.is_star or len(query.selects) != len(names):
        return text
    is_changed = False
    for item, name in zip(list(query.selects), names, strict=True):
        if isinstance(item, exp.Column) and item.name.upper() == "DEFAULT" and not item.table and not item.this.quoted:
            column = plan.table.schema.field(name)
            value = exp.null() if column.default is None else exp.Literal.string(column.default)
            kind = exp.DataType.build(to_sql(column.type.with_nullable(nullable=True)), dialect="spark")
            item.replace(exp.cast(value, kind))
            is_changed = True
    return tree.sql(dialect="spark") if is_changed else text


# -- VALUES ------------------------------------------------------------------------------------------------------------


class _NotLiteral(Exception):
    """Raised for an expression in VALUES that only the query engine can compute."""


_DEFAULT: Final = object()


def literal_rows(statement: Insert, plan: InsertPlan) -> pa.Table | None:
    """Return the rows of `VALUES`, or None if a value is not a literal and must be computed.

    Raises:
        InvalidOption: the number of values in a row differs from the number of columns, or the INSERT is BY NAME.
        InvalidData: the values of a column have no common type, or a value does not fit its column.
    """
    if statement.query[:6].upper() != "VALUES":
        return None
    tree = parse_tree(statement.query)
    if not isinstance(tree, exp.Values) or any(clause for name, clause in tree.args.items() if name != "expressions"):
        return None  # LIMIT, ORDER BY or an alias
    names = plan.columns
    if names is None:
        raise InvalidOption("INSERT", "BY NAME", "a query with names; VALUES has none", plan.table.name)
    try:
        rows = [
            [_value(literal) for literal in (row.expressions if isinstance(row, exp.Tuple) else [row])]
            for row in tree.expressions
        ]
    except _NotLiteral:
        return None
    for row in rows:
        if len(row) != len(names):
            expected = f"{len(names)} values in each row ({', '.join(names)})"
            raise InvalidOption("VALUES", f"{len(row)} values", expected, plan.table.name)
    columns = {name: _column([row[place] for row in rows], plan.table, name) for place, name in enumerate(names)}
    return pa.table(columns)


def _column(values: list[Any], table: Table, name: str) -> pa.Array:
    """Return literals as values of a column, by the rules of Spark's INSERT.

    Raises:
        InvalidData: a literal does not fit. A whole-number column cuts off a fraction, as in Spark.
    """
    field = table.schema.field(name)
    if any(value is _DEFAULT for value in values):
        default = None if field.default is None else default_value(field, table.name).as_py()
        values = [default if value is _DEFAULT else value for value in values]
    kind = table.schema.arrow_schema.field(name).type
    values = [_name_fields(value, kind, table.name, name) for value in values]
    values = _unify_numbers(values, pa.types.is_floating(kind))
    try:
        # Not in the column's type: Arrow would store true as 1, and 5 as a date.
        array = pa.array(values, kind if _holds_map(kind) else None)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = f"values of several types, or none of type {to_sql(field.type)}: {str(error).splitlines()[0]}"
        raise InvalidData(table.name, name, reason) from error
    rows = pa.table({name: array})
    require_assignable(rows.schema, table.schema, table.name)
    rows = assign_rows(rows, table.schema, SESSION_ZONE, table.name, RowNumbering(source="VALUES"))
    return rows.column(name)


def _holds_map(kind: pa.DataType) -> bool:
    """Return whether a type contains a map; Arrow reads literals of maps only if the type is known."""
    return pa.types.is_map(kind) or any(_holds_map(kind.field(place).type) for place in range(kind.num_fields))


def _name_fields(value: Any, kind: pa.DataType, table: str, column: str) -> Any:
    """Return a value whose structs have the column's fields, by name, or by position for an unnamed `struct(...)`.

    Raises:
        InvalidData: a struct has a wrong number of fields, or an unknown field name; Arrow would ignore both errors.
    """
    if isinstance(value, dict) and pa.types.is_struct(kind):
        known = {field.name.lower(): field for field in kind}
        names = [name.lower() for name in value]
        unnamed = names == [f"col{place + 1}" for place in range(len(names))] and not known.keys() >= set(names)
        fields = list(kind) if unnamed else [known[name] for name in names if name in known]
        if not len(names) == len(fields) == kind.num_fields:
            expected = ", ".join(field.name for field in kind)
            raise InvalidData(table, column, f"a struct with the fields {', '.join(value)} in place of {expected}")
        return {
            field.name: _name_fields(inner, field.type, table, column)
            for field, inner in zip(fields, value.values(), strict=True)
        }
    if isinstance(value, list) and pa.types.is_map(kind):
        return [
            (_name_fields(key, kind.key_type, table, column), _name_fields(item, kind.item_type, table, column))
            for key, item in value
        ]
    if isinstance(value, list) and pa.types.is_list(kind):
        return [_name_fields(inner, kind.value_type, table, column) for inner in value]
    return value


def _unify_numbers(values: list[Any], floating: bool) -> list[Any]:
    """Convert numbers of several types to one type: floating point if ``floating`` or if one is a float, else decimal.

    Values are unchanged if all numbers are whole numbers.
    """
    numbers = [value for value in values if isinstance(value, int | float | Decimal) and not isinstance(value, bool)]
    kinds = set(map(type, numbers))
    number_type = float if floating or float in kinds else Decimal
    if not (kinds - {number_type}) or kinds == {int}:
        return values
    number_ids = set(map(id, numbers))
    return [number_type(value) if id(value) in number_ids else value for value in values]


def _value(node: exp.Expr) -> Any:
    """Return the Python value of a literal in VALUES. Raises _NotLiteral for any other expression."""
    node = node.unnest()
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        inner = _value(node.this)
        if isinstance(inner, int | float | Decimal) and not isinstance(inner, bool):
            return -inner
        raise _NotLiteral
    if isinstance(node, exp.Literal):
        return node.name if node.is_string else _number(node.name)
    if isinstance(node, exp.Var) and node.name.upper() == "DEFAULT":
        return _DEFAULT
    if isinstance(node, exp.HexString):
        digits = node.name
        return bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}")
    if isinstance(node, exp.Array):
        return [_value(entry) for entry in node.expressions]
    if isinstance(node, exp.Struct):
        return {entry.name: _value(entry.expression) for entry in node.expressions if _is_pair(entry)}
    if isinstance(node, exp.VarMap):
        keys, values = node.args["keys"], node.args["values"]
        return list(zip(map(_value, keys.expressions), map(_value, values.expressions), strict=True))
    if isinstance(node, exp.Cast) and isinstance(node.this.unnest(), exp.Literal | exp.Neg | exp.Null):
        value = _value(node.this)
        negative = isinstance(node.parent, exp.Neg)  # -128Y fits, 128Y does not
        if isinstance(value, int) and not fits_whole_type(-value if negative else value, node.to):
            raise _NotLiteral
        return _cast(value, node.to)
    raise _NotLiteral


def _is_pair(node: exp.Expr) -> bool:
    if not isinstance(node, exp.PropertyEQ):
        raise _NotLiteral
    return True


def _number(text: str) -> int | float | Decimal:
    """Return the Python value of a number. Raises _NotLiteral if it is too large for a DOUBLE."""
    if text.isdigit():
        return int(text) if len(text) < _LONG_DIGITS else Decimal(text)
    if "e" not in text.lower():
        return Decimal(text)
    number = float(text)
    if math.isinf(number):
        raise _NotLiteral
    return number


_LONG_DIGITS: Final = 19
"""Number of digits from which a whole number may be too large for a BIGINT."""
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")


def _cast(value: Any, kind: exp.DataType) -> Any:
    """Return the value of a typed literal or of a CAST of a literal.

    Raises:
        _NotLiteral: the cast changes more than the type.
    """
    if value is None:
        return None
    if kind.is_type("date") and isinstance(value, str) and len(value) == len("2024-01-31"):
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            raise _NotLiteral from None
    if kind.is_type(*_WHOLE) and isinstance(value, int):
        return value
    if kind.is_type("double", "float") and isinstance(value, int | Decimal | float):
        return float(value)
    if kind.is_type("double", "float") and value in _NO_NUMBERS:
        return float(value)
    if kind.is_type("decimal") and isinstance(value, Decimal) and not kind.expressions:
        return value
    raise _NotLiteral


# -- CREATE TABLE ... AS SELECT ----------------------------------------------------------------------------------------


def create_as(session: Session, statement: CreateTable, engine: QueryEngine) -> StatementResult:
    """Create a table with the columns of a query and write its rows; drop the table if the write fails.

    Args:
        session: catalog and settings.
        statement: the CREATE TABLE.
        engine: executes the statement's query.

    Returns:
        The result with the committed snapshot, or with None if the table existed or the query has no rows.

    Raises:
        DredgeError: an error of the engine, `Catalog.create_table` or `Table.write`.
    """
    catalog = session.catalog
    database, _, table = statement.name.partition(".")
    if statement.if_not_exists and table in catalog.list_tables(database):
        return StatementResult(f"table {statement.name} already exists")
    columns = _columns_of(statement, engine.answer(catalog, f"{all_rows_of(f'({statement.query})')} LIMIT 0").schema)
    created = catalog.create_table(statement.name, definition_of(statement, columns))
    try:
        snapshot_id = engine.insert(catalog, statement.query, InsertPlan(created, tuple(columns.names), {}, None))
    except BaseException as error:
        try:
            catalog.drop_table(statement.name)
        except DredgeError as failure:
            error.add_note(f"table {statement.name} was created, but could not be dropped after the failure: {failure}")
        raise
    return committed_result(statement.name, snapshot_id)


def _columns_of(statement: CreateTable, incoming: pa.Schema) -> pa.Schema:
    """Return the table columns for the columns of a query, with times in microseconds.

    Raises:
        UnsupportedFeature: a column has no type that tables support, such as a null.
    """
    columns = []
    for column_field in incoming:
        kind = column_field.type
        if pa.types.is_null(kind):
            raise UnsupportedFeature(
                f"column '{column_field.name}' that holds only nulls; CAST it to a type", statement.name
            )
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            kind = pa.timestamp("us", kind.tz)
        columns.append(pa.field(column_field.name, kind))
    return pa.schema(columns)
